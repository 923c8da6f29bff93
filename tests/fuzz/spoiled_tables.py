"""Tables of applicants, each spoiled in a few ways that spreadsheets, databases and disks know."""

from __future__ import annotations

import csv
import datetime as dt
import gzip
import io
import string
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import xlsxwriter

N = 48
COLUMNS = ("income", "debt", "rate", "job", "owner", "sex", "paid")
CELLS = [
    "", " ", "NA", "#N/A", ".", "-", "nan", "None", "inf", "-inf", "1e400", "0x1F", "1_000", "$1,234", "1,234",
    "1.234,5", "(1,234)", "34.5%", "12%", "€5",
    "1 234", "1'234", "+5", "--5", "007", "99999999999999999999", "1e5", "5.", ".5",
    "2024-01-05", "05/03/2024", "true", "FALSE", "yes",
    "x\0", "é", "ٱ", "a\nb", 'say "hi"', '"', "a,b", "a;b", "\t", "'", "\r",
    "f ", "F", "m\u00a0", "\u200b", "=1+1", "\ufeff", "😀", "0", "1", "2", "-1", "1.0", "0.0",
]  # fmt: skip


def people(rng: np.random.Generator) -> pd.DataFrame:
    """Applicants that every model of the harness takes."""
    frame = pd.DataFrame(
        {
            "income": rng.normal(50_000, 9_000, N).round(2),
            "debt": rng.integers(0, 9_000, N),
            "rate": rng.random(N).round(3),
            "job": rng.choice(["cook", "clerk", "none of these"], N),
            "owner": rng.random(N) < 0.5,
            "sex": np.resize(["f", "m"], N),
            "paid": np.resize([0, 0, 1, 1, 1], N),
        }
    )
    frame.loc[rng.integers(N), "rate"] = np.nan
    return frame


def options(rng: np.random.Generator) -> list[str]:
    """Words of the command line, now and then."""
    words: list[str] = []
    if rng.random() < 0.5:
        words.append("--drop-missing")
    for name, values in {
        "--decimal": [".", ","],
        "--thousands": [",", ".", " ", "'"],
        "--encoding": ["utf-8", "cp1252", "utf-16", "latin-1"],
        "--missing": ["x", "0,-1"],
        "--by": ["job", "owner"],
        "--positive-label": ["1", "true"],
    }.items():
        if rng.random() < 0.04:
            words += [name, str(rng.choice(values))]
    return words


def _texts(rng: np.random.Generator) -> list[list[str]]:
    frame = people(rng)
    buffer = io.StringIO(frame.to_csv(index=bool(rng.random() < 0.05)))
    return list(csv.reader(buffer))


def _spoil_cells(rng: np.random.Generator, rows: list[list[str]]) -> None:
    for _ in range(int(rng.integers(1, 6))):
        row = rows[int(rng.integers(len(rows)))]
        if row:
            row[int(rng.integers(len(row)))] = str(rng.choice(CELLS))


def _spoil_column(rng: np.random.Generator, rows: list[list[str]]) -> None:
    """Write a whole column in another way."""
    place = int(rng.integers(len(rows[0])))
    ways = [
        lambda text: f"${text}",
        lambda text: f"{text}%",
        lambda text: text.replace(".", ","),
        lambda text: f"{float(text):,.2f}",
        lambda text: f"{float(text):,.0f}",
        lambda text: f"{float(text):,.0f}".replace(",", "."),
        lambda text: f"({text})",
        lambda text: f" {text} ",
        lambda text: text.upper(),
        lambda text: "",
        lambda text: "same",
        lambda text: str(rng.choice(CELLS)),
        lambda text: str(rng.random()),
        lambda text: str(rng.choice(["Black", "Black ", "BLACK", "White"])),
        lambda text: str(rng.choice(["yes", "no"])),
    ]
    way = ways[int(rng.integers(len(ways)))]
    for row in rows[1:]:
        if place < len(row):
            try:
                row[place] = way(row[place])
            except ValueError:
                continue


