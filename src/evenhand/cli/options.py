"""Options of the commands, built from the dataclasses that define them. TOML files use the same names."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import Field, asdict, dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from evenhand.auditing.options import AuditOptions, CommandOptions, GivenOptions, ReportOptions, StreamOptions
from evenhand.exceptions import InvalidInputError, did_you_mean
from evenhand.inputs.read_options import ColumnOptions, ReadOptions, column_option, option, read_option
from evenhand.searching.options import DEFAULT_KEEP, SearchOptions

ALIASES = {
    "financial": "financial_features",
    "limit": "limits",
    "decision": "decisions",
    "id": "ids",
    "reasons": "reason_map",
    "candidates": "n_candidates",
}
"""Short names of options."""

_KINDS: dict[str, type] = {
    "str": str,
    "bool": bool,
    "int": int,
    "float": float,
    "float | SegmentThresholds": float,
    "tuple[str, ...]": tuple,
    "Mapping[str, float]": dict,
}
# What a file that came with the data must not decide, and why.
_COMMAND_LINE_ONLY = {
    "trust_pickle": "lets a file run code",
    "scheduler": "sends rows to other machines",
    "sql": "reads any file of this machine",
    "template": "puts the content of another file into the memo",
    "labels": "names another file",
}
_REPEATABLE = {"fail_on", "limits", "keep", "family"}
_OR_TABLE = {"reason_map", "payoff", "labels"}  # a string, or in TOML a table
# Roles: those on the command line replace the file's. All other lists are added to the file's.
_REPLACED = {"group", "financial_features", "group_probabilities", "attributions", "reason_codes", "family"}

_OF_A_FILE = {
    "config": Annotated[
        Path | None,
        typer.Option(
            help="TOML file with the options of this command. An option on the command line overrides the file; lists "
            "such as --drop and --fail-on are added to the file's, unless --only names them."
        ),
    ],
    "only": Annotated[
        str | None,
        typer.Option(
            help="With --config: lists to take from the command line alone, not added to the file's: drop,by."
        ),
    ],
}

Plan = TypeVar("Plan")


def _same(plan: type, name: str) -> Any:
    """An option with the default and help of the dataclass that defines it."""
    option = next(option for option in fields(plan) if option.name == name)
    return field(default=option.default, metadata=option.metadata)


@dataclass(frozen=True, kw_only=True)
class TableOptions(ReadOptions):
    """What every command on a table of applicants has: a table or a query, how to read it, and its main columns."""

    sql: str | None = read_option(
        None,
        'DuckDB query that selects the people, in place of a table, such as "select * from '
        "'loans/*.parquet' where year = 2024\". It reads local files and changes nothing.",
    )
    label: str = column_option("", "Column of the true outcome.")
    group: tuple[str, ...] = column_option((), "Column of the protected attribute; a,b for the intersection of two.")
    financial_features: tuple[str, ...] = _same(AuditOptions, "financial_features")


@dataclass(frozen=True, kw_only=True)
class CheckPlan(TableOptions):
    """What the user can say about the columns before a table is checked."""

    drop: tuple[str, ...] = _same(ColumnOptions, "drop")
    positive_label: str | None = _same(ColumnOptions, "positive_label")


@dataclass(frozen=True, kw_only=True)
class TablePlan(ColumnOptions, TableOptions):
    """Options about columns and cells that every command on a table of applicants has."""

    by: tuple[str, ...] = ()  # only for audits

    def __post_init__(self) -> None:
        ReadOptions.__post_init__(self)
        ColumnOptions.__post_init__(self)


_CATEGORIES = "Categories as onehot columns or ordinal codes"


@dataclass(frozen=True, kw_only=True)
class SearchPlan(SearchOptions, TablePlan):
    """All options of `evenhand search`, on the command line or in a TOML file."""

    encoding: str | None = _same(ReadOptions, "encoding")  # type: ignore[assignment]
    categories: str = option("onehot", f"{_CATEGORIES}, for networks.", "Models")
    keep: tuple[str, ...] = option(
        DEFAULT_KEEP,
        "What a model must keep, e.g. 'auc >= best - 0.01', 'profit >= unconstrained - 1%' or 'income increasing'; "
        "repeatable.",
        "Goal",
    )
    minimize: str = option(
        "reasoning_gap",
        "Metric to improve, e.g. score_gap, weighing, excess, eo_gap, air or 'score_gap[income]'.",
        "Goal",
    )
    start: str | None = option(
        None,
        "Your model, to search around and, retrained, compare with: .json or .ubj (XGBoost), .txt (LightGBM), .skops.",
        "Models",
    )
    family: tuple[str, ...] = option(
        (),
        "network, trees (of scikit-learn), xgboost, lightgbm, logistic or scorecard; repeatable. [default: that of "
        "--start, or network]",
        "Models",
    )
    n_candidates: int | None = option(
        None, "Number of combinations to draw at random; all of them by default.", "Models"
    )
    seed_search: int | None = option(
        None, "Search over this many seeds, too: each candidate and seed is a draw.", "Models"
    )
    random_state: int = option(0, "Seed.", "Judging")

    def __post_init__(self) -> None:
        SearchOptions.__post_init__(self)
        TablePlan.__post_init__(self)


@dataclass(frozen=True, kw_only=True)
class TrainPlan(TablePlan):
    """All options of `evenhand train`, on the command line or in a TOML file."""

    paper: bool = option(
        False,
        "Train with the paper's objective, weights and network; where it is silent, as the reproduction does: "
        "midpoints and integer codes. Other options override it.",
        "Goal",
    )
    objective: str = option(
        "reasoning_gap", "What is lowered: reasoning_gap, reasoning_excess, excess, or cec, the paper's.", "Goal"
    )
    cec_weight: float = option(2.0, "Weight of the objective; 0 for none.", "Goal")
    equalized_odds_weight: float = option(0.0, "Weight of equalized odds; 0 for none.", "Goal")
    least_explained: float = option(
        0.1, "Share of the labels' entropy at which both weights count in full; 0 for always.", "Goal"
    )
    epochs: int = option(30, "Passes over the people.", "Training")
    categories: str = option("onehot", f"{_CATEGORIES}.", "Training")
    device: str = option("auto", "auto, cpu or cuda.", "Training")
    random_state: int = option(0, "Seed.", "Training")
    checkpoint: str | None = option(
        None, "Folder that keeps an unfinished fit; run the command again to continue.", "Output"
    )


@dataclass(frozen=True, kw_only=True)
class AuditPlan(StreamOptions, GivenOptions, AuditOptions, CommandOptions, ColumnOptions, TableOptions):
    """All options of `evenhand audit`, on the command line or in a TOML file."""

    label: str = column_option(
        "", "Column of the true outcome. With a model, it may be left out: then finances alone match."
    )

    def __post_init__(self) -> None:
        for kind in (AuditOptions, StreamOptions, ReadOptions, ColumnOptions):
            kind.__post_init__(self)


@dataclass(frozen=True, kw_only=True)
class ReportPlan(ReportOptions):
    """All options of `evenhand report`."""

    memo: bool = _same(CommandOptions, "memo")
    template: str | None = _same(CommandOptions, "template")


def options_of(plan: type[Plan]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of a dataclass.

    The command's parameter `plan` is replaced by an option for every field of the dataclass. If these are about an
    audit, a search or a training, `--config` names a TOML file that is read first; options on the command line override
    it, and lists are added to it unless `--only` names them.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = [p for p in inspect.signature(command, eval_str=True).parameters.values() if p.name != "plan"]
        shown = [option for option in fields(plan) if "help" in option.metadata]  # type: ignore[arg-type]
        shown.sort(key=lambda option: _PANELS.index(option.metadata["panel"]))
        options = [_parameter(option) for option in shown]
        for name, annotation in _OF_A_FILE.items() if issubclass(plan, ColumnOptions) else ():
            own.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation))

        def run(**given: Any) -> None:
            kinds = {option.name: _kind(option) for option in shown}
            only = {ALIASES.get(name, name) for name in names_in((given.pop("only", None) or "").replace("-", "_"))}
            if unknown := sorted(only - set(kinds)):
                raise InvalidInputError(
                    f"--only names unknown options: {unknown}.{did_you_mean(unknown[0], list(kinds))}"
                )
            values = _from_toml(given.pop("config", None), plan)
            rest = {name: value for name, value in given.items() if name not in kinds}
            for name, kind in kinds.items():
                if given[name] is not None:
                    is_added = name in values and name not in only | _REPLACED
                    values[name] = _joined(values[name] if is_added else None, _value(name, given[name], kind))
            command(**rest, plan=plan(**_with_paper(values, plan)))

        parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in (*own, *options)]
        run.__name__, run.__doc__ = command.__name__, command.__doc__
        run.__annotations__ = {p.name: p.annotation for p in parameters}
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return run

    return decorate


def part_of(plan: object, kind: type[Plan]) -> Plan:
    """The options of a plan that a different dataclass has, too."""
    names = (option.name for option in fields(kind))  # type: ignore[arg-type]
    return kind(**{name: getattr(plan, name) for name in names if hasattr(plan, name)})


def check_given(plan: object, *names: str) -> None:
    """Reject a plan that lacks an option.

    Raises
    ------
    InvalidInputError
        If an option is missing.
    """
    for name in names:
        if not getattr(plan, name):
            raise InvalidInputError(f"--{name.replace('_', '-')} is required, as an option or in the TOML file.")


_PANELS = (
    *("Columns", "Reading", "Goal", "Models", "Training", "Judging", "Stopping", "Machine"),
    *("Model", "People", "Evidence", "Output", "Large data"),
)
"""The headings of options in help texts, in order."""


def _parameter(option: Field[Any]) -> inspect.Parameter:
    flag = "--" + option.name.replace("_", "-")
    names = [flag, *(f"--{short}" for short, name in ALIASES.items() if name == option.name)]
    kind = _kind(option)
    if kind is bool:
        names = [f"{flag}/--no-{flag[2:]}"] if option.default else [flag]
    taken: Any = str if kind is tuple else kind
    taken = list[str] | None if option.name in _REPEATABLE else taken | None
    usual = "; ".join(option.default) if isinstance(option.default, tuple) else option.default
    default = f" [default: {usual}]" if usual and kind is not bool else ""
    help_text = f"{option.metadata['help']}{default}".replace("[", r"\[")  # not markup
    annotation = Annotated[taken, typer.Option(*names, help=help_text, rich_help_panel=option.metadata["panel"])]
    return inspect.Parameter(option.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _kind(option: Field[Any]) -> type:
    """The plain type of an option; a choice among words is a string."""
    return _KINDS.get(str(option.type).removesuffix(" | None"), str)


def _value(name: str, value: Any, kind: type) -> Any:
    """Convert an option to the form the dataclass holds: a,b,c becomes a tuple of names."""
    if name == "limits":
        return _limits_in(value)
    if name in _REPEATABLE:
        return tuple(value)
    return names_in(value) if kind is tuple else value


def _joined(stated: Any, given: Any) -> Any:
    """Lists and limits of the file, if there are any, with those of the command line; anything else is replaced."""
    if isinstance(stated, tuple):
        return tuple(dict.fromkeys((*stated, *given)))
    return {**stated, **given} if isinstance(stated, dict) and isinstance(given, dict) else given


def names_in(text: str) -> tuple[str, ...]:
    """Split a,b,c into names."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _limits_in(texts: list[str]) -> dict[str, float]:
    """Parse limits such as score_gap=0.1."""
    found: dict[str, float] = {}
    for text in texts:
        name, _, number = (part.strip() for part in text.partition("="))
        if name in found:
            raise InvalidInputError(f"--limit names {name} twice; give it once.")
        try:
            found[name] = float(number)
        except ValueError:
            raise InvalidInputError(f"--limit must look like 'score_gap=0.1', got {text!r}.") from None
    return found


