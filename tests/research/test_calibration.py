"""The quick calibration study, with fixed seeds: the audit errs at the rate it says, the older rules do not."""

import itertools
import math
from dataclasses import astuple, replace

import numpy as np
import pytest

import evenhand as eh
from evenhand.exceptions import InvalidInputError
from evenhand.research.calibration import (
    Cell,
    data_set,
    full_study,
    quick_study,
    run_cell,
    run_study,
    simulate,
)

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def rows():
    return run_study(quick=True)


def _even_handed(rows):
    return [row for row in rows if row["strength"] == 0 and not row["is_exact"]]


def test_false_alarms_come_at_the_nominal_rate(rows):
    found = _even_handed(rows)
    n_alarms = sum(row["alarms"] * row["n_simulations"] for row in found)
    n_audits = sum(row["n_simulations"] for row in found)
    assert n_audits >= 250
    assert n_alarms / n_audits <= 0.07
    assert max(row["alarms"] for row in found) <= 0.12


def test_intervals_cover_the_truth(rows):
    found = [row for row in rows if not row["is_exact"]]
    n_covered = sum(row["coverage"] * row["n_simulations"] for row in found)
    assert 0.92 <= n_covered / sum(row["n_simulations"] for row in found) <= 0.98


def test_planted_bias_of_strength_three_tenths_is_found(rows):
    (row,) = [row for row in rows if row["strength"] > 0]
    assert (row["strength"], row["n"]) == (0.3, 2000)
    assert row["alarms"] >= 0.95


def test_a_linear_model_of_financial_features_is_never_accused(rows):
    (row,) = [row for row in rows if row["n_irrelevant"] == 0 and row["model"] == "linear"]
    assert row["is_exact"]
    assert row["alarms"] == 0


def test_hard_cells_are_warned_of_and_large_ones_are_not(rows):
    for row in rows:
        if row["is_hard"]:
            assert row["warned"] >= 0.7
        if row["group_share"] == 0.5:
            assert row["warned"] == 0


def test_the_rules_it_replaces_accuse_even_handed_models(rows):
    found = _even_handed(rows)
    assert all(row["regime_b"] > 0.2 for row in found)
    assert max(row["alarms_naive"] for row in found) > 0.9


def test_a_row_holds_the_settings_and_the_same_figures_again():
    cell = Cell(n=200, n_simulations=2, seed=5)
    first, again = run_cell(cell), run_cell(cell)
    first.pop("seconds"), again.pop("seconds")
    assert first == again
    assert (first["n"], first["seed"], first["not_estimated"]) == (200, 5, 0)


def test_a_cell_without_enough_people_says_so():
    row = run_cell(Cell(n=12, group_share=0.1, n_simulations=2))
    assert row["not_estimated"] == 2
    assert math.isnan(row["alarms"])


def test_progress_is_shown_when_asked_for(monkeypatch, capsys):
    monkeypatch.setattr("evenhand.research.calibration.quick_study", lambda: (Cell(n=60, n_simulations=1),) * 2)
    rows = run_study(progress=True)
    assert len(rows) == 2
    assert "cells 2/2 linear, 60 people" in capsys.readouterr().err


def test_the_full_study_holds_every_kind_of_cell():
    cells = full_study()
    assert len(set(cells)) == len(cells)
    assert {cell.n for cell in cells} == {300, 2000, 20_000}
    assert {cell.group_share for cell in cells} == {0.5, 0.3, 0.1, 0.05}
    assert any(cell.ties for cell in cells)
    assert any(cell.n_onehot for cell in cells)
    assert {cell.model for cell in quick_study()} == {"linear", "network"}
    assert {0.1, 0.3, 0.5, 1.0} <= {cell.strength for cell in cells}
    assert {(cell.model, cell.n_irrelevant > 0) for cell in cells} == set(
        itertools.product(("linear", "network"), (True, False))
    )


