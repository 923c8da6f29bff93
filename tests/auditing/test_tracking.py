"""MLflow, on a real tracking store in a folder."""

import sys

import pytest

import evenhand as eh
from evenhand.auditing.pack import run_metrics
from evenhand.exceptions import InvalidInputError

mlflow = pytest.importorskip("mlflow")


@pytest.fixture(autouse=True)
def store(tmp_path, monkeypatch):
    """A store of files, which mlflow-skinny has without a database or a server."""
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    before = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())
    yield mlflow.MlflowClient()
    while mlflow.active_run():
        mlflow.end_run()
    mlflow.set_tracking_uri(before)


def test_outside_a_run_one_is_made_and_ended(result, store):
    run_id = result.log_to_mlflow()
    assert mlflow.active_run() is None
    run = store.get_run(run_id)
    assert run.info.status == "FINISHED"
    summary = result.to_dict()
    logged = run.data.metrics
    for finding in summary["findings"]:
        assert logged[f"evenhand.{finding['key']}.estimate"] == finding["estimate"]
        assert logged[f"evenhand.{finding['key']}.p_value"] == finding["p_value"]
        assert run.data.tags[f"evenhand.answer.{finding['key']}"] == finding["answer"]
    assert logged["evenhand.cec.mean"] == summary["cec"]["mean"]
    assert logged["evenhand.outcome.auc"] == summary["outcome"]["auc"]
    assert logged["evenhand.regime.B"] == summary["regimes"]["B"]
    assert run.data.params["evenhand.financial_features"] == ", ".join(summary["settings"]["financial_features"])
    assert run.data.params["evenhand.max_distance"] == "None"
    assert run.data.tags["evenhand.headline"] == summary["verdict"]["headline"]
    assert run.data.tags["evenhand.fingerprint"] == summary["data"]["fingerprint"]
    assert run.data.tags["evenhand.version.evenhand"] == eh.__version__
    names = {file.path for file in store.list_artifacts(run_id, "evenhand")}
    assert names == {"evenhand/report.html", "evenhand/audit.json", "evenhand/audit.xlsx"}


def test_inside_a_run_it_is_that_run_which_stays_open(result, store):
    with mlflow.start_run() as run:
        mlflow.log_metric("mine", 1.0)
        assert result.log_to_mlflow(artifacts=["audit.json"]) == run.info.run_id
        assert mlflow.active_run().info.run_id == run.info.run_id
    found = store.get_run(run.info.run_id).data
    assert found.metrics["mine"] == 1.0
    assert "evenhand.cec.mean" in found.metrics
    assert [file.path for file in store.list_artifacts(run.info.run_id, "evenhand")] == ["evenhand/audit.json"]


def test_a_run_can_be_named_also_while_another_is_active(result, store):
    with mlflow.start_run() as trained:
        pass
    with mlflow.start_run() as other:
        assert result.log_to_mlflow(trained.info.run_id, artifacts=()) == trained.info.run_id
        assert mlflow.active_run().info.run_id == other.info.run_id
    assert "evenhand.cec.mean" in store.get_run(trained.info.run_id).data.metrics
    assert "evenhand.cec.mean" not in store.get_run(other.info.run_id).data.metrics


def test_metrics_that_could_not_be_estimated_are_left_out_and_names_are_made_fit(result):
    summary = result.to_dict()
    summary["outcome"]["groups"][0]["group"] = "<b> & co"
    summary["cec"]["mean"] = float("nan")
    found = run_metrics(summary)
    assert "evenhand.cec.mean" not in found
    assert "evenhand.positive_rate._b_ _ co" in found


def test_an_audit_without_evidence_is_logged_too(without_evidence, store):
    run = store.get_run(without_evidence.log_to_mlflow(artifacts=()))
    assert "evenhand.excess.estimate" not in run.data.metrics
    assert run.data.tags["evenhand.headline"].endswith("not compared with noise")


def test_what_cannot_be_logged_leaves_no_run(result, store, monkeypatch):
    with pytest.raises(InvalidInputError, match=r"`artifacts` must be among report\.html"):
        result.log_to_mlflow(artifacts=["report.pdf"])
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(ImportError, match=r"pip install 'evenhand\[mlflow\]'"):
        result.log_to_mlflow()
    assert store.search_runs(["0"]) == []
