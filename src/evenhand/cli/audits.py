"""`evenhand audit` and `evenhand demo`."""

from __future__ import annotations

import errno
import json
import math
import operator
import os
import re
import shlex
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from evenhand.auditing.options import ReportOptions, StreamOptions
from evenhand.cli.options import (
    FILES,
    AuditPlan,
    CheckPlan,
    ReportPlan,
    TableArgument,
    check_given,
    is_streamed,
    named_table,
    opened_table,
    options_of,
    part_of,
    plan_from_toml,
    read_in,
    settings_in,
)
from evenhand.cli.terminal import say
from evenhand.exceptions import ArchiveError, InvalidInputError, did_you_mean
from evenhand.metrics.names import METRICS
from evenhand.system.threads import quick_imports

if TYPE_CHECKING:
    import pandas as pd

    from evenhand.auditing.history.compare import Comparison
    from evenhand.auditing.history.monitoring import Monitoring
    from evenhand.auditing.pack import Pack
    from evenhand.auditing.result import AuditResult


@options_of(CheckPlan)
def check(
    plan: CheckPlan,
    data: TableArgument = None,
    out: Annotated[Path, typer.Option(help="Folder for the page and for audit.toml.")] = Path("check"),
) -> None:
    """Check a table before you audit it: its columns, its groups, and a configuration to edit.

    Whatever you do not set with an option is proposed: `audit.toml` in the folder holds the proposals, with comments.

    \b
    Example, after `evenhand data save taiwan --people 3000 --out cards.csv`:
      evenhand check cards.csv --out check
    """
    from rich.console import Console

    from evenhand.auditing.checking import check as look
    from evenhand.inputs.read_options import ReadOptions
    from evenhand.inputs.tables import read_table
    from evenhand.inputs.tables.open import name_of_input
    from evenhand.inputs.tables.raw import shown
    from evenhand.system.files import json_ready, write_text
    from evenhand.system.terminal import PATIENCE, progress

    with progress("check", 2, after=PATIENCE) as advance:
        people = named_table(data, plan)
        table = read_table(people, part_of(plan, ReadOptions))
        advance("read")
        found = look(
            table,
            plan.label or None,
            list(plan.group) or None,
            financial_features=plan.financial_features or None,
            drop=plan.drop,
            positive_label=plan.positive_label,
            source=name_of_input(people),
        )
        advance("looked at")
    said = {option.name: getattr(plan, option.name) for option in fields(ReadOptions)}
    found = replace(found, reading={name: value for name, value in said.items() if value and name != "rows"})
    Console().print(found)
    page = found.to_html(out / "check.html")
    config = found.write_config(out / "audit.toml")
    write_text(out / "check.json", json.dumps(json_ready(found.to_dict())))
    source = f"--sql {shlex.quote(plan.sql)}" if plan.sql is not None else shlex.quote(shown(data or ""))
    say(f"\nWritten: {page}")
    say(f"Before the audit, {'edit' if found.steps else 'read'} {config}{':' if found.steps else '.'}")
    for step in found.steps:
        say(f"- {step}")
    say(f"Then run: evenhand audit {source} --config {shlex.quote(str(config))}")


_OPERATORS: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
_SHOWN = 6  # how many candidates an ambiguous name lists
_FORM = re.compile(r"\s*([\w.]+)\s*(>=|<=|>|<)\s*([-+.\deE]+)\s*")


@dataclass(frozen=True)
class Gate:
    """A metric, a comparison and a limit; crossed when the comparison holds."""

    metric: str
    comparison: str
    limit: float

    def __str__(self) -> str:
        return f"{self.metric} {self.comparison} {self.limit:g}"


def parse_gate(text: str) -> Gate:
    """Parse a gate.

    Examples
    --------
    >>> parse_gate("eo_gap > 0.1")
    Gate(metric='eo_gap', comparison='>', limit=0.1)
    """
    form = _FORM.fullmatch(text)
    if form is None:
        raise InvalidInputError(f"A gate must look like 'eo_gap > 0.1' (with >, >=, < or <=), got {text!r}.")
    try:
        return Gate(form[1], form[2], float(form[3]))
    except ValueError:
        raise InvalidInputError(f"The limit of a gate must be a number, got {form[3]!r}.") from None


