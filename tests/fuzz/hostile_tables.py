"""Tables of every kind: valid ones, as seeds to damage, and what becomes of a damaged one."""

from __future__ import annotations

import json
import math
import pickle
import shutil
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from damage import Rng, alter_tree, altered_bytes, archived, unzipped
from spoiled_tables import WRITERS, people

from evenhand.auditing.streaming.source import open_source
from evenhand.exceptions import EvenhandError
from evenhand.inputs.tables import open_table, read_table, typed
from evenhand.report.memo import open_word

__all__ = ["LAKES", "TABLES", "TEMPLATES", "damaged_lake", "damaged_table", "judged", "unpacked", "write_tables"]

TABLES = [f"people.{ending}" for ending in ("csv", "parquet", "arrow", "xlsx", "sav", "dta", "xpt")]
LAKES = ["delta.lake", "iceberg.lake"]
TEMPLATES = ["house.docx"]
_METADATA = "table.metadata.json"


def write_tables(folder: Path) -> None:
    """Write the seeds; those of lakes are archives of their folder, which must be where it was when they were made."""
    import deltalake
    import docx
    import pyreadstat
    from pyiceberg.catalog.memory import InMemoryCatalog

    table = people(np.random.default_rng(0))
    plain = table.astype({"owner": int})
    arrow = pa.Table.from_pandas(table, preserve_index=False)
    table.to_csv(folder / "people.csv.seed", index=False)
    pq.write_table(arrow, folder / "people.parquet", row_group_size=20)
    with pa.ipc.new_file(str(folder / "people.arrow"), arrow.schema) as writer:
        writer.write_table(arrow, max_chunksize=20)
    table.to_excel(folder / "people.xlsx", index=False)
    pyreadstat.write_sav(plain, folder / "people.sav")
    pyreadstat.write_dta(plain, folder / "people.dta")
    pyreadstat.write_xport(plain, folder / "people.xpt")
    lakes = folder.parent / "lakes"
    shutil.rmtree(lakes, ignore_errors=True)
    deltalake.write_deltalake(lakes / "delta", arrow, partition_by=["sex"])
    deltalake.write_deltalake(lakes / "delta", arrow, mode="append")
    deltalake.DeltaTable(lakes / "delta").delete("debt > 8000")
    catalog = InMemoryCatalog("fuzz", warehouse=f"file://{lakes}/iceberg")
    catalog.create_namespace("bank")
    stored = catalog.create_table("bank.loans", arrow.schema, location=f"file://{lakes}/iceberg")
    stored.append(arrow)
    stored.delete("debt > 8000")
    metadata = Path(stored.metadata_location.removeprefix("file://"))
    metadata.rename(metadata.with_name(_METADATA))
    for other in metadata.parent.glob("0*.metadata.json"):
        other.unlink()
    catalog.close()
    for kind in LAKES:
        place = lakes / kind.partition(".")[0]
        parts = {str(file.relative_to(place)): file.read_bytes() for file in place.rglob("*") if file.is_file()}
        (folder / kind).write_bytes(archived(parts))
    word = docx.Document()
    word.add_heading("Memo", 1)
    word.add_paragraph("{{ findings }}")
    word.sections[0].header.paragraphs[0].text = "House"
    word.save(folder / "house.docx")


def damaged_table(kind: str, seed: Path, rng: Rng, canary: str) -> bytes:
    """A file of a kind with a few things wrong."""
    ending = kind.rpartition(".")[2]
    if ending in ("csv", "parquet", "xlsx") and rng.random() < 0.5:  # what spreadsheets and databases do
        with tempfile.TemporaryDirectory() as folder:
            name = {"xlsx": "excel"}.get(ending, ending)
            path = WRITERS[name](rng, Path(folder))
            return path.read_bytes() if not path.name.endswith(".gz") else path.read_bytes()[:-1]
    content = (seed.with_name("people.csv.seed") if ending == "csv" else seed).read_bytes()
    if ending in ("xlsx", "docx") and rng.random() < 0.8:
        return _office(content, rng, canary)
    if ending in ("parquet", "arrow") and rng.random() < 0.3:
        return _metadata(ending, content, rng, canary)
    for _ in range(int(rng.choice([1, 1, 2, 3]))):
        content = altered_bytes(content, [content], rng)
    return content


