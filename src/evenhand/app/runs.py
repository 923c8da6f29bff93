"""The folder that the pages show: its tables, models and audits, and nothing outside it."""

from __future__ import annotations

import json
import os
import re
import shutil
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PureWindowsPath
from typing import IO, Any

from evenhand.exceptions import InvalidInputError
from evenhand.system.files import PrivateFolder, process_runs, toml_text, write_atomically, write_text

MODELS = (".onnx", ".json", ".ubj", ".txt", ".cbm", ".skops", ".pmml", ".safetensors")
PICKLES = (".pkl", ".pickle", ".joblib", ".pt", ".pth")
RESULTS = {
    "report.html": "Report, HTML",
    "memo.docx": "Word memo",
    "audit.xlsx": "Excel workbook",
    "pack.zip": "Evidence pack",
    "review.csv": "Pairs to review, CSV",
    "pairs.parquet": "All pairs, Parquet",
    "audit.json": "Numbers, JSON",
    "audit.toml": "Settings, TOML",
}
"""Files of an audit that can be downloaded."""

LARGE = 200 << 20
"""Bytes from which on a table is read in batches."""

_AUDITS, _FACTS = "audits", "app.json"
_DEEP, _MOST_ENTRIES, _MOST_JSON = 3, 20_000, 64 << 20


class OutsideError(InvalidInputError):
    """A name that leads out of the folder, or to nothing in it."""


@dataclass(frozen=True)
class Folder:
    """A folder, and beside it a private one for uploads that are not kept.

    Attributes
    ----------
    root
        Its path, without links.
    uploads
        Removed when the server ends.
    """

    root: Path
    uploads: PrivateFolder

    def path(self, name: str, *, is_upload: bool = False) -> Path:
        """The path of something in the folder, or among the uploads.

        Raises
        ------
        OutsideError
            If it is hidden or elsewhere, also by a link, or not there.
        """
        roots = [self.root, *([self.uploads.path.resolve()] if is_upload else [])]
        with suppress(OSError, ValueError):
            found = (self.root / name).resolve(strict=True)
            for root in roots:
                if found.is_relative_to(root) and not any(p.startswith(".") for p in found.relative_to(root).parts):
                    return found
        raise OutsideError(f"There is no {name!r} in the folder {self.root.name!r}.")

    def name(self, path: Path) -> str:
        """What a path in the folder is called on the command line, which runs there."""
        if not path.is_relative_to(self.root):
            return str(path)
        name = path.relative_to(self.root).as_posix()
        return f"./{name}" if name.startswith("-") or ":" in name else name

    def entries(self) -> Iterator[os.DirEntry[str]]:
        """Files and folders down to a depth; neither hidden ones nor links."""
        left, seen = [(self.root, 0)], 0
        while left and seen < _MOST_ENTRIES:
            folder, depth = left.pop(0)
            with suppress(OSError), os.scandir(folder) as inside:
                for entry in sorted(inside, key=lambda one: one.name):
                    seen += 1
                    if entry.name.startswith(".") or entry.is_symlink():
                        continue
                    yield entry
                    if entry.is_dir() and depth < _DEEP:
                        left.append((Path(entry.path), depth + 1))

    def files(self, endings: tuple[str, ...]) -> list[tuple[str, int]]:
        """Names and sizes of files that end like this and are not results of an audit; also of folders of Parquet."""
        entries = [entry for entry in self.entries() if entry.is_file()]
        results = {Path(entry.path).parent for entry in entries if entry.name in ("audit.json", _FACTS)}
        found = [entry for entry in entries if entry.name.lower().endswith(endings)]
        sizes = Counter[Path]()
        for entry in found:
            path = Path(entry.path)
            if not results & {*path.parents}:
                sizes[path] += entry.stat().st_size
                folder = next(parent for parent in path.parents if "=" not in parent.name)
                if path.suffix == ".parquet" and folder != self.root:
                    sizes[folder] += entry.stat().st_size
        return [(self.name(path), size) for path, size in sizes.items()]

    def runs(self) -> list[Run]:
        """Audits in the folder, the latest first."""
        places = {Path(e.path).parent for e in self.entries() if e.name in ("audit.json", _FACTS) and e.is_file()}
        runs = [Run(self, self.name(place)) for place in places]
        return sorted(runs, key=lambda run: run.changed, reverse=True)

    def run(self, name: str) -> Run:
        """An audit by its name."""
        run = Run(self, self.name(self.path(name)))
        if not any((run.path / file).is_file() for file in (_FACTS, "audit.json")):
            raise OutsideError(f"There is no audit {name!r} in the folder {self.root.name!r}.")
        return run

    def new_run(self, wanted: str, facts: Mapping[str, Any]) -> Run:
        """A new audit, with a name that is still free."""
        parent = self.root / _AUDITS
        parent.mkdir(0o700, exist_ok=True)
        path = _free(self.path(_AUDITS) / (plain_name(wanted) or "audit"))
        path.mkdir(0o700)
        run = Run(self, self.name(path))
        run.note(**facts)
        return run

    def save(self, file: IO[bytes], name: str, endings: tuple[str, ...], *, is_kept: bool) -> Path:
        """Save an uploaded file, in the folder if it is to be kept.

        Raises
        ------
        InvalidInputError
            If its name says that it is something else.
        """
        plain = plain_name(PureWindowsPath(name).name)  # also takes what follows the last slash
        if plain.lower().endswith(PICKLES):
            raise InvalidInputError(
                f"{plain!r} is a pickle, which can run any code, so it cannot be audited here: save the model as "
                ".skops or .onnx, or use `evenhand audit --trust-pickle` on the command line."
            )
        if not plain.lower().endswith(endings):
            raise InvalidInputError(f"{plain!r} must be one of {', '.join(endings)}.")
        folder = self.root if is_kept else self.uploads.path / os.urandom(8).hex()
        folder.mkdir(0o700, exist_ok=True)
        target = _free(folder / plain)
        with write_atomically(target) as temporary, temporary.open("wb") as copy:
            shutil.copyfileobj(file, copy)
        return target