_OF_THE_RUN = (
    "sql",
    "review",
    "memo",
    "template",
    "pack",
    "resume",
    "engine",
    "scheduler",
    "n_jobs",
    "device",
    "trust_pickle",
)
FILES = ("model", "reference", "attributions_file")
"""Options that name a file other than the table of people."""


def settings_in(plan: AuditPlan) -> dict[str, Any]:
    """A plan's settings of the audit, by the keys of a TOML file.

    Defaults are written out, because they may change between versions. Files are named without their folders. How and
    where the audit ran, and whether a file was trusted, is left to whoever runs it again.
    """
    from evenhand.inputs.reason_maps import read_reason_map
    from evenhand.inputs.tables.open import name_of_input

    only_streamed = () if plan.stream else tuple(option.name for option in fields(StreamOptions))
    values = {option.name: getattr(plan, option.name) for option in fields(plan)}
    values["reason_map"] = read_reason_map(plan.reason_map)  # the file's content, because the file may change
    threshold = plan.decision_threshold
    values["decision_threshold"] = asdict(threshold) if is_dataclass(threshold) else threshold
    settings = {
        name: name_of_input(value).rpartition(":")[2] if name in FILES else value  # without delta: and iceberg:
        for name, value in values.items()
        if value not in (None, (), {}) and name not in (*_OF_THE_RUN, *only_streamed)
    }
    cleaning = {name: settings.pop(name) for name in _CLEAN if name in settings}
    return {**settings, "clean": cleaning} if cleaning else settings