def crossed_gates(gates: list[Gate], summary: Mapping[str, Any]) -> list[str]:
    """Return one sentence for each gate that is crossed.

    Parameters
    ----------
    gates
        The limits.
    summary
        `AuditResult.to_dict()`. A gate names a metric as a search does (``eo_gap``, ``cec``), in full
        (``outcome.eo_gap``) or by its last part, in which case the metric nearest to the top is used. The four findings
        have short names: ``score_gap`` and ``inputs`` (their absolute size), ``weighing`` and ``excess``; add ``_p``
        for the adjusted p-value. ``air`` is the adverse impact ratio: the lowest approval rate of a group over that of
        the reference group.

    Raises
    ------
    InvalidInputError
        If a gate names no known metric, is ambiguous, or names a metric that could not be estimated.
    """
    named = {name: value for name, metric in METRICS.items() if (value := metric.value(summary)) is not None}
    known = {**dict(_numbers(summary)), **named, **dict(_of_findings(summary.get("findings", ())))}
    groups = summary.get("outcome", {}).get("approvals", {}).get("groups", ())
    rates = [(row["is_reference"], row["approval_rate"]["value"]) for row in groups if row["n_people"]]
    if len(rates) > 1:
        reference = next(rate for is_reference, rate in rates if is_reference)
        lowest = min(rate for is_reference, rate in rates if not is_reference)
        known["air"] = lowest / reference if reference else math.nan
    values = [(gate, _metric(gate.metric, known)) for gate in gates]
    return [
        f"{gate} is crossed: {gate.metric} is {value:.4g}"
        for gate, value in values
        if _OPERATORS[gate.comparison](value, gate.limit)
    ]


def _metric(name: str, known: Mapping[str, float]) -> float:
    full = [key for key in known if key == name or key.endswith(f".{name}")]
    # Take the one nearest to the top: `auc` is the model's, not that of a nested screen.
    full = [key for key in full if key.count(".") == min(k.count(".") for k in full)]
    if len(full) > 1:
        more = f", or one of {len(full) - _SHOWN:,} more" if len(full) > _SHOWN else ""
        shown = ", ".join(full[:_SHOWN]) if more else f"{', '.join(full[:-1])} or {full[-1]}"
        raise InvalidInputError(
            f"The gate's metric {name!r} is ambiguous: it may be {shown}{more}. Give the full name."
        )
    if not full:
        options = [*(key.rpartition(".")[2] for key in known), *known]
        raise InvalidInputError(f"The gate names an unknown metric: {name!r}.{did_you_mean(name, options)}")
    value = known[full[0]]
    if math.isnan(value):
        raise InvalidInputError(f"The gate on {name!r} cannot be checked because the metric could not be estimated.")
    return value


def _of_findings(findings: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, float]]:
    for found in findings:
        has_side = found["key"] in ("score_gap", "inputs")
        # A result read from a file has None where there is no number.
        estimate, p = (math.nan if found[name] is None else found[name] for name in ("estimate", "p_adjusted"))
        yield found["key"], abs(estimate) if has_side else estimate
        yield f"{found['key']}_p", p


