"""What a family of candidates is: its parameters, what is searched by default, how it is fitted and how it is saved."""

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
    """What a search knows of a family before anything is trained.

    Attributes
    ----------
    name, words
        Its name, and what it is in words.
    defaults
        Every parameter that a candidate has, with its value where the space names none.
    space
        Values that are tried where no space is given.
    plain
        What makes a candidate more than plain training, at the values at which it is plain.
    unused
        Parameters that play no part in an unconstrained candidate, at the one value that is tried.
    """

    name: FamilyName
    words: str
    defaults: Parameters
    space: Mapping[str, Sequence[Any]]
    plain: Parameters
    unused: Parameters


class EstimatorFamily(ABC):
    """Classifiers of a library that learn from a table; nothing about them needs the group when they decide.

    Parameters of a candidate are those of the library's class, by its own names, and four of a search: ``drop``
    (columns to leave out), ``monotone`` (columns with 1 or -1, where the class can be held to them), ``repair``
    (what is done to the training people, see `repairs`) and ``seed`` (added to the seeds of its models).
    """

    name: ClassVar[FamilyName]
    words: ClassVar[str]
    usual: ClassVar[dict[str, Any]]
    """Parameters that are searched, at the library's own values."""
    tuned: ClassVar[dict[str, Any]] = {}
    """Values from which a search without a starting point goes out, where they are not the library's own."""
    space: ClassVar[dict[str, Sequence[Any]]]
    """Values that are tried where there is neither a space nor a starting point."""
    takes_monotone: ClassVar[bool] = False
    is_native: ClassVar[bool] = False
    """Whether it is saved as the library's own file, which names the columns that are kept and no others."""
    fixed: ClassVar[frozenset[str]] = frozenset({"random_state", "n_jobs", "verbose"})
    """Parameters of the class that the search sets itself."""

    @property
    def spec(self) -> FamilySpec:
        """What a search knows of it."""
        own: dict[str, Any] = {"drop": (), **({"monotone": ()} if self.takes_monotone else {}), "repair": "none"}
        space = {**self.space, "repair": QUICK_REPAIRS}
        return FamilySpec(self.name, self.words, {**self.usual, **self.tuned, **own, "seed": 0}, space, own, own)

    @abstractmethod
    def class_parameters(self) -> frozenset[str]:
        """Names of every parameter that the library's class takes; empty where it is not installed."""

    @abstractmethod
    def read(self, model: Any, text: str = "") -> Reading | None:  # noqa: ANN401 - any model
        """How a fitted model of this family was trained; None for a model of another.

        Parameters
        ----------
        model
            Fitted, alone or in a pipeline; or the trees of a file.
        text
            The file, where the model is from one that is text.
        """

    @abstractmethod
    def around(self, parameters: Parameters) -> dict[str, list[Any]]:
        """Values to try around those of a model that a search starts from."""

    @abstractmethod
    def fit(self, parameters: Parameters, training: Training, random_state: int) -> Any:  # noqa: ANN401
        """A candidate's model, fitted on one thread so that its bits are the same wherever it is fitted.

        Raises
        ------
        InvalidInputError
            If the library is not installed, or refuses the parameters or the people.
        """

    @abstractmethod
    def save(self, model: Any, path: Path) -> Path:  # noqa: ANN401 - what `fit` returns
        """Write a model as a file that `evenhand.load_model` opens, whole or not at all; a folder gets ``model.*``."""

    def starting_parameters(self, reading: Reading) -> dict[str, Any]:
        """Every parameter of a candidate that is trained as a model was."""
        return {**self.spec.plain, **self.usual, **reading.parameters, "seed": 0}

    def further(self) -> frozenset[str]:
        """Parameters of the class that a space may name besides the defaults."""
        return self.class_parameters() - self.fixed


def class_options(parameters: Parameters) -> dict[str, Any]:
    """Those of a candidate's parameters that are the library's, not the search's.

    Examples
    --------
    >>> class_options({"C": 1.0, "drop": ("age",), "repair": "none"})
    {'C': 1.0}
    """
    return {name: value for name, value in parameters.items() if name not in _OF_SEARCH}