def test_the_number_of_processes_changes_nothing(monkeypatch):
    cells = (
        Cell("network", n=60, n_simulations=26),
        Cell(n=60, group_share=0.3, n_simulations=2, seed=9),
    )
    monkeypatch.setattr("evenhand.research.calibration.quick_study", lambda: cells)
    alone = run_study()
    together = run_study(n_jobs=2)
    for row in (*alone, *together):
        assert row.pop("seconds") > 0
    assert alone == together


def test_an_error_in_a_process_is_raised_here(monkeypatch):
    cells = (Cell(n=60, group_share=2.0, n_simulations=1),)
    monkeypatch.setattr("evenhand.research.calibration.quick_study", lambda: cells)
    with pytest.raises(InvalidInputError, match="group_share"):
        run_study(n_jobs=2)


def test_no_process_is_refused():
    with pytest.raises(InvalidInputError, match="n_jobs"):
        run_study(n_jobs=0)


def test_every_data_set_of_the_full_study_is_its_own():
    cells = sorted(full_study(), key=lambda cell: cell.seed)
    assert all(a.seed + a.n_simulations <= b.seed for a, b in itertools.pairwise(cells))
    assert max(cell.seed + cell.n_simulations for cell in cells) < 1_000_000_000


def test_shares_come_with_their_monte_carlo_error():
    row = run_cell(Cell(n=100, n_simulations=4))
    assert row["alarms_se"] == pytest.approx(math.sqrt(row["alarms"] * (1 - row["alarms"]) / 4))
    assert row["missed_below"] + row["coverage"] + row["missed_above"] == pytest.approx(1)


@pytest.mark.filterwarnings("ignore::evenhand.exceptions.EvenhandWarning")
@pytest.mark.parametrize(
    "cell",
    [
        Cell(n=200),
        Cell(n=300, strength=0.5, group_share=0.2, shift=0.5),
        Cell(n=200, ties=1.0, group_share=0.3),
        Cell(n=200, n_onehot=5),
        Cell(n=200, n_irrelevant=0),
        Cell(n=12, group_share=0.2),
        Cell("network", n=200, group_share=0.3),
        Cell("network", n=200, n_irrelevant=0, shift=1.0, ties=1.0),
        Cell("network", n=200, n_onehot=5),
    ],
)
def test_what_is_certified_is_the_audit_that_ships(cell):
    """Every number of every estimate, to the last bit."""

    def numbers(estimate):
        return np.array([value for value in astuple(estimate) if not isinstance(value, str)], dtype=np.float64)

    found = simulate(cell, 3)
    evidence = eh.audit(**data_set(cell, 3)).evidence
    by_group = [split for split in evidence.splits if split.split == "group"]
    np.testing.assert_array_equal(numbers(found.audit), numbers(evidence.cec))
    np.testing.assert_array_equal(numbers(found.regime_b_excess), numbers(evidence.regime_b))
    assert len(found.by_group) == len(by_group)
    for mine, theirs in zip(found.by_group, by_group, strict=True):
        np.testing.assert_array_equal(numbers(mine), numbers(replace(theirs.estimate, p_value=theirs.p_adjusted)))
    assert found.common_support == evidence.common_support


def test_the_share_in_regime_b_is_that_of_the_audit():
    cell = Cell(n=200, group_share=0.3)
    result = eh.audit(**data_set(cell, 1))
    assert simulate(cell, 1).regime_b == pytest.approx(result.to_dict()["regimes"]["B"], abs=1e-12)


def test_a_network_never_sees_the_group():
    cell = Cell("network", n=60, n_simulations=1)
    assert data_set(cell, 0)["X"].shape[1] == data_set(replace(cell, model="linear"), 0)["X"].shape[1] - 1


def test_a_network_of_financial_features_is_never_accused():
    assert run_cell(Cell("network", n=200, shift=1.0, n_irrelevant=0, n_simulations=2))["is_exact"]