def _numbers(summary: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    for key, value in summary.items():
        if isinstance(value, Mapping):
            yield from _numbers(value, f"{prefix}{key}.")
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            yield f"{prefix}{key}", float(value)


@options_of(AuditPlan)
def audit(
    plan: AuditPlan,
    data: TableArgument = None,
    out: Annotated[Path, typer.Option(help="Folder for the results.")] = Path("audit"),
) -> None:
    """Audit a model on a table of applicants.

    \b
    Example, after `evenhand data save taiwan --people 3000 --out cards.csv`:
      evenhand audit cards.csv --label outcome --group sex \\
          --financial LIMIT_BAL,BILL_AMT1,PAY_AMT1,PAY_0 --out report
    """
    with _reader_of(plan.model):
        _audit(plan, data, out)


_READ_APART = (".skops", ".json", ".ubj", ".txt", ".cbm", ".onnx", ".pmml")


def _reader_of(model: str | None) -> AbstractContextManager[None]:
    """A process that reads a model file; it imports the model's library while this one imports the audit."""
    extension = Path(model or "").suffix.lower()
    if extension not in _READ_APART:
        return nullcontext()
    from evenhand.system.processes import ready

    return ready("evenhand.models.files.worker:prepare", extension)


def _audit(plan: AuditPlan, data: TableArgument, out: Path) -> None:
    begun = time.perf_counter()
    with quick_imports():
        if (plan.model or "").lower().endswith(".skops"):
            from evenhand.models.files.skops import imported_skops

            imported_skops()  # it searches all modules for functions: before there are many
        from evenhand.cli.jobs import audit_table, stream_table
    in_batches = is_streamed(data, plan)
    check_roles(plan, is_streamed=in_batches)
    gates = [parse_gate(text) for text in plan.fail_on]
    if plan.template is not None and not (plan.memo or plan.pack):
        raise InvalidInputError("--template only applies to the memo: add --memo or --pack.")
    if plan.memo or plan.template is not None:  # rejected before anything is computed
        from evenhand.report.memo import open_word

        open_word(plan.template)
    plan = replace(plan, stream=in_batches)
    names = [option.name for option in fields(StreamOptions)]
    only_streamed = [name for name in names if getattr(plan, name) != getattr(StreamOptions(), name)]
    if only_streamed and not in_batches:
        shown = ", ".join(f"--{name.replace('_', '-')}" for name in only_streamed)
        raise InvalidInputError(f"{shown} only applies to an audit in batches: add --stream.")
    people = named_table(data, plan, out if in_batches else None)
    if place := _sent_to(plan):
        say(f"Rows are sent to {place}.")
    result = stream_table(people, plan, out) if in_batches else audit_table(people, plan)
    crossed = crossed_gates(gates, result.to_dict())
    show_and_write(result, out, _further_outputs(result, read_in(people, out), plan))
    say(f"Run time: {time.perf_counter() - begun:.1f} s")
    _fail_if(crossed)


def _sent_to(plan: AuditPlan) -> str:
    """The machine or cluster that rows are sent to, without secrets; empty if they stay on this machine."""
    if plan.scheduler is not None:
        from evenhand.inputs.tables.raw import shown

        return "" if plan.scheduler.startswith("local") else shown(plan.scheduler.partition(";")[0])
    if plan.engine != "spark":
        return ""
    from evenhand.auditing.streaming.engines.spark import destination

    return destination(None)  # of Spark's own configuration


@options_of(AuditPlan)
def sensitivity(
    plan: AuditPlan,
    data: TableArgument = None,
    out: Annotated[Path, typer.Option(help="CSV file to write.")] = Path("sensitivity.csv"),
) -> None:
    """Audit a model once without each financial feature, to see how much depends on the choice of them.

    Takes the options of `evenhand audit`; those under Output and Large data are not used.

    \b
    Example, after `evenhand data save taiwan --people 3000 --out cards.csv`:
      evenhand sensitivity cards.csv --label outcome --group sex \\
          --financial LIMIT_BAL,BILL_AMT1,PAY_AMT1,PAY_0 --out sensitivity.csv
    """
    with quick_imports():
        from evenhand.auditing.audit import sensitivity_of
        from evenhand.cli.jobs import audit_table
    from evenhand.system.files import write_text

    if is_streamed(data, plan):
        raise InvalidInputError("`evenhand sensitivity` runs in memory: drop --stream, and pass one file.")
    check_roles(plan, is_streamed=False)
    people = named_table(data, plan)
    table = sensitivity_of(
        plan.financial_features,
        lambda kept: audit_table(people, replace(plan, financial_features=tuple(kept))),
    )
    write_text(out, table.to_csv(index=False))
    shown = ["left_out", "score_gap", "score_gap_low", "score_gap_high", "excess", "low", "high", "median_distance"]
    say(table[shown].to_string(index=False, float_format=lambda number: f"{number:.3f}"))
    group, reference = table.loc[0, ["group", "reference"]]
    if group is not None:
        say(f"\nThe score gap is {group} minus {reference}, at equal finances.")
    say(f"\nWritten: {out}")


def check_roles(plan: AuditPlan, *, is_streamed: bool) -> None:
    """Reject a plan without label, group or financial features, with groups given in two ways, or a doubtful label."""
    from evenhand.cli.jobs import is_without_model
    from evenhand.inputs.names import outcome_senses

    label = ("label",) if not is_without_model(plan) and plan.model is None else ()  # a network is fitted to it
    check_given(plan, *label, *(() if plan.group_probabilities else ("group",)), "financial_features")
    if plan.label and plan.positive_label is None and plan.favorable is None and False in outcome_senses(plan.label):
        raise InvalidInputError(
            f"By its name, the label {plan.label!r} may be an unfavorable outcome, so 1 may not be the favorable "
            "value: name the value that is good for the applicant with --positive-label, or say with --favorable low "
            "that the label and the model's score are 1 for the unfavorable outcome."
        )
    if plan.group_probabilities and is_without_model(plan):
        raise InvalidInputError("--group-probabilities needs a model, which is run again for each draw: add --model.")
    if plan.group_probabilities and plan.group:
        raise InvalidInputError(
            "--group and --group-probabilities both say who is in which group: use only one of them."
        )
    if plan.group_probabilities and is_streamed:
        raise InvalidInputError(
            "--group-probabilities needs everyone in memory, because the audit is repeated for each draw of the "
            "groups, but an audit in batches reads the people once: drop --stream, or audit a smaller sample."
        )


def _further_outputs(result: AuditResult, data: Any, plan: AuditPlan) -> dict[str, Callable[[Path], None]]:
    """Writers of the optional files, by file name."""
    found: dict[str, Callable[[Path], None]] = {}
    if plan.review:
        try:
            asked = result.review(ids=plan.review)
        except InvalidInputError as error:  # the audit is done: a mistyped id must not lose it
            say(str(error), err=True)
        else:
            found["applicants.csv"] = lambda path: _write_csv(asked, path)
    if plan.memo:
        found["memo.docx"] = lambda path: result.to_word(path, template=plan.template)
    if plan.pack:
        files = {"data": data, **{name: getattr(plan, name) for name in FILES}}
        inputs = {role: file for role, file in files.items() if file is not None}
        settings = settings_in(plan)
        found["pack.zip"] = lambda path: result.to_pack(path, plan=settings, inputs=inputs, template=plan.template)
    return found


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the results.")] = Path("demo"),
    no_open: Annotated[bool, typer.Option("--no-open", help="Do not open the report in a browser.")] = False,
    random_state: Annotated[int, typer.Option(help="Seed.")] = 0,
) -> None:
    """Train a plain network on Taiwan's credit card data, audit it on held-out people, and open the report.

    \b
    Example:
      evenhand demo --out demo
    """
    with quick_imports():
        from evenhand.cli.jobs import audit_demo

    say(
        "Credit cards in Taiwan: a plain network that does not see sex, trained on 8,400 people and audited on "
        "3,600 others."
    )
    report = show_and_write(audit_demo(random_state), out)
    if not no_open and has_desktop():
        typer.launch(str(report.resolve()))


