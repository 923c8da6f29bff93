"""`evenhand verify`."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from evenhand.auditing.options import StreamOptions
from evenhand.cli.auditing import check_roles
from evenhand.cli.messages import say
from evenhand.cli.options import FILES, AuditPlan, plan_from_toml
from evenhand.cli.sources import is_streamed, named_table, opened_table
from evenhand.exceptions import InvalidInputError

if TYPE_CHECKING:
    from evenhand.auditing.result import AuditResult
    from evenhand.auditing.verifying import Pack

__all__ = ["verify"]


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
    from evenhand.auditing.verifying import compare_with_pack, read_pack
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
        found = compare_with_pack(read, result, inputs=files, tolerance=tolerance)
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
    if not pack.is_of_command and not has_config:
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
    plan = plan_from_toml(config, AuditPlan)
    data = files["data"]
    in_batches = is_streamed(data, plan) if isinstance(data, str) else plan.stream
    check_roles(plan, is_streamed=in_batches)
    # The content of a pack never chooses a file, trusts one, or reaches a different machine.
    own: dict[str, Any] = {name: str(files[name]) if name in files else None for name in FILES}
    kept = ("batch_rows", "reference_people", "evidence_people")
    here: dict[str, Any] = {option.name: option.default for option in fields(StreamOptions) if option.name not in kept}
    plan = replace(plan, **own, **here, sql=None, trust_pickle=trust_pickle, template=None, memo=False, pack=False)
    people = opened_table(data, plan) if isinstance(data, str) else data
    return stream_table(people, plan, folder / "audit") if in_batches else audit_table(people, plan)
