"""Streamed audits of people in a store, a lake, a stream of Arrow data: those of the same people in a file."""

import json

import deltalake
import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from evenhand.auditing.streaming import audit_stream
from evenhand.exceptions import InvalidInputError
from evenhand.system.files import json_ready

FINANCIAL = ["f0", "f1", "f2"]
FEATURES = [*FINANCIAL, "z0", "z1", "z2"]

pytestmark = pytest.mark.filterwarnings("ignore::evenhand.exceptions.EvenhandWarning")


@pytest.fixture
def go(model, tmp_path):
    """Audits a source."""

    def run(source, out="audit", **settings):
        arguments = {"label": "y", "group": "sex", "financial_features": FINANCIAL, "features": FEATURES}
        return audit_stream(model, source, out=tmp_path / out, **arguments | {"batch_rows": 130} | settings)

    return run


@pytest.fixture
def dataset(people, tmp_path):
    """The people by branch, sorted as the files are."""
    people = people.sort_values("branch", kind="stable", ignore_index=True)
    pq.write_to_dataset(
        pa.Table.from_pandas(people, preserve_index=False), tmp_path / "people", partition_cols=["branch"]
    )
    return people


def without_stream(found):
    """What is found, but for when, how it was cut, and names and hashes of where it was read from."""
    summary = json_ready(found.to_dict())
    summary["data"].pop("hashes")
    summary["data"].pop("files")
    return {name: part for name, part in summary.items() if name not in ("created", "stream", "influences")}


@pytest.mark.slow
def test_a_partitioned_table_in_a_store_is_the_table_in_memory(
    dataset, put, go, in_memory, assert_same, model, tmp_path
):
    for file in (tmp_path / "people").rglob("*.parquet"):
        put(f"people/{file.parent.name}/{file.name}", file.read_bytes())
    memory = in_memory(model, dataset, by=["branch"])
    assert_same(go("s3://lending/people", by=["branch"]), memory)
    assert_same(go(tmp_path / "people", "local", by=["branch"]), memory)


def test_an_object_that_changes_is_not_gone_on_with(people, put, go, tmp_path):
    def written(table):
        table.to_parquet(tmp_path / "people.parquet")
        return put("people.parquet", (tmp_path / "people.parquet").read_bytes())

    address = written(people)
    first = go(address, evidence=False)
    assert go(address, evidence=False, resume=True).to_dict()["cec"] == first.to_dict()["cec"]
    written(people.assign(f0=people["f0"] + 1))
    with pytest.raises(InvalidInputError, match="cannot be resumed because the source has changed"):
        go(address, evidence=False, resume=True)


def test_a_delta_table_that_has_moved_on_is_refused_and_its_version_is_not(people, go, tmp_path):
    table, name = pa.Table.from_pandas(people, preserve_index=False), f"delta:{tmp_path}/people"
    deltalake.write_deltalake(tmp_path / "people", table)
    found = go(name, evidence=False)
    assert found.provenance.hashes["source version"].startswith("version 0 of the Delta table ")
    deltalake.write_deltalake(tmp_path / "people", table.slice(0, 5), mode="append")
    with pytest.raises(InvalidInputError, match=r"source version was 'version 0 of .*' and is 'version 1 of"):
        go(name, evidence=False, resume=True)
    pinned = go(f"{name}@0", evidence=False, resume=True)
    assert without_stream(pinned) == without_stream(found)


@pytest.mark.parametrize("kind", ["reader", "duckdb", "pandas"])
def test_a_stream_of_arrow_data_is_written_down_and_audited_as_a_file(people, go, tmp_path, kind):
    table = pa.Table.from_pandas(people, preserve_index=False)
    people.to_parquet(tmp_path / "people.parquet")

    def source():
        if kind == "duckdb":
            return duckdb.connect().sql(f"select * from '{tmp_path}/people.parquet'")
        return table.to_reader(77) if kind == "reader" else people.set_axis(range(5, 5 + len(people)))

    found = go(source(), evidence=False)
    assert without_stream(found) == without_stream(go(tmp_path / "people.parquet", "file", evidence=False))
    assert len(list((tmp_path / "audit").glob("rows-*.parquet"))) == 1
    again = go(source(), evidence=False, resume=True)
    assert without_stream(again) == without_stream(found)
    with pytest.raises(InvalidInputError, match="the source has changed"):
        go(table.slice(1).to_reader(), evidence=False, resume=True)


def test_the_reference_can_be_anywhere(people, put, go, web, tmp_path):
    people.iloc[:500].to_parquet(tmp_path / "reference.parquet")
    content = (tmp_path / "reference.parquet").read_bytes()
    (web.folder / "reference.parquet").write_bytes(content)
    reader = pq.ParquetFile(tmp_path / "reference.parquet").iter_batches(100)
    schema = pq.read_schema(tmp_path / "reference.parquet")
    people.to_parquet(tmp_path / "people.parquet")
    found = [
        without_stream(go(tmp_path / "people.parquet", f"out{k}", reference=reference, evidence=False))
        for k, reference in enumerate(
            [
                tmp_path / "reference.parquet",
                put("reference.parquet", content),
                f"{web.url}/reference.parquet",
                pa.RecordBatchReader.from_batches(schema, reader),
                duckdb.connect().sql(f"select * from '{tmp_path}/reference.parquet'"),
            ]
        )
    ]
    assert all(summary == found[0] for summary in found[1:])


@pytest.mark.slow
def test_no_secret_of_an_address_is_written_down(people, put, object_store, go, tmp_path):
    people.to_parquet(tmp_path / "people.parquet")
    put("people.parquet", (tmp_path / "people.parquet").read_bytes())
    address = f"s3://AKIATOPSECRET:hushhush@lending/people.parquet?endpoint_override={object_store}"
    found = go(address, reference=address, evidence=False)
    found.to_html(tmp_path / "audit" / "report.html")
    found.to_pack(tmp_path / "audit" / "pack.zip", inputs={"data": address})
    texts = [path.read_bytes() for path in (tmp_path / "audit").rglob("*") if path.is_file()]
    texts += [json.dumps(found.to_dict(), default=str).encode(), repr(found).encode()]
    assert len(texts) > 5
    for text in texts:
        assert b"TOPSECRET" not in text
        assert b"hushhush" not in text


def test_partition_columns_can_be_the_label_the_group_or_a_feature(dataset, go, tmp_path, in_memory, model):
    by_file = pd.read_parquet(tmp_path / "people")
    assert "branch" in by_file
    found = go(tmp_path / "people", features=[*FEATURES[:-1], "branch"], evidence=False)
    assert found.provenance.n_people == len(dataset)