def show_and_write(result: AuditResult, out: Path, further: Mapping[str, Callable[[Path], None]] | None = None) -> Path:
    """Write every form of the result, then print it, and return the path of the report.

    `further` maps the names of optional files to the functions that write them.
    """
    from rich.console import Console

    pairs = result.pairs_path or out / "pairs.parquet"
    writers: dict[str, Callable[[Path], object]] = {
        "audit.xlsx": result.to_excel,
        "audit.json": result.to_json,
        "pairs.parquet": result.to_parquet,
        "review.csv": lambda path: _write_csv(result.review(), path),
        "report.md": result.to_markdown,
        **(further or {}),
    }
    written = [pairs if name == "pairs.parquet" else out / name for name in writers]
    if result.pairs_path is not None:  # a streamed audit has already written its pairs
        del writers["pairs.parquet"]
    try:
        write_files({**writers, "report.html": lambda path: result.to_html(path, pairs_file=pairs.name)}, out)
    except OSError as failed:
        error = _beneath(failed)
        why = os.strerror(error.errno) if error.errno else str(error).rstrip(".")
        raise OSError(
            f"The audit's files could not be written to {str(out)!r}: {why}. None was written; {_remedy(error)}."
        ) from failed
    report = out / "report.html"
    Console().print(result)
    for reason, n in result.provenance.exclusions.items():
        say(f"Left out {n:,} rows: {reason}.")
    say(f"\nWritten: {', '.join(map(str, written))}")
    say(f"Report: {report}")
    return report


def _beneath(error: OSError) -> OSError:
    """The error of the operating system beneath ours."""
    below = error.__cause__ or error.__context__
    return _beneath(below) if isinstance(below, OSError) else error


def _remedy(error: OSError) -> str:
    from evenhand.system.files import FULL

    if error.errno in (errno.EMFILE, errno.ENFILE):
        return "allow more open files (ulimit -n)"
    return f"{'free some space, or ' if error.errno in FULL else ''}choose a different folder with --out"


