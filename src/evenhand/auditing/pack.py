"""The evidence pack: one zip file with which someone else can run an audit again and compare the numbers."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

from evenhand.auditing.sections import SECTIONS
from evenhand.exceptions import InvalidInputError, MissingExtraError
from evenhand.inputs.fingerprints import fingerprint_file
from evenhand.inputs.tables.open import fingerprint_input, name_of_input
from evenhand.report.formatting import is_number
from evenhand.system.files import MOST_BYTES, json_ready, time_of_writing, toml_text, write_archive, write_atomically
from evenhand.system.libraries import optional_module

PACK_SCHEMA = "evenhand.pack/1"
AUDIT, FACTS, PLAN, MANIFEST = "audit.json", "pack.json", "audit.toml", "MANIFEST.sha256"
ROLES = ("data", "model", "reference", "attributions_file")
"""The role of a file that the audit read."""

Writers: TypeAlias = Mapping[str, Callable[[Path], None]]

_ABOUT = {
    "report.html": "the report; open it in a browser",
    "memo.docx": "the report as an editable Word memo",
    "audit.xlsx": "the tables as a workbook",
    AUDIT: "all numbers except the pairs",
    "pairs.parquet": "all pairs of people",
    PLAN: "the settings",
    FACTS: "SHA-256 of the files that were read, fingerprints of the people, and versions",
    "reproduce.py": "runs the audit again",
    MANIFEST: "SHA-256 of each file here: sha256sum -c MANIFEST.sha256",
}

_SCRIPT = '''"""Run the audit of this pack again: {usage}.

The data are not in the pack. Install the versions that pack.json names, or newer ones.
"""

'''
_COMMAND_SCRIPT = """import sys
from pathlib import Path

from evenhand.cli import main

if __name__ == "__main__":
    sys.argv = ["evenhand", "audit", *sys.argv[1:], "--config", str(Path(__file__).with_name("audit.toml"))]
    main()
