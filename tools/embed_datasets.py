"""Write the embedded Parquet files from the raw UCI files.

    python tools/embed_datasets.py FOLDER

FOLDER holds `german/german.data`, `adult/adult.data` and `adult/adult.test` as published by the UCI
Machine Learning Repository, and `taiwan/default_of_credit_card_clients.csv.gz`, the published sheet as text. Values are
stored as they are published: decoding belongs to the loaders.
"""

import argparse
import hashlib
import sys
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

SHA256 = {
    "german/german.data": "b21f3d81db8071257d5ff1deaeba1fd4303b62712e6fcc9715c7a86202cb5871",
    "adult/adult.data": "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d",
    "adult/adult.test": "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05",
    "taiwan/default_of_credit_card_clients.csv.gz": "27795e7ee11c60e64c511c7f28d5b06970c01393e9e0abd5cfe3df43f198cc83",
}
ADULT_COLUMNS = (
    "age",
    "workclass",
    "fnlwgt",
    "education",
    "education-num",
    "marital-status",
    "occupation",
    "relationship",
    "race",
    "sex",
    "capital-gain",
    "capital-loss",
    "hours-per-week",
    "native-country",
    "income",
)
"""The 14 attributes and the income class, in the order of the raw files."""
GERMAN_COLUMNS = (
    "checking_status",
    "duration",
    "credit_history",
    "purpose",
    "credit_amount",
    "savings",
    "employment_since",
    "installment_rate",
    "personal_status",
    "other_debtors",
    "residence_since",
    "property",
    "age",
    "other_installment_plans",
    "housing",
    "existing_credits",
    "job",
    "dependents",
    "telephone",
    "foreign_worker",
    "class",
)
"""The 20 attributes and the class, in the order of the raw file."""
TARGET = Path(__file__).parents[1] / "src" / "evenhand" / "datasets" / "files"


def checked(folder: Path, name: str) -> Path:
    """Path of a raw file whose content is the published one."""
    path = folder / name
    if not path.is_file():
        sys.exit(f"{path} is missing; download it from https://archive.ics.uci.edu.")
    if hashlib.sha256(path.read_bytes()).hexdigest() != SHA256[name]:
        sys.exit(f"{path} is not the published file: its sha256 differs. Download it again.")
    return path


def read_german(folder: Path) -> pd.DataFrame:
    """All 1,000 rows, categories as their published codes."""
    return pd.read_csv(checked(folder, "german/german.data"), sep=" ", header=None, names=[*GERMAN_COLUMNS])


def read_adult(folder: Path) -> pd.DataFrame:
    """Training rows, then test rows; the test file's labels lose their full stop."""
    parts = [
        pd.read_csv(
            checked(folder, f"adult/{name}"),
            header=None,
            names=[*ADULT_COLUMNS],
            skiprows=skip,
            skipinitialspace=True,
            keep_default_na=False,
        )
        for name, skip in (("adult.data", 0), ("adult.test", 1))
    ]
    table = pd.concat(parts, ignore_index=True)
    table["income"] = table["income"].str.rstrip(".")
    return table


def read_taiwan(folder: Path) -> pd.DataFrame:
    """All 30,000 rows without their number, categories as their published codes."""
    return pd.read_csv(checked(folder, "taiwan/default_of_credit_card_clients.csv.gz")).drop(columns="ID")


def write(table: pd.DataFrame, path: Path) -> None:
    """Smallest Parquet we know: narrow integers, dictionaries where values repeat, zstd at its highest level."""
    for column in table.select_dtypes("integer"):
        table[column] = pd.to_numeric(table[column], downcast="integer")
    arrow = pa.Table.from_pandas(table, preserve_index=False).replace_schema_metadata(None)
    repeating = [column for column in table if table[column].nunique() < len(table) / 8]
    pq.write_table(arrow, path, compression="zstd", compression_level=22, use_dictionary=repeating)
    print(f"{path.name}: {len(table):,} rows, {path.stat().st_size:,} bytes")


def main() -> None:
    """Check the raw files, then write the Parquet files."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="folder that holds german/, adult/ and taiwan/")
    folder = parser.parse_args().folder
    TARGET.mkdir(exist_ok=True)
    write(read_german(folder), TARGET / "german.parquet")
    write(read_adult(folder), TARGET / "adult.parquet")
    write(read_taiwan(folder), TARGET / "taiwan.parquet")


if __name__ == "__main__":
    main()
