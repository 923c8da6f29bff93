"""The evidence pack: one zip file with which someone else can run an audit again and compare the numbers."""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

from evenhand.exceptions import InvalidInputError, MissingExtraError
from evenhand.inputs.fingerprints import fingerprint_file
from evenhand.inputs.tables.read_inputs import fingerprint_input, name_of_input
from evenhand.system.archives import MOST_BYTES, write_archive
from evenhand.system.clock import time_of_writing
from evenhand.system.files import json_ready, write_atomically
from evenhand.system.toml import toml_text

__all__ = ["AUDIT", "FACTS", "MANIFEST", "PACK_SCHEMA", "PLAN", "ROLES", "Writers", "write_files", "write_pack"]

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
from dataclasses import fields
from pathlib import Path

import evenhand as eh


def reproduce(model, X, y, sensitive_features, **more):
    """Run the audit with the settings of this pack; `more` is for additional inputs, such as `reference`."""
    settings = tomllib.loads(Path(__file__).with_name("audit.toml").read_text("utf-8"))
    apart = {field.name for field in fields(eh.AuditSettings)}
    further = eh.AuditSettings(**{name: value for name, value in settings.items() if name in apart})
    chosen = {name: value for name, value in settings.items() if name not in apart}
    return eh.audit(model, X, y, sensitive_features=sensitive_features, settings=further, **chosen, **more)
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
