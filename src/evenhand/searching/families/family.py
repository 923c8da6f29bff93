"""A family of candidates: its parameters, its default search space, how it is fitted and how it is saved.

Changes to the training people before a model learns from them, so that the model never needs the group to decide.

A repair is one value of the parameter ``repair``. It sees the labels and groups of the training people only.
"""

from __future__ import annotations

import re
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeAlias, get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier
from threadpoolctl import threadpool_limits

from evenhand.arrays import Floats, Ints
from evenhand.exceptions import InvalidInputError, did_you_mean, first_line
from evenhand.inputs.validation import check_columns, is_number_column, text_columns
from evenhand.models.dispatch import as_audited_model
from evenhand.models.encoders import flat_steps
from evenhand.models.protocol import AuditedModel
from evenhand.models.sklearn import is_kind, unwrapped
from evenhand.models.trees.ensemble import CATEGORY_SET, TreeEnsemble, levels
from evenhand.system.files import write_atomically
from evenhand.system.libraries import optional_module
from evenhand.system.threads import one_thread_each
from evenhand.training import repairs as fairshap
from evenhand.training.repairs import reweighing

_TREES = 50  # of the model whose explanations FairSHAP uses


@dataclass(frozen=True, eq=False)
class Training:
    """People that a model learns from.

    Attributes
    ----------
    X, y
        Their table and labels.
    group
        Codes of their groups; no model sees them.
    financial
        Columns on which people are matched.
    weight
        The weight of each person; None for equal weights.
    """

    X: pd.DataFrame
    y: Ints
    group: Ints
    financial: tuple[str, ...] = ()
    weight: Floats | None = None


def _reweighed(training: Training, columns: Sequence[str]) -> Training:
    return replace(training, weight=reweighing(training.y, training.group, training.weight))


def _by_fairshap(training: Training, columns: Sequence[str]) -> Training:
    """People with the values that, to boosted trees, set them apart from their matches replaced by the matches'."""
    seen = training.X[list(columns)]
    coded = np.column_stack([_coded(seen[name]) for name in columns])
    found = fairshap.repaired(
        coded,
        training.y,
        training.group,
        fit=_fit_trees,
        finances=training.X[list(training.financial)],
        is_financial=np.isin(list(columns), training.financial),
    )
    changed = {name: _decoded(seen[name], found.features[:, j]) for j, name in enumerate(columns)}
    return replace(training, X=training.X.assign(**changed))


def _fit_trees(rows: NDArray[np.floating], labels: Ints) -> AuditedModel:
    with threadpool_limits(1, user_api="openmp"):
        return as_audited_model(HistGradientBoostingClassifier(max_iter=_TREES, random_state=0).fit(rows, labels))


def _coded(column: pd.Series[Any]) -> Floats:
    """A column as numbers: categories by their position, missing values as NaN."""
    if is_number_column(column) or column.dtype == bool:
        return column.to_numpy(dtype=np.float64, na_value=np.nan)
    codes = column.astype("category").cat.codes.to_numpy(dtype=np.float64)
    return np.where(codes < 0, np.nan, codes)


def _decoded(column: pd.Series[Any], values: NDArray[np.floating]) -> pd.Series[Any]:
    """Numbers of `_coded` as a column of the same kind."""
    if is_number_column(column):
        return pd.Series(values, index=column.index)
    if column.dtype == bool:
        return pd.Series(values == 1, index=column.index)
    codes = np.where(np.isnan(values), -1, values).astype(np.int64)
    kind: Any = column.astype("category").dtype
    return pd.Series(pd.Categorical.from_codes(codes, dtype=kind), index=column.index)


_REPAIRS: dict[str, Callable[[Training, Sequence[str]], Training]] = {
    "none": lambda training, columns: training,
    "reweighing": _reweighed,
    "fairshap": _by_fairshap,
}
REPAIRS = tuple(_REPAIRS)
"""Names of repairs: none; weights under which label and group are independent (Kamiran and Calders, 2012); values
replaced by those of a match in a different group (`training.fairshap`)."""
QUICK_REPAIRS = ("none", "reweighing")
"""The fast repairs, which are tried if no space is given."""


