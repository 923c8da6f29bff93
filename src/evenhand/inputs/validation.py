"""Validate user tables, labels and groups once, at the edge, and turn them into arrays."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, TypeVar

import narwhals as nw
import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import DTypeLike, NDArray

from evenhand.exceptions import InvalidInputError, InvalidTypeError, did_you_mean, warn_caller

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Rows = TypeVar("Rows", "pd.Series[Any]", pd.DataFrame)
Options = TypeVar("Options", bound="DataclassInstance")


def moved_keywords(
    function_name: str,
    old: Mapping[str, Any],
    options: Options | None,
    options_type: type[Options],
    own: Sequence[str] = (),
    *,
    are_moved: bool = True,
) -> Options:
    """Options of a function, with those fields of the options that were given as keywords.

    Parameters
    ----------
    function_name
        As the user calls it, such as ``"eh.search"``.
    old
        Keywords that the function was given and does not have itself.
    options
        The options given; None for the defaults.
    options_type
        The dataclass of the options.
    own
        Parameters that the function has, to suggest where a keyword is misspelled.
    are_moved
        Whether the keywords used to be parameters and will only be fields in the next release.

    Warns
    -----
    FutureWarning
        If keywords have moved: where they belong now.

    Raises
    ------
    InvalidTypeError
        If a keyword never existed, or `options` is something else.
    InvalidInputError
        If a keyword and the options differ.

    Examples
    --------
    >>> @dataclass(frozen=True, kw_only=True)
    ... class Cooking:
    ...     minutes: int = 10
    >>> moved_keywords("eh.cook", {}, Cooking(minutes=5), Cooking)
    Cooking(minutes=5)
    >>> moved_keywords("eh.cook", {"minute": 5}, None, Cooking)
    Traceback (most recent call last):
    ...
    evenhand.exceptions.InvalidTypeError: eh.cook has no parameter 'minute'. Did you mean 'minutes'?
    """
    if options is not None and not isinstance(options, options_type):
        raise InvalidTypeError(
            f"`options` of {function_name} must be {options_type.__name__}(...), got {type(options).__name__}."
        )
    defaults = options_type()
    options = defaults if options is None else options
    known = [field.name for field in fields(options_type) if field.init]
    for name, value in old.items():
        if name not in known:
            raise InvalidTypeError(
                f"{function_name} has no parameter {name!r}.{did_you_mean(name, [*own, 'options', *known])}"
            )
        present = getattr(options, name)
        if not any(np.array_equal(present, same) for same in (getattr(defaults, name), value)):
            raise InvalidInputError(
                f"`{name}` is {value!r}, but `options` has {present!r}: leave out `{name}`, which belongs in "
                f"{options_type.__name__}."
            )
    if not old or not are_moved:
        return replace(options, **old) if old else options
    given = ", ".join(f"{name}=..." for name in old)
    warn_caller(
        f"`{function_name}({given})` is now `options={options_type.__name__}({given})`; the old "
        f"{'keyword goes' if len(old) == 1 else 'keywords go'} in the next release.",
        FutureWarning,
    )
    return replace(options, **old)


def in_row_order(values: Any, X: Any, name: str) -> Any:
    """Put the values of people in the row order of `X`.

    Only pandas knows which row a value belongs to. If both have an index and the indexes differ in order, values are
    put in the order of `X`; if they are not of the same people, they are rejected.

    Parameters
    ----------
    values
        A column or table, one row per person, or columns by name; anything without an index is returned unchanged.
    X
        The table.
    name
        Name of `values`, for messages.

    Raises
    ------
    InvalidInputError
        If the indexes are of different people, or a repeated label makes the order ambiguous.

    Examples
    --------
    >>> X = pd.DataFrame({"income": [1, 2]}, index=["ann", "bob"])
    >>> in_row_order(pd.Series([0, 1], index=["bob", "ann"]), X, "y").tolist()
    [1, 0]
    """
    if isinstance(values, Mapping):
        return {key: in_row_order(column, X, name) for key, column in values.items()}
    if not isinstance(X, (pd.DataFrame, pd.Series)) or not isinstance(values, (pd.DataFrame, pd.Series)):
        return values
    rows, given = X.index, values.index
    if len(rows) != len(given) or rows.equals(given):  # a different length is reported elsewhere
        return values
    what, remedy = f"`{name}` and `X` have different indexes", f"if its values are in order, pass `{name}.to_numpy()`"
    if not rows.is_unique or not given.is_unique:
        raise InvalidInputError(f"{what}, and some labels in it are repeated, so the order is ambiguous; {remedy}.")
    absent = ~rows.isin(given)
    if absent.any():
        raise InvalidInputError(
            f"{what}: {int(absent.sum()):,} of {len(rows):,} rows of `X` are not in it, such as {rows[absent][0]!r}; "
            f"{remedy}."
        )
    return values.reindex(rows)


_BETWEEN_LETTERS = re.compile(r"(?<=[^\W\d_])[-_\s]+(?=[^\W\d_])")


def plain_name(name: str) -> str:
    """Normalize a name: remove outer and repeated spaces, capitals, wide letters and hyphens between words.

    Examples
    --------
    >>> plain_name(" Non-Hispanic  WHITE "), plain_name("-1")
    ('non hispanic white', '-1')
    """
    folded = " ".join(unicodedata.normalize("NFKC", name).casefold().split())
    return _BETWEEN_LETTERS.sub(" ", folded)


def alike_names(names: Iterable[str]) -> list[tuple[str, ...]]:
    """Groups of names that differ only in typing, each in order of first appearance.

    Examples
    --------
    >>> alike_names(["Black", "Asian", "Black ", "BLACK"])
    [('Black', 'Black ', 'BLACK')]
    """
    alike: dict[str, list[str]] = {}
    for name in dict.fromkeys(names):
        alike.setdefault(plain_name(name), []).append(name)
    return [tuple(members) for members in alike.values() if len(members) > 1]


MOST_GROUPS = 50
"""People are compared with every other group: time and memory grow with their number, and small groups say little."""

_HUGE = 1e150
_SHOWN = 4


def check_group_names(counts: Mapping[str, int], name: str) -> None:
    """Reject groups that are too many, differ only in capitals and spaces, or have invalid names.

    Parameters
    ----------
    counts
        People of each group.
    name
        What the user gave, for messages.

    Raises
    ------
    InvalidInputError
        If the groups are implausible.

    Examples
    --------
    >>> check_group_names({"Black": 90, "BLACK": 2, "White": 80}, "race")
    Traceback (most recent call last):
    ...
    evenhand.exceptions.InvalidInputError: `race` has groups that differ only in typing: 'Black' (90),
    'BLACK' (2); write each group in one way (in a TOML file: [clean] groups = {'BLACK' = 'Black'}).
    """
    if len(counts) > MOST_GROUPS:
        shown = ", ".join(repr(group) for group in list(counts)[:_SHOWN])
        raise InvalidInputError(
            f"`{name}` has {len(counts):,} groups, such as {shown}; at most {MOST_GROUPS} can be compared. "
            "Cut a number such as age into bands (in a TOML file: [clean] bands = {age = [25, 62]}), and combine rare "
            "groups."
        )
    unwritable = [group for group in counts if "\0" in group or not is_writable(group)]
    if unwritable:
        raise InvalidInputError(f"`{name}` has group names with invalid characters: {unwritable[:_SHOWN]}.")
    alike = alike_names(counts)
    if alike:
        shown = ", ".join(f"{group!r} ({counts[group]:,})" for group in alike[0])
        *rare, usual = sorted(alike[0], key=lambda group: counts[group])
        raise InvalidInputError(
            f"`{name}` has groups that differ only in typing: {shown}; write each group in one way (in a TOML file: "
            f"[clean] groups = {{{', '.join(f'{group!r} = {usual!r}' for group in rare)}}})."
        )


def is_writable(text: str) -> bool:
    """Whether a text has no lone surrogate, which cannot be encoded."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


