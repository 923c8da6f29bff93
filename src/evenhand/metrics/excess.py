"""The excess over placebo pairs, with its interval and p-value, for triples that share people.

A triple is a person, a match in a different group and a placebo in the person's group. One person can be the
match or the placebo of many, so triples are not independent; the standard errors here sum over every two
triples with a person in common, in time that grows with the number of triples and not with its square.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy import stats
from torch import Tensor

from evenhand.exceptions import InvalidInputError
from evenhand.metrics.checks import check_open_fraction, vector
from evenhand.metrics.sharing import Overlap, column_blocks

__all__ = [
    "FEW_INDEPENDENT_PEOPLE",
    "MIN_PEOPLE",
    "ROUNDING",
    "ExcessEstimate",
    "ExcessFit",
    "ExcessMoments",
    "excess",
    "excess_by",
    "excess_columns",
]

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]

MIN_PEOPLE = 10
"""With fewer people, the excess is not estimated."""

FEW_INDEPENDENT_PEOPLE = 40.0
"""Below this effective number of people, the estimate has a warning."""

_COLUMNS_AT_ONCE = 4

ROUNDING = 1e-6
"""Differences of scores below this are rounding: attributions are computed in single precision."""


@dataclass(frozen=True)
class ExcessEstimate:
    """An estimated excess and its uncertainty; every number is NaN if it cannot be estimated.

    Attributes
    ----------
    value
        Mean over people of score minus placebo score.
    ci_low, ci_high
        Two-sided confidence interval.
    p_value
        One-sided, of no excess: small when pairs across groups score more than placebo pairs.
    standard_error
        Standard error that respects people who serve in several triples.
    n
        Number of people compared.
    n_effective
        Number of equally used people that would be as informative as those who were compared.
    df
        Degrees of freedom of the interval and the p-value.
    note
        Why a number is missing or weak; empty if neither.
    """

    value: float
    ci_low: float
    ci_high: float
    p_value: float
    standard_error: float
    n: int
    n_effective: float
    df: float
    note: str = ""

    @property
    def is_estimated(self) -> bool:
        """Whether it could be estimated."""
        return bool(np.isfinite(self.value))

    @property
    def is_weak(self) -> bool:
        """Whether it is based on so few independent people that error rates are approximate."""
        return self.is_estimated and self.n_effective < FEW_INDEPENDENT_PEOPLE


def excess(
    delta: ArrayLike,
    placebo_delta: ArrayLike,
    nodes: ArrayLike,
    *,
    control: ArrayLike | None = None,
    confidence: float = 0.95,
    min_people: int = MIN_PEOPLE,
) -> ExcessEstimate:
    r"""Mean excess of `delta` over `placebo_delta`, with interval and one-sided p-value.

    People have equal weight, whatever their number of triples. With a control c, the estimate is the intercept of
    the regression of the difference on c: in effect, triples are reweighted so that the control has mean 0.

    The variance is that of deleting one person at a time with all their triples, minus what is counted twice:

    .. math:: V = \sum_v \left(\frac{S_v}{1 - c_v}\right)^2 - \sum_{u < v} S_{uv}^2 + \sum_{u < v < w} S_{uvw}^2

    where :math:`S_v` sums the weighted residuals of the triples that contain person v, :math:`S_{uv}` of those
    that contain both, and :math:`c_v` is the weight of v's triples. Without the :math:`c_v` this is the sum of
    products of residuals over every two triples with anyone in common. It is at least the variance that
    ignores sharing. Degrees of freedom: :math:`(\sum c_v^2)^2 / \sum c_v^4 - 1`.

    Parameters
    ----------
    delta, placebo_delta
        A score of each triple's pair and of its placebo pair, of shape (n_triples,). Triples with NaN
        in either, or in the control, are left out and counted in the note.
    nodes
        The people of each triple, of shape (n_triples,) or (n_triples, m), m up to 3, as non-negative
        codes. The first column is the person the triple is about; the others their match and placebo.
    control
        What is known to differ between pair and placebo for reasons other than the group, as pair minus
        placebo, of shape (n_triples,) or (n_triples, q). Must have expectation 0 when pair and
        placebo are alike; the difference of the financial gaps is the one the audit uses.
    confidence
        Coverage of the interval.
    min_people
        With fewer people, everything is NaN.

    Raises
    ------
    InvalidInputError
        If shapes disagree, `nodes` has more than three columns or negative codes, or `confidence` is not
        between 0 and 1.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> person, match, placebo = np.arange(200), rng.integers(200, 250, 200), rng.integers(250, 450, 200)
    >>> delta, placebo_delta = rng.uniform(0.1, 0.5, 200), rng.uniform(0.0, 0.4, 200)
    >>> found = excess(delta, placebo_delta, np.column_stack([person, match, placebo]))
    >>> round(found.value, 3), round(found.standard_error, 3), found.p_value < 0.001
    (0.103, 0.012, True)
    """
    scores, floor = vector(delta, "delta"), vector(placebo_delta, "placebo_delta")
    return excess_columns(
        scores[:, None], floor[:, None], nodes, control=control, confidence=confidence, min_people=min_people
    )[0]


def excess_columns(
    delta: ArrayLike,
    placebo_delta: ArrayLike,
    nodes: ArrayLike,
    *,
    control: ArrayLike | None = None,
    confidence: float = 0.95,
    min_people: int = MIN_PEOPLE,
) -> tuple[ExcessEstimate, ...]:
    """Excess of each column of `delta` over the same column of `placebo_delta`; see `excess`.

    All columns share the weights of the triples. So when the columns of `delta` add up to a score (the
    contributions of the features), their excesses add up to that score's excess, with a control too.

    Raises
    ------
    InvalidInputError
        As `excess`.

    Examples
    --------
    >>> parts = np.array([[0.1, 0.2], [0.3, 0.1], [0.2, 0.2]] * 5)
    >>> [round(e.value, 3) for e in excess_columns(parts, parts / 2, np.arange(15))]
    [0.1, 0.083]
    """
    difference, people, adjust = _checked(delta, placebo_delta, nodes, control, confidence)
    usable = np.isfinite(difference).all(axis=1) & np.isfinite(adjust).all(axis=1)
    n_left_out = int((~usable).sum())
    if n_left_out:
        difference, people, adjust = difference[usable], people[usable], adjust[usable]
    left_out = left_out_note(n_left_out)
    n = len(np.unique(people[:, 0]))
    if n < max(min_people, 2):
        return tuple(too_few(n, min_people, left_out) for _ in difference.T)
    share = _equal_share_per_person(people[:, 0])
    overlap = Overlap.of(people, share / n)
    found: list[ExcessEstimate] = []
    for part in column_blocks(difference, _COLUMNS_AT_ONCE):
        fit = ExcessMoments.of(share, adjust, part).fit()
        variance = overlap.variance(fit.residuals(share, adjust, part))
        found += [
            estimated(v, s, n, overlap.n_effective, confidence, left_out)
            for v, s in zip(fit.values.tolist(), np.sqrt(variance).tolist(), strict=True)
        ]
    return tuple(found)


@dataclass(frozen=True, eq=False)
class ExcessMoments:
    """Sums over triples, from which estimates of an excess follow; the sums of parts add up.

    Attributes
    ----------
    n_people, total
        Number of people compared, and the sum of the weights of their triples.
    design
        Products of the regressors, a constant and the q controls, of shape (1 + q, 1 + q).
    product
        Products of the regressors and the differences, of shape (1 + q, n_columns).
    """

    n_people: float
    total: float
    design: Floats
    product: Floats

    @classmethod
    def of(
        cls,
        share: Floats | Tensor,
        control: Floats | Tensor,
        difference: Floats | Tensor,
        n_people: float | None = None,
    ) -> ExcessMoments:
        """Sums over triples, computed on the device of the tensors.

        Parameters
        ----------
        share
            Weight of each triple, of shape (n,): that of the person over the number of the person's triples.
        control, difference
            Of shape (n, q) and (n, n_columns).
        n_people
            Number of people; by default the sum of the weights.
        """
        design, each = _design(control), torch.as_tensor(share)
        weighted, total = design * each.unsqueeze(1), float(each.sum())
        products = (weighted.T @ design, weighted.T @ torch.as_tensor(difference))
        return cls(total if n_people is None else n_people, total, *(product.cpu().numpy() for product in products))

    def __add__(self, other: ExcessMoments) -> ExcessMoments:
        return ExcessMoments(
            self.n_people + other.n_people,
            self.total + other.total,
            self.design + other.design,
            self.product + other.product,
        )

    def fit(self) -> ExcessFit:
        """The weighted regression of the differences on the controls."""
        inverse: Floats = np.linalg.pinv(self.design / self.total, hermitian=True).astype(np.float64)
        return ExcessFit(round(self.n_people), self.total, inverse, inverse @ (self.product / self.total))


@dataclass(frozen=True, eq=False)
class ExcessFit:
    """Regressions of differences on controls: the estimates, and each triple's contribution to their error.

    Attributes
    ----------
    n_people, total
        Number of people compared, and the sum of the weights of their triples.
    inverse
        Inverse of the weighted products of the regressors.
    coefficients
        Intercept and slopes of each column, of shape (1 + q, n_columns).
    """

    n_people: int
    total: float
    inverse: Floats
    coefficients: Floats

    @property
    def values(self) -> Floats:
        """The estimates, of shape (n_columns,)."""
        intercept: Floats = self.coefficients[0]
        return intercept

    def residuals(self, share: Floats | Tensor, control: Floats | Tensor, difference: Floats | Tensor) -> Tensor:
        """Each triple's contribution to the error of each estimate; the arguments are those of `ExcessMoments.of`."""
        design = _design(control)
        inverse, coefficients = (torch.as_tensor(rows).to(design) for rows in (self.inverse[0], self.coefficients))
        # The estimate is linear in the differences, with these weights.
        linear = torch.as_tensor(share) / self.total * (design @ inverse)
        return torch.addmm(torch.as_tensor(difference), design, coefficients, alpha=-1).mul_(linear.unsqueeze(1))


