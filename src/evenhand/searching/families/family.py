"""A family of candidates: its parameters, its default search space, how it is fitted and how it is saved."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeAlias, get_args

from evenhand.searching.families.repairs import QUICK_REPAIRS, Training
from evenhand.searching.families.starting import Reading

__all__ = ["FAMILY_NAMES", "EstimatorFamily", "FamilyName", "FamilySpec", "Parameters", "class_options"]

FamilyName = Literal["network", "trees", "xgboost", "lightgbm", "logistic", "scorecard"]
FAMILY_NAMES: tuple[str, ...] = get_args(FamilyName)

Parameters: TypeAlias = Mapping[str, Any]

_OF_SEARCH = ("drop", "monotone", "repair", "seed")


@dataclass(frozen=True)
class FamilySpec:
    """What a search knows about a family before it trains anything.

    Attributes
    ----------
    name, words
        Its name, and what it is in words.
    defaults
        Every parameter of a candidate, with its value if the space does not name it.
    space
        Values to try if no space is given.
    plain
        Parameters that make a candidate more than plain training, at the values at which it is plain.
    unused
        Parameters that do not matter for an unconstrained candidate, at the one value that is tried.
    """

    name: FamilyName
    words: str
    defaults: Parameters
    space: Mapping[str, Sequence[Any]]
    plain: Parameters
    unused: Parameters


class EstimatorFamily(ABC):
    """Classifiers of a library that learn from a table; they never need the group to decide.

    A candidate has the parameters of the library's class, under the library's names, and four that the search adds:
    ``drop`` (columns to leave out), ``monotone`` (columns with 1 or -1, if the class supports that), ``repair`` (a
    change of the training people, see `repairs`) and ``seed`` (added to the seeds of its models).
    """

    name: ClassVar[FamilyName]
    words: ClassVar[str]
    usual: ClassVar[dict[str, Any]]
    """Parameters that are searched, at the library's defaults."""
    tuned: ClassVar[dict[str, Any]] = {}
    """Values at which a search without a starting model begins, where they differ from the library's defaults."""
    space: ClassVar[dict[str, Sequence[Any]]]
    """Values to try if there is neither a space nor a starting model."""
    takes_monotone: ClassVar[bool] = False
    is_native: ClassVar[bool] = False
    """Whether it is saved in the library's native format, which names only the columns that are kept."""
    fixed: ClassVar[frozenset[str]] = frozenset({"random_state", "n_jobs", "verbose"})
    """Parameters of the class that the search sets itself."""

    @property
    def spec(self) -> FamilySpec:
        """What a search knows about it."""
        own: dict[str, Any] = {"drop": (), **({"monotone": ()} if self.takes_monotone else {}), "repair": "none"}
        space = {**self.space, "repair": QUICK_REPAIRS}
        return FamilySpec(self.name, self.words, {**self.usual, **self.tuned, **own, "seed": 0}, space, own, own)

    @abstractmethod
    def class_parameters(self) -> frozenset[str]:
        """Names of every parameter that the library's class takes; empty if the library is not installed."""

    @abstractmethod
    def read(self, model: Any, text: str = "") -> Reading | None:  # noqa: ANN401 - any model
        """How a fitted model of this family was trained; None for a model of a different family.

        Parameters
        ----------
        model
            A fitted model, alone or in a pipeline; or the trees of a file.
        text
            The file's text, if the model was read from a text file.
        """

    @abstractmethod
    def around(self, parameters: Parameters) -> dict[str, list[Any]]:
        """Values to try around those of a model that a search starts from."""

    @abstractmethod
    def fit(self, parameters: Parameters, training: Training, random_state: int) -> Any:  # noqa: ANN401
        """A candidate's model, fitted on one thread so that its bits are the same on every machine.

        Raises
        ------
        InvalidInputError
            If the library is not installed, or refuses the parameters or the people.
        """

    @abstractmethod
    def save(self, model: Any, path: Path) -> Path:  # noqa: ANN401 - what `fit` returns
        """Write a model as a file that `evenhand.load_model` opens, whole or not at all; a folder gets ``model.*``."""

    def starting_parameters(self, reading: Reading) -> dict[str, Any]:
        """Every parameter of a candidate that is trained like the given model."""
        return {**self.spec.plain, **self.usual, **reading.parameters, "seed": 0}

    def further(self) -> frozenset[str]:
        """Parameters of the class that a space may name besides the defaults."""
        return self.class_parameters() - self.fixed


def class_options(parameters: Parameters) -> dict[str, Any]:
    """A candidate's parameters that belong to the library, not to the search.

    Examples
    --------
    >>> class_options({"C": 1.0, "drop": ("age",), "repair": "none"})
    {'C': 1.0}
    """
    return {name: value for name, value in parameters.items() if name not in _OF_SEARCH}