class _Mark:
    """Leaves a mark where it is unpickled."""

    def __init__(self, canary: str) -> None:
        self.canary = canary

    def __reduce__(self) -> tuple[Any, ...]:
        import os

        return os.system, (f"touch '{self.canary}'",)


def _metadata(ending: str, content: bytes, rng: Rng, canary: str) -> bytes:
    """Types and metadata of Arrow that early versions, or pandas, would unpickle; or nonsense in their place."""
    source = pa.BufferReader(content)
    table = pq.read_table(source) if ending == "parquet" else pa.ipc.open_file(source).read_all()
    bomb = pickle.dumps(_Mark(canary))
    values = [bomb, b"", b"{}", b"[]", json.dumps({"columns": [{}], "index_columns": [0]}).encode(), b"\xff" * 9]
    names = [b"arrow.py_extension_type", b"pandas.period", b"pandas.interval", b"arrow.json", b"arrow.uuid", b"x" * 999]
    place = int(rng.integers(table.num_columns))
    field = table.schema.field(place).with_metadata(
        {
            b"ARROW:extension:name": names[int(rng.integers(len(names)))],
            b"ARROW:extension:metadata": values[int(rng.integers(len(values)))],
        }
    )
    schema = table.schema.set(place, field).with_metadata({b"pandas": values[int(rng.integers(len(values)))]})
    table = pa.Table.from_arrays(table.columns, schema=schema)
    sink = pa.BufferOutputStream()
    if ending == "parquet":
        pq.write_table(table, sink)
    else:
        with pa.ipc.new_file(sink, schema) as writer:
            writer.write_table(table)
    return sink.getvalue().to_pybytes()


_ENTITIES = [
    '<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;">]>',
    '<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]>',
    '<!DOCTYPE x SYSTEM "http://127.0.0.1:9/x.dtd">',
]
_FIELDS = ["DDEAUTO c:\\\\windows\\\\system32\\\\cmd.exe", 'INCLUDETEXT "http://127.0.0.1:9/x"', "LINK Excel.Sheet.8 x"]


def _office(content: bytes, rng: Rng, canary: str) -> bytes:
    """A document of zipped XML with other numbers, elements, links, entities, levels or parts."""
    parts = unzipped(content)
    assert parts is not None
    names = [name for name in parts if name.endswith((".xml", ".rels"))]
    name = names[int(rng.integers(len(names)))]
    text = parts[name].decode("utf-8", "replace")
    how = int(rng.integers(10))
    cut = int(rng.integers(len(text)))
    if how == 0:
        text = text.replace("?>", "?>" + _ENTITIES[int(rng.integers(3))], 1)
    elif how == 1:
        levels = int(rng.choice([100, 50_000]))
        text = text[: text.rfind("</")] + "<a>" * levels + "</a>" * levels + text[text.rfind("</") :]
    elif how == 2:
        link = f'<Relationship Id="x" Type="http://x/{rng.choice(["image", "externalLink", "oleObject"])}" '
        text = text.replace(
            "</Relationships>", f'{link} Target="file://{canary}" TargetMode="External"/></Relationships>'
        )
    elif how == 3:
        field = f'<w:p><w:fldSimple w:instr="{_FIELDS[int(rng.integers(3))]}"/></w:p>'.replace("&", "&amp;")
        text = text.replace("<w:body>", "<w:body>" + field.replace('"http', "'http").replace('/x""', "/x'\""))
    elif how == 4:
        parts["xl/vbaProject.bin" if "xl/workbook.xml" in parts else "word/vbaProject.bin"] = b"Sub Auto_Open()"
    elif how == 5:
        parts[str(rng.choice(["../x.xml", "/tmp/x.xml", "a" * 300, "xl/sharedStrings.xml "]))] = b"0"
    elif how == 6:
        parts[name + ".more"] = bytes(50_000_000)
    elif how == 7:
        numbers = ["1048577", "-1", "99999999999999999999", "1e400", "", "A1:XFD1048576", "nan"]
        places = [k for k, letter in enumerate(text) if letter.isdigit()]
        if places:
            at = places[int(rng.integers(len(places)))]
            text = text[:at] + str(rng.choice(numbers)) + text[at + 1 :]
    elif how == 8:
        text = text[:cut]
    else:
        parts[name] = altered_bytes(parts[name], [content], rng)
        return archived(parts)
    parts[name] = text.encode()
    return archived(parts)


