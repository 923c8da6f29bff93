"""The evidence pack: one zip file with which someone else can run an audit again and compare the numbers."""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol, TypeAlias

from evenhand.auditing.identity import EVERYONE
from evenhand.auditing.sections import SECTIONS
from evenhand.auditing.summary import SCHEMA, library_versions, upgraded
from evenhand.exceptions import ArchiveError, InvalidInputError
from evenhand.inputs.identity import fingerprint_file
from evenhand.inputs.tables.open import fingerprint_input, name_of_input
from evenhand.report.formatting import is_number
from evenhand.system.files import (
    MOST_BYTES,
    Archive,
    json_ready,
    open_archive,
    time_of_writing,
    toml_text,
    write_archive,
    write_atomically,
)
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
_PYTHON_PLAN = """# The settings of an audit run in Python. To run it on files, add the columns: label, group, and
# whatever else `evenhand audit` requires.
"""
_PYTHON_CHECK = [
    "  the audit was run in Python. With the model and the people at hand:",
    "  from reproduce import reproduce",
    "  evenhand.verify_pack('pack.zip', reproduce(model, X, y, sensitive_features))",
]
_CAUTION = [
    f"{MANIFEST} reveals damage and mistakes, but anyone who changes a file can change it too: keep the SHA-256 of "
    "the zip",
    "file elsewhere. Report, workbook and pairs hold values of people: treat the pack as you treat the data.",
    "The pack documents an audit. It states no conclusion about any law, rule or policy.",
]


TOLERANCE = 1e-6
"""Largest difference between two equal numbers, relative to the larger of them and 1."""

_LINE = re.compile(r"([0-9a-f]{64})  ([A-Za-z0-9_.-]+)")
_NOT_NUMBERS = ("schema", "created", "versions", "settings", "influences", "verdict", "warnings", "data")
_NAMES = ("key", "feature", "group", "other_group", "reference", "split", "column", "segment", "choice")
_WORDS = ("answer", "within_limit")
_MOST_SHOWN = 8


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
    named = {role: name_of_input(file) for role, file in (inputs or {}).items()}
    facts: dict[str, Any] = {
        "schema": PACK_SCHEMA,
        "created": time_of_writing().isoformat(timespec="seconds"),
        "made_with": "Python" if plan is None else "evenhand audit",
        "versions": {**summary["versions"], "system": f"{platform.system()} {platform.machine()}"},
        "inputs": {
            role: {"name": named[role], "sha256": fingerprint_input(file)} for role, file in (inputs or {}).items()
        },
        "people": {name: summary["data"][name] for name in ("n_people", "fingerprint", "column_prints", "hashes")},
    }
    data = json.dumps(named.get("data", "DATA"))
    others = [f"--{role.replace('_', '-')} {json.dumps(named[role])}" for role in ROLES[1:] if role in named]
    if plan is None:
        usage, script = "call `reproduce` with the model and the people", _PYTHON_SCRIPT
        check = _PYTHON_CHECK
        settings = _PYTHON_PLAN + toml_text(summary["settings"])
    else:
        usage, script = " ".join(["python reproduce.py", data, *others]).replace("\\", "\\\\"), _COMMAND_SCRIPT
        check = [f"  {' '.join(['evenhand verify pack.zip --data', data, *others])}"]
        settings = f"# All settings of the audit: evenhand audit DATA --config {PLAN}\n{toml_text(plan)}"
    with TemporaryDirectory() as folder:
        for name, write in writers.items():
            write(Path(folder) / name)
        entries: dict[str, bytes | Path] = {file.name: file for file in Path(folder).iterdir()}
        entries[FACTS] = (json.dumps(json_ready(facts), indent=2, ensure_ascii=False) + "\n").encode()
        entries[PLAN] = settings.encode()
        entries["reproduce.py"] = (_SCRIPT.format(usage=usage) + script).encode()
        readme = [
            f"Evidence pack of an audit made with evenhand {facts['versions']['evenhand']} on {facts['created'][:10]}.",
            "",
            *(f"{name:<16} {about}" for name, about in _ABOUT.items() if name in (*entries, MANIFEST)),
            "",
            "The data and the model are not in the pack. To check whether they give the same numbers:",
            *check,
            "",
            *_CAUTION,
        ]
        entries["README.txt"] = ("\n".join(readme) + "\n").encode()
        hashes = {
            name: fingerprint_file(part) if isinstance(part, Path) else hashlib.sha256(part).hexdigest()
            for name, part in entries.items()
        }
        entries[MANIFEST] = "".join(f"{hashes[name]}  {name}\n" for name in sorted(hashes)).encode()
        n_bytes = sum(len(part) if isinstance(part, bytes) else part.stat().st_size for part in entries.values())
        if n_bytes > MOST_BYTES:
            raise InvalidInputError(
                f"A pack holds up to {MOST_BYTES:,} bytes, got {n_bytes:,}: keep the audit's files in a folder instead."
            )
        with write_atomically(path) as temporary:
            write_archive(temporary, entries)