def _spoil_shape(rng: np.random.Generator, rows: list[list[str]]) -> None:
    """Too long, too short, too many, too few."""
    k = int(rng.integers(len(rows)))
    match int(rng.integers(12)):
        case 0:
            rows[k].append(str(rng.choice(CELLS)))
        case 1:
            rows[k][:] = rows[k][:-1]
        case 2:
            for row in rows[1:]:
                row.append("")
        case 3:
            for row in rows:
                row.append("")
        case 4:
            rows.insert(0, ["Applicants of the year"])
        case 5:
            rows.insert(0, ["Applicants", "of the year"])
        case 6:
            rows.insert(k, [])
        case 7:
            rows.insert(k, [""] * len(rows[0]))
        case 8:
            del rows[int(rng.integers(1, 8)) :]
        case 9:
            rows[0][int(rng.integers(len(rows[0])))] = str(rng.choice([*CELLS, "paid", "income "]))
        case 10:
            del rows[0]
        case 11:
            for row in rows:
                del row[int(rng.integers(7)) : 7 : 3]


def _spoil_bytes(rng: np.random.Generator, content: bytes) -> bytes:
    """Bytes changed, put in, cut out, or lost at the end."""
    spoiled = bytearray(content)
    for _ in range(int(rng.integers(1, 4))):
        if not spoiled:
            break
        k = int(rng.integers(len(spoiled)))
        match int(rng.integers(4)):
            case 0:
                spoiled[k] = int(rng.integers(256))
            case 1:
                spoiled[k:k] = bytes(rng.integers(0, 256, int(rng.integers(1, 5)), dtype=np.uint8))
            case 2:
                del spoiled[k : k + int(rng.integers(1, 40))]
            case 3:
                spoiled[k:k] = bytes(rng.choice([b'"', b"\r", b"\n", b",", b"\0", b"\xff", b";", b"\xef\xbb\xbf"]))
    return bytes(spoiled[: int(rng.integers(len(spoiled) + 1))] if rng.random() < 0.1 else spoiled)


def write_csv(rng: np.random.Generator, folder: Path) -> Path:
    """A CSV file with a fault or two."""
    rows = _texts(rng)
    for _ in range(int(rng.integers(0, 3))):
        spoil = (_spoil_cells, _spoil_column, _spoil_shape)[int(rng.integers(3))]
        if len(rows) > 1 and rows[0]:
            spoil(rng, rows)
    separator = str(rng.choice([",", ",", ",", ";", "\t", "|"]))
    buffer = io.StringIO()
    writer = csv.writer(
        buffer,
        delimiter=separator,
        lineterminator=str(rng.choice(["\n", "\n", "\r\n", "\r"])),
        quoting=csv.QUOTE_ALL if rng.random() < 0.2 else csv.QUOTE_MINIMAL,
    )
    writer.writerows(rows)
    encoding = str(rng.choice(["utf-8", "utf-8-sig", "cp1252", "utf-16"], p=[0.7, 0.2, 0.05, 0.05]))
    content = buffer.getvalue().encode(encoding, "replace")
    content = _spoil_bytes(rng, content) if rng.random() < 0.25 else content
    is_gzip = rng.random() < 0.1
    path = folder / ("people.csv.gz" if is_gzip else "people.csv")
    packed = gzip.compress(content, mtime=0) if is_gzip else content
    path.write_bytes(_spoil_bytes(rng, packed) if is_gzip and rng.random() < 0.5 else packed)
    return path