_PLACES = [
    *("../secret.parquet", "/etc/passwd", "file:///etc/passwd", "%2E%2E/secret.parquet", "s3://127.0.0.1/x", "..\\x"),
    *("http://127.0.0.1:9/x.parquet", "", "a\0b", "delta", "x" * 5_000),
]


def damaged_lake(content: bytes, rng: Rng, canary: str) -> bytes:
    """A lake, one or two of whose files are damaged, hostile, missing, or in each other's place."""
    parts = unzipped(content)
    assert parts is not None
    for _ in range(int(rng.choice([1, 1, 2]))):
        names = sorted(parts)
        texts = [name for name in names if name.endswith(".json")]
        name = str(rng.choice(texts if texts and rng.random() < 0.7 else names))
        how = int(rng.integers(8))
        if how == 0:
            del parts[name]
        elif how == 1:
            parts[name] = parts[str(rng.choice(names))]
        elif how < 4 or name not in texts:
            parts[name] = altered_bytes(parts[name], [content], rng)
        else:
            parts[name] = _described(name, parts[name], rng, canary)
    return archived(parts)


def _described(name: str, content: bytes, rng: Rng, canary: str) -> bytes:
    """What describes a lake, with a value altered, or naming code and files elsewhere."""
    try:
        lines = [json.loads(line) for line in (content.splitlines() if name.startswith("_delta_log") else [content])]
    except ValueError:
        return altered_bytes(content, [content], rng)
    line = lines[int(rng.integers(len(lines)))]
    place = str(rng.choice(_PLACES))
    if rng.random() < 0.4 or not isinstance(line, dict):
        alter_tree(line, rng)
    elif "add" in line or "remove" in line:
        entry = line.get("add") or line["remove"]
        if isinstance(entry, dict):
            vector = {"storageType": "p", "pathOrInlineDv": place, "offset": 1, "sizeInBytes": 40, "cardinality": 2}
            entry.update({"deletionVector": vector} if rng.random() < 0.3 else {"path": place})
    elif "format-version" in line:
        key = str(rng.choice(["py-io-impl", "py-catalog-impl", "s3.endpoint", "s3.retry-strategy-impl", "snapshot"]))
        hostile = {key: "subprocess.Popen", "touch": "", canary: ""}
        if key == "snapshot" and line.get("snapshots"):
            line["snapshots"][-1]["manifest-list"] = place
        else:
            line["properties"] = hostile
    return b"\n".join(json.dumps(line).encode() for line in lines)


def unpacked(kind: str, content: bytes, out: Path) -> str:
    """Put a lake where it was made; its address."""
    place = out / "lakes" / kind.partition(".")[0]
    shutil.rmtree(place, ignore_errors=True)
    for name, part in (unzipped(content) or {}).items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_bytes(part)
    return f"delta:{place}" if kind.startswith("delta") else f"iceberg:{place}/metadata/{_METADATA}"


# -- what becomes of one


def judged(kind: str, given: str) -> dict[str, Any]:
    """Read a table in memory, in batches and with another library; or open a template, and look at the memo."""
    try:
        why = _template_differs(given) if kind in TEMPLATES else _table_differs(kind, given)
    except EvenhandError as error:
        message = str(error)
        is_sentence = message.endswith((".", "?", ")")) and "\n" not in message and "Traceback" not in message
        return {"verdict": "refused" if is_sentence else "traceback", "why": message[:300]}
    except OSError as error:  # which the command line tells of in a sentence
        return {"verdict": "refused" if error.strerror else "traceback", "why": str(error)}
    return {"verdict": "differs" if why else "accepted", "why": why}