class _Audit(Protocol):
    """Anything that has an audit's summary, such as an `AuditResult`."""

    def to_dict(self) -> dict[str, Any]: ...


@dataclass(frozen=True, eq=False)
class Pack:
    """The content of an evidence pack.

    Attributes
    ----------
    name, sha256
        Name and hash of the zip file.
    facts
        Content of `pack.json`: files that were read, fingerprints of the people, versions.
    summary
        Content of `audit.json`.
    plan
        The text of `audit.toml`.
    changed
        Files that differ from the manifest.
    """

    name: str
    sha256: str
    facts: Mapping[str, Any]
    summary: Mapping[str, Any]
    plan: str
    changed: tuple[str, ...]


@dataclass(frozen=True)
class Difference:
    """A number that differs in a repeated audit: its place in the JSON, and its old and new values."""

    where: str
    packed: float | str | None
    found: float | str | None

    def __str__(self) -> str:
        was, now = (f"{value:.8g}" if isinstance(value, float) else str(value) for value in (self.packed, self.found))
        return f"{self.where} was {was} and is {now}"


@dataclass(frozen=True)
class Verification:
    """What `verify_pack` found.

    Attributes
    ----------
    pack, sha256
        Name and SHA-256 of the zip file.
    files, inputs, settings, people
        A sentence for each difference in files of the pack, in files that were read, in settings, and in people.
    numbers
        Numbers that differ.
    n_numbers
        How many were compared; 0 if no audit was compared with the pack.
    notes
        Additional notes, such as on versions that differ.
    tolerance
        Largest difference between equal numbers.
    """

    pack: str
    sha256: str
    files: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    people: tuple[str, ...] = ()
    numbers: tuple[Difference, ...] = ()
    n_numbers: int = 0
    notes: tuple[str, ...] = ()
    tolerance: float = TOLERANCE

    @property
    def is_same(self) -> bool:
        """Whether no difference was found."""
        return not (self.files or self.inputs or self.settings or self.people or self.numbers)

    @property
    def sentences(self) -> tuple[str, ...]:
        """The findings, in words."""
        said = [f"{self.pack} (SHA-256 {self.sha256})."]
        said += self.files or ["All files match the manifest."]
        said += [*self.inputs, *self.settings, *self.people]
        if self.numbers:
            said.append(f"{len(self.numbers):,} of {self.n_numbers:,} numbers differ by more than {self.tolerance:g}:")
            said += [f"  {difference}." for difference in self.numbers[:_MOST_SHOWN]]
            rest = len(self.numbers) - _MOST_SHOWN
            said += [f"  and {rest:,} more."] if rest > 0 else []
        elif self.n_numbers:
            said.append(f"All {self.n_numbers:,} numbers are the same within {self.tolerance:g}.")
        return (*said, *self.notes)


def verify_pack(
    path: str | os.PathLike[str] | Pack,
    audit: _Audit | str | os.PathLike[str] | None = None,
    *,
    inputs: Mapping[str, Any] | None = None,
    tolerance: float = TOLERANCE,
) -> Verification:
    """Check an evidence pack, and compare a repeated audit with it.

    Parameters
    ----------
    path
        Path of the zip file, or a pack that was read from it.
    audit
        The repeated audit: a result, or its JSON file. None to check only the pack.
    inputs
        Files to compare with those that were read: data, model, reference.
    tolerance
        Largest difference between two equal numbers, relative to the larger of them and 1.

    Returns
    -------
    Verification

    Raises
    ------
    ArchiveError
        If the file is not an evidence pack.

    Examples
    --------
    >>> import evenhand as eh, tempfile
    >>> planted = eh.make_planted_bias(60, random_state=0)
    >>> people = planted.dataset
    >>> result = eh.audit(planted.model, people.X, people.y, sensitive_features=people.group,
    ...                   financial_features=people.financial_features, evidence=False)
    >>> pack = Path(tempfile.mkdtemp()) / "pack.zip"
    >>> result.to_pack(pack)
    >>> verify_pack(pack, result).is_same
    True
    """
    if isinstance(tolerance, bool) or not isinstance(tolerance, (int, float)) or not 0 <= tolerance < 1:
        raise InvalidInputError(f"`tolerance` (--tolerance) must be a number from 0 to 1, got {tolerance!r}.")
    pack = path if isinstance(path, Pack) else read_pack(path)
    verification = Verification(
        pack.name,
        pack.sha256,
        tuple(f"{name} is not the file that was packed: its SHA-256 differs." for name in pack.changed),
        tuple(_inputs(pack, inputs or {})),
        tolerance=tolerance,
    )
    if audit is None:
        return verification
    summary, numbers, here = _summary_of(audit), _numbers_of(pack.summary), library_versions()
    before, after = pack.summary["settings"], json_ready(summary["settings"])
    versions = [
        f"{name} {was} (here {here[name]})"
        for name, was in pack.facts["versions"].items()
        if was != here.get(name, was)
    ]
    return replace(
        verification,
        settings=tuple(
            f"The setting {name} was {value} and is {after.get(name)}."
            for name, value in before.items()
            if value != after.get(name)
        ),
        people=tuple(_people(pack.summary["data"], summary["data"])),
        numbers=tuple(_differences(numbers, _numbers_of(summary), tolerance)),
        n_numbers=len(numbers),
        notes=(f"The pack was made with different versions: {', '.join(versions)}.",) if versions else (),
    )