def plan_from_toml(path: Path | None, plan: type[Plan]) -> Plan:
    """Read a plan from a TOML file; without a file, the defaults.

    Raises
    ------
    InvalidInputError
        If the file is missing or not TOML, a key is unknown or has the wrong type, or it decides what only the command
        line may: what is trusted, read from elsewhere, or sent away.
    """
    return plan(**_with_paper(_from_toml(path, plan), plan))


def _with_paper(values: dict[str, Any], plan: type) -> dict[str, Any]:
    """The values with those of the paper, if the user wants them, where the user gives none."""
    if not values.get("paper"):
        return values
    from evenhand.research.paper import PAPER

    paper = vars(PAPER.audit) if plan is AuditPlan else {**PAPER.training, "categories": PAPER.encoding}
    names = {option.name for option in fields(plan)} - {"encoding"}  # which is the file's
    return {**{name: value for name, value in paper.items() if name in names}, **values}


def _from_toml(path: Path | None, plan: type) -> dict[str, Any]:
    """The values that a file states, by the names of options."""
    if path is None:
        return {}
    from evenhand.system.files import read_toml

    settings = read_toml(path)
    kinds = {option.name: _kind(option) for option in fields(plan) if "help" in option.metadata}
    optional = {option.name for option in fields(plan) if str(option.type).endswith(" | None")}
    values: dict[str, Any] = {}
    if "clean" in settings and issubclass(plan, ColumnOptions):
        values = _cleaning_in(path, settings.pop("clean"))
    for key, value in settings.items():
        name = ALIASES.get(key, key)
        if name not in kinds:
            raise InvalidInputError(f"{str(path)!r} has an unknown key {key!r}.{did_you_mean(key, list(kinds))}")
        if why := _why_not_in_a_file(name, value):
            raise InvalidInputError(
                f"{str(path)!r} sets {key}, which {why}: set it only on the command line, with "
                f"--{key.replace('_', '-')}."
            )
        # TOML has no null: an empty string means None.
        kind = dict if name in _OR_TABLE and isinstance(value, dict) else kinds[name]
        values[name] = None if value == "" and name in optional else _toml_value(path, key, value, kind)
    return values