MISSING = "(missing)"
"""The text of a missing value."""

SEPARATOR = " & "
"""Between the values of several attributes in the name of a group; no value contains it."""


@dataclass(frozen=True)
class Groups:
    """The validated protected attribute.

    Attributes
    ----------
    codes
        Integers 0..G-1, of shape (n,).
    names
        Readable name of each code.
    """

    codes: NDArray[np.int64]
    names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def counts(self) -> dict[str, int]:
        """Number of people in each group."""
        numbers = np.bincount(self.codes, minlength=len(self.names))
        return {name: int(number) for name, number in zip(self.names, numbers, strict=True)}

    def recoded(self, names: Sequence[str]) -> Groups:
        """Return the same people with the codes that `names` gives; every name in use must be among them."""
        positions = np.asarray([names.index(name) for name in self.names], dtype=np.int64)
        return Groups(positions[self.codes], tuple(names))


def as_table(X: Any, name: str = "X") -> pd.DataFrame:
    """A pandas table with string column names, from a table of any library, or a two-dimensional array.

    A table is anything that narwhals reads, also lazily, such as a polars query, a Dask table or a DuckDB relation, or
    that exports Arrow data.

    Examples
    --------
    >>> as_table([[1.0, 2.0]]).columns.tolist()
    ['x0', 'x1']
    """
    if isinstance(X, pd.DataFrame):
        table = X
    elif isinstance(X, np.ndarray) or (isinstance(X, Sequence) and not isinstance(X, str)):
        values = np.asarray(X)
        if values.ndim != 2:
            raise InvalidInputError(f"`{name}` must have two dimensions, got shape {values.shape}.")
        table = pd.DataFrame(values, columns=[f"x{j}" for j in range(values.shape[1])])
    else:
        try:
            given = pa.Table.from_batches([X]) if isinstance(X, pa.RecordBatch) else X
            frame = nw.from_native(given, pass_through=True)
            frame = frame.collect() if isinstance(frame, nw.LazyFrame) else frame
            table = (frame if isinstance(frame, nw.DataFrame) else pa.table(frame)).to_pandas()
        except (TypeError, pa.ArrowInvalid):
            raise InvalidTypeError(
                f"`{name}` must be a pandas, polars or pyarrow table or a two-dimensional array, "
                f"got {type(X).__name__}."
            ) from None
    if table.shape[0] == 0 or table.shape[1] == 0:
        raise InvalidInputError(f"`{name}` must have rows and columns, got shape {table.shape}.")
    names = [str(column) for column in table.columns]
    repeated = sorted({column for column in names if names.count(column) > 1})
    if repeated:
        raise InvalidInputError(f"`{name}` has columns with the same name: {repeated}.")
    _check_writable(names, f"`{name}` has column names")
    return _with_usable_kinds(table.set_axis(names, axis=1).reset_index(drop=True), name)