def read_pack(path: str | os.PathLike[str]) -> Pack:
    """Read an evidence pack.

    Raises
    ------
    ArchiveError
        If it is not a zip file, or has entries that the manifest does not list, lists twice or lacks.
    FileNotFoundError
        If there is no such file.
    """
    with open_archive(path) as archive:
        lines = [_LINE.fullmatch(line) for line in _text(archive, MANIFEST).splitlines()]
        listed = {line[2]: line[1] for line in lines if line}
        names = {*archive.names} - {MANIFEST}
        problem = ""
        if len(listed) != len(lines):
            problem = f"is not an evidence pack: {MANIFEST} is not a list of hashes and names"
        elif unlisted := names - {*listed}:
            problem = f"has a file that {MANIFEST} does not list: {min(unlisted)!r}"
        elif absent := {*listed} - names:
            problem = f"lacks a file that {MANIFEST} lists: {min(absent)!r}"
        elif missing := {AUDIT, FACTS, PLAN} - {*listed}:
            problem = f"is not an evidence pack: its manifest does not list {min(missing)!r}"
        if problem:
            raise ArchiveError(f"{archive.name!r} {problem}.")
        changed = tuple(name for name, sha256 in listed.items() if archive.sha256(name) != sha256)
        facts, summary = _json(archive, FACTS, PACK_SCHEMA), _json(archive, AUDIT, SCHEMA)
        plan = _text(archive, PLAN)
    return Pack(Path(path).name, fingerprint_file(Path(path)), facts, summary, plan, changed)


def _text(archive: Archive, name: str) -> str:
    try:
        return archive.read(name).decode("utf-8")
    except UnicodeDecodeError:
        raise ArchiveError(f"{name!r} in {archive.name!r} is not UTF-8 text.") from None


def _json(archive: Archive, name: str, schema: str) -> dict[str, Any]:
    """Read a JSON object of a known kind, and check that the parts that are used are there and of the right type."""
    kind = None
    try:
        value = upgraded(json.loads(_text(archive, name)))
        kind = value["schema"]
        is_whole = kind == schema
        if schema == PACK_SCHEMA:
            texts = [file[key] for file in value["inputs"].values() for key in ("name", "sha256")]
            is_whole &= all(isinstance(text, str) for text in (value["made_with"], *texts, *value["versions"].values()))
        else:
            _numbers_of(value)
            data, mappings = value["data"], (value["settings"], value["data"]["column_prints"])
            is_whole &= all(isinstance(part, dict) for part in mappings) and {"fingerprint", "n_people"} <= set(data)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError):
        is_whole = False
    if not is_whole:
        raise ArchiveError(f"{name!r} in {archive.name!r} is not complete JSON of the kind {schema!r}, got {kind!r}.")
    return dict(value)


def _inputs(pack: Pack, files: Mapping[str, Any]) -> Iterator[str]:
    for role, file in files.items():
        packed = pack.facts["inputs"].get(role)
        if packed is None:
            yield f"The audit of the pack read no {role} file, but {name_of_input(file)} was given."
        elif (sha256 := fingerprint_input(file)) != packed["sha256"]:
            yield (
                f"The {role} file differs: the pack's file, {packed['name']}, has the SHA-256 "
                f"{packed['sha256'][:16]}..., but {name_of_input(file)} has {sha256[:16]}...."
            )


def _summary_of(audit: _Audit | str | os.PathLike[str]) -> dict[str, Any]:
    if not isinstance(audit, (str, os.PathLike)):
        return dict(json_ready(audit.to_dict()))
    try:
        summary = upgraded(json.loads(Path(audit).read_text("utf-8")))
        is_audit = summary["schema"] == SCHEMA
    except (ValueError, TypeError, KeyError, RecursionError):
        is_audit = False
    if not is_audit:
        raise InvalidInputError(f"{str(audit)!r} is not the JSON of an audit of the kind {SCHEMA!r}.")
    return dict(summary)


