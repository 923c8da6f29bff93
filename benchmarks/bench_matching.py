"""Matching of 300,000 people against scikit-learn's kd_tree doing the same job; `python benchmarks/bench_matching.py`.

`--crossing` prints the time of both engines by dimension, which decided when to switch.
"""

import sys
import time

import numpy as np
from sklearn.neighbors import NearestNeighbors

from evenhand.matching.neighbors import NeighborIndex
from evenhand.matching.pairs import match_pairs

N_PEOPLE = 300_000
N_ROUNDS = 3  # the best counts, for both


def mortgage_like(n_people: int, seed: int = 0):
    """Return six rounded features, label and group: incomes in thousands, amounts in ten thousands."""
    rng = np.random.default_rng(seed)
    income = np.round(np.exp(rng.normal(4.4, 0.6, n_people)))
    loan = 10 * np.round(np.exp(rng.normal(5.4, 0.6, n_people)) / 10) + 5
    value = 10 * np.round(loan / rng.uniform(0.5, 1.0, n_people) / 10) + 5
    exact = rng.normal(38, 10, n_people)  # published whole only from 36 to 49 %
    debt_to_income = np.select(
        [exact < 20, exact < 30, exact < 36, exact < 50, exact < 60], [10, 25, 33, np.floor(exact), 55], 65
    )
    term = rng.choice([360, 240, 180, 120], n_people, p=[0.80, 0.05, 0.12, 0.03])
    loan_to_value = np.clip(np.round(100 * loan / value), 0, 120)
    F = np.column_stack([income, loan, value, debt_to_income, term, loan_to_value])
    return F, (rng.random(n_people) < 0.8).astype(int), (rng.random(n_people) < 0.3).astype(int)


def sklearn_distances(F, y, group):
    """Return each person's distance to the nearest person of the other group with the same label."""
    points = (F - F.mean(axis=0)) / F.std(axis=0)
    distance = np.empty(len(F))
    for label in (0, 1):
        for own in (0, 1):
            people = (y == label) & (group == own)
            others = points[(y == label) & (group != own)]
            search = NearestNeighbors(n_neighbors=1, algorithm="kd_tree", n_jobs=-1).fit(others)
            distance[people] = search.kneighbors(points[people])[0][:, 0]
    return distance


def timed(work, *arguments):
    start = time.perf_counter()
    result = work(*arguments)
    return result, time.perf_counter() - start


def run() -> list[dict]:
    """Return one row for each thing measured."""
    people = mortgage_like(N_PEOPLE)
    match_pairs(*mortgage_like(2_000))  # imports and thread pools
    ours = theirs = np.inf
    for _ in range(N_ROUNDS):  # in turn, so that other load on the machine slows both alike
        pairs, seconds = timed(match_pairs, *people)
        ours = min(ours, seconds)
        distance, seconds = timed(sklearn_distances, *people)
        theirs = min(theirs, seconds)
    np.testing.assert_allclose(pairs.distance, distance, rtol=1e-9, atol=1e-12)
    what = f"matching, {N_PEOPLE:,} people, 6 tie-heavy features, against scikit-learn's kd_tree"
    return [{"what": what, "ours_s": ours, "theirs_s": theirs, "ratio": theirs / ours, "target": 4.0}]


def crossing(n_reference: int = 30_000, n_queries: int = 1_000) -> list[dict]:
    """Return microseconds per query of both engines by dimension, for independent normal features."""
    rng = np.random.default_rng(0)
    zeros = np.zeros(n_reference, dtype=int)
    rows = []
    for dimensions in (6, 8, 10, 11, 12, 13, 14, 16, 20):
        points = rng.normal(size=(n_reference, dimensions))
        queries = rng.normal(size=(n_queries, dimensions))
        row = {"dimensions": dimensions}
        for engine in ("tree", "product"):
            index = NeighborIndex.build(points, zeros, zeros, engine=engine)
            for k in (1, 16):
                _, seconds = timed(index.query, queries, zeros[:n_queries], zeros[:n_queries], k)
                row[f"{engine} k={k}"] = round(1e6 * seconds / n_queries)
        rows.append(row)
    return rows


if __name__ == "__main__":
    for row in crossing() if "--crossing" in sys.argv else run():
        print(row)
