"""What no metric may depend on: a catalog of every public metric and of all that must leave it as it is."""

from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass, replace

import numpy as np
import pandas as pd
import pytest
import torch

from evenhand.metrics import adjustment, cec, disparity, excess, outcomes, proxies, reason_codes, triples
from evenhand.metrics import outcomes as roc

FACTOR = 4.0  # a power of two, so that scaling rounds nothing


@dataclass(frozen=True)
class People:
    """A row for each person, their match and their placebo; a column for each feature."""

    y: np.ndarray
    decision: np.ndarray
    score: np.ndarray
    group: np.ndarray
    segment: np.ndarray
    nodes: np.ndarray
    p: np.ndarray
    delta: np.ndarray
    placebo: np.ndarray
    control: np.ndarray
    inputs: np.ndarray
    X: np.ndarray
    ig: np.ndarray
    ig_match: np.ndarray
    times: np.ndarray | None = None
    # not of people
    names: tuple[str, ...] = ("a", "b", "c")
    identity: tuple[int, ...] = (0, 1, 2)
    columns: tuple[str, ...] = ("u", "v", "w", "x", "z")

    @classmethod
    def drawn(cls, n=300, d=5):
        rng = np.random.default_rng(5)
        y, group = rng.integers(0, 2, n), rng.choice(3, n, p=[0.5, 0.3, 0.2])
        score = np.round(np.clip(0.4 * y + rng.normal(0.3, 0.25, n), 0, 1), 2)  # with ties
        others = rng.integers(0, 40, (2, n))
        return cls(
            y=y,
            decision=(score >= 0.5).astype(np.int64),
            score=score,
            group=group,
            segment=rng.choice(["s", "t"], n),
            nodes=np.column_stack([100 + np.arange(n), others[0], 50 + others[1]]),
            p=np.round(rng.random(n) ** 3, 3),
            delta=rng.random((n, d)),
            placebo=rng.random((n, d)),
            control=rng.normal(size=n),
            inputs=rng.normal(size=(n, d)),
            X=rng.normal(size=(n, d)) + group[:, None] * np.linspace(0.1, 1, d),
            ig=rng.normal(size=(n, d)),
            ig_match=rng.normal(size=(n, d)),
        )

    def take(self, rows):
        taken = {f.name: getattr(self, f.name) for f in fields(self)}
        return replace(self, **{k: v[rows] for k, v in taken.items() if isinstance(v, np.ndarray)})

    def with_columns(self, order):
        tables = ("delta", "placebo", "inputs", "X", "ig", "ig_match")
        columns = tuple(self.columns[k] for k in order)
        return replace(self, columns=columns, **{name: getattr(self, name)[:, order] for name in tables})

    def scaled(self):
        names = ("score", "delta", "placebo", "control", "X", "ig", "ig_match")
        return replace(self, **{name: FACTOR * getattr(self, name) for name in names})

    def model(self, inputs):
        weight = np.array([1.0 + self.columns[k].encode()[0] % 7 for k in range(len(self.columns))])
        return 1 / (1 + np.exp(-inputs @ weight / 4))

    @property
    def options(self):
        return {"names": self.names, "frequency": self.times}

    @property
    def tensors(self):
        return torch.from_numpy(self.ig), torch.from_numpy(self.ig_match)


# --- what may not matter: people before, people after, rows and columns of the first as the second has them ---


def other_order_of_rows(people):
    order = np.random.default_rng(1).permutation(len(people.y))
    return people, people.take(order), order, None


def other_names(people):
    return people, replace(people, names=("p", "q", "r")), None, None


def other_names_in_another_order(people):
    codes = np.array([2, 0, 1])  # of today's groups
    back = np.argsort(codes)
    after = replace(people, group=codes[people.group], names=("k", "l", "m"))
    return people, replace(after, identity=tuple(int(k) for k in back)), None, None


def other_order_of_columns(people):
    order = np.array([3, 0, 4, 2, 1])
    return people, people.with_columns(order), None, order


def people_one_by_one(people):
    times = np.random.default_rng(2).integers(1, 5, len(people.y))
    rows = np.repeat(np.arange(len(people.y)), times)
    return replace(people, times=times), people.take(rows), rows, None


def everyone_twice(people):
    rows = np.tile(np.arange(len(people.y)), 2)
    return people, people.take(rows), rows, None