_CLEAN = ("groups", "missing", "bands")


def _cleaning_in(path: Path, table: Any) -> dict[str, Any]:
    """The options in the table [clean] of a file."""
    if not isinstance(table, dict):
        raise InvalidInputError(f"{str(path)!r}: clean must be a table, [clean], got {table!r}.")
    for key, value in table.items():
        if key not in _CLEAN:
            raise InvalidInputError(
                f"{str(path)!r} has an unknown key {key!r} in [clean], which has {', '.join(_CLEAN)}; write all other "
                "keys above the line [clean]."
            )
        if not isinstance(value, list if key == "missing" else dict):
            wanted = "a list of words and numbers" if key == "missing" else "a table"
            raise InvalidInputError(f"{str(path)!r}: {key} of [clean] must be {wanted}, got {value!r}.")
    return {**table, **({"missing": tuple(map(str, table["missing"]))} if "missing" in table else {})}


def _why_not_in_a_file(name: str, value: Any) -> str:
    """Why an option must be on the command line; empty if it may be in a file."""
    if name in _COMMAND_LINE_ONLY:
        is_harmless = value in (False, "") or (name in _OR_TABLE and isinstance(value, dict))
        return "" if is_harmless else _COMMAND_LINE_ONLY[name]
    if not isinstance(value, str):
        return ""
    if name in (*FILES, "start", "reason_map"):
        from evenhand.inputs.tables.lakes import LakeName
        from evenhand.inputs.tables.raw import Address

        is_plain = Address.of(value) is None and LakeName.of(value) is None and not value.startswith(("\\\\", "//"))
        return "" if is_plain else "names something other than a local file"
    is_outside = name == "checkpoint" and not Path(value).resolve().is_relative_to(Path.cwd().resolve())
    return "is a folder outside the working folder" if is_outside else ""