def repaired(name: str, training: Training, columns: Sequence[str]) -> Training:
    """The training people after a repair.

    Parameters
    ----------
    name
        One of `REPAIRS`.
    training, columns
        The people, and the columns that the model will see.

    Raises
    ------
    InvalidInputError
        If the repair is unknown, or cannot be made on these people.

    Examples
    --------
    >>> people = Training(pd.DataFrame({"x": range(4)}), np.array([1, 1, 0, 1]), np.array([0, 0, 0, 1]))
    >>> repaired("none", people, ["x"]) is people
    True
    """
    if name not in _REPAIRS:
        raise InvalidInputError(f"`repair` must be one of {list(REPAIRS)}, got {name!r}.{did_you_mean(name, REPAIRS)}")
    return _REPAIRS[name](training, columns)


def library_class(module: str, name: str) -> Any:
    """The class of a library.

    Raises
    ------
    InvalidInputError
        If the library is not installed.
    """
    try:
        return getattr(import_module(module), name)
    except ImportError as error:
        package = module.split(".")[0]
        raise InvalidInputError(
            f"A search over {package} needs the package {package!r}: pip install {package}."
        ) from error


def class_parameters(module: str, name: str) -> frozenset[str]:
    """Names of the parameters of a library's class; empty if the library is not installed."""
    try:
        return frozenset(library_class(module, name)().get_params())
    except InvalidInputError:
        return frozenset()