def _with_usable_kinds(table: pd.DataFrame, name: str) -> pd.DataFrame:
    """The table with decimals as numbers; columns that are not numbers, text, dates or booleans are rejected."""
    decimals, bad = [], {}
    for column, values in table.items():
        kind = _odd_kind(values)
        if kind == "decimal":
            decimals.append(column)
        elif kind:
            bad[column] = kind
        elif values.dtype == object:
            _check_writable(
                [text for text in values.unique() if isinstance(text, str)], f"Column {column!r} has values"
            )
    if bad:
        shown = ", ".join(f"{column!r} ({kind})" for column, kind in bad.items())
        raise InvalidInputError(
            f"`{name}` has columns that hold neither numbers, text, dates nor booleans: {shown}; leave them out."
        )
    return table.astype(dict.fromkeys(decimals, "float64")) if decimals else table


def _odd_kind(values: pd.Series[Any]) -> str:
    """The kind of a column that cannot be used directly; empty otherwise."""
    if isinstance(values.dtype, pd.ArrowDtype):
        kind = values.dtype.pyarrow_dtype
        is_odd = pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind)
        return "decimal" if pa.types.is_decimal(kind) else str(kind) if is_odd else ""
    if values.dtype.kind == "c":
        return "complex"
    found = pd.api.types.infer_dtype(values, skipna=True) if values.dtype == object else ""
    if found in {"decimal", "bytes", "complex"}:
        return found
    if found != "mixed":
        return ""
    kinds = values.dropna().map(type).unique()
    return next((kind.__name__ for kind in kinds if issubclass(kind, (list, tuple, set, dict, np.ndarray))), "")


