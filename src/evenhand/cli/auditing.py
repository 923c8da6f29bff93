"""`evenhand audit` and `evenhand demo`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from evenhand.cli.names import names_in
from evenhand.cli.plan import AuditPlan, plan_from_toml
from evenhand.exceptions import InvalidInputError

if TYPE_CHECKING:
    from evenhand.result import AuditResult

__all__ = ["audit", "demo"]


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
        "fail_on": tuple(fail_on) if fail_on else None,
        "random_state": random_state,
    }
    plan = replace(plan_from_toml(config), **{key: value for key, value in given.items() if value is not None})
    for name in ("label", "group", "financial"):
        if not getattr(plan, name):
            raise InvalidInputError(f"--{name} is needed, as an option or in the TOML file.")
    _run_audit(data, out, plan)


def _run_audit(data: Path, out: Path, plan: AuditPlan) -> None:
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


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the results.")] = Path("demo"),
    random_state: Annotated[int, typer.Option(help="Seed.")] = 0,
) -> None:
    """Train a plain network on German Credit, audit it on held-out people.

    \b
    Example:
      evenhand demo --out demo
    """
    from evenhand.running import audit_demo

    typer.echo("German Credit: a plain network, trained on 700 people and audited on the other 300.")
    _show_and_write(audit_demo(random_state), out)


def _show_and_write(result: AuditResult, out: Path) -> None:
    from rich.console import Console

    Console().print(result)
    result.to_json(out / "audit.json")
    result.to_parquet(out / "pairs.parquet")
    typer.echo(f"\nWritten: {out / 'audit.json'} and {out / 'pairs.parquet'}")
