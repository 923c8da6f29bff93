r"""The score gap at equal finances: who is worse off, by how much, and through which inputs.

For a person i and a match j of the other group, let z be i with j's finances. The average is taken of
:math:`D = \phi(z) - \phi(j)`, both explained from i's baseline: one value per feature, with the sum
:math:`f(z) - f(j)`. The financial features of z and j are the same, but what correlates with finances is not. So D is
regressed on the sign s (+1 if i is in the group, -1 if i is in the reference group) and on differences
:math:`h(i) - h(j)` of functions of the finances, without an intercept, because exchanging i and j changes the sign of
all of them. The coefficient of s is the gap of the group minus the reference group at equal finances. Both groups
have the same weight; within a group, so do people, unless they have sampling weights.

A person may be in many pairs. With :math:`S_v` the sum of the influences of all rows that contain person v, divided
by :math:`\sqrt{1 - 2 c_v}`, where :math:`c_v` is the person's share of the weight, the variance is
:math:`\sum_v S_v S_v^\top`. If a small group happens to have few people with a rare input, that is far too small. If
there is no gap, what remains of D after the finances has the same variance in both groups, so the estimate, a sum of
:math:`A_v u_v` over people, also has the variance :math:`\sum_v A_v^2` times half the mean squared residual. The larger
of the two is used. Few people may have an input: the degrees of freedom are the smaller of
:math:`(\sum S^2)^2 / \sum S^4 - 1` and the value that :math:`A_v` and the kurtosis of the residuals give, and a feature
with fewer than 12 is not tested.

Decisions are different: D is 0 for most pairs, and 1 or -1 for pairs near the threshold. The kurtosis of such
residuals is one over the share of pairs that differ, which means that few pairs count, not that few people do. So
their degrees of freedom are those of S, and decisions are tested from 5 on; the variance is the same, and too large
rather than too small if few pairs differ.

Sums over pairs for score gaps: those of the regression, and those of each person's contribution to its error.

They are computed in torch, on the device of the controls; devices differ by rounding only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats
from torch import Tensor

from evenhand.arrays import Floats, Ints
from evenhand.metrics.estimate import Estimate, not_estimable, student_quantile
from evenhand.metrics.triples import N_BUCKETS, Gathered, bucket_sums, distinct_codes, numbered, placed
from evenhand.system.threads import ONE_THREAD, Crew, device_turn, one_thread_each

_COMPONENTS = 4
_SMALLEST_PIVOT = (
    1e-12  # of the largest eigenvalue: below, functions that are alike differ by how their sums are rounded
)


class GapPart(Protocol):
    """Some pairs of a person and a match, who is a row of the reference."""

    @property
    def person(self) -> Ints:
        """A code for each person, of shape (n,); all pairs of a person are in one part."""
        ...

    @property
    def person_row(self) -> NDArray[np.signedinteger]:
        """The row that represents the person in the reference, -1 for someone outside it."""
        ...

    @property
    def unit(self) -> NDArray[np.signedinteger]:
        """A code that is the same for pairs of the same person outside the reference, who may have several rows."""
        ...

    @property
    def bucket(self) -> Ints:
        """Bucket of the person."""
        ...

    @property
    def other(self) -> NDArray[np.signedinteger]:
        """Row of the reference that represents the match."""
        ...

    @property
    def match(self) -> NDArray[np.signedinteger]:
        """Row of the match."""
        ...

    @property
    def group(self) -> Ints:
        """Group of the person."""
        ...

    @property
    def other_group(self) -> Ints:
        """Group of the match."""
        ...

    @property
    def label(self) -> Ints:
        """Label of both."""
        ...

    @property
    def pair_weight(self) -> Floats:
        """Sampling weight of the person, times that of the match over the mean of the person's matches in the group."""
        ...

    @property
    def finances(self) -> NDArray[np.floating]:
        """Standardized finances of the person, of shape (n, k)."""
        ...

    @property
    def score_gaps(self) -> NDArray[np.floating]:
        """What is averaged, of shape (n, n_columns)."""
        ...