def _check_writable(texts: Iterable[str], what: str) -> None:
    """Reject lone surrogates, which cannot be encoded."""
    bad = [text for text in texts if not is_writable(text)]
    if bad:
        raise InvalidInputError(f"{what} with invalid characters: {bad[:3]}; write them again.")


def as_matrix(
    table: pd.DataFrame, name: str = "X", *, dtype: DTypeLike = np.float32, allow_missing: bool = False
) -> NDArray[np.floating]:
    """Columns in order as a matrix, for a model that takes the table unchanged.

    Raises
    ------
    InvalidInputError
        If a column is not numeric, or has infinite or huge values, or missing ones that the model does not accept.
    """
    text = text_columns(table)
    if text:
        raise InvalidInputError(
            f"`{name}` has columns that are not numbers: {text} (such as {_not_a_number(table[text[0]])!r} in "
            f"{text[0]!r}). Encode them first, for example with "
            "`evenhand.TableEncoder.fit(X).transform(X)`, or audit a `CECClassifier`, which encodes by itself."
        )
    values: NDArray[np.floating] = table.to_numpy(dtype=dtype, na_value=np.nan)

    def found(is_wrong: NDArray[np.bool_]) -> dict[str, int]:
        return {c: int(n) for c, n in zip(table.columns, is_wrong.sum(axis=0), strict=True) if n}

    if bad := found(np.isinf(values) if allow_missing else ~np.isfinite(values)):
        what = "infinite" if allow_missing else "missing or infinite"
        raise InvalidInputError(f"`{name}` holds {what} values (column: count): {bad}. Drop those rows or fill them.")
    if huge := found(np.abs(values) > min(_HUGE, float(np.finfo(values.dtype).max))):
        raise InvalidInputError(
            f"`{name}` holds numbers beyond {_HUGE:g} (column: count): {huge}. Their squares overflow; check the unit."
        )
    return values


def _not_a_number(column: pd.Series[Any]) -> str:
    """A value of a column that is not a number."""
    present = column.dropna()
    strange = present[pd.to_numeric(present.astype(str), errors="coerce").isna()]
    return str(next(iter(strange if len(strange) else present), ""))


def as_labels(y: Any, n: int, name: str = "y", *, is_part: bool = False) -> NDArray[np.int64]:
    """Labels 0 and 1 of n people; both must occur unless these are only a part of the people.

    Examples
    --------
    >>> as_labels([True, False], 2)
    array([1, 0])
    """
    values = _as_column(y, name, n)
    missing = int(values.isna().sum())
    if missing:
        raise InvalidInputError(
            f"`{name}` has {missing} missing labels; drop those people first (on the command line: --drop-missing)."
        )
    seen = sorted(values.unique().tolist(), key=str)
    if not set(seen) <= {0, 1}:
        raise InvalidInputError(
            f"`{name}` must be 0 or 1 (1 for the favorable outcome), got the values {seen[:5]}"
            f"{' and more' if len(seen) > 5 else ''}."
        )
    if len(seen) < 2 and not is_part:
        raise InvalidInputError(f"`{name}` holds only the label {seen[0]}; both 0 and 1 are needed.")
    return values.to_numpy().astype(np.int64)