@contextmanager
def held_to_one_thread() -> Iterator[None]:
    """Keep BLAS and torch on one thread, and scikit-learn from warning that a column has fewer bins than requested.

    Use this around all threads that fit models, because these settings apply to the whole process. How a matrix product
    is split among threads decides its last digits.
    """
    with one_thread_each(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Bins whose width are too small", category=UserWarning)
        yield


def fitted(model: Any, X: pd.DataFrame, training: Training, weight_name: str = "sample_weight") -> Any:
    """A model fitted on people, with one thread of OpenMP; see `held_to_one_thread` for the other libraries.

    Parameters
    ----------
    model
        An unfitted model.
    X, training
        The table that the model sees; labels and weights.
    weight_name
        What `fit` calls the weights.

    Raises
    ------
    InvalidInputError
        If the library refuses parameters or people.
    """
    given = {} if training.weight is None else {weight_name: training.weight}
    try:
        with threadpool_limits(1, user_api="openmp"):
            return model.fit(X, training.y, **given)
    except (ValueError, TypeError, RuntimeError) as error:
        last = getattr(model, "steps", [("", model)])[-1][1]
        raise InvalidInputError(f"{type(last).__name__} cannot be fitted: {first_line(error)}.") from error


def file_in(path: Path, ending: str) -> Path:
    """The file itself, or ``model`` with the file extension in a folder."""
    return path if path.suffix == ending else path / f"model{ending}"


def save_skops(model: Any, path: Path) -> Path:
    """Write an estimator of scikit-learn as a skops file, whole or not at all.

    Raises
    ------
    MissingExtraError
        If skops is not installed.
    """
    skops_io = optional_module("skops.io", "Saving a model of scikit-learn", "skops", "skops")
    file = file_in(path, ".skops")
    with write_atomically(file) as temporary:
        skops_io.dump(model, temporary)
    return file


_FEWEST_SPLITS = 10  # by chance alone, that many splits all go one way in one of 500 columns


@dataclass(frozen=True)
class Reading:
    """How a model was trained, as far as the model shows it.

    Attributes
    ----------
    parameters
        Parameters of the library's class.
    signs
        Its monotone directions, by the name or the position of an input.
    notes
        Sentences on what could not be read, or what candidates do differently.
    """

    parameters: Mapping[str, Any]
    signs: Mapping[str | int, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def last_step(model: Any) -> Any:
    """The classifier inside a pipeline, a parameter search or a threshold chooser; any other model unchanged."""
    model = unwrapped(model)
    return unwrapped(list(flat_steps(model))[-1][1]) if is_kind(model, "Pipeline") else model


def given_parameters(model: Any, fixed: frozenset[str]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Parameters of an estimator that differ from its defaults, and a note on those that a search cannot keep.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> given_parameters(LogisticRegression(C=0.1, random_state=3), frozenset({"random_state"}))
    ({'C': 0.1}, ())
    """
    usual = type(model)().get_params()
    given = {
        name: value
        for name, value in model.get_params(deep=False).items()
        if name not in fixed and value is not None and (name not in usual or repr(usual[name]) != repr(value))
    }
    odd = [name for name, value in given.items() if not _is_plain(value)]
    notes = (f"Parameters of your model that a search cannot keep: {', '.join(odd)}.",) if odd else ()
    return {name: _plain(value) for name, value in given.items() if name not in odd}, notes


def _is_plain(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(map(_is_plain, value))
    return isinstance(value, (str, bool, int, float, np.integer, np.floating))


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def plain_value(text: str) -> Any:
    """A parameter as a library writes it: a number with the digits of a float32, or a text.

    Examples
    --------
    >>> plain_value("0.300000012"), plain_value("6"), plain_value("depthwise")
    (0.3, 6, 'depthwise')
    """
    if re.fullmatch(r"[-+]?\d+", text):
        return int(text)
    try:
        return float(f"{float(text):.7g}")
    except ValueError:
        return text


def signs_by_input(given: Any) -> dict[str | int, int]:
    """Monotone constraints by the name or position of an input, from a mapping, a list or XGBoost's "(1,0,-1)".

    Examples
    --------
    >>> signs_by_input("(1,0,-1)"), signs_by_input({"income": 1}), signs_by_input(None)
    ({0: 1, 2: -1}, {'income': 1}, {})
    """
    if given is None:
        return {}
    if isinstance(given, str):
        given = [int(sign) for sign in re.findall(r"-?\d+", given)]
    pairs: Sequence[tuple[Any, Any]] = list(given.items()) if isinstance(given, Mapping) else list(enumerate(given))
    return {name: int(sign) for name, sign in pairs if sign}


def signs_in_trees(ensemble: TreeEnsemble) -> dict[str | int, int]:
    """Directions that trees keep at every split, by the position of the input.

    In trees that were trained with a direction, every leaf on one side of a split is at least as high as every leaf on
    the other side. Inputs with few splits may keep a direction by chance and are skipped.
    """
    is_leaf = ensemble.feature < 0
    low, high = (np.where(is_leaf, ensemble.value, np.nan) for _ in range(2))
    for level in reversed(list(levels(ensemble.roots, ensemble.left, ensemble.right, is_leaf))):
        asking = level[~is_leaf[level]]
        left, right = ensemble.left[asking], ensemble.right[asking]
        low[asking], high[asking] = np.minimum(low[left], low[right]), np.maximum(high[left], high[right])
    asking = np.flatnonzero(~is_leaf & (ensemble.rule != CATEGORY_SET))
    left, right = ensemble.left[asking], ensemble.right[asking]
    rises, falls = high[left] <= low[right], low[left] >= high[right]

    def always(holds: NDArray[np.bool_]) -> NDArray[np.bool_]:
        n, n_held = (np.bincount(ensemble.feature[of], minlength=ensemble.n_features) for of in (asking, asking[holds]))
        return np.asarray((n >= _FEWEST_SPLITS) & (n == n_held))

    return {int(j): sign for sign, holds in ((1, rises), (-1, falls)) for j in np.flatnonzero(always(holds))}


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
    def read(self, model: Any, text: str = "") -> Reading | None:
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
    def fit(self, parameters: Parameters, training: Training, random_state: int) -> Any:
        """A candidate's model, fitted on one thread so that its bits are the same on every machine.

        Raises
        ------
        InvalidInputError
            If the library is not installed, or refuses the parameters or the people.
        """

    @abstractmethod
    def save(self, model: Any, path: Path) -> Path:
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


def kept_columns(parameters: Parameters, columns: Sequence[str]) -> list[str]:
    """The columns of a table that are left after a candidate drops its own.

    Raises
    ------
    InvalidInputError
        If the table does not have a dropped column, or no column is left.

    Examples
    --------
    >>> kept_columns({"drop": ["age"]}, ["income", "age"])
    ['income']
    """
    given = parameters["drop"]
    dropped = check_columns(given, columns, "`drop`") if len(given) else []
    kept = [column for column in columns if column not in dropped]
    if not kept:
        raise InvalidInputError("`drop` leaves no column to train on.")
    return kept


def monotone_signs(parameters: Parameters, table: pd.DataFrame) -> list[int]:
    """The direction of each column of a table: 1, -1 or 0; empty if no column has one.

    Columns that the table no longer has are skipped.

    Raises
    ------
    InvalidInputError
        If the directions do not map columns to 1, -1 or 0, or one belongs to a category.

    Examples
    --------
    >>> monotone_signs({"monotone": {"income": 1}}, pd.DataFrame({"debt": [1.0], "income": [2.0]}))
    [0, 1]
    """
    given: Any = parameters["monotone"]
    if not given:
        return []
    if not isinstance(given, Mapping) or not set(given.values()) <= {-1, 0, 1}:
        raise InvalidInputError(f"`monotone` must map columns to 1, -1 or 0, got {given!r}.")
    numbers, _ = numbers_and_words(table)
    words = [name for name, sign in given.items() if sign and name in table.columns and name not in numbers]
    if words:
        raise InvalidInputError(f"`monotone` names {words}, which contain categories; only numbers have a direction.")
    return [int(given.get(str(column), 0)) for column in table.columns]


def numbers_and_words(table: pd.DataFrame) -> tuple[list[str], list[str]]:
    """Columns of numbers, and all others."""
    numbers = [str(column) for column in table.columns if is_number_column(table[column])]
    return numbers, [str(column) for column in table.columns if column not in numbers]


def with_categories(table: pd.DataFrame) -> pd.DataFrame:
    """The table with text as pandas categories, which XGBoost and LightGBM accept.

    Examples
    --------
    >>> with_categories(pd.DataFrame({"home": ["rent", "own"]}))["home"].cat.categories.tolist()
    ['own', 'rent']
    """
    words = [c for c in text_columns(table) if not isinstance(table[c].dtype, pd.CategoricalDtype)]
    return table.astype(dict.fromkeys(words, "category")) if words else table


def spelled_as(columns: Sequence[str], names: Sequence[str]) -> list[str]:
    """Names of a model's inputs as a table spells them: LightGBM replaces a space in a name by an underscore.

    Examples
    --------
    >>> spelled_as(["late payments", "income"], ["income", "late_payments"])
    ['income', 'late payments']
    """
    spelled = {column.replace(" ", "_"): column for column in columns}
    return [name if name in columns else spelled.get(name, name) for name in names]


_PLAIN = {"cec_weight": 0.0, "equalized_odds_weight": 0.0}

NETWORK = FamilySpec(
    name="network",
    words="networks",
    defaults={
        "objective": "reasoning_gap",
        "cec_weight": 0.0,
        "equalized_odds_weight": 0.0,
        "learning_rate": 3e-4,
        "epochs": 30,
        "hidden": (128, 64),
        "dropout": 0.2,
        "batch_size": 64,
        "n_steps": 1,
        "method": "segments",
        "cec_every": 1,
        "least_explained": 0.0,
        "seed": 0,
    },
    space={
        "objective": ("reasoning_gap", "excess", "reasoning_excess"),
        "cec_weight": (0.1, 0.3, 1.0, 3.0, 10.0, 30.0),
        "equalized_odds_weight": (0.0, 0.1, 0.3, 1.0),
        "learning_rate": (3e-4, 1e-3),
        "epochs": (10, 20, 30),
    },
    plain=_PLAIN,
    unused={**_PLAIN, "objective": "reasoning_gap"},
)