def other_units(people):
    return people, people.scaled(), None, None


ROWS, NAMES, CODES = other_order_of_rows, other_names, other_names_in_another_order
COLUMNS, TIMES, TWICE, UNITS = other_order_of_columns, people_one_by_one, everyone_twice, other_units


# --- the catalog ---


@dataclass(frozen=True)
class Entry:
    """A metric, what it is unchanged by, what of it follows the units, and what an invariance does not cover."""

    measure: Callable
    holds: tuple[Callable, ...]
    in_units: tuple[str, ...] = ()
    but: dict[Callable, tuple[str, ...]] | None = None


@dataclass(frozen=True)
class Part:
    person: np.ndarray
    person_row: np.ndarray
    other: np.ndarray
    own: np.ndarray

    def __len__(self):
        return len(self.person)

    @property
    def unit(self):
        return self.person


def estimate_excesses(people):
    """As a part of people outside a reference of 100."""

    class Everything:
        n_columns = len(people.columns)

        def of(self, part):
            share = 1 / np.bincount(part.person)[part.person]
            return triples.Selection(None, share, people.control, people.delta - people.placebo)

    person, other, own = people.nodes.T
    part = Part(person, np.full(len(person), -1), other, own)
    (found,) = excess.estimate_excesses([Everything()], triples.KeptTriples(part, 100))
    return dict(zip(people.columns, found, strict=True))


def excess_columns(people):
    found = excess.excess_columns(people.delta, people.placebo, people.nodes, control=people.control)
    return dict(zip(people.columns, found, strict=True))


def null_scores(people):
    """p- and q-values of pairs among placebo pairs."""
    keys = people.nodes[:, 0]
    pooled = adjustment.NullScores.of(people.placebo[:, 0], people.group, keys, 3, most=100_000)
    n_at_least = pooled.n_at_least(people.delta[:, 0], people.group)
    table = pooled.q_values(pooled.counts(n_at_least, people.group))
    q = np.array([table[g][k] for g, k in zip(people.group, n_at_least, strict=True)])
    return {"p": pooled.p_values(n_at_least, people.group), "q": q}


def outcome_rows(p):
    return outcomes.group_outcomes(p.y, p.decision, p.score, p.group, p.names, p.times)


def screen(p):
    return proxies.proxy_screen(pd.DataFrame(p.X, columns=list(p.columns)), p.group, names=p.names, n_trees=3)


def strengths(p):
    return proxies.feature_strengths(pd.DataFrame(p.X, columns=list(p.columns)), p.group, names=p.names)


ESTIMATE = ("value", "low", "high", "standard_error")
OF_PAIRS = (ROWS, COLUMNS, TWICE, UNITS)
OF_EXCESS = (ROWS, TWICE, UNITS)
OF_GROUPS = (ROWS, NAMES, CODES, TIMES)
# Draws follow the order of the groups, those of people the order of rows.
DRAWN_GROUPS, DRAWN_PEOPLE = {CODES: ("low", "high")}, (NAMES, UNITS)


def principal(p, of="ig"):
    """Principal reasons by the name of the column, so that an order of columns does not matter."""
    codes = reason_codes.principal_reasons(getattr(p, of), 3)
    return np.where(codes < 0, -1, np.array([ord(name) for name in p.columns])[codes])


def reason_rates(p):
    codes = reason_codes.principal_reasons(p.ig, 3)
    counts = reason_codes.ReasonCounts.of(codes, p.group, len(p.columns), len(p.names))
    reference = p.names[p.identity.index(0)]
    found = reason_codes.reason_rates(counts, p.columns, p.names, reference)
    return {(row.place, row.reason, p.identity[p.names.index(row.group)]): row for row in found}


def pair_scores(p):
    """Scores of pairs, made of the four vectors that the kernel makes."""
    return cec.PairScores(*p.tensors, *map(torch.from_numpy, (p.X, p.inputs)))