def as_decisions(decisions: Any, n: int, name: str = "decisions") -> NDArray[np.int64]:
    """Decisions about n people, 1 for the favorable one.

    Examples
    --------
    >>> as_decisions([True, True], 2)
    array([1, 1])
    """
    values = _as_column(decisions, name, n)
    seen = sorted(values.dropna().unique().tolist(), key=str)
    n_missing = int(values.isna().sum())
    if n_missing or not set(seen) <= {0, 1}:
        came = f"{n_missing} missing values" if n_missing else f"the values {seen[:5]}{' and more' * (len(seen) > 5)}"
        raise InvalidInputError(f"`{name}` must be 1 for a favorable decision and 0 for any other, got {came}.")
    return values.to_numpy().astype(np.int64)


def as_ids(ids: Any, n: int, name: str = "ids") -> NDArray[np.object_]:
    """The user's ids of n people, as text.

    Examples
    --------
    >>> as_ids([1007, 1003], 2)
    array(['1007', '1003'], dtype=object)
    """
    values = _as_column(ids, name, n)
    n_missing = int(values.isna().sum())
    if n_missing:
        raise InvalidInputError(f"`{name}` has {n_missing} missing values; give everyone an id.")
    names = values.astype(object).map(category_text)
    repeated = names[names.duplicated()]
    if len(repeated):
        raise InvalidInputError(
            f"`{name}` must be unique, but {repeated.nunique()} values occur more than once, such as "
            f"{repeated.iloc[0]!r}."
        )
    return names.to_numpy(dtype=object)


def as_groups(sensitive_features: Any, n: int, name: str = "sensitive_features", *, is_part: bool = False) -> Groups:
    """Group codes and names; several columns become their intersection. A part of the people may have only one group.

    Examples
    --------
    >>> as_groups(["m", "f", "m"], 3)
    Groups(codes=array([1, 0, 1]), names=('f', 'm'))
    >>> as_groups({"sex": ["m", "f"], "old": [True, False]}, 2).names
    ('f & False', 'm & True')
    """
    if sensitive_features is None:
        raise InvalidInputError(
            f"`{name}` is missing: groups are needed to compare people. Give one value per row of `X`."
        )
    table = as_columns(sensitive_features, n, name)
    _refuse_probabilities(table, name)
    columns = {str(column): table[column] for column in table.columns}
    for label, values in columns.items():
        missing = int(values.isna().sum())
        if missing:
            raise InvalidInputError(
                f"`{name}` has {missing} missing values{f' in {label!r}' if len(columns) > 1 else ''}; "
                "drop those people (on the command line: --drop-missing), or give them a separate group such as "
                "'unknown'."
            )
    joined, *rest = (_category_texts(values) for values in columns.values())
    if rest:
        joined, *rest = (part.str.replace(SEPARATOR, " and ") for part in (joined, *rest))
    for part in rest:
        joined = joined + SEPARATOR + part
    codes, names = pd.factorize(joined.to_numpy(dtype=object), sort=True)
    groups = Groups(codes.astype(np.int64), tuple(str(group) for group in names))
    check_group_names(groups.counts, name)
    if len(names) < 2 and not is_part:
        raise InvalidInputError(
            f"`{name}` holds only the group {str(names[0])!r}; at least two groups are needed to compare."
        )
    return groups


def as_clusters(clusters: Any, n: int, name: str = "clusters") -> NDArray[np.uint64]:
    """A hash for each applicant or household, of shape (n,), equal for equal values; 0 if the value is missing.

    Examples
    --------
    >>> found = as_clusters(["a", "b", "a", None], 4)
    >>> bool(found[0] == found[2]), bool(found[0] == found[1]), int(found[3])
    (True, False, 0)
    """
    values = _as_column(clusters, name, n)
    texts = values.astype(object).map(category_text, na_action="ignore")
    hashes = pd.util.hash_array(texts.astype(str).to_numpy(dtype=object))
    return np.where(values.isna().to_numpy(), 0, np.maximum(hashes, 1)).astype(np.uint64)


