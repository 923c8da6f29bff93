"""The command line. Heavy modules are imported inside each command, so that ``--help`` is instant."""

from __future__ import annotations

import sys
import tomllib
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from evenhand.exceptions import EvenhandError, InvalidInputError

if TYPE_CHECKING:
    from evenhand.result import AuditResult

__all__ = ["app", "main"]

app = typer.Typer(
    name="evenhand",
    help="Audit how a credit model decides, not only what it decides.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
data_app = typer.Typer(help="List the datasets, or fetch one.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(data_app, name="data")


def main() -> NoReturn:
    """Run the command line: 0 done, 1 a gate was crossed, 2 bad input, 130 interrupted."""
    code: object = 0
    try:
        code = app(standalone_mode=False)
    except (EvenhandError, OSError) as error:
        _fail(str(error))
    except typer.Exit as done:
        code = done.exit_code
    except (KeyboardInterrupt, typer.Abort):
        code = 130
    except Exception as error:  # wrong options: the parser's own messages
        if not hasattr(error, "format_message"):
            raise
        _fail(error.format_message())
    if code == 130:
        typer.echo("Interrupted; what was finished is kept.", err=True)
    sys.exit(code if isinstance(code, int) else 0)


def _fail(message: str) -> NoReturn:
    typer.echo(f"Error: {message}", err=True)
    sys.exit(2)


@dataclass(frozen=True)
class _AuditPlan:
    """Everything `evenhand audit` can be told, by options or by a TOML file."""

    label: str = ""
    group: tuple[str, ...] = ()
    financial: tuple[str, ...] = ()
    model: str = ""
    reference: str = ""
    drop: tuple[str, ...] = ()
    positive_label: str = ""
    keep_group: bool = False
    drop_missing: bool = False
    decision_threshold: float = 0.5
    consistency_threshold: float = 0.3
    max_distance: float | None = None
    by: tuple[str, ...] = ()
    no_evidence: bool = False
    fail_on: tuple[str, ...] = ()
    random_state: int = 0


@app.command()
def audit(
    data: Annotated[Path, typer.Argument(help="CSV (plain or gzip) or Parquet file, one row per applicant.")],
    out: Annotated[Path, typer.Option(help="Folder for the results.")] = Path("audit"),
    config: Annotated[Path | None, typer.Option(help="TOML file with the options below; options win.")] = None,
    label: Annotated[str | None, typer.Option(help="Column of the true outcome.")] = None,
    group: Annotated[
        str | None, typer.Option(help="Column of the protected attribute; a,b for an intersection.")
    ] = None,
    financial: Annotated[str | None, typer.Option(help="Columns on which people are comparable: a,b,c.")] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="Model folder from `evenhand train`; without one, a plain network is fitted on 70 % of the people."
        ),
    ] = None,
    reference: Annotated[
        str | None, typer.Option(help="File of the people to match in, usually the training data.")
    ] = None,
    drop: Annotated[str | None, typer.Option(help="Columns to leave out: a,b.")] = None,
    positive_label: Annotated[
        str | None, typer.Option(help="Value of the label that is the favourable outcome.")
    ] = None,
    keep_group: Annotated[bool | None, typer.Option("--keep-group", help="The model also sees the group.")] = None,
    drop_missing: Annotated[
        bool | None, typer.Option("--drop-missing", help="Leave out, and count, rows without label or group.")
    ] = None,
    decision_threshold: Annotated[
        float | None, typer.Option(help="Probability from which the decision is favourable.")
    ] = None,
    consistency_threshold: Annotated[
        float | None, typer.Option(help="CEC score above which reasoning differs.")
    ] = None,
    max_distance: Annotated[float | None, typer.Option(help="Farthest match that counts.")] = None,
    by: Annotated[str | None, typer.Option(help="Columns within whose values the excess is wanted: a,b.")] = None,
    no_evidence: Annotated[
        bool | None,
        typer.Option("--no-evidence", help="Skip the comparison with placebo pairs: faster, blind to noise."),
    ] = None,
    fail_on: Annotated[
        list[str] | None, typer.Option(help="Exit with 1 when crossed, e.g. 'excess > 0.05'; repeatable.")
    ] = None,
    random_state: Annotated[int | None, typer.Option(help="Seed.")] = None,
) -> None:
    """Audit a model on a table of applicants.

    Example: evenhand audit loans.csv --label approved --group sex --financial income,debt --out report/
    """
    given: dict[str, Any] = {
        "label": label,
        "group": _names(group),
        "financial": _names(financial),
        "model": model,
        "reference": reference,
        "drop": _names(drop),
        "positive_label": positive_label,
        "keep_group": keep_group,
        "drop_missing": drop_missing,
        "decision_threshold": decision_threshold,
        "consistency_threshold": consistency_threshold,
        "max_distance": max_distance,
        "by": _names(by),
        "no_evidence": no_evidence,
        "fail_on": tuple(fail_on) if fail_on else None,
        "random_state": random_state,
    }
    plan = replace(_plan_from_toml(config), **{key: value for key, value in given.items() if value is not None})
    for name in ("label", "group", "financial"):
        if not getattr(plan, name):
            raise InvalidInputError(f"--{name} is needed, as an option or in the TOML file.")
    _run_audit(data, out, plan)