CATALOG: dict[str, list[Entry]] = {
    "holm": [Entry(lambda p: adjustment.holm(p.p), (ROWS,))],
    "benjamini_hochberg": [Entry(lambda p: adjustment.benjamini_hochberg(p.p, p.times), (ROWS, TIMES, TWICE))],
    "NullScores": [Entry(null_scores, (ROWS, CODES, UNITS))],
    "unit_vectors": [Entry(lambda p: cec.unit_vectors(p.tensors[0]), OF_PAIRS)],
    "squared_cec": [Entry(lambda p: cec.squared_cec(*p.tensors), OF_PAIRS)],
    "cec_scores": [
        Entry(lambda p: cec.cec_scores(*p.tensors), OF_PAIRS),
        Entry(lambda p: cec.cec_scores(p.ig, p.ig_match), OF_PAIRS),
        Entry(lambda p: pair_scores(p).cec, OF_PAIRS),
        Entry(lambda p: pair_scores(p).input_gap, OF_PAIRS),
        Entry(lambda p: pair_scores(p).reasoning_gap, OF_PAIRS),
    ],
    "feature_contributions": [Entry(lambda p: cec.feature_contributions(*p.tensors), OF_PAIRS)],
    "principal_reasons": [Entry(lambda p: {"codes": list(principal(p).T)}, OF_PAIRS)],
    "pull_shares": [
        Entry(
            lambda p: list(reason_codes.pull_shares(p.ig, reason_codes.principal_reasons(p.ig, 3)).T),
            OF_PAIRS,
        )
    ],
    "compacted": [Entry(lambda p: list(reason_codes.compacted(principal(p)[:, ::-1]).T), OF_PAIRS)],
    "shared_share": [Entry(lambda p: reason_codes.shared_share(principal(p), principal(p, "ig_match")), OF_PAIRS)],
    "rank_overlap": [Entry(lambda p: reason_codes.rank_overlap(principal(p), principal(p, "ig_match")), OF_PAIRS)],
    "reason_rates": [Entry(reason_rates, (ROWS, NAMES, CODES, COLUMNS, UNITS))],
    "assign_regimes": [Entry(lambda p: cec.assign_regimes(p.y, p.decision, p.delta[:, 0]), (ROWS, TWICE))],
    "regime_shares": [Entry(lambda p: cec.regime_shares(np.array(cec.REGIMES)[2 * p.y + p.decision]), (ROWS, TWICE))],
    "excess": [
        Entry(lambda p: excess.excess(p.delta[:, 0], p.placebo[:, 0], p.nodes, control=p.control), OF_EXCESS, ESTIMATE),
        Entry(lambda p: excess.excess(p.delta[:, 0], p.placebo[:, 0], 1000 - p.nodes), OF_EXCESS, ESTIMATE),
    ],
    "excess_columns": [Entry(excess_columns, (*OF_EXCESS, COLUMNS), ESTIMATE)],
    "excess_by": [
        Entry(
            lambda p: excess.excess_by(np.array(p.names)[p.group], p.delta[:, 0], p.placebo[:, 0], p.nodes),
            (*OF_EXCESS, NAMES, CODES),
            ESTIMATE,
        )
    ],
    "estimate_excesses": [Entry(estimate_excesses, (*OF_EXCESS, COLUMNS), ESTIMATE)],
    "f1": [Entry(lambda p: outcomes.f1(p.y, p.decision, p.times), (ROWS, TIMES, TWICE))],
    "group_outcomes": [Entry(outcome_rows, (*OF_GROUPS, UNITS))],
    "outcome_metrics": [
        Entry(
            lambda p: outcomes.outcome_metrics(p.y, p.decision, p.score, outcome_rows(p), p.times), (*OF_GROUPS, UNITS)
        )
    ],
    "equalized_odds_gap": [Entry(lambda p: outcomes.equalized_odds_gap(outcome_rows(p)), (*OF_GROUPS, TWICE))],
    "statistical_parity_gap": [Entry(lambda p: outcomes.statistical_parity_gap(outcome_rows(p)), (*OF_GROUPS, TWICE))],
    "approval_disparity": [
        Entry(lambda p: disparity.approval_disparity(p.decision, p.group, **p.options), OF_GROUPS),
    ],
    "approval_disparity_by_cutoff": [
        Entry(
            lambda p: disparity.approval_disparity_by_cutoff(p.score, p.group, **p.options),
            (*OF_GROUPS, UNITS),
            ("cutoff",),
        )
    ],
    "group_calibration": [
        Entry(lambda p: disparity.group_calibration(p.y, p.score, p.group, **p.options), OF_GROUPS),
    ],
    "error_rates": [Entry(lambda p: disparity.error_rates(p.y, p.decision, p.score, p.group, **p.options), OF_GROUPS)],
    "outcome_gaps": [
        Entry(
            lambda p: disparity.outcome_gaps(p.y, p.decision, p.group, n_draws=200, **p.options),
            OF_GROUPS,
            but=DRAWN_GROUPS,
        )
    ],
    "score_disparity": [
        Entry(lambda p: disparity.score_disparity(p.score, p.group, **p.options), OF_GROUPS),
        Entry(
            lambda p: [
                replace(row, mean_score=None) for row in disparity.score_disparity(p.score, p.group, **p.options)
            ],
            (UNITS,),
            ("standard_deviation",),
        ),
    ],
    "segmented_approvals": [
        Entry(lambda p: disparity.segmented_approvals(p.decision, p.group, p.segment, **p.options), OF_GROUPS)
    ],
    "feature_strengths": [Entry(strengths, (ROWS, NAMES, CODES, COLUMNS, UNITS))],
    "proxy_screen": [
        Entry(screen, DRAWN_PEOPLE),
        Entry(lambda p: screen(p).features, (ROWS, NAMES, CODES, COLUMNS, UNITS)),
    ],
    "auc": [Entry(lambda p: roc.auc(p.y, p.score, p.times), (ROWS, TIMES, TWICE, UNITS))],
    "auc_interval": [Entry(lambda p: roc.auc_interval(p.y, p.score, p.times), (ROWS, TIMES, UNITS))],
    "auc_influence": [Entry(lambda p: roc.auc_influence(p.y, p.score), (ROWS, UNITS))],
    "hanley_mcneil": [Entry(lambda p: roc.hanley_mcneil(0.7, p.y.sum(), (1 - p.y).sum()), (ROWS,))],
    "ks_distance": [
        Entry(
            lambda p: roc.ks_distance(
                p.score, *((1 if p.times is None else p.times) * (p.y == label) for label in (1, 0))
            ),
            (ROWS, TIMES, TWICE, UNITS),
        )
    ],
}