@dataclass(frozen=True, eq=False)
class FinanceControls:
    """Functions of the finances to hold constant: linear, squared, products of principal components, by label.

    Attributes
    ----------
    components
        Up to four principal components of the reference's standardized finances, of shape (k, q).
    of_reference
        The functions of those finances, of shape (n_reference, n_controls / 2).
    """

    components: Tensor
    of_reference: Tensor

    @classmethod
    def of(cls, points: Floats, device: torch.device | None = None) -> FinanceControls:
        """Controls from the reference's standardized finances; sums are computed on the device, None for the CPU."""
        centered = points - points.mean(axis=0)
        components = np.linalg.eigh(centered.T @ centered)[1][:, ::-1][:, :_COMPONENTS].copy()
        along = placed(components, device)
        return cls(along, _functions(placed(points, device), along))

    @property
    def device(self) -> torch.device:
        """Where sums are computed."""
        return self.of_reference.device

    def difference(self, finances: Tensor, match: Tensor, label: Tensor) -> Tensor:
        """Functions of the person's finances minus those of the match's, of shape (n, n_controls)."""
        apart = _functions(finances.double(), self.components) - self.of_reference.index_select(0, match)
        return torch.cat([apart, apart * label.unsqueeze(1)], dim=1)


def _functions(points: Tensor, components: Tensor) -> Tensor:
    along = points @ components
    first, second = torch.triu_indices(along.shape[1], along.shape[1], offset=1, device=points.device)
    return torch.cat([points, points.square(), along[:, first] * along[:, second]], dim=1)


@dataclass(frozen=True, eq=False)
class _Design:
    """Regressors, weights and differences of the pairs of a part between two groups.

    Attributes
    ----------
    rows
        The pairs.
    side
        1 if the person is in the group, 0 if in the reference group.
    share
        Weight of each pair over the number of the person's pairs.
    n_people
        People of either side with a positive weight.
    """

    rows: Tensor
    side: Tensor
    regressors: Tensor
    share: Tensor
    difference: Tensor
    n_people: tuple[int, int]

    @classmethod
    def of(cls, part: GapPart, controls: FinanceControls, group: int, reference_group: int) -> _Design:
        device = controls.device
        own, other = (placed(codes, device) for codes in (part.group, part.other_group))
        forward = (own == group) & (other == reference_group)
        rows = (forward | ((own == reference_group) & (other == group))).nonzero().squeeze(1)
        side = forward[rows].long()
        person, weight, finances, match, label, gaps = (
            placed(values, device).index_select(0, rows)
            for values in (part.person, part.pair_weight, part.finances, part.match, part.label, part.score_gaps)
        )
        # All pairs of a person are on one side.
        pairs_of = Gathered.of(distinct_codes(person))
        counts = pairs_of.sums(torch.stack([torch.ones_like(weight), weight, side.double()], dim=1))
        counted = counts[:, 1] > 0
        on_side = [int((counted & ((counts[:, 2] > 0) == bool(which))).sum()) for which in (0, 1)]
        regressors = torch.cat([(2.0 * side - 1).unsqueeze(1), controls.difference(finances, match, label)], dim=1)
        share = weight / counts[pairs_of.code, 0]
        return cls(rows, side, regressors, share, gaps.double(), (on_side[0], on_side[1]))