def _people(packed: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """Sentences on people and columns that differ from the pack's."""
    if packed["fingerprint"] == now["fingerprint"]:
        return
    before, after = packed["column_prints"], now["column_prints"]
    if packed["n_people"] != now["n_people"]:
        yield f"The audit of the pack has {packed['n_people']} people, but this one has {now['n_people']}."
    elif before.get(EVERYONE) != after.get(EVERYONE):
        yield "The people differ from those of the pack: labels or groups are different."
    else:
        differ = sorted(name for name in {*before, *after} if before.get(name) != after.get(name))
        yield f"The people are those of the pack, but these columns differ: {', '.join(differ)}."


def _numbers_of(summary: Mapping[str, Any]) -> dict[str, float | str | None]:
    parts = {name: value for name, value in summary.items() if name not in _NOT_NUMBERS}
    return dict(_leaves(parts, ""))


def _leaves(value: Any, where: str) -> Iterator[tuple[str, float | str | None]]:
    """Numbers, missing values, and answers, by their place; prose is not compared."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _leaves(item, f"{where}.{key}" if where else str(key))
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for place, item in zip(_places(value), value, strict=True):
            yield from _leaves(item, f"{where}[{place}]")
    elif value is None or (isinstance(value, (int, float)) and not isinstance(value, bool)):
        yield where, None if value is None or not math.isfinite(value) else float(value)
    elif isinstance(value, str) and where.rpartition(".")[2] in _WORDS:
        yield where, value


def _places(items: Sequence[Any]) -> list[str]:
    """The name of each item of a list: its names, if they are unique, so that order does not matter."""
    mappings = [item if isinstance(item, Mapping) else {} for item in items]
    named = [", ".join(item[name] for name in _NAMES if isinstance(item.get(name), str)) for item in mappings]
    are_apart = all(named) and len(set(named)) == len(named)
    return named if are_apart else [str(place) for place in range(len(items))]


def _differences(
    packed: Mapping[str, float | str | None], after: Mapping[str, float | str | None], tolerance: float
) -> Iterator[Difference]:
    """Numbers of the pack that the audit does not match; additions of a newer version do not count."""
    for where, was in packed.items():
        now = after.get(where)
        if isinstance(was, float) and isinstance(now, float):
            is_same = abs(was - now) <= tolerance * max(1.0, abs(was), abs(now))
        else:
            is_same = was == now
        if not is_same:
            yield Difference(where, was, now)


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
        The function that writes each artifact, by name.
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
        for name, write in writers.items():  # before a run starts, so that a failure leaves no run behind
            write(Path(folder) / name)
        with nullcontext(active) if is_active else mlflow.start_run(run_id=run_id, nested=active is not None) as run:
            mlflow.log_metrics(run_metrics(summary))
            mlflow.log_params(run_params(summary))
            mlflow.set_tags(run_tags(summary))
            mlflow.log_artifacts(folder, artifact_path=PREFIX)
    return str(run.info.run_id)


def run_metrics(summary: Mapping[str, Any]) -> dict[str, float]:
    """Numbers to track over runs, by name; those that could not be estimated are left out."""
    metrics: dict[str, Any] = {}
    for finding in summary["findings"]:
        low, high = finding["ci"]
        values = {"estimate": finding["estimate"], "low": low, "high": high}
        values |= {name: finding[name] for name in ("p_value", "p_adjusted")}
        metrics |= {f"{finding['key']}.{name}": value for name, value in values.items()}
    for section in SECTIONS:
        metrics |= dict(section.logged(summary))
    metrics["n_people"] = summary["data"]["n_people"]
    return {_name(f"{PREFIX}.{name}"): float(value) for name, value in metrics.items() if is_number(value)}


def run_params(summary: Mapping[str, Any]) -> dict[str, str]:
    """All options that change a metric, by name."""
    settings = json_ready(summary["settings"])
    texts = {name: ", ".join(map(str, v)) if isinstance(v, list) else str(v) for name, v in settings.items()}
    return {f"{PREFIX}.{name}": text[:_LONGEST_PARAM] for name, text in texts.items()}


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


def _name(name: str) -> str:
    """A name that every tracking store accepts.

    Examples
    --------
    >>> _name("evenhand.positive_rate.<b> & co")
    'evenhand.positive_rate._b_ _ co'
    """
    return _NOT_IN_NAMES.sub("_", name)[:_LONGEST_NAME]