def write_files(writers: Mapping[str, Callable[[Path], object]], out: Path) -> None:
    """Write all files to a folder, or none."""
    from evenhand.system.files import written_together
    from evenhand.system.terminal import PATIENCE, progress

    with written_together(out) as stage, progress("files", len(writers), after=PATIENCE) as advance:
        for name, write in writers.items():
            write(stage / name)
            advance(name)


@options_of(ReportPlan)
def report(
    plan: ReportPlan,
    audit: Annotated[Path, typer.Argument(help="An audit.json from `evenhand audit`.")],
    out: Annotated[Path, typer.Option(help="Folder for the files; not that of the audit.")] = Path("report"),
) -> None:
    """Write page, workbook, Markdown and memo of an audit again, with your words, without auditing again.

    The numbers are those of the file. It holds no people: page and workbook lack applicants and pairs, and say so.

    \b
    Example, after `evenhand demo --no-open --out demo`:
      evenhand report demo/audit.json --title "Card model, yearly review" --owner "Retail credit" --memo --out review
    """
    from evenhand.auditing.history.records import read_result

    if plan.template is not None and not plan.memo:
        raise InvalidInputError("--template only applies to the memo: add --memo.")
    if out.resolve() == audit.resolve().parent:
        raise InvalidInputError(
            f"--out must be another folder than that of {audit.name}, whose report also has applicants and pairs."
        )
    result = read_result(audit, **part_of(plan, ReportOptions).report)
    writers: dict[str, Callable[[Path], object]] = {
        "report.html": result.to_html,
        "audit.xlsx": result.to_excel,
        "report.md": result.to_markdown,
    }
    if plan.memo:
        writers["memo.docx"] = lambda path: result.to_word(path, template=plan.template)
    write_files(writers, out)
    say(f"Written: {', '.join(str(out / name) for name in writers)}")


def _write_csv(table: pd.DataFrame, path: Path) -> None:
    """Write a CSV file in which no text is computed by a spreadsheet."""
    from evenhand.report.workbook import STARTS_A_FORMULA

    def shown(cell: Any) -> Any:
        return f"'{cell}" if isinstance(cell, str) and cell.startswith(STARTS_A_FORMULA) else cell

    table.map(shown).to_csv(path, index=False)


def has_desktop() -> bool:
    """Whether there is a screen to open a page on."""
    if not sys.stdout.isatty() or os.environ.get("CI"):
        return False
    if sys.platform.startswith("linux"):
        return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
    return sys.platform in {"darwin", "win32"}


def verify(
    pack: Annotated[Path, typer.Argument(help="Evidence pack from `evenhand audit --pack`, a zip file.")],
    data: Annotated[
        str | None, typer.Option(help="Table of applicants; without it, only the files of the pack are checked.")
    ] = None,
    model: Annotated[Path | None, typer.Option(help="Model, if the audit had one.")] = None,
    reference: Annotated[str | None, typer.Option(help="People to match in, if the audit had any.")] = None,
    attributions_file: Annotated[str | None, typer.Option(help="File of attributions, if the audit had one.")] = None,
    sql: Annotated[str | None, typer.Option(help="Query, if the audit had one in place of a table.")] = None,
    config: Annotated[
        Path | None, typer.Option(help="TOML file with settings to use instead of those in the pack.")
    ] = None,
    tolerance: Annotated[
        float,
        typer.Option(
            help="Largest difference between numbers that count as equal, relative to the larger of them and 1."
        ),
    ] = 1e-6,
    trust_pickle: Annotated[
        bool,
        typer.Option(
            "--trust-pickle", help="Load a pickled model. It can run any code, so only use this with files you trust."
        ),
    ] = False,
) -> None:
    """Check that the files of an evidence pack are intact and that the same inputs give the same numbers.

    The audit is run again with the settings in the pack, and only on the files that you give.
    Exit code 0: no difference found; 1: something differs; 2: not a pack, or bad input.

    \b
    Example, after `evenhand data save taiwan --people 3000 --out cards.csv`:
      evenhand audit cards.csv --label outcome --group sex \\
          --financial LIMIT_BAL,BILL_AMT1,PAY_AMT1,PAY_0 --pack --out packed
      evenhand verify packed/pack.zip --data cards.csv
    """
    from evenhand.auditing.pack import read_pack, verify_pack
    from evenhand.inputs.tables import is_near

    read = read_pack(pack)
    given = {"data": data, "model": model, "reference": reference, "attributions_file": attributions_file}
    files: dict[str, Any] = {role: file for role, file in given.items() if file is not None}
    absent = [
        file for file in (*files.values(), config) if file is not None and is_near(file) and not Path(file).exists()
    ]
    if absent:
        raise InvalidInputError(f"There is no file {str(absent[0])!r}.")
    if sql is not None:
        files["data"] = named_table(data, AuditPlan(sql=sql))
    why = _cannot_run(read, files, has_config=config is not None)
    with TemporaryDirectory() as folder:
        result = None if why else _run_again(read, files, config, Path(folder), trust_pickle=trust_pickle)
        found = verify_pack(read, result, inputs=files, tolerance=tolerance)
    for sentence in (*found.sentences, *([f"The audit was not run again: {why}"] if why else [])):
        say(sentence)
    if not found.is_same:
        raise typer.Exit(1)