@dataclass(frozen=True, eq=False)
class GapMoments:
    """Sums over pairs by the person's group, from which the regression follows."""

    group: int
    reference_group: int
    n_people: tuple[int, int]
    total: Floats
    n_pairs: int
    design: Floats
    product: Floats

    @classmethod
    def of(
        cls,
        parts: Iterable[GapPart],
        controls: FinanceControls,
        group: int,
        reference_group: int,
        crew: Crew = ONE_THREAD,
    ) -> GapMoments | None:
        """Sums over all parts, for a group and its reference group; None without a part."""

        def of_part(part: GapPart) -> GapMoments:
            with device_turn(controls.device.type):
                return cls._of_design(_Design.of(part, controls, group, reference_group), group, reference_group)

        found: GapMoments | None = None
        for more in crew.in_order(of_part, parts):
            found = more if found is None else found._added(more)
        return found

    @classmethod
    def _of_design(cls, one: _Design, group: int, reference_group: int) -> GapMoments:
        design, product, total = [], [], []
        for which in (0, 1):
            inside = (one.side == which).nonzero().squeeze(1)
            regressors, share, difference = (
                values.index_select(0, inside) for values in (one.regressors, one.share, one.difference)
            )
            weighted = regressors * share.unsqueeze(1)
            design.append(weighted.T @ regressors)
            product.append(weighted.T @ difference)
            total.append(share.sum())
        n_pairs = int((one.share > 0).sum())
        totals, designs, products = (torch.stack(sums).cpu().numpy() for sums in (total, design, product))
        return cls(group, reference_group, one.n_people, totals, n_pairs, designs, products)

    def _added(self, other: GapMoments) -> GapMoments:
        n_people = (self.n_people[0] + other.n_people[0], self.n_people[1] + other.n_people[1])
        return GapMoments(
            self.group,
            self.reference_group,
            n_people,
            self.total + other.total,
            self.n_pairs + other.n_pairs,
            self.design + other.design,
            self.product + other.product,
        )

    def fit(self) -> GapFit:
        """The regression."""
        weight = 0.5 / self.total  # both groups have the same weight
        design = np.tensordot(weight, self.design, axes=1)
        inverse = np.linalg.pinv(design, rcond=_SMALLEST_PIVOT, hermitian=True).astype(np.float64)
        coefficients = inverse @ np.tensordot(weight, self.product, axes=1)
        return GapFit(self.group, self.reference_group, weight, inverse, coefficients)


@dataclass(frozen=True, eq=False)
class GapFit:
    """The regression; the first coefficient of each column is its gap."""

    group: int
    reference_group: int
    weight: Floats
    inverse: Floats
    coefficients: Floats

    @property
    def values(self) -> Floats:
        """The gaps."""
        found: Floats = self.coefficients[0]
        return found

    def influence(self, one: _Design) -> tuple[Tensor, Tensor, Tensor]:
        """Weight of each pair, its coefficient in the gaps, and the residuals, of shape (n, n_columns)."""
        of_side, inverse, coefficients = (
            placed(values).to(one.regressors) for values in (self.weight, self.inverse[0], self.coefficients)
        )
        weight = one.share * of_side[one.side]
        linear = weight * (one.regressors @ inverse)
        return weight, linear, one.difference - one.regressors @ coefficients


