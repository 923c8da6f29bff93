"""Log an audit to MLflow: its metrics, settings and files in a run."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from evenhand.auditing.pack import Writers, write_files
from evenhand.report.formatting import is_number
from evenhand.system.files import json_ready
from evenhand.system.optional import optional_module

__all__ = ["ARTIFACTS", "log_audit", "run_metrics", "run_params", "run_tags"]

PREFIX = "evenhand"
ARTIFACTS = ("report.html", "audit.json", "audit.xlsx")
"""Files that are logged by default."""

_LONGEST_PARAM, _LONGEST_TAG, _LONGEST_NAME = 500, 5000, 250  # limit of the strictest tracking stores
_NOT_IN_NAMES = re.compile(r"[^\w\-. /]")
_OUTCOMES = ("auc", "f1", "accuracy", "positive_rate", "eo_gap", "sp_gap", "pfr")


def log_audit(summary: Mapping[str, Any], writers: Writers, *, run_id: str | None = None) -> str:
    """Log an audit to an MLflow run, and return the id of the run.

    Parameters
    ----------
    summary
        What `AuditResult.to_dict` returns.
    writers
        The function that writes each artifact, by name. An artifact whose extra is missing is left out.
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
        write_files(Path(folder), writers)  # before a run starts, so that a failure leaves no run behind
        with nullcontext(active) if is_active else mlflow.start_run(run_id=run_id, nested=active is not None) as run:
            mlflow.log_metrics(run_metrics(summary))
            mlflow.log_params(run_params(summary))
            mlflow.set_tags(run_tags(summary))
            mlflow.log_artifacts(folder, artifact_path=PREFIX)
    return str(run.info.run_id)


def run_metrics(summary: Mapping[str, Any]) -> dict[str, float]:
    """Numbers to track over runs, by name; those that could not be estimated are left out."""
    found = {f"{PREFIX}.{name}": value for name, value in _metrics(summary) if is_number(value)}
    return {_name(name): float(value) for name, value in found.items()}


def _metrics(summary: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for finding in summary["findings"]:
        key = finding["key"]
        yield f"{key}.estimate", finding["estimate"]
        yield f"{key}.ci_low", finding["ci"][0]
        yield f"{key}.ci_high", finding["ci"][1]
        yield f"{key}.p_value", finding["p_value"]
        yield f"{key}.p_adjusted", finding["p_adjusted"]
    yield "cec.mean", summary["cec"]["mean"]
    yield from ((f"regime.{regime}", share) for regime, share in summary["regimes"].items())
    yield from ((f"outcome.{name}", summary["outcome"].get(name)) for name in _OUTCOMES)
    yield from ((f"positive_rate.{row['group']}", row["positive_rate"]) for row in summary["outcome"]["groups"])
    yield "matching.coverage", summary["matching"]["coverage"]
    yield "n_people", summary["data"]["n_people"]


def run_params(summary: Mapping[str, Any]) -> dict[str, str]:
    """All options that change a metric, by name."""
    settings = json_ready(summary["settings"])
    return {f"{PREFIX}.{name}": _text(value)[:_LONGEST_PARAM] for name, value in settings.items()}


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


def _text(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _name(name: str) -> str:
    """A name that every tracking store accepts.

    Examples
    --------
    >>> _name("evenhand.positive_rate.<b> & co")
    'evenhand.positive_rate._b_ _ co'
    """
    return _NOT_IN_NAMES.sub("_", name)[:_LONGEST_NAME]