def _design(control: Floats | Tensor) -> Tensor:
    controls = torch.as_tensor(control)
    controls = controls.unsqueeze(1) if controls.dim() == 1 else controls
    return torch.cat([controls.new_ones((len(controls), 1)), controls], dim=1)


def excess_by(
    by: ArrayLike,
    delta: ArrayLike,
    placebo_delta: ArrayLike,
    nodes: ArrayLike,
    *,
    control: ArrayLike | None = None,
    confidence: float = 0.95,
    min_people: int = MIN_PEOPLE,
) -> dict[object, ExcessEstimate]:
    """Excess within each value of `by` (group, label, decision, any column), of shape (n_triples,).

    Each value has its own weights and control slope. A value with too few people is present, with NaN.

    Examples
    --------
    >>> found = excess_by(["a", "b"] * 20, np.tile([0.3, 0.1], 20), np.full(40, 0.1), np.arange(40))
    >>> {name: round(estimate.value, 3) for name, estimate in found.items()}
    {'a': 0.2, 'b': 0.0}
    """
    values = np.asarray(by)
    scores, floor, people = np.asarray(delta), np.asarray(placebo_delta), np.asarray(nodes)
    if not len(values) == len(scores) == len(floor) == len(people):
        raise InvalidInputError(
            f"`by` must hold one value per triple, got {len(values)} values and {len(scores)} triples."
        )
    adjust = None if control is None else np.asarray(control)
    found: dict[object, ExcessEstimate] = {}
    for value in np.unique(values):
        inside = values == value
        found[value.item()] = excess(
            scores[inside],
            floor[inside],
            people[inside],
            control=None if adjust is None else adjust[inside],
            confidence=confidence,
            min_people=min_people,
        )
    return found