def _run_audit(data: Path, out: Path, plan: _AuditPlan) -> None:
    from evenhand.gates import crossed_gates, parse_gate
    from evenhand.running import audit_table

    gates = [parse_gate(text) for text in plan.fail_on]
    result = audit_table(
        data,
        label=plan.label,
        group=plan.group,
        financial=plan.financial,
        model=plan.model or None,
        reference=plan.reference or None,
        drop=plan.drop,
        positive_label=plan.positive_label or None,
        keep_group=plan.keep_group,
        drop_missing=plan.drop_missing,
        decision_threshold=plan.decision_threshold,
        consistency_threshold=plan.consistency_threshold,
        max_distance=plan.max_distance,
        by=plan.by,
        evidence=not plan.no_evidence,
        random_state=plan.random_state,
    )
    crossed = crossed_gates(gates, result.to_dict())
    _show_and_write(result, out)
    for sentence in crossed:
        typer.echo(f"Gate: {sentence}", err=True)
    if crossed:
        raise typer.Exit(1)


@app.command()
def train(
    data: Annotated[Path, typer.Argument(help="CSV (plain or gzip) or Parquet file, one row per applicant.")],
    label: Annotated[str, typer.Option(help="Column of the true outcome.")],
    group: Annotated[str, typer.Option(help="Column of the protected attribute; a,b for an intersection.")],
    financial: Annotated[str, typer.Option(help="Columns on which people are comparable: a,b,c.")],
    out: Annotated[Path, typer.Option(help="Folder for the model.")] = Path("model"),
    drop: Annotated[str, typer.Option(help="Columns to leave out: a,b.")] = "",
    positive_label: Annotated[
        str | None, typer.Option(help="Value of the label that is the favourable outcome.")
    ] = None,
    keep_group: Annotated[bool, typer.Option("--keep-group", help="The model also sees the group.")] = False,
    drop_missing: Annotated[
        bool, typer.Option("--drop-missing", help="Leave out, and count, rows without label or group.")
    ] = False,
    cec_weight: Annotated[float, typer.Option(help="Weight of explanation consistency; 0 for none.")] = 1.0,
    equalized_odds_weight: Annotated[float, typer.Option(help="Weight of equalized odds; 0 for none.")] = 1.0,
    epochs: Annotated[int, typer.Option(help="Passes over the people.")] = 30,
    encoding: Annotated[str, typer.Option(help="Categories as onehot columns or ordinal codes.")] = "onehot",
    checkpoint: Annotated[
        Path | None, typer.Option(help="Folder that keeps an unfinished fit; run again to go on.")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    random_state: Annotated[int, typer.Option(help="Seed.")] = 0,
) -> None:
    """Train a classifier on a table of applicants and save it.

    Example: evenhand train loans.csv --label approved --group sex --financial income,debt --out model/
    """
    from evenhand.running import train_table

    model, exclusions = train_table(
        data,
        label=label,
        group=_names(group) or (),
        financial=_names(financial) or (),
        drop=_names(drop) or (),
        positive_label=positive_label,
        keep_group=keep_group,
        drop_missing=drop_missing,
        cec_weight=cec_weight,
        equalized_odds_weight=equalized_odds_weight,
        epochs=epochs,
        encoding=encoding,
        checkpoint=checkpoint,
        device=device,
        random_state=random_state,
    )
    for reason, count in exclusions.items():
        typer.echo(f"Left out: {count} rows, {reason}.")
    last = {name: values[-1] for name, values in model.history_.items() if len(values)}
    typer.echo(", ".join(f"{name} {value:.4f}" for name, value in last.items() if value == value))
    typer.echo(f"Written: {model.save(out)}")


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the results.")] = Path("demo"),
    random_state: Annotated[int, typer.Option(help="Seed.")] = 0,
) -> None:
    """Train a plain network on German Credit, audit it on held-out people.

    Example: evenhand demo --out demo/
    """
    from evenhand.running import audit_demo

    typer.echo("German Credit: a plain network, trained on 700 people and audited on the other 300.")
    _show_and_write(audit_demo(random_state), out)