def _cannot_run(pack: Pack, files: dict[str, Any], *, has_config: bool) -> str:
    """Why the audit cannot be run again, and which options to add; empty if it can."""
    needed = {role: file["name"] for role, file in pack.facts["inputs"].items()}
    missing = [f"--{role.replace('_', '-')} {name}" for role, name in needed.items() if role not in files]
    if "data" not in files and "data" not in needed:
        missing.insert(0, "--data")
    if pack.facts["made_with"] != "evenhand audit" and not has_config:
        missing.append(
            "--config with the columns (it was made in Python; README.txt in the pack describes an alternative)"
        )
    return f"give {', '.join(missing)}." if missing else ""


def _run_again(
    pack: Pack, files: dict[str, Any], config: Path | None, folder: Path, *, trust_pickle: bool
) -> AuditResult:
    from evenhand.cli.jobs import audit_table, stream_table

    if config is None:
        config = folder / "audit.toml"
        config.write_text(pack.plan, encoding="utf-8")
        plan = _plan_in(pack, config)
    else:
        plan = plan_from_toml(config, AuditPlan)
    data = files["data"]
    in_batches = is_streamed(data, plan) if isinstance(data, str) else plan.stream
    check_roles(plan, is_streamed=in_batches)
    # The content of a pack never chooses a file, trusts one, or reaches a different machine.
    own: dict[str, Any] = {name: str(files[name]) if name in files else None for name in FILES}
    kept = ("batch_rows", "reference_people", "evidence_people")
    here: dict[str, Any] = {option.name: option.default for option in fields(StreamOptions) if option.name not in kept}
    own["columns"] = plan.columns or ("as-is",)  # what was audited once needs no second confirmation
    plan = replace(plan, **own, **here, sql=None, trust_pickle=trust_pickle, template=None, memo=False, pack=False)
    people = files["data"] = opened_table(data, plan) if isinstance(data, str) else data
    return stream_table(people, plan, folder / "audit") if in_batches else audit_table(people, plan)


def _plan_in(pack: Pack, config: Path) -> AuditPlan:
    """The settings of a pack, which hold the reason map itself.

    Raises
    ------
    ArchiveError
        If they name a cluster, a query, an address, or a file of this machine.
    """
    try:
        plan = plan_from_toml(config, AuditPlan)
    except InvalidInputError as error:
        raise ArchiveError(str(error).replace(repr(str(config)), f"{config.name!r} in {pack.name!r}")) from None
    if isinstance(plan.reason_map, str):
        raise ArchiveError(
            f"{config.name!r} in {pack.name!r} names a file as its reason_map, {plan.reason_map!r}, but the settings "
            "of a pack hold the map itself: give your own settings with --config."
        )
    return plan


