"""Tables that the command line takes from a store, a server, a lake and a query."""

import json

import deltalake
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import evenhand as eh

pytestmark = [pytest.mark.integration, pytest.mark.filterwarnings("ignore::evenhand.exceptions.EvenhandWarning")]
N = 160


@pytest.fixture(scope="module")
def people():
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "income": rng.lognormal(11, 0.4, N).round(-2),
            "rate": rng.normal(30, 8, N).round(1),
            "balance": rng.normal(0, 4000, N).round(),
            "sex": rng.choice(["f", "m"], N),
        }
    )
    return table.assign(paid=(np.log(table["income"]) + rng.normal(0, 0.4, N) > 11).astype(int))


@pytest.fixture(scope="module")
def model(people, tmp_path_factory):
    fitted = eh.CECClassifier(financial_features=["income", "rate"], epochs=5, random_state=0)
    fitted.fit(people[["income", "rate", "balance"]], people["paid"], sensitive_features=people["sex"])
    return fitted.save(tmp_path_factory.mktemp("sources") / "model")


@pytest.fixture
def audit(evenhand, model, tmp_path, monkeypatch):
    """Exit code, output, errors and summary of an audit."""
    monkeypatch.chdir(tmp_path)

    def run(*words):
        out = tmp_path / f"out{len(list(tmp_path.glob('out*')))}"
        basics = ["--model", model, "--label", "paid", "--group", "sex", "--financial", "income,rate", "--out", out]
        code, output, errors = evenhand("audit", *basics, "--no-evidence", *words)
        found = out / "audit.json"
        return code, output, errors, json.loads(found.read_text()) if found.exists() else None

    return run


@pytest.fixture
def places(people, put, web, tmp_path):
    """The same people in every place."""
    people.to_parquet(tmp_path / "people.parquet")
    people.to_csv(tmp_path / "people.csv", index=False)
    for name in ("people.parquet", "people.csv"):
        put(name, (tmp_path / name).read_bytes())
        (web.folder / name).write_bytes((tmp_path / name).read_bytes())
    deltalake.write_deltalake(tmp_path / "lake", pa.Table.from_pandas(people, preserve_index=False))
    return {
        "file": ["people.parquet"],
        "s3": ["s3://lending/people.parquet"],
        "s3 csv": ["s3://lending/people.csv"],
        "web": [f"{web.url}/people.parquet"],
        "web csv": [f"{web.url}/people.csv"],
        "uri": [(tmp_path / "people.parquet").as_uri()],
        "delta": ["delta:lake@0"],
        "sql": ["--sql", "select * from 'people.parquet' where income > 0"],
    }


def numbers(summary):
    data = {name: part for name, part in summary["data"].items() if name not in ("hashes", "files")}
    return {name: part for name, part in summary.items() if name not in ("created", "stream", "data")} | {"data": data}


@pytest.mark.parametrize("stream", [[], ["--stream", "--batch-rows", "50"]])
def test_the_same_people_give_the_same_audit_wherever_they_are(audit, places, stream):
    found = {}
    for place, words in places.items():
        if stream and place in ("s3 csv", "web", "uri"):  # opened as the others are
            continue
        code, _, errors, found[place] = audit(*words, *stream)
        assert code == 0, (place, errors)
    wanted = numbers(found["file"])
    for place, summary in found.items():
        assert numbers(summary) == wanted, place
    words = found["delta"]["data"]["hashes"]["source version" if stream else "data version"]
    assert words.startswith("version 0 of the Delta table ")


def test_check_train_and_search_take_them_too(evenhand, places, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, output, errors = evenhand("check", *places["sql"], "--out", "looked")
    assert code == 0, errors
    assert "run: evenhand audit --sql 'select * from '\"'\"'people.parquet'\"'\"' where income > 0'" in output
    roles = ["--label", "paid", "--group", "sex", "--financial", "income,rate"]
    for place in ("s3", "sql"):
        code, _, errors = evenhand("train", *places[place], *roles, "--epochs", "1", "--out", f"model {place}")
        assert code == 0, errors


def test_a_pack_of_a_query_is_verified_with_the_query(audit, evenhand, model, places, tmp_path):
    code, _, errors, _ = audit(*places["sql"], "--pack")
    assert code == 0, errors
    pack = next(tmp_path.glob("out*/pack.zip"))
    code, output, errors = evenhand("verify", pack, "--model", model, *places["sql"])
    assert code == 0, (output, errors)
    code, output, _ = evenhand("verify", pack, "--model", model, "--sql", "select * from 'people.csv' where rate > 0")
    assert code == 1
    assert "data file differs" in output
    code, output, errors = evenhand("verify", pack, "--model", model, "--data", "s3://lending/people.parquet")
    assert code == 1, errors


def test_a_reference_is_read_from_a_store(audit, places):
    first = audit("people.parquet", "--reference", "people.parquet")[3]
    code, _, errors, second = audit("people.parquet", "--reference", "s3://lending/people.parquet")
    assert code == 0, errors
    assert numbers(first) == numbers(second)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--sql", "selct 1"], 'The query (--sql) failed: Parser Error: syntax error at or near "selct".'),
        (["people.csv", "--sql", "select 1"], "The table 'people.csv' and --sql both name the people"),
        ([], "The table of applicants is missing: name a file, a folder or an address, or use --sql."),
        (["s3://lending/none.csv"], "There is no file or folder 's3://lending/none.csv'"),
        (["http://bank.example/people.csv"], "use https"),
        (["delta:none"], "There is no Delta table 'delta:none'"),
    ],
)
@pytest.mark.usefixtures("object_store")
def test_mistakes_end_in_a_sentence_and_exit_code_2(audit, words, message):
    code, _, errors, _ = audit(*words)
    assert code == 2
    assert message in errors
    assert "Traceback" not in errors


def test_a_query_has_no_place_in_the_configuration(audit, places, tmp_path):
    query = "select * from 'people.parquet'"
    (tmp_path / "audit.toml").write_text(f'sql = "{query}"\n')
    code, _, errors, _ = audit("--config", "audit.toml")
    assert (code, "set it only on the command line, with --sql" in errors) == (2, True)
    (tmp_path / "audit.toml").write_text('sql = ""\n')
    code, _, errors, found = audit("--config", "audit.toml", "--sql", query)
    assert code == 0, errors
    assert found["data"]["n_people"] == N
    assert found["data"]["hashes"]["data version"] == "select * from 'people.parquet'"