@dataclass(frozen=True)
class Run:
    """An audit: the files of its folder."""

    folder: Folder
    name: str

    @property
    def path(self) -> Path:
        """Its folder."""
        return self.folder.root / self.name

    @property
    def changed(self) -> float:
        """When its result, or else what is known about it, was last written."""
        place = self.path / "audit.json"
        return (place if place.exists() else self.path / _FACTS).stat().st_mtime

    @property
    def facts(self) -> dict[str, Any]:
        """What the pages know about it: its table, how to read it, and how its command ended."""
        return _json(self.path / _FACTS) or {}

    def note(self, **facts: Any) -> None:
        """Add to the facts."""
        write_text(self.path / _FACTS, json.dumps({**self.facts, **facts}, indent=1))

    @property
    def table(self) -> str:
        """The table to audit, as the command names it.

        Raises
        ------
        OutsideError
            If it is not there.
        """
        if "table" not in self.facts:
            raise OutsideError(f"The audit {self.name!r} was not made here, so its table is not known.")
        return self.folder.name(self.folder.path(self.facts["table"], is_upload=True))

    @property
    def has_table(self) -> bool:
        """Whether its table is there; one that was uploaded and not kept is deleted after the audit."""
        try:
            return bool(self.table)
        except OutsideError:
            return False

    @property
    def is_large(self) -> bool:
        """Whether its table is too large to be read at once."""
        path = self.folder.root / self.table
        return path.is_dir() or path.stat().st_size > LARGE

    @property
    def reading(self) -> dict[str, Any]:
        """How to read the table."""
        return dict(self.facts.get("reading", {}))

    @property
    def trial(self) -> Run:
        """A first look with the same settings, which is not kept."""
        return Run(Folder(self.folder.uploads.path.resolve(), self.folder.uploads), f"trial-{plain_name(self.name)}")

    @property
    def settings(self) -> dict[str, Any]:
        """The content of audit.toml."""
        with suppress(OSError, ValueError):
            return tomllib.loads((self.path / "audit.toml").read_text(encoding="utf-8"))
        return {}

    def again(self) -> Run:
        """A new audit of the same table, because one that exists is not changed."""
        kept = {key: value for key, value in self.facts.items() if key in ("table", "reading", "model")}
        run = self.folder.new_run(self.name.rpartition("/")[2], kept)
        for file in ("audit.toml", "check.json", "check.html"):
            with suppress(FileNotFoundError):
                shutil.copyfile(self.path / file, run.path / file)
        return run

    def write_settings(self, settings: Mapping[str, Any]) -> None:
        """Write audit.toml."""
        about = f"# Settings of an audit of {Path(self.facts['table']).name!r}, chosen in `evenhand app`.\n\n"
        write_text(self.path / "audit.toml", about + toml_text(settings))

    @property
    def check(self) -> dict[str, Any] | None:
        """What `evenhand check` found."""
        return _json(self.path / "check.json")

    @property
    def has_result(self) -> bool:
        """Whether it is done."""
        return (self.path / "audit.json").is_file()

    @property
    def summary(self) -> dict[str, Any] | None:
        """The result, or None if there is none."""
        return _json(self.path / "audit.json")

    @property
    def headline(self) -> dict[str, str]:
        """The headline of the result, its model, and when it was made."""
        path = self.path / "audit.json"
        return _headline(path, path.stat().st_mtime_ns) if path.is_file() else {}

    @property
    def command(self) -> tuple[str, ...]:
        """The audit, after `evenhand`."""
        again = ("--resume",) if self.has_batches else ()
        return ("audit", self.table, "--config", f"{self.name}/audit.toml", "--out", self.name, *again)

    @property
    def has_batches(self) -> bool:
        """Whether an audit in batches was started, whose settings must then stay the same."""
        return (self.path / "manifest.json").exists()

    @property
    def results(self) -> list[tuple[str, str, int]]:
        """Names, titles and sizes of the files that can be downloaded."""
        found = [(name, words, self.path / name) for name, words in RESULTS.items()]
        return [(n, words, path.stat().st_size) for n, words, path in found if path.is_file() and not path.is_symlink()]

    @property
    def is_running_elsewhere(self) -> bool:
        """Whether a command that an earlier server started still runs."""
        facts = self.facts
        return os.name == "posix" and facts.get("state") == "running" and process_runs(facts["process"])

    def discard_upload(self) -> None:
        """Delete files that were uploaded for this audit and not kept."""
        for place in (self.facts.get("table", ""), self.settings.get("model", "")):
            with suppress(OSError, InvalidInputError):
                path = self.folder.path(place, is_upload=True)
                if path.is_relative_to(self.folder.uploads.path.resolve()):
                    shutil.rmtree(path.parent)


