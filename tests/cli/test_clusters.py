"""Rows without a household are households of one, on the command line as in Python."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
from typer.testing import CliRunner

import evenhand as eh
from evenhand.cli.app import app


def test_rows_without_a_cluster_are_not_one_applicant(tmp_path):
    planted = eh.make_planted_bias(400, random_state=0)
    people = planted.dataset
    clusters = pd.Series(np.arange(400) // 2).where(np.arange(400) < 100)
    table = people.X.assign(paid=people.y, sex=people.group, household=clusters)
    table["score"] = 1 / (1 + np.exp(-people.X["income"]))
    table.to_csv(tmp_path / "people.csv", index=False)
    columns = ["--label", "paid", "--group", "sex", "--clusters", "household"]
    given = ["--scores", "score", "--financial", ",".join(people.financial_features), "--out", str(tmp_path / "out")]
    done = CliRunner().invoke(app, ["audit", str(tmp_path / "people.csv"), *columns, *given])
    assert done.exit_code == 0, done.output
    from_file = json.loads((tmp_path / "out" / "audit.json").read_text(encoding="utf-8"))
    read = eh.read_table(tmp_path / "people.csv")
    in_python = eh.audit_given(
        read[list(people.X.columns)],
        read["paid"],
        sensitive_features=read["sex"],
        financial_features=people.financial_features,
        scores=read["score"],
        clusters=read["household"],
    ).to_dict()
    assert from_file["score_gap"]["probability"]["df"] == in_python["score_gap"]["probability"]["df"]
    assert [f["sentence"] for f in from_file["findings"]] == [f["sentence"] for f in in_python["findings"]]