def as_weights(sample_weight: Any, n: int, name: str = "sample_weight") -> NDArray[np.float64]:
    """How many people of the population each of n rows stands for, up to a common factor.

    Examples
    --------
    >>> as_weights([3, 0, 1.5], 3)
    array([3. , 0. , 1.5])
    """
    values = _as_column(sample_weight, name, n)
    if not is_number_column(values):
        example = next(iter(values.dropna()), None)
        raise InvalidInputError(
            f"`{name}` must hold numbers, one weight per row, got {values.dtype} such as {example!r}; name the column "
            "of the weights."
        )
    weights = values.to_numpy(dtype=np.float64, na_value=np.nan)
    is_negative = (weights < 0) & np.isfinite(weights)
    faults = {"missing": np.isnan(weights), "infinite": np.isinf(weights), "negative": is_negative}
    bad = [f"{int(rows.sum())} {what}" for what, rows in faults.items() if rows.any()]
    if bad:
        raise InvalidInputError(
            f"`{name}` must be 0 or more people per row, got {' and '.join(bad)} values; drop or correct those rows."
        )
    return weights


def as_splits(by: Any, n: int) -> dict[str, NDArray[np.str_]]:
    """Columns to split by as text, one value for each of `n` people; a missing value counts as a value.

    Examples
    --------
    >>> as_splits({"state": ["NY", None]}, 2)["state"].tolist()
    ['NY', '(missing)']
    """
    if by is None:
        return {}
    table = as_columns(by, n, "by")
    return {str(name): as_texts(table[name]).to_numpy(dtype=str) for name in table.columns}


def as_texts(values: pd.Series[Any]) -> pd.Series[Any]:
    """Values as text; a missing value is a separate value.

    Examples
    --------
    >>> as_texts(pd.Series(["NY", None, 3])).tolist()
    ['NY', '(missing)', '3']
    """
    return values.astype(object).where(values.notna(), MISSING).map(str)


def is_number_column(values: pd.Series[Any]) -> bool:
    """Whether a column holds numbers; booleans, strings and pandas categories are categories."""
    return pd.api.types.is_numeric_dtype(values.dtype) and not pd.api.types.is_bool_dtype(values.dtype)


def text_columns(table: pd.DataFrame) -> list[str]:
    """Columns that hold neither numbers nor booleans, which count as the numbers 1 and 0."""
    return [c for c in table.columns if not (is_number_column(table[c]) or table[c].dtype == bool)]


def check_columns(wanted: Iterable[str], available: Sequence[str], what: str) -> list[str]:
    """`wanted` as a list, each name in `available`, none repeated; outer spaces may be omitted.

    Examples
    --------
    >>> check_columns("income", [" income ", "debt"], "`drop`")
    [' income ']
    """
    given = [wanted] if isinstance(wanted, str) else [str(column) for column in wanted]
    # The one column that has a name except for outer spaces, if none has it exactly.
    alike = [[column for column in available if column.strip() == name.strip()] for name in given]
    names = [a[0] if name not in available and len(a) == 1 else name for name, a in zip(given, alike, strict=True)]
    if not names:
        raise InvalidInputError(f"{what} names no column; name at least one of {list(available)}.")
    absent = [column for column in names if column not in available]
    if absent:
        raise InvalidInputError(
            f"{what} names columns absent from the data: {absent}.{did_you_mean(absent[0], available)}"
        )
    repeated = sorted({column for column in names if names.count(column) > 1})
    if repeated:
        raise InvalidInputError(f"{what} names a column twice: {repeated}.")
    return names


