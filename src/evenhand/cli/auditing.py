"""`evenhand audit` and `evenhand demo`."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from evenhand.cli.names import names_in
from evenhand.cli.options import AuditPlan, plan_from_toml
from evenhand.exceptions import InvalidInputError

if TYPE_CHECKING:
    from evenhand.auditing.result import AuditResult
    from evenhand.auditing.streaming import StreamedAudit

__all__ = ["audit", "demo", "show_and_write"]

_STREAM_OPTIONS = (
    "resume", "batch_rows", "reference_people", "evidence_people", "engine", "scheduler", "workers", "device",
)  # fmt: skip


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
            help="Folder from `evenhand train`, or a file: .onnx, .json or .ubj (XGBoost), .txt (LightGBM), .cbm or "
            ".json (CatBoost), .skops, and .pkl or .joblib with --trust-pickle. Without one, a plain network is "
            "fitted on 70 % of the people."
        ),
    ] = None,
    trust_pickle: Annotated[
        bool | None,
        typer.Option("--trust-pickle", help="Open a pickled model: it can run any code, so know where it is from."),
    ] = None,
    attribution: Annotated[
        str | None,
        typer.Option(
            help="auto, integrated_gradients, linear, tree_shap or sampled_shapley; by default what fits the model."
        ),
    ] = None,
    output: Annotated[
        str | None, typer.Option(help="What the model's score is, if it does not tell: log-odds or probability.")
    ] = None,
    n_permutations: Annotated[int | None, typer.Option(help="Orders in which sampled_shapley adds features.")] = None,
    reference: Annotated[
        str | None, typer.Option(help="File of the people to match in, usually the training data.")
    ] = None,
    drop: Annotated[str | None, typer.Option(help="Columns to leave out: a,b.")] = None,
    positive_label: Annotated[
        str | None, typer.Option(help="Value of the label that is the favorable outcome.")
    ] = None,
    keep_group: Annotated[bool | None, typer.Option("--keep-group", help="The model also sees the group.")] = None,
    drop_missing: Annotated[
        bool | None, typer.Option("--drop-missing", help="Leave out, and count, rows without label or group.")
    ] = None,
    decision_threshold: Annotated[
        float | None, typer.Option(help="Probability from which the decision is favorable.")
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
    stream: Annotated[
        bool | None,
        typer.Option("--stream", help="Read the people in batches, for any number of them; folders always are."),
    ] = None,
    resume: Annotated[
        bool | None, typer.Option("--resume", help="Go on with the batches that are finished in the folder.")
    ] = None,
    batch_rows: Annotated[int | None, typer.Option(help="Most people in a batch.")] = None,
    reference_people: Annotated[
        int | None, typer.Option(help="Without --reference: people drawn at random to match in.")
    ] = None,
    evidence_people: Annotated[
        int | None, typer.Option(help="Compare only so many people with placebo pairs, drawn at random.")
    ] = None,
    engine: Annotated[str | None, typer.Option(help="Of batches: local, or dask for several processes.")] = None,
    scheduler: Annotated[str | None, typer.Option(help="Address of a Dask scheduler.")] = None,
    workers: Annotated[int | None, typer.Option(help="Batches audited at the same time.")] = None,
    device: Annotated[str | None, typer.Option(help="Where a torch model computes: cpu or cuda.")] = None,
    fail_on: Annotated[
        list[str] | None, typer.Option(help="Exit with 1 when crossed, e.g. 'excess > 0.05'; repeatable.")
    ] = None,
    random_state: Annotated[int | None, typer.Option(help="Seed.")] = None,
) -> None:
    """Audit a model on a table of applicants.

    \b
    Example, after `evenhand data save german --out german.csv`:
      evenhand audit german.csv --label outcome --group sex \\
          --financial credit_amount,duration,installment_rate --out report
    """
    given: dict[str, Any] = {
        "label": label,
        "group": names_in(group),
        "financial": names_in(financial),
        "model": model,
        "trust_pickle": trust_pickle,
        "attribution": attribution,
        "output": output,
        "n_permutations": n_permutations,
        "reference": reference,
        "drop": names_in(drop),
        "positive_label": positive_label,
        "keep_group": keep_group,
        "drop_missing": drop_missing,
        "decision_threshold": decision_threshold,
        "consistency_threshold": consistency_threshold,
        "max_distance": max_distance,
        "by": names_in(by),
        "no_evidence": no_evidence,
        "stream": stream,
        "resume": resume,
        "batch_rows": batch_rows,
        "reference_people": reference_people,
        "evidence_people": evidence_people,
        "engine": engine,
        "scheduler": scheduler,
        "workers": workers,
        "device": device,
        "fail_on": tuple(fail_on) if fail_on else None,
        "random_state": random_state,
    }
    plan = replace(plan_from_toml(config), **{key: value for key, value in given.items() if value is not None})
    for name in ("label", "group", "financial"):
        if not getattr(plan, name):
            raise InvalidInputError(f"--{name} is needed, as an option or in the TOML file.")
    _run_audit(data, out, plan)


def _run_audit(data: Path, out: Path, plan: AuditPlan) -> None:
    from evenhand.cli.gates import crossed_gates, parse_gate

    gates = [parse_gate(text) for text in plan.fail_on]
    result = _streamed(data, out, plan) if plan.stream or data.is_dir() else _in_memory(data, plan)
    crossed = crossed_gates(gates, result.to_dict())
    show_and_write(result, out)
    for sentence in crossed:
        typer.echo(f"Gate: {sentence}", err=True)
    if crossed:
        raise typer.Exit(1)


def _shared_options(plan: AuditPlan) -> dict[str, Any]:
    return {
        "label": plan.label,
        "group": plan.group,
        "reference": plan.reference or None,
        "drop": plan.drop,
        "positive_label": plan.positive_label or None,
        "keep_group": plan.keep_group,
        "drop_missing": plan.drop_missing,
        "decision_threshold": plan.decision_threshold,
        "consistency_threshold": plan.consistency_threshold,
        "max_distance": plan.max_distance,
        "by": plan.by,
        "evidence": not plan.no_evidence,
        "attribution": plan.attribution,
        "output": plan.output or None,
        "n_permutations": plan.n_permutations,
        "random_state": plan.random_state,
    }


def _in_memory(data: Path, plan: AuditPlan) -> AuditResult:
    from evenhand.cli.jobs import audit_table

    only_streamed = [name for name in _STREAM_OPTIONS if getattr(plan, name) != getattr(AuditPlan(), name)]
    if only_streamed:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in only_streamed)
        raise InvalidInputError(f"{names} speaks of batches: give --stream too.")
    return audit_table(
        data,
        financial=plan.financial,
        model=plan.model or None,
        trust_pickle=plan.trust_pickle,
        **_shared_options(plan),
    )


def _streamed(data: Path, out: Path, plan: AuditPlan) -> StreamedAudit:
    from evenhand.cli.jobs import stream_table

    if not plan.model:
        raise InvalidInputError("An audit in batches needs --model: fit one first, for example with `evenhand train`.")
    return stream_table(
        data,
        plan.model,
        trust_pickle=plan.trust_pickle,
        financial_features=plan.financial,
        out=out,
        resume=plan.resume,
        batch_rows=plan.batch_rows,
        reference_people=plan.reference_people,
        evidence_people=plan.evidence_people,
        engine=plan.engine,
        scheduler=plan.scheduler or None,
        workers=plan.workers,
        device=plan.device or None,
        progress=True,
        **_shared_options(plan),
    )


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the results.")] = Path("demo"),
    no_open: Annotated[
        bool, typer.Option("--no-open", help="Do not open the report, where there is a desktop to open it on.")
    ] = False,
    random_state: Annotated[int, typer.Option(help="Seed.")] = 0,
) -> None:
    """Train a plain network on German Credit, audit it on held-out people, open the report.

    \b
    Example:
      evenhand demo --out demo
    """
    from evenhand.cli.jobs import audit_demo

    typer.echo("German Credit: a plain network, trained on 700 people and audited on the other 300.")
    report = show_and_write(audit_demo(random_state), out)
    if not no_open and _has_desktop():
        typer.launch(str(report.resolve()))


def show_and_write(result: AuditResult | StreamedAudit, out: Path) -> Path:
    """Print the result, write every form of it, and return the path of the report."""
    from rich.console import Console

    from evenhand.auditing.result import AuditResult
    from evenhand.exceptions import MissingExtraError

    Console().print(result)
    if isinstance(result, AuditResult):
        pairs = out / "pairs.parquet"
        result.to_parquet(pairs)
    else:
        pairs = result.pairs_path
    result.to_json(out / "audit.json")
    written = [out / "audit.json", pairs]
    try:
        result.to_excel(out / "audit.xlsx")
        written.insert(0, out / "audit.xlsx")
    except MissingExtraError as error:
        typer.echo(str(error), err=True)
    report = out / "report.html"
    result.to_html(report, pairs_file=pairs.name)
    typer.echo(f"\nWritten: {', '.join(map(str, written))}")
    typer.echo(f"Report: {report}")
    return report


def _has_desktop() -> bool:
    """Whether someone sits in front of this process with a screen to open a page on."""
    if not sys.stdout.isatty() or os.environ.get("CI"):
        return False
    if sys.platform.startswith("linux"):
        return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
    return sys.platform in {"darwin", "win32"}