def _toml_value(path: Path, key: str, value: Any, kind: type) -> Any:
    if kind is tuple:
        items = [value] if isinstance(value, str) else value
        if isinstance(items, list) and all(isinstance(item, str) for item in items):
            return tuple(items)
    elif kind is float:
        if isinstance(value, dict) and key == "decision_threshold":
            return value  # cutoffs by segment, which the options check
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return float(value)
    elif type(value) is kind:
        return value
    wanted = {
        tuple: "a string or a list of strings",
        dict: "a table of names and numbers",
        str: "a string",
        bool: "true or false",
        int: "a whole number",
    }
    raise InvalidInputError(f"{str(path)!r}: {key} must be {wanted.get(kind, 'a number')}, got {value!r}.")


TableArgument = Annotated[
    str | None,
    typer.Argument(
        help="Table of applicants, one row each: a CSV, Parquet, Arrow, Excel, SAS, Stata or SPSS file; a folder of "
        "Parquet files; an address (s3://, gs://, abfss://, https://); delta:PATH@VERSION or "
        "iceberg:CATALOG/TABLE@SNAPSHOT; with --engine spark, the name of a table. "
        "Use --sql instead to select the people with a query."
    ),
]
"""Where the people are."""


def named_table(data: str | None, plan: AuditPlan | CheckPlan | TablePlan, folder: Path | None = None) -> Any:
    """Return the open table that the command line names.

    Parameters
    ----------
    data
        Path or address.
    plan
        Its query replaces `data`.
    folder
        Where to store rows that can be read only once; None for a private folder.

    Raises
    ------
    InvalidInputError
        If both `data` and a query are given, or neither.
    """
    if plan.sql is not None:
        from evenhand.inputs.tables import open_table
        from evenhand.inputs.tables.lakes import query
        from evenhand.inputs.tables.raw import shown

        if data is not None:
            raise InvalidInputError(f"The table {shown(data)!r} and --sql both name the people: use only one of them.")
        return open_table(query(plan.sql), folder=folder)
    if data is None:
        raise InvalidInputError(
            "The table of applicants is missing: name a file, a folder or an address, or use --sql."
        )
    return opened_table(data, plan, folder)


def opened_table(data: str, plan: AuditPlan | CheckPlan | TablePlan, folder: Path | None = None) -> Any:
    """Return the open table, so that it is fetched once and stays as it is now; or a path that may be a Spark table."""
    from evenhand.inputs.tables import is_near, open_table

    if getattr(plan, "engine", None) == "spark" and is_near(data) and not Path(data).exists():
        return Path(data)
    return open_table(data, part_of(plan, ReadOptions), folder=folder)


def is_streamed(data: str | None, plan: AuditPlan) -> bool:
    """Whether people are read in batches, because the user asked for it or they are in a folder of files."""
    from evenhand.inputs.tables import is_folder

    return plan.stream or (data is not None and is_folder(data))


def read_in(people: Any, out: Path) -> Any:
    """What an audit in a folder read: the named table, or the rows that Spark stored there."""
    if not isinstance(people, Path):
        return people
    from evenhand.auditing.streaming.engines.spark import ROWS

    return out / ROWS