def estimated(value: float, error: float, n: int, n_effective: float, confidence: float, note: str) -> ExcessEstimate:
    """An estimate with its interval, p-value and note, from its value and standard error."""
    df = max(n_effective - 1, 1.0)
    if error <= ROUNDING and abs(value) <= ROUNDING:
        note = _joined("pairs and placebo pairs differ by no more than rounding", note)
        return ExcessEstimate(0.0, 0.0, 0.0, 1.0, 0.0, n, n_effective, df, note)
    if n_effective < FEW_INDEPENDENT_PEOPLE:
        note = _joined(
            f"few independent people: {n} compared, worth {n_effective:.0f}; error rates are approximate", note
        )
    half = float(stats.t.ppf((1 + confidence) / 2, df)) * error
    p_value = float(stats.t.sf(value / error, df)) if error > 0 else float(value <= 0)
    return ExcessEstimate(value, value - half, value + half, p_value, error, n, n_effective, df, note)


def left_out_note(n: int) -> str:
    """How many triples could not be used, in words; empty for none."""
    return f"{n} triples without a score left out" if n else ""


def not_estimated(n: int, note: str) -> ExcessEstimate:
    """No estimate, with the reason."""
    nan = float("nan")
    return ExcessEstimate(nan, nan, nan, nan, nan, n, nan, nan, note)


