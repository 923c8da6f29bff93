"""Families of candidates: networks, boosted trees of three libraries, logistic regressions and scorecards.

A family knows its parameters and its default search space, how a fitted model of it was trained, how it is fitted and
how it is saved. Models learn from a table of people, who can be repaired first, and never need the group to decide.
"""

from __future__ import annotations

import json
import math
import re
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias, get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.impute import MissingIndicator, SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import KBinsDiscretizer, OneHotEncoder, OrdinalEncoder, StandardScaler
from threadpoolctl import threadpool_limits

from evenhand.arrays import Floats, Ints
from evenhand.exceptions import InvalidInputError, did_you_mean, first_line
from evenhand.inputs.validation import check_columns, is_number_column, text_columns
from evenhand.models.dispatch import as_audited_model
from evenhand.models.encoders import CodedTable, flat_steps
from evenhand.models.files.skops import imported_skops
from evenhand.models.protocol import AuditedModel
from evenhand.models.sklearn import binned_columns, is_kind, is_scorecard, unwrapped
from evenhand.models.trees.ensemble import CATEGORY_SET, TreeEnsemble, levels
from evenhand.models.trees.libraries import tree_library
from evenhand.report.formatting import listed
from evenhand.system.files import write_atomically, write_text
from evenhand.system.threads import one_thread_each
from evenhand.training import repairs as fairshap
from evenhand.training.repairs import reweighing

FamilyName = Literal["network", "trees", "xgboost", "lightgbm", "logistic", "scorecard"]
FAMILY_NAMES: tuple[str, ...] = get_args(FamilyName)

Parameters: TypeAlias = Mapping[str, Any]

_OF_SEARCH = ("drop", "monotone", "repair", "seed")


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


def _by_fairshap(training: Training, columns: Sequence[str]) -> Training:
    """People with the values that, to boosted trees, set them apart from their matches replaced by the matches'."""
    seen = training.X[list(columns)]
    coded = CodedTable.of(seen)
    changes = fairshap.repaired(
        coded.transform(seen),
        training.y,
        training.group,
        fit=_fit_trees,
        finances=training.X[list(training.financial)],
        is_financial=np.isin(list(columns), training.financial),
    )
    changed = coded.decoded(changes.features.astype(np.float64))
    return replace(training, X=training.X.assign(**{name: changed[name] for name in columns}))


def _fit_trees(rows: NDArray[np.floating], labels: Ints) -> AuditedModel:
    with threadpool_limits(1, user_api="openmp"):
        return as_audited_model(HistGradientBoostingClassifier(max_iter=50, random_state=0).fit(rows, labels))


REPAIRS = ("none", "reweighing", "fairshap")
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
    if name not in REPAIRS:
        raise InvalidInputError(f"`repair` must be one of {list(REPAIRS)}, got {name!r}.{did_you_mean(name, REPAIRS)}")
    if name == "reweighing":
        return replace(training, weight=reweighing(training.y, training.group, training.weight))
    return _by_fairshap(training, columns) if name == "fairshap" else training