def compare(
    audits: Annotated[
        list[Path], typer.Argument(help="Two or more audit.json files; the first is the one to compare with.")
    ],
    out: Annotated[Path, typer.Option(help="Page to write.")] = Path("comparison.html"),
    allow_different_settings: Annotated[
        bool,
        typer.Option("--allow-different-settings", help="Compare audits even if their thresholds or features differ."),
    ] = False,
    fail_on: Annotated[
        list[str] | None,
        typer.Option(
            help="Exit with code 1 if a change meets this condition, e.g. 'score_gap > 0.05' or 'weighing_p < 0.01'."
        ),
    ] = None,
) -> None:
    """Compare audits, to see if the answers to the four questions changed by more than noise.

    A gate names score_gap or inputs (how much its size grew), weighing, excess, auc or a different metric (how much
    it rose), or the adjusted p-value of the change, such as score_gap_p.

    \b
    Example, with two networks that differ only in their random seed:
      evenhand demo --no-open --out history/first
      evenhand demo --no-open --random-state 1 --out history/second
      evenhand compare history/*/audit.json --out comparison.html
    """
    from evenhand.auditing.history.compare import compare_audits

    gates = [parse_gate(text) for text in fail_on or ()]
    names = _distinct_names(audits)
    found = compare_audits(dict(zip(names, audits, strict=True)), allow_different_settings=allow_different_settings)
    crossed = [
        f"{name}: {sentence}"
        for name in names[1:]
        for sentence in (crossed_gates(gates, dict(_changes_by_name(found, name))) if gates else ())
    ]
    _show_and_judge(found, out, crossed, [pairing.sentence for pairing in found.pairings])


def monitor(
    folder: Annotated[Path, typer.Argument(help="Folder of audit files (JSON); subfolders are searched too.")],
    out: Annotated[Path, typer.Option(help="Page to write.")] = Path("monitoring.html"),
    false_alarm_rate: Annotated[
        float, typer.Option(help="Chance of a false alarm in a history in which nothing changed.")
    ] = 0.05,
    fail_on: Annotated[
        list[str] | None,
        typer.Option(
            help="Exit with code 1 if this holds, e.g. 'departures > 0' or, for the last audit, 'score_gap > 0.1'."
        ),
    ] = None,
) -> None:
    """Monitor a series of audits: trends with control limits, and the first audit that departs from the past.

    A gate names either departures, the number of metrics that departed from their past, or a metric of the last audit,
    as in `evenhand audit`.

    \b
    Example, after the one of `evenhand compare`:
      evenhand monitor history --out monitoring.html
    """
    from evenhand.auditing.history.monitoring import monitor as watch
    from evenhand.auditing.history.records import read_history

    gates = [parse_gate(text) for text in fail_on or ()]
    found = watch(read_history(folder), false_alarm_rate=false_alarm_rate)
    crossed = crossed_gates(gates, {**found.history.audits[-1].data, "departures": len(found.departures)})
    _show_and_judge(found, out, crossed)


def _show_and_judge(
    found: Comparison | Monitoring, out: Path, crossed: Sequence[str], people: Sequence[str] = ()
) -> None:
    for sentence in (*found.sentences, *people, *(f"! {warning}" for warning in found.warnings)):
        say(sentence)
    found.to_html(out)
    say(f"\nWritten: {out}")
    _fail_if(crossed)


def _fail_if(crossed: Sequence[str]) -> None:
    """Print the gates that were crossed, and exit with code 1 if there are any."""
    for sentence in crossed:
        say(f"Gate: {sentence}", err=True)
    if crossed:
        raise typer.Exit(1)


def _changes_by_name(found: Comparison, audit: str) -> Iterator[tuple[str, float]]:
    """The values that a gate on a comparison can name: changes and their adjusted p-values."""
    for change in (c for c in found.metrics if c.audit == audit and c.finding is None):
        name = change.key.replace(" ", "_")
        if re.fullmatch(r"\w+", name):
            yield name, change.change
            yield f"{name}_p", change.p_adjusted
    for finding in (f for f in found.findings if f.audit == audit):
        changes = [c for c in found.changes if c.audit == audit and c.finding == finding.key]
        # Score gaps can favor either group: how much their size grew.
        has_side = finding.key in ("score_gap", "inputs")
        grown = [abs(c.value) - abs(c.base_value) if has_side else c.change for c in changes]
        yield finding.key, max((size for size in grown if not math.isnan(size)), default=math.nan)
        yield f"{finding.key}_p", finding.p_adjusted


def _distinct_names(paths: Sequence[Path]) -> list[str]:
    """Short names that distinguish the files: the file's name, else its folder's, else both, else the whole path."""
    for name in (lambda p: p.stem, lambda p: p.parent.name, lambda p: "/".join(p.with_suffix("").parts[-2:]), str):
        names = [name(path) for path in paths]
        if len(set(names)) == len(names):
            return names
    return [f"{path} ({k})" for k, path in enumerate(paths, 1)]