@dataclass(frozen=True, eq=False)
class InfluenceSums:
    """Sums over people of products and powers of their influence, and over pairs of powers of residuals.

    Attributes
    ----------
    products, squares, fourth_powers
        Of the scaled sums of influences.
    leverage
        Sums of the second and of the fourth power of the people's coefficients in the gap.
    residuals
        Weighted means of the second and of the fourth power of the residuals, of shape (2, n_columns).
    by_bucket
        Influences by bucket of people, of shape (n_buckets, n_columns).
    """

    products: Floats
    squares: Floats
    fourth_powers: Floats
    leverage: Floats
    residuals: Floats
    by_bucket: Floats

    @classmethod
    def of(
        cls,
        parts: Iterable[GapPart],
        controls: FinanceControls,
        fit: GapFit,
        reference_buckets: Ints | None,
        crew: Crew = ONE_THREAD,
    ) -> InfluenceSums:
        """Sums over all parts; by bucket only if the reference has buckets."""
        n_columns, device = fit.coefficients.shape[1], controls.device
        buckets = None if reference_buckets is None else placed(reference_buckets, device)
        n_reference = len(controls.of_reference)
        inside = torch.zeros((n_reference, 2 + n_columns), dtype=torch.float64, device=device)

        def of_part(part: GapPart) -> tuple[InfluenceSums, Tensor, Tensor]:
            with device_turn(device.type):
                return cls._of_part(
                    part, _Design.of(part, controls, fit.group, fit.reference_group), fit, buckets, n_reference
                )

        found = cls.zeros(n_columns, 0 if buckets is None else N_BUCKETS)
        for more, rows, sums in crew.in_order(of_part, parts):
            found = found._added(more)
            inside.index_add_(0, rows, sums)
        return found._with_people(inside)

    @classmethod
    def _of_part(
        cls, part: GapPart, one: _Design, fit: GapFit, buckets: Tensor | None, n_reference: int
    ) -> tuple[InfluenceSums, Tensor, Tensor]:
        """Sums over people outside the reference; rows of the reference; sums of these people's contributions."""
        device = one.rows.device
        person_row, other, unit = (
            placed(codes, device, torch.int64)[one.rows] for codes in (part.person_row, part.other, part.unit)
        )
        weight, linear, residual = fit.influence(one)
        influence = linear.unsqueeze(1) * residual
        found = cls.zeros(residual.shape[1], 0 if buckets is None else N_BUCKETS)._with_residuals(weight, residual)
        if buckets is not None:
            own = placed(part.bucket, device, torch.int64)[one.rows]
            found.by_bucket[:] = bucket_sums(influence, own, buckets[other]).cpu().numpy()
        added = torch.cat([weight.unsqueeze(1), linear.unsqueeze(1), influence], dim=1)
        is_inside = person_row >= 0
        inside, outside = (is_inside == side for side in (True, False))
        inside, outside = inside.nonzero().squeeze(1), outside.nonzero().squeeze(1)
        rows, code = numbered(torch.cat([other, person_row[inside]]), n_reference)
        of_reference = Gathered(code[: len(other)], len(rows)).sums(added)
        of_reference[:, 1] *= -1  # as a match, a person counts with the opposite sign
        of_reference += Gathered(code[len(other) :], len(rows), rows=inside).sums(added)
        people = Gathered.of(distinct_codes(unit[outside]), rows=outside)
        return found._with_people(people.sums(added)), rows, of_reference

    @classmethod
    def zeros(cls, n_columns: int, n_buckets: int) -> InfluenceSums:
        """Sums over no one."""
        squares, fourth_powers = np.zeros((2, n_columns))
        return cls(
            np.zeros((n_columns, n_columns)),
            squares,
            fourth_powers,
            np.zeros(2),
            np.zeros((2, n_columns)),
            np.zeros((n_buckets, n_columns)),
        )

    def _added(self, other: InfluenceSums) -> InfluenceSums:
        return InfluenceSums(*(getattr(self, field.name) + getattr(other, field.name) for field in fields(self)))

    @property
    def pooled_variance(self) -> Floats:
        """Variance of each gap under no gap, from the residuals of both groups."""
        found: Floats = self.leverage[0] * self.residuals[0] / 2
        return found

    @property
    def pooled_degrees(self) -> Floats:
        """Effective number of people behind it."""
        found: Floats = self.leverage[0] ** 2 / self.leverage[1] * self.residuals[0] ** 2 / self.residuals[1]
        return found

    def _with_residuals(self, weight: Tensor, residual: Tensor) -> InfluenceSums:
        squares = residual.square()
        more = torch.stack([weight @ squares, weight @ squares.square()]).cpu().numpy()
        return replace(self, residuals=self.residuals + more)

    def _with_people(self, sums: Tensor) -> InfluenceSums:
        """Add people, given sums of weights, of coefficients in the gap and of influences of each."""
        share, coefficient, influence = sums[:, 0], sums[:, 1], sums[:, 2:]
        # A person in every pair cannot be left out; the bound only keeps the division defined.
        scaled = influence / (1 - 2 * share).clamp_min(0.1).sqrt().unsqueeze(1)
        square, leverage = scaled.square(), coefficient.square()
        products, squares, fourth_powers, leverages = (
            values.cpu().numpy()
            for values in (
                scaled.T @ scaled,
                square.sum(0),
                square.square().sum(0),
                torch.stack([leverage.sum(), leverage.square().sum()]),
            )
        )
        return replace(
            self,
            products=self.products + products,
            squares=self.squares + squares,
            fourth_powers=self.fourth_powers + fourth_powers,
            leverage=self.leverage + leverages,
        )