@contextmanager
def held_to_one_thread() -> Iterator[None]:
    """Keep BLAS and torch on one thread, and scikit-learn from warning that a column has fewer bins than requested.

    Use this around all threads that fit models, because these settings apply to the whole process. How a matrix product
    is split among threads decides its last digits.
    """
    with one_thread_each(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Bins whose width are too small", category=UserWarning)
        yield


def _fitted(model: Any, X: pd.DataFrame, training: Training, weight_name: str = "sample_weight") -> Any:
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
    return {
        name: value.item() if isinstance(value, np.generic) else value
        for name, value in given.items()
        if name not in odd
    }, notes


def _is_plain(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(map(_is_plain, value))
    return isinstance(value, (str, bool, int, float, np.integer, np.floating))


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


class Parameter(NamedTuple):
    """A parameter of a candidate.

    Attributes
    ----------
    usual
        Its value by default, in a library.
    values
        Values to try if there is neither a space nor a starting model; none to leave it as it is.
    near
        Values to try around that of a starting model.
    tuned
        The value at which a search without a starting model begins, if it is not the library's default.
    """

    usual: Any
    values: tuple[Any, ...] = ()
    near: Callable[[Any], list[Any]] | None = None
    tuned: Any = None


def _half(rate: float) -> list[float]:
    return [rate, rate / 2]


def _fewer(n: int) -> list[int]:
    return [n, max(1, n // 2)]


def _coarser(n: int) -> list[int]:
    return [n, min(16, n)]


class Family(ABC):
    """Models of one kind, and what a search tries with them.

    A candidate has every parameter of `parameters` and of `plain`, and ``seed``, a number that is added to the seeds of
    its models.
    """

    name: ClassVar[FamilyName]
    words: ClassVar[str]
    parameters: ClassVar[dict[str, Parameter]]
    """Parameters that are searched."""
    plain: ClassVar[Parameters]
    """Parameters that make a candidate more than plain training, at the values at which it is plain."""
    more: ClassVar[dict[str, Sequence[Any]]] = {}
    """Values to try of parameters in `plain`, if no space is given."""

    @property
    def unused(self) -> Parameters:
        """Parameters that do not matter for an unconstrained candidate, at the one value that is tried."""
        return self.plain

    @property
    def defaults(self) -> Parameters:
        """Every parameter of a candidate, with its value if the space does not name it."""
        usual = {name: p.usual if p.tuned is None else p.tuned for name, p in self.parameters.items()}
        return {**usual, **self.plain, "seed": 0}

    @property
    def space(self) -> dict[str, Sequence[Any]]:
        """Values to try if no space is given."""
        return {**{name: p.values for name, p in self.parameters.items() if p.values}, **self.more}

    def further(self) -> frozenset[str]:
        """Parameters that a space may name besides the defaults."""
        return frozenset()

    @abstractmethod
    def save(self, model: Any, path: Path) -> Path:
        """Write a model as a file that `evenhand.load_model` opens, whole or not at all; a folder gets ``model.*``."""


class NetworkFamily(Family):
    """`CECClassifier`, trained in stacks."""

    name = "network"
    words = "networks"
    plain: ClassVar = {"cec_weight": 0.0, "equalized_odds_weight": 0.0}
    unused: ClassVar = {**plain, "objective": "reasoning_gap"}
    parameters: ClassVar = {
        "objective": Parameter("reasoning_gap", ("reasoning_gap", "excess", "reasoning_excess")),
        "cec_weight": Parameter(0.0, (0.1, 0.3, 1.0, 3.0, 10.0, 30.0)),
        "equalized_odds_weight": Parameter(0.0, (0.0, 0.1, 0.3, 1.0)),
        "learning_rate": Parameter(3e-4, (3e-4, 1e-3)),
        "epochs": Parameter(30, (10, 20, 30)),
        "hidden": Parameter((128, 64)),
        "dropout": Parameter(0.2),
        "batch_size": Parameter(64),
        "n_steps": Parameter(1),
        "method": Parameter("segments"),
        "cec_every": Parameter(1),
        "least_explained": Parameter(0.0),
    }

    def save(self, model: Any, path: Path) -> Path:
        """Write a safetensors file."""
        saved: Path = model.save(path)
        return saved


class EstimatorFamily(Family):
    """Classifiers of a library that learn from a table; they never need the group to decide.

    A candidate has the parameters of the library's class, under the library's names, and four that the search adds:
    ``drop`` (columns to leave out), ``monotone`` (columns with 1 or -1, for boosted trees), ``repair`` (a change of the
    training people, see `repaired`) and ``seed``.
    """

    home: ClassVar[tuple[str, str]]
    """Module and name of the library's class."""
    is_native: ClassVar[bool] = False
    """Whether it is saved in the library's native format, which names only the columns that are kept."""
    fixed: ClassVar[frozenset[str]] = frozenset({"random_state", "n_jobs", "verbose"})
    """Parameters of the class that the search sets itself."""
    plain: ClassVar[Parameters] = {"drop": (), "monotone": (), "repair": "none"}
    more: ClassVar = {"repair": QUICK_REPAIRS}

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
    def fit(self, parameters: Parameters, training: Training, random_state: int) -> Any:
        """A candidate's model, fitted on one thread so that its bits are the same on every machine.

        Raises
        ------
        InvalidInputError
            If the library is not installed, or refuses the parameters or the people.
        """

    def save(self, model: Any, path: Path) -> Path:
        """Write a file of skops."""
        file = _file_in(path, ".skops")
        with write_atomically(file) as temporary:
            imported_skops().dump(model, temporary)
        return file

    def further(self) -> frozenset[str]:
        """Parameters of the library's class; none if it is not installed."""
        try:
            return frozenset(self.library_class()().get_params()) - self.fixed
        except InvalidInputError:
            return frozenset()

    def library_class(self) -> Any:
        """The library's class.

        Raises
        ------
        InvalidInputError
            If the library is not installed.
        """
        module, name = self.home
        try:
            return getattr(import_module(module), name)
        except ImportError as error:
            raise InvalidInputError(
                f"A search over {module} needs the package {module!r}: pip install {module}."
            ) from error


def _file_in(path: Path, ending: str) -> Path:
    """The file itself, or ``model`` with the file extension in a folder."""
    return path if path.suffix == ending else path / f"model{ending}"


def _class_options(parameters: Parameters) -> dict[str, Any]:
    """A candidate's parameters that belong to the library, not to the search.

    Examples
    --------
    >>> _class_options({"C": 1.0, "drop": ("age",), "repair": "none"})
    {'C': 1.0}
    """
    return {name: value for name, value in parameters.items() if name not in _OF_SEARCH}


def kept_columns(parameters: Parameters, columns: Iterable[Any]) -> list[str]:
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
    given, names = parameters["drop"], [str(column) for column in columns]
    dropped = check_columns(given, names, "`drop`") if len(given) else []
    kept = [name for name in names if name not in dropped]
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
    numbers, _ = _numbers_and_words(table)
    words = [name for name, sign in given.items() if sign and name in table.columns and name not in numbers]
    if words:
        raise InvalidInputError(f"`monotone` names {words}, which contain categories; only numbers have a direction.")
    return [int(given.get(str(column), 0)) for column in table.columns]


def _numbers_and_words(table: pd.DataFrame) -> tuple[list[str], list[str]]:
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


_STOPPED = "Your model stopped early: its {} rounds are kept."
_EARLY = frozenset({"early_stopping", "validation_fraction", "n_iter_no_change", "tol"})


class HistTrees(EstimatorFamily):
    """Boosted trees of scikit-learn."""

    name = "trees"
    words = "gradient-boosted trees of scikit-learn"
    home = ("sklearn.ensemble", "HistGradientBoostingClassifier")
    fixed = EstimatorFamily.fixed | {"monotonic_cst", "categorical_features", "warm_start", "scoring", "loss"}
    parameters: ClassVar = {
        "learning_rate": Parameter(0.1, (0.03, 0.1), _half),
        "max_iter": Parameter(100, (50, 100, 200), _fewer),
        "max_leaf_nodes": Parameter(31, (4, 8, 16, 31), lambda n: [n, max(2, (n or 31) // 2)]),
        "max_depth": Parameter(None),
        "min_samples_leaf": Parameter(20, (20, 100), lambda n: [n, 5 * n]),
        "l2_regularization": Parameter(0.0),
        "max_bins": Parameter(255, (16, 255), _coarser),
    }

    def read(self, model: Any, text: str = "") -> Reading | None:
        """Read a `HistGradientBoostingClassifier`."""
        model = last_step(model)
        if not is_kind(model, "HistGradientBoostingClassifier"):
            return None
        parameters, notes = given_parameters(model, self.fixed | _EARLY)
        if model.n_iter_ < model.max_iter:
            notes += (_STOPPED.format(model.n_iter_),)
        if model.is_categorical_ is not None:
            notes += ("Your model splits on categories; candidates split on their integer codes.",)
        return Reading({**parameters, "max_iter": int(model.n_iter_)}, signs_by_input(model.monotonic_cst), notes)

    def fit(self, parameters: Parameters, training: Training, random_state: int) -> Any:
        """A Pipeline that codes categories and then fits trees."""
        numbers, words = _numbers_and_words(training.X[kept_columns(parameters, training.X.columns)])
        codes = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1, encoded_missing_value=-1)
        encode = ColumnTransformer([("numbers", "passthrough", numbers), ("words", codes, words)])
        signs = monotone_signs(parameters, training.X[[*numbers, *words]])
        options = _class_options(parameters)
        trees = HistGradientBoostingClassifier(
            **{"early_stopping": False, **options}, monotonic_cst=signs or None, random_state=random_state
        )
        model = Pipeline([("encode", encode), ("trees", trees)])
        return _fitted(model, training.X, training, "trees__sample_weight")


class LogisticModels(EstimatorFamily):
    """`LogisticRegression` behind a `StandardScaler` and a `OneHotEncoder`."""

    name: ClassVar[FamilyName] = "logistic"
    words = "logistic regressions of scikit-learn"
    home = ("sklearn.linear_model", "LogisticRegression")
    fixed = EstimatorFamily.fixed | {"warm_start", "multi_class"}
    plain: ClassVar = {"drop": (), "repair": "none"}
    parameters: ClassVar = {
        "C": Parameter(1.0, (0.001, 0.01, 0.1, 1.0, 10.0), lambda c: [c, *(c * x for x in (0.001, 0.01, 0.1, 10.0))])
    }

    is_binned: ClassVar[bool] = False

    def read(self, model: Any, text: str = "") -> Reading | None:
        """Read a `LogisticRegression`; after a `KBinsDiscretizer`, or in optbinning, it is a scorecard."""
        bins = _bins_in(model)
        last: Any = getattr(model, "estimator_", None) if is_scorecard(model) else last_step(model)
        if bool(bins) != self.is_binned or not is_kind(last, "LogisticRegression"):
            return None
        of_folds = {"cv", "Cs", "scoring", "refit", "use_legacy_attributes"}
        parameters, notes = given_parameters(last, self.fixed | of_folds)
        if is_kind(last, "LogisticRegressionCV"):
            parameters["C"] = float(np.ravel(last.C_)[0])
        has_quantiles = False
        if bins and is_kind(bins[0], "KBinsDiscretizer"):
            parameters["n_bins"], has_quantiles = int(np.max(bins[0].n_bins)), bins[0].strategy == "quantile"
        if bins and not has_quantiles:
            notes += ("The bins of your scorecard are replaced by quantile bins.",)
        return Reading(parameters, {}, notes)

    def numbers_step(self, parameters: Parameters) -> Any:
        """What is done to numbers before the regression."""
        return make_pipeline(SimpleImputer(strategy="median", add_indicator=True), StandardScaler())

    def fit(self, parameters: Parameters, training: Training, random_state: int) -> Any:
        """A Pipeline that prepares numbers, one-hot encodes categories, and fits the regression."""
        numbers, words = _numbers_and_words(training.X[kept_columns(parameters, training.X.columns)])
        one_hot = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
        encode = ColumnTransformer([("numbers", self.numbers_step(parameters), numbers), ("words", one_hot, words)])
        options = {name: value for name, value in _class_options(parameters).items() if name != "n_bins"}
        # Newton's method converges on any of these tables within a few steps.
        regression = LogisticRegression(**{"solver": "newton-cholesky", **options}, random_state=random_state)
        model = Pipeline([("encode", encode), ("regression", regression)])
        return _fitted(model, training.X, training, "regression__sample_weight")


class ScorecardModels(LogisticModels):
    """Quantile bins, with one for missing numbers, and a logistic regression, of scikit-learn."""

    name = "scorecard"
    words = "scorecards: a logistic regression on bins"
    is_binned = True
    parameters: ClassVar = {
        "n_bins": Parameter(5, (2, 3, 5, 8, 12), lambda n: sorted({n, max(2, n // 2), max(2, n - 1)})),
        "C": Parameter(1.0, (0.01, 0.1, 1.0), lambda c: [c, c * 0.1, c * 0.01]),
    }

    def numbers_step(self, parameters: Parameters) -> Any:
        """What is done to numbers before the regression."""
        bins = KBinsDiscretizer(
            n_bins=parameters["n_bins"],
            encode="onehot-dense",
            strategy="quantile",
            quantile_method="averaged_inverted_cdf",
            subsample=None,
        )
        binned = make_pipeline(SimpleImputer(strategy="median"), bins)
        return FeatureUnion([("bins", binned), ("missing", MissingIndicator(error_on_new=False))])


def _bins_in(model: Any) -> list[Any]:
    """The steps of a pipeline that put numbers into bins, at any depth."""
    model = unwrapped(model)
    if is_kind(model, "Pipeline"):
        return [part for _, step in flat_steps(model) for part in _bins_in(step)]
    if is_kind(model, "ColumnTransformer"):
        return [part for _, step, _ in model.transformers_ for part in _bins_in(step)]
    if is_kind(model, "FeatureUnion"):
        return [part for _, step in model.transformer_list for part in _bins_in(step)]
    return [model] if is_kind(model, "KBinsDiscretizer") or binned_columns(model) is not None else []


class _NativeFamily(EstimatorFamily):
    """Boosted trees on the table's columns, so the library's file needs no companion."""

    is_native = True
    always: ClassVar[Parameters]
    """Options of every model."""

    def fit(self, parameters: Parameters, training: Training, random_state: int) -> Any:
        """A classifier of the library on the columns that are kept."""
        X = with_categories(training.X[kept_columns(parameters, training.X.columns)])
        options, signs = {**_class_options(parameters), **self.always}, monotone_signs(parameters, X)
        if any(signs):
            options["monotone_constraints"] = tuple(signs)
        return _fitted(self.library_class()(**options, random_state=random_state, n_jobs=1), X, training)


_FEWEST_NODES = 8
_EXACT = 1e-6  # of the largest term: values are written in float32
_LEAST_SHARE = 0.2  # of nodes that agree to six digits; by chance alone, three of them agree
_REWEIGHTINGS = 50


def learning_of(text: str) -> tuple[float, float] | None:
    r"""Learning rate and L2 penalty of a model of XGBoost, from its JSON; None if too few nodes agree on them.

    The file does not contain them. It does contain the sum of hessians :math:`H` of every node and, for a node that
    splits, the weight :math:`w = -G / (H + \lambda)` that it would have as a leaf; a leaf has the value
    :math:`v = -\eta G / (H + \lambda)`. The gradients :math:`G` of two leaves add up to those of the node above, so

    .. math:: v_l (H_l + \lambda) + v_r (H_r + \lambda) = \eta w (H_l + H_r + \lambda)

    holds at every node above two leaves, except those that a monotone constraint has moved.
    """
    try:
        booster = json.loads(text)["learner"]["gradient_booster"]
        terms = np.concatenate([_terms(tree) for tree in booster["model"]["trees"]])
    except (ValueError, KeyError, TypeError, IndexError):
        return None
    scale = np.abs(terms).max(initial=0.0)
    if len(terms) < _FEWEST_NODES or scale == 0:
        return None
    off = np.ones(len(terms))
    for _ in range(_REWEIGHTINGS):  # least absolute deviations, which nodes that disagree do not sway
        root = np.sqrt(1 / np.maximum(off, _EXACT * scale))[:, None]
        known, *_ = np.linalg.lstsq(root * terms[:, :3], root[:, 0] * terms[:, 3], rcond=None)
        off = np.abs(terms[:, :3] @ known - terms[:, 3])
    agree = off <= _EXACT * scale
    if agree.sum() < max(_FEWEST_NODES, _LEAST_SHARE * len(terms)):
        return None
    penalty, rate, _ = np.linalg.lstsq(terms[agree, :3], terms[agree, 3], rcond=None)[0].tolist()
    return (_rounded(rate), _rounded(max(penalty, 0.0))) if 0 < rate <= 1 else None


def _terms(tree: dict[str, Any]) -> Floats:
    """Coefficients of the penalty, the rate and their product at each node above two leaves, and their sum."""
    left, right = np.asarray(tree["left_children"]), np.asarray(tree["right_children"])
    value, hessian, weight = (np.asarray(tree[name]) for name in ("split_conditions", "sum_hessian", "base_weights"))
    above = np.flatnonzero(left >= 0)
    above = above[(left[left[above]] < 0) & (left[right[above]] < 0)]
    a, b = left[above], right[above]
    together = value[a] * hessian[a] + value[b] * hessian[b]
    return np.stack([-(value[a] + value[b]), weight[above] * hessian[above], weight[above], together], axis=1)


def _rounded(value: float) -> float:
    """The number that someone wrote; of a small one, four digits after the decimal point are known."""
    return float(f"{round(value, 4):.4g}")


class XgboostModels(_NativeFamily):
    """`XGBClassifier`."""

    name = "xgboost"
    words = "gradient-boosted trees of XGBoost"
    home = ("xgboost", "XGBClassifier")
    always: ClassVar = {"enable_categorical": True}
    fixed = EstimatorFamily.fixed | {
        "monotone_constraints",
        "enable_categorical",
        "feature_types",
        "objective",
        "callbacks",
        "device",
        "early_stopping_rounds",
        "verbosity",
        "missing",
    }
    parameters: ClassVar = {
        "learning_rate": Parameter(0.3, (0.03, 0.1), _half, tuned=0.1),
        "n_estimators": Parameter(100, (100, 200), _fewer),
        "max_depth": Parameter(6, (2, 3, 4, 6), lambda n: [n, max(1, (n or 6) - 2)], tuned=4),
        "min_child_weight": Parameter(1.0, (1.0, 20.0), lambda weight: [weight, 10 * max(1.0, weight)]),
        "reg_lambda": Parameter(1.0),
        "subsample": Parameter(1.0),
        "colsample_bytree": Parameter(1.0),
        "max_bin": Parameter(256, (16, 256), _coarser),
    }

    def read(self, model: Any, text: str = "") -> Reading | None:
        """Read an `XGBClassifier`, a `Booster`, or the trees of a file, which does not say how they were grown."""
        model = last_step(model)
        if isinstance(model, TreeEnsemble):
            return _xgboost_trees(model, text) if model.source.startswith("XGBoost") else None
        if tree_library(model) != "xgboost":
            return None
        if not hasattr(model, "get_booster"):
            return _xgboost_booster(model)
        parameters, notes = given_parameters(model, self.fixed)
        signs = signs_by_input(model.get_params()["monotone_constraints"])
        if model.missing is not None and not math.isnan(model.missing):
            notes += (f"Your model treats {model.missing:g} as a missing value; candidates do not.",)
        if model.get_booster().attr("best_iteration") is not None:
            parameters["n_estimators"] = model.best_iteration + 1
            notes += (_STOPPED.format(parameters["n_estimators"]),)
        return Reading(parameters, signs, notes)

    def save(self, model: Any, path: Path) -> Path:
        """Write XGBoost's native file: JSON, or binary if the path ends in ``.ubj``.

        Raises
        ------
        InvalidInputError
            If the model has categories and this version of XGBoost does not write them.
        """
        version = str(import_module("xgboost").__version__)
        is_wordless = all(kind != "c" for kind in model.get_booster().feature_types or ())
        if not is_wordless and tuple(map(int, version.split(".")[:2])) < (3, 1):
            raise InvalidInputError(
                f"XGBoost {version} does not write categories into its files: install xgboost>=3.1 to save a model "
                "of columns that are not numbers."
            )
        file = path if path.suffix == ".ubj" else _file_in(path, ".json")
        with write_atomically(file) as temporary:
            model.save_model(temporary)
        return file


def _xgboost_booster(booster: Any) -> Reading:
    """What a `Booster` remembers about its training."""
    usual: dict[str, Any] = {name: p.usual for name, p in XgboostModels.parameters.items()}
    usual |= {"gamma": 0, "reg_alpha": 0, "max_leaves": 0, "grow_policy": "depthwise"}
    usual |= {"colsample_bylevel": 1, "colsample_bynode": 1, "max_delta_step": 0}
    learner = json.loads(booster.save_config())["learner"]
    trained = learner["gradient_booster"]["tree_train_param"]
    known = {name: plain_value(trained[name]) for name in usual if name in trained}
    parameters = {name: value for name, value in known.items() if value != usual[name]}
    parameters["n_estimators"] = booster.num_boosted_rounds()
    return Reading(parameters, signs_by_input(trained.get("monotone_constraints")))


def _xgboost_trees(ensemble: TreeEnsemble, text: str) -> Reading:
    """What the trees of a file show: their number and depth, and what follows from their leaves."""
    signs = signs_in_trees(ensemble)
    parameters: dict[str, Any] = {"n_estimators": ensemble.n_trees, "max_depth": ensemble.max_depth}
    names, known = ensemble.feature_names, "number and depth of trees"
    learning = learning_of(text)
    if learning is not None:
        parameters["learning_rate"], parameters["reg_lambda"] = learning
        known += f", the learning rate of {learning[0]:g} and the L2 penalty of {learning[1]:g}"
    held_names = [f"column {j}" if names is None or isinstance(j, str) else names[j] for j in signs]
    held = f" {listed(held_names)} stay monotone, as in all of its trees." if signs else ""
    told = (
        f"An XGBoost file does not say how its model was trained. The search takes the {known} from its trees.{held} "
        "All other parameters have XGBoost's defaults; to change them, pass the model itself or a `space`."
    )
    return Reading(parameters, signs, (told,))


# Names of parameters in LightGBM's files, in its classifier, and the defaults of those that are not searched.
_LIGHTGBM_NAMES = {
    "num_iterations": ("n_estimators", None),
    "min_data_in_leaf": ("min_child_samples", None),
    "min_sum_hessian_in_leaf": ("min_child_weight", 0.001),
    "lambda_l1": ("reg_alpha", 0),
    "lambda_l2": ("reg_lambda", None),
    "min_gain_to_split": ("min_split_gain", 0),
    "bagging_fraction": ("subsample", 1),
    "bagging_freq": ("subsample_freq", 0),
    "feature_fraction": ("colsample_bytree", 1),
    "scale_pos_weight": ("scale_pos_weight", 1),
}


class LightgbmModels(_NativeFamily):
    """`LGBMClassifier`."""

    name = "lightgbm"
    words = "gradient-boosted trees of LightGBM"
    home = ("lightgbm", "LGBMClassifier")
    # Otherwise LightGBM times two ways to build histograms and takes the faster, which changes the last digits.
    always: ClassVar = {"deterministic": True, "force_col_wise": True, "verbose": -1}
    fixed = EstimatorFamily.fixed | {
        "monotone_constraints",
        "objective",
        "verbosity",
        "deterministic",
        "force_col_wise",
    }
    parameters: ClassVar = {
        "learning_rate": Parameter(0.1, (0.03, 0.1), _half),
        "n_estimators": Parameter(100, (100, 200), _fewer),
        "num_leaves": Parameter(31, (4, 8, 16, 31), lambda n: [n, max(2, n // 2)]),
        "max_depth": Parameter(-1),
        "min_child_samples": Parameter(20, (20, 100), lambda n: [n, 5 * n]),
        "reg_lambda": Parameter(0.0),
        "max_bin": Parameter(255, (16, 255), _coarser),
    }

    def read(self, model: Any, text: str = "") -> Reading | None:
        """Read an `LGBMClassifier`, a `Booster`, or the trees of a file and its text."""
        model = last_step(model)
        if isinstance(model, TreeEnsemble):
            return _lightgbm_text(text, model.n_trees) if model.source.startswith("LightGBM") else None
        if tree_library(model) != "lightgbm":
            return None
        if not hasattr(model, "booster_"):
            return _lightgbm_text(model.model_to_string(), model.current_iteration())
        given, notes = given_parameters(model, self.fixed)
        parameters = {_LIGHTGBM_NAMES.get(name, (name,))[0]: value for name, value in given.items()}
        signs = signs_by_input(model.get_params().get("monotone_constraints"))
        if model.best_iteration_:
            parameters["n_estimators"] = model.best_iteration_
            notes += (_STOPPED.format(model.best_iteration_),)
        return Reading(parameters, signs, notes)

    def save(self, model: Any, path: Path) -> Path:
        """Write LightGBM's native text file."""
        return write_text(_file_in(path, ".txt"), model.booster_.model_to_string())


def _lightgbm_text(text: str, n_trees: int) -> Reading:
    """The parameters that LightGBM writes after its trees."""
    written = dict(re.findall(r"^\[(\w+): (.*)\]$", text, re.MULTILINE))
    parameters = {name: plain_value(written[name]) for name in LightgbmModels.parameters if name in written}
    for alias, (name, usual) in _LIGHTGBM_NAMES.items():
        if alias in written and plain_value(written[alias]) != usual:
            parameters[name] = plain_value(written[alias])
    parameters["n_estimators"] = n_trees
    return Reading(parameters, signs_by_input(written.get("monotone_constraints")))


ESTIMATORS: dict[str, EstimatorFamily] = {
    family.name: family
    for family in (HistTrees(), XgboostModels(), LightgbmModels(), LogisticModels(), ScorecardModels())
}
"""Every family but the networks, which are trained in stacks, by name."""

FAMILIES: dict[str, Family] = {"network": NetworkFamily(), **ESTIMATORS}
"""Every family, by name."""
