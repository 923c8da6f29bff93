"""The study of epochs: distances from the paper's rows, counted by hand."""

import csv
import io

import numpy as np
import pytest

import evenhand as eh
from evenhand.research.reproduction.protocol import ProtocolSettings, ResultRow, ResultStore
from studies.epochs import AtEpochs, run_epochs, table_epochs

SETTINGS = ProtocolSettings.quick(n_folds=2, hidden=(8, 4))


def rows(auc, cec, regime_b):
    return [
        ResultRow("german", "hardt", fold, "r", {"auc": a, "cec": c, "regime_b": b})
        for fold, (a, c, b) in enumerate(zip(auc, cec, regime_b, strict=True))
    ]


def test_distances_are_in_the_papers_standard_deviations():
    # The paper's row: AUC 0.569 ± 0.068, CEC 0.547 ± 0.018, Regime B 0.916 ± 0.018.
    found = AtEpochs.of("german", "hardt", 2, rows([0.6, 0.674], [0.56, 0.57], [0.88, 0.88]))
    np.testing.assert_allclose(found.means, (0.637, 0.565, 0.88))
    np.testing.assert_allclose(found.distances, (1, 1, -2))
    assert found.distance == pytest.approx(2)
    # In standard errors of the difference of two means of two folds.
    np.testing.assert_allclose(found.errors[2], -0.036 / np.sqrt(0.018**2 / 2))
    assert not found.agrees


def test_a_row_agrees_where_all_three_are_within_noise():
    assert AtEpochs.of("german", "hardt", 2, rows([0.5, 0.6], [0.54, 0.55], [0.91, 0.93])).agrees
    assert not AtEpochs.of("german", "hardt", 2, rows([0.9, 0.91], [0.54, 0.55], [0.91, 0.93])).agrees


def test_the_table_names_the_closest_number_of_epochs():
    some = [
        AtEpochs.of("german", "hardt", epochs, rows([auc, auc + 0.01], [0.54, 0.55], [0.91, 0.92]))
        for epochs, auc in ((1, 0.5), (2, 0.57), (30, 0.8))
    ]
    table = table_epochs("german", some)
    assert [line[1] for line in table.body] == ["the paper's row", "2 (closest)", "30"]
    assert [line[-1] for line in table.body] == ["", "yes", "no"]
    assert [r["epochs"] for r in csv.DictReader(io.StringIO(table.to_csv()))] == ["1", "2", "30"]


@pytest.mark.integration
def test_every_number_of_epochs_is_trained_once(tmp_path):
    data = eh.load_dataset("synthetic", n=200)
    store = ResultStore(tmp_path / "epochs.jsonl")
    found = run_epochs(data, ["hardt"], (1, 3), SETTINGS, store)
    assert [(one.method, one.epochs) for one in found] == [("hardt", 1), ("hardt", 3)]
    assert found[0].means != found[1].means
    written = store.path.read_text()
    assert run_epochs(data, ["hardt"], (1, 3), SETTINGS, ResultStore(store.path)) == found
    assert store.path.read_text() == written