def _odd_column(rng: np.random.Generator, values: pa.Array) -> pa.Array:
    """A column of another type, or with other values."""
    n = len(values)
    texts = [str(value) for value in values.to_pylist()]
    makers = [
        lambda: pa.array([[1, 2]] * n),
        lambda: pa.array([text.encode() for text in texts]),
        lambda: pa.array([{"a": 1}] * n),
        lambda: pa.array([Decimal(k) / 4 for k in range(n)], pa.decimal128(12, 2)),
        lambda: pa.array(np.arange(n, dtype=np.float16)),
        lambda: pa.array(texts).dictionary_encode(),
        lambda: pa.array(np.arange(n) % 3).dictionary_encode(),
        lambda: pa.array([dt.datetime(2024, 1, 1)] * n),
        lambda: pa.array([dt.date(2024, 1, 1 + k % 20) for k in range(n)]),
        lambda: pa.array([dt.time(1, k % 60) for k in range(n)]),
        lambda: pa.array([dt.timedelta(k) for k in range(n)]),
        lambda: pa.nulls(n),
        lambda: pa.nulls(n, pa.string()),
        lambda: pa.array(texts, pa.large_string()),
        lambda: pa.array(texts, pa.string_view()),
        lambda: pa.array([None if k % 7 == 0 else text for k, text in enumerate(texts)]),
        lambda: pa.array(rng.choice(CELLS, n).tolist()),
        lambda: pa.array([f"${k},000" for k in range(1, n + 1)]),
        lambda: pa.array([f"{k}%" for k in range(n)]),
        lambda: pa.array([2**64 - 1 - k for k in range(n)], pa.uint64()),
        lambda: pa.array([np.inf if k == 3 else float(k) for k in range(n)]),
        lambda: pa.array(rng.random(n)),
        lambda: pa.array([bool(k % 2) for k in range(n)]),
        lambda: pa.array(["a" if k % 2 else "a\0" for k in range(n)]),
        lambda: pa.array(["x"] * n),
    ]
    return makers[int(rng.integers(len(makers)))]()


def write_parquet(rng: np.random.Generator, folder: Path) -> Path:
    """A Parquet file with odd columns, or with damaged bytes."""
    table = pa.Table.from_pandas(people(rng), preserve_index=False)
    for _ in range(int(rng.integers(1, 3))):
        place = int(rng.integers(table.num_columns))
        column = _odd_column(rng, table.column(place))
        match int(rng.integers(4)):
            case 0:
                table = table.append_column(str(rng.choice(["extra", "income", "", "ü\0"])), column)
            case 1:
                table = table.slice(0, int(rng.integers(N)))
                column = None
            case _:
                table = table.set_column(place, table.column_names[place], column)
        if column is None:
            break
    path = folder / "people.parquet"
    pq.write_table(table, path, row_group_size=int(rng.integers(5, N + 1)))
    if rng.random() < 0.2:
        path.write_bytes(_spoil_bytes(rng, path.read_bytes()))
    return path


def write_workbook(rng: np.random.Generator, folder: Path) -> Path:
    """An Excel file with cells of any type, titles, empty rows and further sheets, or with damaged bytes."""
    rows: list[list[object]] = [list(row) for row in _texts(rng)]
    for _ in range(int(rng.integers(0, 3))):
        spoil = (_spoil_cells, _spoil_column, _spoil_shape)[int(rng.integers(3))]
        if len(rows) > 1 and rows[0]:
            spoil(rng, rows)  # type: ignore[arg-type]
    typed = [True, dt.datetime(2024, 1, 2), 7, 2.5, -3, 10**12]
    path = folder / "people.xlsx"
    with xlsxwriter.Workbook(
        str(path), {"strings_to_numbers": bool(rng.random() < 0.8), "nan_inf_to_errors": True}
    ) as book:
        date = book.add_format({"num_format": "yyyy-mm-dd"})
        sheet = book.add_worksheet("data")
        for i, row in enumerate(rows):
            for j, cell in enumerate(row):
                value = typed[int(rng.integers(len(typed)))] if rng.random() < 0.002 else cell
                if isinstance(value, dt.datetime):
                    sheet.write_datetime(i, j, value, date)
                elif isinstance(value, str) and set(value) <= set(string.printable) | {"é", "€", "ü"}:
                    sheet.write(i, j, value) if not value.startswith("=") else sheet.write_string(i, j, value)
                elif not isinstance(value, str):
                    sheet.write(i, j, value)
        if rng.random() < 0.1:
            book.add_worksheet("more").write(0, 0, str(rng.choice(["", "notes"])))
    if rng.random() < 0.2:
        path.write_bytes(_spoil_bytes(rng, path.read_bytes()))
    return path


WRITERS = {"csv": write_csv, "parquet": write_parquet, "excel": write_workbook}
"""Makers of spoiled files, by kind."""
