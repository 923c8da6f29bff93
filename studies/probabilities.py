"""How often the intervals of an audit with probable groups cover the truth, in worlds with a known truth.

A proxy, such as surname and address, predicts the group with a known probability. A model scores people by income,
debt and a third input. Incomes and debts are unrelated to the group, so the score gap at equal finances is the weight
of the third input times the difference of its mean between groups.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import special
from sklearn.linear_model import LogisticRegression

from evenhand.arrays import Floats
from evenhand.auditing.audit import audit
from evenhand.auditing.draws import DrawKey
from evenhand.inputs.group_probabilities import GroupProbabilities
from studies.study import Line, share_error

World = Literal["through the proxies", "beyond the proxies", "the group alone", "nothing"]

_GROUP, _REFERENCE = "b", "a"
_WEIGHTS = (1.0, -0.8, 1.0)  # of income, debt and the third input
_NODES, _SHARES = np.polynomial.hermite_e.hermegauss(80)

METRICS = {
    "score_gap": DrawKey("score_gap", _GROUP, _REFERENCE),
    "approval_difference": DrawKey("approval_difference", _GROUP, _REFERENCE),
    "mean_score_difference": DrawKey("mean_score_difference", _GROUP, _REFERENCE),
    "excess": DrawKey("excess"),
}
"""The metrics compared with the truth."""


@dataclass(frozen=True)
class ProbabilityCell:
    """A world, and how well its proxy predicts the group.

    Attributes
    ----------
    world
        How the third input depends on the proxy and on the group.
    sharpness
        Log-odds of the group for a standard deviation of the proxy.
    minority
        Log-odds of the group at the mean of the proxy.
    n_people, n_draws
        Of each audit.
    """

    world: World
    sharpness: float
    minority: float = 0.0
    n_people: int = 300
    n_draws: int = 10
    left_out: str = ""

    @property
    def name(self) -> str:
        """Settings in words."""
        return f"{self.world}/{self.sharpness:g}/{self.minority:g}/{self.n_people}/{self.n_draws}"

    @property
    def _slopes(self) -> tuple[float, float]:
        """Of the third input on the proxy and on the group."""
        return {
            "through the proxies": (0.5, 0.0),
            "beyond the proxies": (0.3, 0.5),
            "the group alone": (0.0, 0.8),
            "nothing": (0.0, 0.0),
        }[self.world]

    @cached_property
    def truth(self) -> Mapping[str, float]:
        """The differences in the population, by integration over the proxy."""
        on_proxy, on_group = self._slopes
        share = special.expit(self.minority + self.sharpness * _NODES)
        weights = {1: share * _SHARES, 0: (1 - share) * _SHARES}
        spread = np.sqrt(np.square(_WEIGHTS).sum())
        means: dict[str, dict[int, float]] = {name: {} for name in list(METRICS)[:3]}
        for group, weight in weights.items():
            third = on_proxy * _NODES + on_group * group
            scores = special.expit(_WEIGHTS[2] * third[:, None] + spread * _NODES) @ _SHARES / _SHARES.sum()
            approved = special.ndtr(_WEIGHTS[2] * third / spread)
            for name, values in zip(means, (_WEIGHTS[2] * third, approved, scores), strict=True):
                means[name][group] = float(weight @ values / weight.sum())
        found = {name: of[1] - of[0] for name, of in means.items()}
        return {**found, "excess": 0.0} if self.world == "nothing" else found

    def people(self, replicate: int) -> tuple[pd.DataFrame, Floats, NDArray[np.int64], NDArray[np.str_]]:
        """Inputs, probability of the group, labels and true groups of a dataset."""
        rng = np.random.default_rng((replicate, int(10 * self.sharpness), len(self.world)))
        n = self.n_people
        proxy, income, debt, noise, luck = rng.normal(size=(5, n))
        probability = special.expit(self.minority + self.sharpness * proxy)
        is_in = rng.random(n) < probability
        on_proxy, on_group = self._slopes
        inputs = {"income": income, "debt": debt, "third": on_proxy * proxy + on_group * is_in + noise}
        labels = (income - debt + luck > 0).astype(np.int64)
        return pd.DataFrame(inputs), probability, labels, np.where(is_in, _GROUP, _REFERENCE)

    def audit(self, replicate: int) -> Line:
        """Pooled metrics of a dataset, with both intervals and the alternative uses of the probabilities."""
        X, probability, y, _ = self.people(replicate)
        model = LogisticRegression().fit(X, y)
        model.coef_, model.intercept_ = np.array([_WEIGHTS]), np.zeros(1)
        probable = GroupProbabilities(
            pd.DataFrame({_REFERENCE: 1 - probability, _GROUP: probability}), n_draws=self.n_draws
        )
        options: dict[str, Any] = {"financial_features": ["income", "debt"], "favorable": "high"}
        found = audit(model, X, y, sensitive_features=probable, random_state=replicate, **options)
        assert found.drawn_groups is not None
        metrics = {DrawKey(*(row[name] for name in DrawKey._fields)): row for row in found.drawn_groups["metrics"]}
        return {name: _read(metrics, key) for name, key in METRICS.items()}


_KEPT = ("value", "low", "high", "rubin_low", "rubin_high", "missing_information")
_OTHER_USES = ("thresholding", "weighting", "group_alone")


def _read(metrics: Mapping[DrawKey, Mapping[str, float]], key: DrawKey) -> dict[str, float]:
    """A metric of the group minus the reference; the audit compares the smaller group with the larger."""
    if key in metrics:
        return {name: metrics[key][name] for name in (*_KEPT, *_OTHER_USES)}
    found = metrics[key._replace(group=key.reference, reference=key.group)]
    turned = {name: -found[name] for name in ("value", *_OTHER_USES)}
    ends = {"low": "high", "high": "low", "rubin_low": "rubin_high", "rubin_high": "rubin_low"}
    return {
        **turned,
        **{name: -found[other] for name, other in ends.items()},
        "missing_information": found["missing_information"],
    }


def probability_rows(cells: Sequence[ProbabilityCell], audits: Mapping[str, Sequence[Line]]) -> list[dict[str, Any]]:
    """For each cell and metric: how often each interval covers the truth, and the mean of each estimator."""
    rows = []
    for cell in cells:
        lines = audits[cell.name]
        for name, truth in cell.truth.items():
            found = pd.DataFrame([line[name] for line in lines])
            holds = ((found["low"] <= truth) & (truth <= found["high"])).mean()
            rows.append(
                {
                    "world": cell.world,
                    "sharpness": cell.sharpness,
                    "minority": cell.minority,
                    "metric": name,
                    "audits": len(lines),
                    "truth": truth,
                    "coverage": float(holds),
                    "coverage_error": share_error(float(holds), len(lines)),
                    "coverage_rubin": float(((found["rubin_low"] <= truth) & (truth <= found["rubin_high"])).mean()),
                    **{what: float(found[what].mean()) for what in ("value", "missing_information", *_OTHER_USES)},
                }
            )
    return rows


_HEADS = (
    "third input depends on the group",
    "log-odds by proxy",
    "metric",
    "audits",
    "truth",
    "pooled, mean",
    "coverage, %",
    "of Rubin's rules, %",
    "thresholding",
    "weighting",
    "group alone",
)


def _shown(value: float) -> str:
    return f"{round(value, 3) + 0.0:.3f}" if np.isfinite(value) else ""  # one zero, without a sign


def probability_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as Markdown, coverage with its Monte Carlo error; means that no audit has are left empty."""
    lines = ["| " + " | ".join(_HEADS) + " |", "| " + " | ".join("---" for _ in _HEADS) + " |"]
    for row in rows:
        truth, value, *means = (_shown(row[name]) for name in ("truth", "value", *_OTHER_USES))
        minority = "" if row["minority"] == 0 else f" ({row['minority']:g} at the mean)"
        cells = (
            row["world"],
            f"{row['sharpness']:g}{minority}",
            row["metric"].replace("_", " "),
            str(row["audits"]),
            truth,
            value,
            f"{100 * row['coverage']:.1f} ± {100 * row['coverage_error']:.1f}",
            f"{100 * row['coverage_rubin']:.1f}",
            *means,
        )
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


CELLS = (
    ProbabilityCell("through the proxies", 2.0),
    ProbabilityCell("through the proxies", 4.0),
    ProbabilityCell("through the proxies", 4.0, -3.0),
    ProbabilityCell("nothing", 4.0),
    ProbabilityCell("beyond the proxies", 4.0),
    ProbabilityCell("the group alone", 4.0),
)
"""The whole study: the assumption holds in the first four, and fails in the last two."""
