"""Which number of epochs, if any, gives the paper's row of a method: AUC, CEC and Regime B together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from evenhand.research.reproduction.protocol import ProtocolSettings, ResultRow, ResultStore, results_of, run_protocol
from evenhand.research.reproduction.tables import METRIC_NAMES, NOISE, Difference, PaperTable, method_name, paper_value

if TYPE_CHECKING:
    from evenhand.datasets import Dataset


COMPARED = ("auc", "cec", "regime_b")
"""The metrics that must agree together."""


@dataclass(frozen=True)
class AtEpochs:
    """A method after some epochs, next to the paper's row.

    Attributes
    ----------
    method, epochs
        What was trained.
    means, spreads
        Of each of `COMPARED`: mean and standard deviation over folds.
    distances
        Ours minus the paper's, in the standard deviations that the paper prints.
    errors
        The same in standard errors of the difference of two means over folds, ours and the paper's.
    """

    method: str
    epochs: int
    means: tuple[float, ...]
    spreads: tuple[float, ...]
    distances: tuple[float, ...]
    errors: tuple[float, ...]

    @classmethod
    def of(cls, dataset: str, method: str, epochs: int, rows: Iterable[ResultRow]) -> AtEpochs:
        """From the results of all folds."""
        values = np.array([[row.metrics[metric] for metric in COMPARED] for row in rows])
        printed = np.array([paper_value("main", dataset, method, metric) for metric in COMPARED])
        means, spreads = values.mean(axis=0), values.std(axis=0, ddof=1)
        errors = [Difference.of(column, *paper).errors for column, paper in zip(values.T, printed, strict=True)]
        found = (means, spreads, (means - printed[:, 0]) / printed[:, 1], errors)
        return cls(method, epochs, *(tuple(map(float, of)) for of in found))

    @property
    def distance(self) -> float:
        """The largest of the distances, without its sign: how far the method is from the row as a whole."""
        return max(map(abs, self.distances))

    @property
    def agrees(self) -> bool:
        """Whether each of the three is within two standard errors of the paper's."""
        return max(map(abs, self.errors)) <= NOISE


def run_epochs(
    data: Dataset,
    methods: Sequence[str],
    epochs: Sequence[int],
    settings: ProtocolSettings,
    store: ResultStore,
    *,
    progress: bool = False,
) -> list[AtEpochs]:
    """Train and evaluate each method for each number of epochs on every fold, leaving out what the store has."""
    found = []
    for number in epochs:
        changed = replace(settings, epochs=number)
        run = run_protocol(data, methods, changed, store, progress=progress)
        rows = results_of(store, run, methods, changed, data.financial_features)
        for method in methods:
            found.append(AtEpochs.of(data.name, method, number, [row for row in rows if row.method == method]))
    return found


def table_epochs(dataset: str, found: Sequence[AtEpochs]) -> PaperTable:
    """The paper's row of each method, ours at the closest number of epochs, and ours at the largest."""
    records = [
        {
            "method": one.method,
            "epochs": one.epochs,
            **dict(zip(COMPARED, one.means, strict=True)),
            **{f"{metric}_std": one.spreads[k] for k, metric in enumerate(COMPARED)},
            **{f"{metric}_distance": one.distances[k] for k, metric in enumerate(COMPARED)},
            **{f"{metric}_errors": one.errors[k] for k, metric in enumerate(COMPARED)},
            "distance": one.distance,
            "agrees": one.agrees,
        }
        for one in found
    ]
    body: list[tuple[str, ...]] = []
    for method in dict.fromkeys(one.method for one in found):
        own = [one for one in found if one.method == method]
        printed = [paper_value("main", dataset, method, metric) for metric in COMPARED]
        body.append(
            (method_name(method), "the paper's row", *(f"{mean:.3f} ± {std:.3f}" for mean, std in printed), "", "")
        )
        closest, longest = min(own, key=lambda one: one.distance), max(own, key=lambda one: one.epochs)
        body.append(_line(closest, f"{closest.epochs} (closest)"))
        if longest is not closest:
            body.append(_line(longest, str(longest.epochs)))
    return PaperTable(
        "table_epochs",
        "Epochs after which a method is closest to the paper's row",
        ("Method", "Epochs", *(METRIC_NAMES[metric] for metric in COMPARED), "Largest distance", "Agrees"),
        tuple(body),
        tuple(records),
        (
            "Mean ± standard deviation over folds; in parentheses the distance from the paper's mean in standard "
            "deviations that the paper prints. Closest is the number of epochs whose largest distance is least. A row "
            "agrees where all three means are within two standard errors of the difference from the paper's.",
        ),
    )


def _line(one: AtEpochs, epochs: str) -> tuple[str, ...]:
    cells = (
        f"{mean:.3f} ± {spread:.3f} ({distance:+.1f})"
        for mean, spread, distance in zip(one.means, one.spreads, one.distances, strict=True)
    )
    return (method_name(one.method), epochs, *cells, f"{one.distance:.1f}", "yes" if one.agrees else "no")