@pytest.mark.parametrize(
    ("entry", "invariance"),
    [
        pytest.param(entry, invariance, id=f"{name}-{k}-{invariance.__name__}")
        for name, entries in CATALOG.items()
        for k, entry in enumerate(entries)
        for invariance in entry.holds
    ],
)
def test_a_metric_depends_on_nothing_that_may_not_matter(entry, invariance):
    before, after, rows, columns = invariance(People.drawn())
    ignored = (entry.but or {}).get(invariance, ())
    expected, found = (
        {path: value for path, value in numbers_of(entry.measure(people), people) if path[-1] not in ignored}
        for people in (before, after)
    )
    assert expected.keys() == found.keys()
    assert any(np.isfinite(value).any() for value in expected.values())
    for path, value in expected.items():
        if value.ndim and rows is not None and len(value) == len(before.y):
            value = value[rows]
        if value.ndim == 2 and columns is not None:
            value = value[:, columns]
        if invariance is UNITS and path[-1] in entry.in_units:
            value = value * FACTOR
        # The score's 1e-8 beside a length is of one unit.
        rtol, atol = (1e-7, 1e-7) if invariance is UNITS else (1e-9, 1e-12)
        np.testing.assert_allclose(found[path], value, rtol=rtol, atol=atol, err_msg=str(path))


def numbers_of(value, people, path=("",)):
    """Numbers of a result by where they are; groups by who they are, whatever their names."""
    who = dict(zip(people.names, people.identity, strict=True))
    if is_dataclass(value):
        value = {f.name: getattr(value, f.name) for f in fields(value)}
    if isinstance(value, dict):
        for key, item in value.items():
            yield from numbers_of(item, people, (*path, who.get(key, key)))
    elif isinstance(value, (list, tuple)):
        for k, item in enumerate(value):
            key = next((getattr(item, name) for name in ("group", "feature", "name") if hasattr(item, name)), k)
            yield from numbers_of(item, people, (*path, who.get(key, key)))
    elif isinstance(value, (np.ndarray, torch.Tensor)):
        array = np.asarray(value)
        yield path, array.astype(np.float64) if array.dtype.kind != "U" else np.char.encode(array).view("u1").copy()
    elif isinstance(value, (int, float, np.number)):
        yield path, np.asarray(value, dtype=np.float64)