def as_spelled(names: Sequence[str], columns: Sequence[str]) -> list[str]:
    """Names of a model's inputs as a table spells them: LightGBM and ONNX store a space as an underscore.

    A name is replaced if the table does not have it, and one column alone differs from it by such spaces.

    Examples
    --------
    >>> as_spelled(["Loan_amount", "age"], ["age", "Loan amount"])
    ['Loan amount', 'age']
    >>> as_spelled(["a_b_c"], ["a b_c", "a_b c"])
    ['a_b_c']
    """
    spelled = []
    for name in names:
        alike = [column for column in columns if column.replace(" ", "_") == name.replace(" ", "_")]
        spelled.append(alike[0] if name not in columns and len(alike) == 1 and alike[0] not in names else name)
    return list(names) if len(set(spelled)) < len(spelled) else spelled


def _refuse_probabilities(table: pd.DataFrame, name: str) -> None:
    """Reject group membership given as probabilities, which matching and attribution cannot use."""
    if table.shape[1] < 2 or not all(table[c].dtype.kind == "f" for c in table.columns):
        return
    shares = table.to_numpy(dtype=float)
    if ((shares >= 0) & (shares <= 1)).all() and np.allclose(shares.sum(axis=1), 1) and (shares % 1 != 0).any():
        raise InvalidInputError(
            f"`{name}` holds probabilities of {table.shape[1]} groups, but one group per person was expected. To audit "
            "with probabilities, pass them as `evenhand.GroupProbabilities(...)` to `evenhand.audit`."
        )


def category_text(value: Any) -> str:
    """A value as the name of a group or label; 1.0 from a file with missing values elsewhere becomes 1."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _category_texts(values: pd.Series[Any]) -> pd.Series[Any]:
    """The text of every value; in a column of one type, each distinct value is converted once."""
    if values.dtype == object:  # 1 and True are equal there, but different words
        return pd.Series(list(map(category_text, values)), dtype=object)
    codes, distinct = pd.factorize(values)
    texts = np.array([category_text(value) for value in distinct.astype(object)], dtype=object)
    return pd.Series(texts[codes], dtype=object)


def _is_two_dimensional(values: Any) -> bool:
    """Whether an array or a table of any library has two dimensions."""
    return len(getattr(values, "shape", ())) == 2


def as_columns(values: Any, n: int, name: str) -> pd.DataFrame:
    """The columns of n people from a mapping, a table, or a single column of any library."""
    if isinstance(values, Mapping):
        values = pd.DataFrame({str(key): list(column) for key, column in values.items()})
    if not _is_two_dimensional(values):
        return _as_column(values, name, n).to_frame(str(getattr(values, "name", None) or name))
    return _of_people(as_table(values, name), n, name)


def _as_column(values: Any, name: str, n: int) -> pd.Series[Any]:
    """The column of n people from a list, array, pandas, polars or pyarrow column, or a table of one column."""
    return _of_people(_any_column(values, name), n, name)


def _of_people(rows: Rows, n: int, name: str) -> Rows:
    if len(rows) != n:
        raise InvalidInputError(
            f"`{name}` has {len(rows)} values for {n} rows; pass one for each, in the order of `X`."
        )
    return rows


def _any_column(values: Any, name: str) -> pd.Series[Any]:
    if isinstance(values, pd.Series):
        return values.reset_index(drop=True)
    if _is_two_dimensional(values):
        table = as_table(values, name)
        if table.shape[1] != 1:
            raise InvalidInputError(f"`{name}` must be one column, got {table.shape[1]}.")
        return table.iloc[:, 0]
    if isinstance(values, (list, tuple, np.ndarray)):
        try:
            return pd.Series(values)
        except UnicodeEncodeError:  # lone surrogates, which are rejected by name where names are read
            return pd.Series(values, dtype=object)
    if isinstance(values, pa.Array):
        values = pa.chunked_array([values])
    try:
        column: pd.Series[Any] = nw.from_native(values, series_only=True).to_pandas()
        return column.reset_index(drop=True)
    except TypeError:
        raise InvalidTypeError(
            f"`{name}` must be a list, an array or a column of a table, got {type(values).__name__}."
        ) from None
