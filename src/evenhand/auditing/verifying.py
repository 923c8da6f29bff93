"""Check whether an evidence pack is intact, and whether a repeated audit has the same inputs and numbers."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from evenhand.auditing.identity import EVERYONE
from evenhand.auditing.pack import AUDIT, FACTS, MANIFEST, PACK_SCHEMA, PLAN
from evenhand.auditing.summary import SCHEMA, library_versions, upgraded
from evenhand.exceptions import ArchiveError, InvalidInputError
from evenhand.inputs.fingerprints import fingerprint_file
from evenhand.inputs.tables.open import fingerprint_input, name_of_input
from evenhand.system.files import Archive, json_ready, open_archive

TOLERANCE = 1e-6
"""Largest difference between two equal numbers, relative to the larger of them and 1."""

_LINE = re.compile(r"([0-9a-f]{64})  ([A-Za-z0-9_.-]+)")
_NOT_NUMBERS = ("schema", "created", "versions", "settings", "influences", "verdict", "warnings", "data")
_NAMES = ("key", "feature", "group", "other_group", "reference", "split", "column", "segment", "choice")
_WORDS = ("answer", "within_limit")
_MOST_SHOWN = 8


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

    @property
    def is_of_command(self) -> bool:
        """Whether `evenhand audit` made the pack, so that its settings are enough to run the audit again."""
        return bool(self.facts["made_with"] == "evenhand audit")


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
    path: str | os.PathLike[str],
    audit: _Audit | str | os.PathLike[str] | None = None,
    *,
    inputs: Mapping[str, Any] | None = None,
    tolerance: float = TOLERANCE,
) -> Verification:
    """Check an evidence pack, and compare a repeated audit with it.

    Parameters
    ----------
    path
        Path of the zip file.
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
    return compare_with_pack(read_pack(path), audit, inputs=inputs, tolerance=tolerance)


def compare_with_pack(
    pack: Pack,
    audit: _Audit | str | os.PathLike[str] | None,
    *,
    inputs: Mapping[str, Any] | None = None,
    tolerance: float = TOLERANCE,
) -> Verification:
    """The result of `verify_pack` for a pack that was read."""
    if isinstance(tolerance, bool) or not isinstance(tolerance, (int, float)) or not 0 <= tolerance < 1:
        raise InvalidInputError(f"`tolerance` (--tolerance) must be a number from 0 to 1, got {tolerance!r}.")
    files = tuple(f"{name} is not the file that was packed: its SHA-256 differs." for name in pack.changed)
    found = Verification(pack.name, pack.sha256, files, _inputs(pack, inputs or {}), tolerance=tolerance)
    if audit is None:
        return found
    summary = _summary_of(audit)
    pairs = _numbers_of(pack.summary), _numbers_of(summary)
    return Verification(
        pack.name,
        pack.sha256,
        files,
        found.inputs,
        tuple(_settings(pack.summary, summary)),
        tuple(_people(pack.summary["data"], summary["data"])),
        tuple(_differences(*pairs, tolerance)),
        len(pairs[0]),
        tuple(_versions(pack.facts["versions"], library_versions())),
        tolerance,
    )


# --- the pack ---


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
        listed = _manifest(archive)
        for name in (AUDIT, FACTS, PLAN):
            if name not in listed:
                raise ArchiveError(f"{archive.name!r} is not an evidence pack: its manifest does not list {name!r}.")
        changed = tuple(name for name, sha256 in listed.items() if archive.sha256(name) != sha256)
        facts, summary = _json(archive, FACTS, PACK_SCHEMA), _json(archive, AUDIT, SCHEMA)
        plan = _text(archive, PLAN)
    return Pack(Path(path).name, fingerprint_file(Path(path)), facts, summary, plan, changed)


def _manifest(archive: Archive) -> dict[str, str]:
    """SHA-256 by name, for exactly the entries of the archive."""
    lines = [_LINE.fullmatch(line) for line in _text(archive, MANIFEST).splitlines()]
    listed = {line[2]: line[1] for line in lines if line}
    if len(listed) != len(lines):
        raise ArchiveError(f"{archive.name!r} is not an evidence pack: {MANIFEST} is not a list of hashes and names.")
    names = {name for name in archive.names if name != MANIFEST}
    if names - set(listed):
        raise ArchiveError(f"{archive.name!r} has a file that {MANIFEST} does not list: {min(names - set(listed))!r}.")
    if set(listed) - names:
        raise ArchiveError(f"{archive.name!r} lacks a file that {MANIFEST} lists: {min(set(listed) - names)!r}.")
    return listed