def _table_differs(kind: str, given: str) -> str:
    ours = read_table(given)
    with tempfile.TemporaryDirectory() as folder:
        raw = open_table(given)
        file = typed(raw, raw.schema.names)
        source = open_source(file, 20, Path(folder) / "spool.parquet")
        parts = [source.read(batch, list(source.columns.readings)) for batch in source.batches]
        batches = pa.concat_tables(parts, promote_options="permissive").to_pandas()
    why = _difference(ours, batches)
    if why:
        return f"in batches: {why}"
    reader = _OTHERS.get(kind)
    if reader is None:
        return ""
    try:
        theirs = reader(given)
    except Exception:  # stricter than ours
        return ""
    why = _difference(ours, theirs)
    return f"with another library: {why}" if why else ""


def _difference(ours: pd.DataFrame, theirs: pd.DataFrame) -> str:
    """Where two tables differ: in a number, or in a text that is no number."""
    if len(ours) != len(theirs):
        return f"{len(ours)} and {len(theirs)} rows"
    for name in (name for name in ours if name in theirs):
        for row, (one, two) in enumerate(zip(ours[name], theirs[name], strict=True)):
            if not _same(one, two):
                return f"row {row} of {name!r}: {one!r} and {two!r}"
    return ""


def _same(one: Any, two: Any) -> bool:
    """Whether two cells say the same, as far as two libraries that type columns differently can tell."""
    is_empty = [cell is None or cell is pd.NaT or cell is pd.NA or cell != cell or cell == "" for cell in (one, two)]
    if any(is_empty) or type(one) in (str, bytes) or type(two) in (str, bytes):
        return (
            str(one) == str(two)
            or any(is_empty)
            or _number(one) == _number(two)
            or None in (_number(one), _number(two))
        )
    if isinstance(one, (int, float, np.number, bool)) and isinstance(two, (int, float, np.number, bool)):
        return math.isclose(float(one), float(two), rel_tol=1e-6, abs_tol=1e-9)
    return True


def _number(cell: Any) -> float | None:
    try:
        return float(cell)
    except (TypeError, ValueError):
        return None


def _of_parquet(path: str) -> pd.DataFrame:
    import duckdb

    with duckdb.connect() as connection:
        return connection.execute("select * from read_parquet(?)", [path]).df()


def _of_arrow(path: str) -> pd.DataFrame:
    import polars

    return polars.read_ipc(path, memory_map=False, use_pyarrow=False).to_pandas()


def _of_excel(path: str) -> pd.DataFrame:
    """Only of sheets without titles and empty rows."""
    import openpyxl

    book = openpyxl.load_workbook(path, read_only=True, data_only=True)
    try:
        header, *rows = (list(row) for row in book.worksheets[0].iter_rows(values_only=True))
    finally:
        book.close()
    if len(book.sheetnames) > 1 or None in header or not all(isinstance(name, str) for name in header):
        raise ValueError
    if any(all(cell in (None, "") for cell in row) for row in rows):
        raise ValueError
    return pd.DataFrame(rows, columns=header)


_OTHERS: dict[str, Callable[[str], pd.DataFrame]] = {
    "people.parquet": _of_parquet,
    "people.arrow": _of_arrow,
    "people.xlsx": _of_excel,
    "people.dta": lambda path: pd.read_stata(path, convert_categoricals=False),
}


def _template_differs(path: str) -> str:
    """What the memo of a template loads from elsewhere."""
    memo = Path(path).with_suffix(".memo.docx")
    open_word(path).word.save(memo)
    with zipfile.ZipFile(memo) as written:
        for name in written.namelist():
            text = written.read(name)
            if name.endswith(".rels") and b'TargetMode="External"' in text and b"hyperlink" not in text:
                return f"{name} leads elsewhere"
            if any(word in text for word in (b"DDEAUTO", b"INCLUDETEXT", b"LINK Excel", b"vbaProject")):
                return f"{name} has a field that does"
    return ""