def too_few(n: int, min_people: int, note: str = "") -> ExcessEstimate:
    """No estimate, because too few people were compared."""
    needed = max(min_people, 2)
    return not_estimated(n, _joined(f"not estimated: {n} people with a triple, at least {needed} needed", note))


def _joined(*notes: str) -> str:
    return "; ".join(note for note in notes if note)


def _equal_share_per_person(person: Ints) -> Floats:
    """Weights that sum to 1 for every person."""
    _, code, count = np.unique(person, return_inverse=True, return_counts=True)
    return 1 / count[code]


def _checked(
    delta: ArrayLike, placebo_delta: ArrayLike, nodes: ArrayLike, control: ArrayLike | None, confidence: float
) -> tuple[NDArray[np.floating], Ints, Floats]:
    """Differences (n, k), people (n, m) and controls (n, q), or a clear refusal."""
    check_open_fraction(confidence, "confidence")
    # Large tables of single precision stay so: columns are made double a few at a time.
    scores, floor = (
        a if a.dtype == np.float32 else a.astype(np.float64) for a in map(np.asarray, (delta, placebo_delta))
    )
    people = np.asarray(nodes)
    people = people[:, None] if people.ndim == 1 else people
    adjust = np.zeros((len(scores), 0)) if control is None else np.asarray(control, dtype=np.float64)
    adjust = adjust[:, None] if adjust.ndim == 1 else adjust
    if scores.ndim != 2 or scores.shape != floor.shape or not len(scores) == len(people) == len(adjust):
        raise InvalidInputError(
            "`delta`, `placebo_delta`, `nodes` and `control` must have one row per triple, "
            f"got shapes {scores.shape}, {floor.shape}, {people.shape} and {adjust.shape}."
        )
    if people.dtype.kind not in "iu" or people.ndim != 2 or not 1 <= people.shape[1] <= 3 or people.min(initial=0) < 0:
        raise InvalidInputError(
            "`nodes` must hold one to three columns of non-negative person codes, "
            f"got {people.dtype} of shape {people.shape}."
        )
    ordered = np.sort(people, axis=1)
    if (ordered[:, 1:] == ordered[:, :-1]).any():
        raise InvalidInputError("`nodes` names one person twice in a triple; the people of a row must differ.")
    difference: NDArray[np.floating] = scores - floor
    return difference, people.astype(np.int64), adjust