@one_thread_each()  # for operations this small, waking the threads of many cores takes longer than the work
def gap_coefficients(
    part: GapPart, controls: FinanceControls, group: int, reference_group: int, weights: Floats
) -> Tensor:
    """The coefficient of each pair's difference in the gap between two groups, of the shape of the weights.

    The gap is linear in the differences, with coefficients that depend on who is compared and not on what is averaged:
    one product gives the gaps of many models. All are NaN if no one in a group is compared.

    Parameters
    ----------
    part
        All pairs; their differences are not used.
    controls, group, reference_group
        As in `GapMoments.of`.
    weights
        Weightings of the pairs, of shape (n_weightings, n), the same for all pairs of a person.
    """
    one = _Design.of(part, controls, group, reference_group)
    found = one.regressors.new_zeros(weights.shape)
    for row, weight in enumerate(placed(weights, controls.device)):
        weighted = replace(one, share=one.share * weight[one.rows])
        moments = GapMoments._of_design(weighted, group, reference_group)
        if (moments.total > 0).all():
            found[row, one.rows] = moments.fit().influence(weighted)[1]
        else:
            found[row] = float("nan")
    return found


FEW_DEGREES = 12.0
"""A column with fewer degrees of freedom is estimated but not tested."""

FEW_DEGREES_OF_DECISIONS = 5.0
"""The same for a column of decisions."""

_MIN_PEOPLE = 10
_DRAWS = 4_000
_ROUNDING = 1e-6  # attributions are computed in single precision


@dataclass(frozen=True, eq=False)
class GroupGap:
    """Gaps between two groups.

    Attributes
    ----------
    columns
        Group minus reference group for each column: negative if the group is worse off. The p-value is two-sided, and
        NaN if there are too few people to test.
    correlation
        Correlation of the columns' estimates, of shape (n_columns, n_columns).
    n_people, n_pairs
        Compared people of each group, and their pairs.
    influence
        Influences of people on each column by bucket, of shape (n_buckets, n_columns); no rows without buckets.
    """

    columns: tuple[Estimate, ...]
    correlation: Floats
    n_people: int
    n_pairs: int
    influence: Floats