def _text(archive: Archive, name: str) -> str:
    try:
        return archive.read(name).decode("utf-8")
    except UnicodeDecodeError:
        raise ArchiveError(f"{name!r} in {archive.name!r} is not UTF-8 text.") from None


def _json(archive: Archive, name: str, schema: str) -> dict[str, Any]:
    """Read a JSON object of a known kind, and check the parts that are used."""
    try:
        found = upgraded(json.loads(_text(archive, name)))
        kind, is_whole = found["schema"], _is_whole(found)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError):
        raise ArchiveError(f"{name!r} in {archive.name!r} is not JSON of the kind {schema!r}.") from None
    if kind != schema or not is_whole:
        raise ArchiveError(f"{name!r} in {archive.name!r} must be complete and of the kind {schema!r}, got {kind!r}.")
    return dict(found)


def _is_whole(found: Mapping[str, Any]) -> bool:
    """Whether the required parts of a file are there and have the right type."""
    if found["schema"] == PACK_SCHEMA:
        texts = [file[key] for file in found["inputs"].values() for key in ("name", "sha256")]
        return all(isinstance(text, str) for text in (found["made_with"], *texts, *found["versions"].values()))
    _numbers_of(found)
    data = found["data"]
    mappings = (found["settings"], data["column_prints"])
    return all(isinstance(part, dict) for part in mappings) and {"fingerprint", "n_people"} <= set(data)


# --- what differs ---


def _inputs(pack: Pack, given: Mapping[str, Any]) -> tuple[str, ...]:
    said = []
    for role, file in given.items():
        packed = pack.facts["inputs"].get(role)
        if packed is None:
            said.append(f"The audit of the pack read no {role} file, but {name_of_input(file)} was given.")
            continue
        found = fingerprint_input(file)
        if found != packed["sha256"]:
            said.append(
                f"The {role} file differs: the pack's file, {packed['name']}, has the SHA-256 "
                f"{packed['sha256'][:16]}..., but {name_of_input(file)} has {found[:16]}...."
            )
    return tuple(said)


def _summary_of(audit: _Audit | str | os.PathLike[str]) -> dict[str, Any]:
    if not isinstance(audit, (str, os.PathLike)):
        return dict(json_ready(audit.to_dict()))
    try:
        found = upgraded(json.loads(Path(audit).read_text("utf-8")))
        is_audit = found["schema"] == SCHEMA
    except (ValueError, TypeError, KeyError, RecursionError):
        is_audit = False
    if not is_audit:
        raise InvalidInputError(f"{str(audit)!r} is not the JSON of an audit of the kind {SCHEMA!r}.")
    return dict(found)


def _settings(packed: Mapping[str, Any], found: Mapping[str, Any]) -> Iterator[str]:
    before, after = packed["settings"], json_ready(found["settings"])
    for name in before:
        if before[name] != after.get(name):
            yield f"The setting {name} was {before[name]} and is {after.get(name)}."


def _people(packed: Mapping[str, Any], found: Mapping[str, Any]) -> Iterator[str]:
    """Sentences on people and columns that differ from the pack's."""
    if packed["fingerprint"] == found["fingerprint"]:
        return
    before, after = packed["column_prints"], found["column_prints"]
    if packed["n_people"] != found["n_people"]:
        yield f"The audit of the pack has {packed['n_people']} people, but this one has {found['n_people']}."
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
    named = [
        ", ".join(str(item[name]) for name in _NAMES if isinstance(item.get(name), str))
        if isinstance(item, Mapping)
        else ""
        for item in items
    ]
    are_apart = all(named) and len(set(named)) == len(named)
    return named if are_apart else [str(place) for place in range(len(items))]


def _differences(
    packed: Mapping[str, float | str | None], found: Mapping[str, float | str | None], tolerance: float
) -> Iterator[Difference]:
    """Numbers of the pack that the audit does not match; additions of a newer version do not count."""
    for where, was in packed.items():
        now = found.get(where)
        if isinstance(was, float) and isinstance(now, float):
            if abs(was - now) > tolerance * max(1.0, abs(was), abs(now)):
                yield Difference(where, was, now)
        elif was != now:
            yield Difference(where, was, now)


def _versions(packed: Mapping[str, Any], here: Mapping[str, str]) -> Iterator[str]:
    differ = [
        f"{name} {packed[name]} (here {here[name]})" for name in here if packed.get(name, here[name]) != here[name]
    ]
    if differ:
        yield f"The pack was made with different versions: {', '.join(differ)}."