def plain_name(text: str) -> str:
    r"""A name for a file or folder: letters, digits, dots, dashes and underscores.

    Examples
    --------
    >>> plain_name("../../Loans of 2024 (final).csv"), plain_name("<b>\x00")
    ('Loans-of-2024-final-.csv', 'b')
    """
    return re.sub(r"[^\w.]+", "-", text).strip("-.")[:80]


def _free(path: Path) -> Path:
    """A path that does not exist: this one, or with a number."""
    stem, dot, ending = path.name.partition(".")
    names: Iterator[str] = (f"{stem}-{n}{dot}{ending}" for n in range(2, 10_000))
    return path if not path.exists() else next(p for p in map(path.with_name, names) if not p.exists())


def _json(path: Path) -> dict[str, Any] | None:
    """The content of a JSON file; None if it is missing, too large or something else."""
    with suppress(OSError, ValueError, RecursionError):
        if path.stat().st_size <= _MOST_JSON:
            found = json.loads(path.read_text(encoding="utf-8"))
            return found if isinstance(found, dict) else None
    return None


@lru_cache(maxsize=4096)
def _headline(path: Path, changed: int) -> dict[str, str]:
    """What the list of audits says of one; empty texts for a file of another form."""
    found = _json(path) or {}
    verdict, data = (found[key] if isinstance(found.get(key), dict) else {} for key in ("verdict", "data"))
    when = str(found.get("created", "")).replace("T", " ")[:16]
    return {"headline": str(verdict.get("headline", "")), "model": str(data.get("model", "")), "when": when}