def group_gap(
    parts: Callable[[], Iterable[GapPart]],
    controls: FinanceControls,
    group: int,
    reference_group: int,
    reference_buckets: Ints | None = None,
    *,
    decisions: Sequence[int] = (),
    crew: Crew = ONE_THREAD,
) -> GroupGap:
    """Score gaps between a group and a reference group, one for each column.

    Parameters
    ----------
    parts
        Iterates over the pairs anew at each call.
    controls
        The finances to hold equal; sums are taken on their device.
    group, reference_group
        Codes of the two groups.
    reference_buckets
        Bucket of each person of the reference, if influences are wanted.
    decisions
        Columns of differences between decisions, 0 for most pairs: see the module.
    crew
        Who works on parts at the same time; the gaps are the same to the last bit for any.

    Returns
    -------
    Estimates in the order of the columns. All come from one regression, so if columns add up to another column, so do
    their estimates.
    """
    moments = GapMoments.of(parts(), controls, group, reference_group, crew)
    if moments is None or min(moments.n_people) < _MIN_PEOPLE:
        n = (0, 0) if moments is None else moments.n_people
        n_columns = 0 if moments is None else moments.product.shape[2]
        note = f"only {min(n)} people of a group are compared, but at least {_MIN_PEOPLE} are needed"
        return GroupGap(
            (not_estimable(note, sum(n)),) * n_columns, np.eye(n_columns), sum(n), 0, np.zeros((0, n_columns))
        )
    fit = moments.fit()
    sums = InfluenceSums.of(parts(), controls, fit, reference_buckets, crew)
    own_error = np.sqrt(np.diag(sums.products))
    is_decision = np.isin(np.arange(len(own_error)), decisions)
    error = np.sqrt(np.maximum(sums.squares, sums.pooled_variance))
    with np.errstate(divide="ignore", invalid="ignore"):
        own_degrees = sums.squares**2 / sums.fourth_powers
        df = np.where(is_decision, own_degrees, np.minimum(own_degrees, sums.pooled_degrees)) - 1
        correlation = sums.products / np.outer(own_error, own_error)
    correlation[~np.isfinite(correlation)] = 0.0
    np.fill_diagonal(correlation, 1.0)
    least = np.where(is_decision, FEW_DEGREES_OF_DECISIONS, FEW_DEGREES)
    n_people = sum(moments.n_people)
    columns = tuple(
        replace(_column(*of_column), n=n_people)
        for of_column in zip(fit.values.tolist(), error.tolist(), df.tolist(), least.tolist(), strict=True)
    )
    return GroupGap(columns, correlation, n_people, moments.n_pairs, sums.by_bucket)


def smallest_p_values(
    p_values: Sequence[float], correlation: Floats, random_state: int = 0, n_draws: int = _DRAWS
) -> tuple[Floats, float]:
    """p-values adjusted for their number and the correlation of the estimates, and the smallest of them.

    Each is compared with the smallest of as many p-values of correlated normal draws, which controls the chance of any
    false alarm. NaN stays NaN and is not counted.

    Examples
    --------
    >>> adjusted, smallest = smallest_p_values([0.01, 0.5, float("nan")], np.eye(3))
    >>> bool(0.015 < smallest < 0.025), bool(np.isnan(adjusted[2]))
    (True, True)
    """
    p = np.asarray(p_values, dtype=np.float64)
    known = np.isfinite(p)
    adjusted = np.full(len(p), np.nan)
    if not known.any():
        return adjusted, float("nan")
    values, vectors = np.linalg.eigh(correlation[np.ix_(known, known)])
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    draws = np.random.default_rng(random_state).standard_normal((n_draws, len(values))) @ root.T
    smallest = np.sort(2 * stats.norm.sf(np.abs(draws).max(axis=1)))
    below = np.searchsorted(smallest, p[known], side="right")
    # Beyond the resolution of the draws, Bonferroni's bound; a p-value is never adjusted downward.
    bound = np.minimum(p[known] * known.sum(), 1.0)
    found = np.where(below > 0, np.minimum((below + 1) / (n_draws + 1), 1.0), np.minimum(bound, 1 / n_draws))
    adjusted[known] = np.maximum(np.minimum(found, np.maximum(bound, p[known])), p[known])
    return adjusted, float(np.nanmin(adjusted))


def _column(value: float, error: float, df: float, least: float) -> Estimate:
    if error <= _ROUNDING and abs(value) <= _ROUNDING:
        note = "the model does not use it differently at equal finances"
        return Estimate(0.0, 0.0, 0.0, 0.0, 1.0, note=note, df=df)
    if not np.isfinite(df):
        return Estimate(value, standard_error=error, df=df, note="not estimated")
    if df < least:
        half = student_quantile(0.95, max(df, 1.0)) * error
        note = f"effectively {max(df + 1, 1):.0f} independent people: too few to test"
        return Estimate(value, value - half, value + half, error, df=df, note=note)
    return Estimate.from_error(value, error, df)