"""
_PYTHON_SCRIPT = '''import tomllib
from pathlib import Path

import evenhand as eh


def reproduce(model, X, y, sensitive_features, **more):
    """Run the audit with the settings of this pack; `more` is for additional inputs, such as `reference`."""
    settings = tomllib.loads(Path(__file__).with_name("audit.toml").read_text("utf-8"))
    return eh.audit(model, X, y, sensitive_features=sensitive_features, **settings, **more)
'''


def write_files(folder: Path, writers: Writers) -> list[str]:
    """Write files into a folder, and return a sentence for each one that needs a missing extra."""
    left_out = []
    for name, write in writers.items():
        try:
            write(folder / name)
        except MissingExtraError as missing:
            left_out.append(f"{name} was left out. {missing}")
    return left_out


def write_pack(
    path: str | os.PathLike[str],
    writers: Writers,
    summary: Mapping[str, Any],
    *,
    plan: Mapping[str, Any] | None = None,
    inputs: Mapping[str, Any] | None = None,
) -> None:
    """Write an evidence pack, completely or not at all.

    Parameters
    ----------
    path
        Path of the zip file.
    writers
        The function that writes each file of the audit, by its name in the pack.
    summary
        What `AuditResult.to_dict` returns.
    plan
        Options of `evenhand audit`, by name; None for an audit run in Python.
    inputs
        The files that were read, by their role: data, model, reference, attributions_file. The pack holds their names
        and hashes, but neither their content nor their folders.

    Raises
    ------
    InvalidInputError
        If `inputs` names something else, or the files are too large for a pack.
    """
    unknown = [role for role in inputs or () if role not in ROLES]
    if unknown:
        raise InvalidInputError(f"`inputs` must be among {', '.join(ROLES)}, got {unknown[0]!r}; correct the name.")
    facts = _facts(summary, inputs or {}, is_command=plan is not None)
    with TemporaryDirectory() as folder:
        left_out = write_files(Path(folder), writers)
        entries: dict[str, bytes | Path] = {file.name: file for file in Path(folder).iterdir()}
        entries[FACTS] = (json.dumps(json_ready(facts), indent=2, ensure_ascii=False) + "\n").encode()
        entries[PLAN] = _plan_text(summary, plan).encode()
        entries["reproduce.py"] = _script(facts).encode()
        entries["README.txt"] = _readme(facts, [*entries, MANIFEST], left_out).encode()
        entries[MANIFEST] = "".join(f"{_sha256(entries[name])}  {name}\n" for name in sorted(entries)).encode()
        _check_size(entries)
        with write_atomically(path) as temporary:
            write_archive(temporary, entries)


def _facts(summary: Mapping[str, Any], files: Mapping[str, Any], *, is_command: bool) -> dict[str, Any]:
    """What a reader must know before running the audit again."""
    data = summary["data"]
    return {
        "schema": PACK_SCHEMA,
        "created": time_of_writing().isoformat(timespec="seconds"),
        "made_with": "evenhand audit" if is_command else "Python",
        "versions": {**summary["versions"], "system": f"{platform.system()} {platform.machine()}"},
        "inputs": {
            role: {"name": name_of_input(file), "sha256": fingerprint_input(file)} for role, file in files.items()
        },
        "people": {name: data[name] for name in ("n_people", "fingerprint", "column_prints", "hashes")},
    }


def _plan_text(summary: Mapping[str, Any], plan: Mapping[str, Any] | None) -> str:
    if plan is not None:
        return f"# All settings of the audit: evenhand audit DATA --config {PLAN}\n{toml_text(plan)}"
    return (
        "# The settings of an audit run in Python. To run it on files, add the columns: label, group, and\n"
        f"# whatever else `evenhand audit` requires.\n{toml_text(summary['settings'])}"
    )


def _script(facts: Mapping[str, Any]) -> str:
    if facts["made_with"] == "Python":
        usage = "call `reproduce` with the model and the people"
        return _SCRIPT.format(usage=usage) + _PYTHON_SCRIPT
    named = {role: found["name"] for role, found in facts["inputs"].items()}
    usage = " ".join(["python reproduce.py", json.dumps(named.get("data", "DATA")), *_given(named)])
    return _SCRIPT.format(usage=usage.replace("\\", "\\\\")) + _COMMAND_SCRIPT


def _given(named: Mapping[str, str]) -> list[str]:
    """Options for the files other than the data."""
    return [f"--{role.replace('_', '-')} {json.dumps(named[role])}" for role in ROLES[1:] if role in named]


def _readme(facts: Mapping[str, Any], names: list[str], left_out: list[str]) -> str:
    named = {role: found["name"] for role, found in facts["inputs"].items()}
    lines = [
        f"Evidence pack of an audit made with evenhand {facts['versions']['evenhand']} on {facts['created'][:10]}.",
        "",
        *(f"{name:<16} {_ABOUT[name]}" for name in _ABOUT if name in names),
        "",
        *([*left_out, ""] if left_out else []),
        "The data and the model are not in the pack. To check whether they give the same numbers:",
    ]
    if facts["made_with"] == "Python":
        lines += [
            "  the audit was run in Python. With the model and the people at hand:",
            "  from reproduce import reproduce",
            "  evenhand.verify_pack('pack.zip', reproduce(model, X, y, sensitive_features))",
        ]
    else:
        data = f"--data {json.dumps(named.get('data', 'DATA'))}"
        lines.append(f"  {' '.join(['evenhand verify pack.zip', data, *_given(named)])}")
    lines += [
        "",
        f"{MANIFEST} reveals damage and mistakes, but anyone who changes a file can change it too: keep the SHA-256 of "
        "the zip",
        "file elsewhere. Report, workbook and pairs hold values of people: treat the pack as you treat the data.",
        "The pack documents an audit. It states no conclusion about any law, rule or policy.",
    ]
    return "\n".join(lines) + "\n"


def _sha256(content: bytes | Path) -> str:
    return hashlib.sha256(content).hexdigest() if isinstance(content, bytes) else fingerprint_file(content)


def _check_size(entries: Mapping[str, bytes | Path]) -> None:
    total = sum(len(part) if isinstance(part, bytes) else part.stat().st_size for part in entries.values())
    if total > MOST_BYTES:
        raise InvalidInputError(
            f"A pack holds up to {MOST_BYTES:,} bytes, got {total:,}: keep the audit's files in a folder instead."
        )


PREFIX = "evenhand"
ARTIFACTS = ("report.html", "audit.json", "audit.xlsx")
"""Files that are logged by default."""

_LONGEST_PARAM, _LONGEST_TAG, _LONGEST_NAME = 500, 5000, 250  # limit of the strictest tracking stores
_NOT_IN_NAMES = re.compile(r"[^\w\-. /]")


def log_audit(summary: Mapping[str, Any], writers: Writers, *, run_id: str | None = None) -> str:
    """Log an audit to an MLflow run, and return the id of the run.

    Parameters
    ----------
    summary
        What `AuditResult.to_dict` returns.
    writers
        The function that writes each artifact, by name. An artifact whose extra is missing is left out.
    run_id
        Id of the run; None for the active run, or else a new one.

    Raises
    ------
    MissingExtraError
        If MLflow is not installed.
    """
    mlflow = optional_module("mlflow", "Logging an audit", "mlflow-skinny", "mlflow")
    active = mlflow.active_run()
    is_active = active is not None and run_id in (None, active.info.run_id)
    with TemporaryDirectory() as folder:
        write_files(Path(folder), writers)  # before a run starts, so that a failure leaves no run behind
        with nullcontext(active) if is_active else mlflow.start_run(run_id=run_id, nested=active is not None) as run:
            mlflow.log_metrics(run_metrics(summary))
            mlflow.log_params(run_params(summary))
            mlflow.set_tags(run_tags(summary))
            mlflow.log_artifacts(folder, artifact_path=PREFIX)
    return str(run.info.run_id)


def run_metrics(summary: Mapping[str, Any]) -> dict[str, float]:
    """Numbers to track over runs, by name; those that could not be estimated are left out."""
    found = {f"{PREFIX}.{name}": value for name, value in _metrics(summary) if is_number(value)}
    return {_name(name): float(value) for name, value in found.items()}


def _metrics(summary: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for finding in summary["findings"]:
        key = finding["key"]
        yield f"{key}.estimate", finding["estimate"]
        yield f"{key}.low", finding["ci"][0]
        yield f"{key}.high", finding["ci"][1]
        yield f"{key}.p_value", finding["p_value"]
        yield f"{key}.p_adjusted", finding["p_adjusted"]
    for section in SECTIONS:
        yield from section.logged(summary)
    yield "n_people", summary["data"]["n_people"]


def run_params(summary: Mapping[str, Any]) -> dict[str, str]:
    """All options that change a metric, by name."""
    settings = json_ready(summary["settings"])
    return {f"{PREFIX}.{name}": _text(value)[:_LONGEST_PARAM] for name, value in settings.items()}


def run_tags(summary: Mapping[str, Any]) -> dict[str, str]:
    """Tags to find runs by: the verdict, the answers, who was audited, and versions."""
    data = summary["data"]
    tags = {
        "headline": summary["verdict"]["headline"],
        "model": data["model"],
        "fingerprint": data["fingerprint"],
        "schema": summary["schema"],
        "n_warnings": str(len(summary["warnings"])),
        **{f"answer.{finding['key']}": finding["answer"] for finding in summary["findings"]},
        **{f"sha256.{what}": value for what, value in data["hashes"].items()},
        **{f"version.{name}": version for name, version in summary["versions"].items()},
    }
    return {_name(f"{PREFIX}.{name}"): str(value)[:_LONGEST_TAG] for name, value in tags.items()}


def _text(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _name(name: str) -> str:
    """A name that every tracking store accepts.

    Examples
    --------
    >>> _name("evenhand.positive_rate.<b> & co")
    'evenhand.positive_rate._b_ _ co'
    """
    return _NOT_IN_NAMES.sub("_", name)[:_LONGEST_NAME]