@app.command()
def reproduce(
    dataset: Annotated[str, typer.Option(help="german, adult, synthetic, hmda, several as a,b, or all.")] = "german",
    methods: Annotated[str | None, typer.Option(help="Methods to compare: a,b; all by default.")] = None,
    folds: Annotated[int, typer.Option(help="Folds of the cross-validation.")] = 5,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer epochs: to see that everything runs.")] = False,
    fast_training: Annotated[
        bool, typer.Option("--fast-training", help="Train CEC with this library's attributions, not the paper's.")
    ] = False,
    grid: Annotated[bool, typer.Option("--grid", help="Also the 6 x 6 lambda settings, on German Credit.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "cpu",
    out: Annotated[Path, typer.Option(help="Folder for results, tables, figures and the page.")] = Path("reproduction"),
    state: Annotated[str | None, typer.Option(help="States of the HMDA data: NY or NY,NJ.")] = None,
    year: Annotated[int | None, typer.Option(help="Year of the HMDA data.")] = None,
    post_decision: Annotated[
        bool, typer.Option("--post-decision", help="Put back the HMDA fields known only after the decision.")
    ] = False,
    random_state: Annotated[int, typer.Option(help="Seed.")] = 0,
) -> None:
    """Compare the seven methods on the paper's datasets: tables, figures and a page.

    Example: evenhand reproduce --dataset german --methods cec,unconstrained --folds 2 --quick
    """
    from evenhand.experiments.reproduce import reproduce as run

    found = run(
        dataset if dataset == "all" else list(_names(dataset) or ()),
        methods,
        folds=folds,
        quick=quick,
        fast_training=fast_training,
        has_grid=grid,
        device=device,
        out=out,
        states=_names(state),
        year=year,
        include_post_decision=post_decision,
        random_state=random_state,
    )
    for note in found.notes:
        typer.echo(note)
    for table in found.tables:
        typer.echo(f"\n{table.to_markdown()}")
    typer.echo(f"\nWritten: {found.page}")


@app.command()
def calibrate(
    full: Annotated[bool, typer.Option("--full", help="The whole study: hours of one core.")] = False,
    jobs: Annotated[int, typer.Option(help="Processes.")] = 1,
    out: Annotated[Path, typer.Option(help="File for the table, as JSON.")] = Path("calibration.json"),
) -> None:
    """Measure false alarms, power and coverage of the excess on models whose truth is known.

    Example: evenhand calibrate --out calibration.json
    """
    import json

    from evenhand.experiments.calibration import run_study
    from evenhand.files import write_atomically

    def show(done: int, total: int, row: dict[str, Any]) -> None:
        typer.echo(
            f"{done}/{total} {row['model']}, {row['n']} people, share {row['group_share']}, shift {row['shift']}, "
            f"strength {row['strength']}: alarms {row['alarms']:.3f}, coverage {row['coverage']:.3f}"
        )

    rows = run_study(quick=not full, n_jobs=jobs, progress=show)
    with write_atomically(out) as temporary:
        temporary.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    typer.echo(f"Written: {out}")


@data_app.command("list")
def data_list() -> None:
    """List the datasets with their sizes and sources.

    Example: evenhand data list
    """
    from rich.console import Console
    from rich.table import Table

    from evenhand.data import dataset_descriptions

    table = Table("name", "what", box=None, pad_edge=False)
    for name, what in dataset_descriptions().items():
        table.add_row(name, what)
    Console().print(table)


@data_app.command("fetch")
def data_fetch(
    name: Annotated[str, typer.Argument(help="Dataset to fetch; only hmda needs the network.")],
    state: Annotated[str, typer.Option(help="States of the HMDA export: NY or NY,NJ.")] = "DC",
    year: Annotated[int, typer.Option(help="Year of the HMDA export.")] = 2024,
) -> None:
    """Fetch a dataset into the user's cache.

    Example: evenhand data fetch hmda --state DC --year 2024
    """
    from evenhand.data import dataset_descriptions, load_dataset
    from evenhand.data.hmda import fetch_hmda

    if name == "hmda":
        for path in fetch_hmda(_names(state) or (), year):
            typer.echo(str(path))
        return
    if name in dataset_descriptions():
        typer.echo(f"{name} needs no download: {load_dataset(name)!r}")
        return
    raise InvalidInputError(f"There is no dataset {name!r}; see `evenhand data list`.")


@app.command()
def version() -> None:
    """Print the version."""
    from evenhand._version import __version__

    typer.echo(__version__)


def _show_and_write(result: AuditResult, out: Path) -> None:
    from rich.console import Console

    Console().print(result)
    result.to_json(out / "audit.json")
    result.to_parquet(out / "pairs.parquet")
    typer.echo(f"\nWritten: {out / 'audit.json'} and {out / 'pairs.parquet'}")


def _names(text: str | None) -> tuple[str, ...] | None:
    """Column names from a,b,c."""
    return tuple(name.strip() for name in text.split(",") if name.strip()) if text is not None else None


def _plan_from_toml(path: Path | None) -> _AuditPlan:
    if path is None:
        return _AuditPlan()
    from evenhand.validation import did_you_mean

    try:
        settings: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InvalidInputError(f"There is no file {str(path)!r}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidInputError(f"{str(path)!r} is not valid TOML: {error}.") from None
    kinds = {field.name: type(field.default) for field in fields(_AuditPlan)}
    for key, value in settings.items():
        if key not in kinds:
            raise InvalidInputError(f"{str(path)!r} has an unknown key {key!r}.{did_you_mean(key, list(kinds))}")
        settings[key] = _toml_value(path, key, value, kinds[key])
    return replace(_AuditPlan(), **settings)


def _toml_value(path: Path, key: str, value: Any, kind: type) -> Any:  # noqa: ANN401
    if kind is tuple:
        items = [value] if isinstance(value, str) else value
        if isinstance(items, list) and all(isinstance(item, str) for item in items):
            return tuple(items)
    elif kind in (float, type(None)):
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return float(value)
    elif type(value) is kind:
        return value
    wanted = {tuple: "a text or a list of texts", str: "a text", bool: "true or false", int: "a whole number"}
    raise InvalidInputError(f"{str(path)!r}: {key} must be {wanted.get(kind, 'a number')}, got {value!r}.")
