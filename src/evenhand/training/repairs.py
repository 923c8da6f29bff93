r"""Training rows repaired (FairSHAP; Zhu, Bian & You, 2025) or weighed (Kamiran & Calders, 2012).

`repaired` changes the inputs that set training rows apart from their matches. Everyone is matched with the nearest
person of a different group and the same label. The Shapley values of a model's score of a person x, relative to the
match r with the person's finances, say which inputs make the two scores differ:

.. math:: \sum_j \phi_j(x; r) = f(x) - f(r).

The most influential values, those of the largest :math:`|\phi_j|` over all people and inputs, are replaced by the
values of the match; labels stay. Folds of the training rows decide how many: the number that leaves the smallest score
gap at equal finances, among those that cost little AUC. That number may be 0.

The authors attribute the change of the score when the group is flipped, which is 0 for models that do not see the
group. Here the difference from the match takes its place, so the repair works for these models, too. As in the authors'
version, both sides of a pair take values from each other: with all values exchanged, an input would predict the group
as well as before, which is why the number matters.

With several groups, everyone outside the reference group is matched with someone in it, and its people with the nearest
person of any other group. Only training rows change. The model does not need the group to decide.

`reweighing` gives weights under which label and group are independent. A person with label y in group g weighs

.. math:: w \frac{P(g) P(y)}{P(g, y)},

the expected number of such people if label and group were independent, over the actual number.
The group is needed to train, not to decide.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from evenhand.arrays import Bools, Floats, Ints, as_numpy, double, person_hash, placed
from evenhand.exceptions import InvalidInputError
from evenhand.inputs.splitting import stratified_folds
from evenhand.matching.leaves import Leaves
from evenhand.matching.pairs import Pairs, match_pairs
from evenhand.metrics.outcomes import auc
from evenhand.metrics.score_gap import FinanceControls, LeafPeople, gap_coefficients
from evenhand.models.black_box import margins_of, sampled_model
from evenhand.models.dispatch import as_audited_model
from evenhand.models.protocol import AuditedModel

Singles: TypeAlias = NDArray[np.floating]
FitModel: TypeAlias = Callable[[Singles, Ints], Any]
"""Trains a model, anything that `evenhand.audit` takes, on rows of shape (n, d) and labels 0 or 1."""

SHARES = (0.0, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.75, 1.0)
"""Shares of the replaceable values to try, the most influential first."""

_N_FOLDS = 3
_ORDERS = 8  # of inputs, each with its reverse: enough to rank them
_EXACT = ("linear", "additive", "tree_shap", "sampled_shapley")


@dataclass(frozen=True)
class Trial:
    """The effect of replacing a share of the values, on average over folds of the training rows.

    Attributes
    ----------
    share
        Of the values that may be replaced.
    auc
        On rows held out.
    score_gap
        The largest score gap at equal finances between the reference group and another, without its sign, on unchanged
        rows held out.
    """

    share: float
    auc: float
    score_gap: float


@dataclass(frozen=True, eq=False)
class Repaired:
    """Training rows after the repair.

    Attributes
    ----------
    features, labels
        Rows of shape (n, d), and their labels, unchanged.
    n_changed
        How many values of the table were replaced by those of a match.
    share
        Of the values that may be replaced, as chosen on folds.
    trials
        The effect of each share there.
    """

    features: Singles
    labels: Ints
    n_changed: int
    share: float
    trials: tuple[Trial, ...]


def repaired(
    features: Singles,
    labels: Ints,
    groups: Ints,
    *,
    fit: FitModel,
    finances: pd.DataFrame | Floats,
    is_financial: Bools,
    join: Floats | None = None,
    reference: int | None = None,
    shares: Sequence[float] = SHARES,
    max_auc_loss: float = 0.01,
    random_state: int = 0,
) -> Repaired:
    """Replace the inputs that set people apart from their matches, as many as folds of the rows suggest.

    Parameters
    ----------
    features, labels, groups
        Training rows of shape (n, d), labels 0 or 1, and group codes.
    fit
        Trains the model whose score is explained; called for every fold and share.
    finances
        What people are matched on, as `match_pairs` takes it.
    is_financial
        Which columns of `features` contain it, of shape (d,): they make people comparable, and stay.
    join
        1 where a column of `features` (row) comes from a column of the table (column), which is replaced as a whole;
        None if they are the same.
    reference
        Code of the group with which others are matched; None for the largest.
    shares
        Shares to try, ascending.
    max_auc_loss
        AUC that the repair may cost on rows held out. If the labels depend on the group, any repair that removes the
        group from the rows costs some.
    random_state
        Seed of the folds, and of sampled Shapley values.

    Raises
    ------
    InvalidInputError
        If there is only one group, no one is in the reference group, `shares` does not begin with 0 and ascend to at
        most 1, or a (label, group) cell has fewer people than there are folds.
    """
    if len(shares) == 0 or shares[0] != 0 or shares[-1] > 1 or any(np.diff(shares) <= 0):
        raise InvalidInputError(f"`shares` must begin with 0 and ascend to at most 1, got {list(shares)}.")
    names, codes, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    if len(names) < 2 or reference not in (None, *names):
        wanted = "" if reference is None else f", the reference group {reference} among them"
        raise InvalidInputError(
            f"The repair needs people of at least two groups{wanted}, got {len(groups)} training rows of the groups "
            f"{names.tolist()}; leave the repair out, or pass more people."
        )
    against = int(sizes.argmax() if reference is None else np.searchsorted(names, reference))
    columns = np.eye(features.shape[1]) if join is None else np.asarray(join, dtype=np.float64)
    people = _People(features, labels, codes, finances, np.asarray(is_financial, dtype=bool), columns)
    trials = _trials_on_folds(people, fit, against, shares, random_state)
    kept = [trial for trial in trials if trial.auc >= trials[0].auc - max_auc_loss]
    share = min(kept, key=lambda trial: trial.score_gap).share
    if share == 0:
        return Repaired(features, labels, 0, share, trials)
    [(rows, n_changed)] = people.repairs(fit, against, (share,), random_state)
    return Repaired(rows, labels, n_changed, share, trials)


@dataclass(frozen=True, eq=False)
class _People:
    """Rows, and the columns for matching them; `columns` is the join, never None."""

    features: Singles
    labels: Ints
    groups: Ints
    finances: pd.DataFrame | Floats
    is_financial: Bools
    columns: Floats

    def rows(self, chosen: Ints) -> _People:
        finances = self.finances.iloc[chosen] if isinstance(self.finances, pd.DataFrame) else self.finances[chosen]
        some = (self.features[chosen], self.labels[chosen], self.groups[chosen])
        return _People(*some, finances, self.is_financial, self.columns)

    def pairs(self) -> Pairs:
        return match_pairs(self.finances, self.labels, self.groups, missing="indicator")

    def repairs(
        self, fit: FitModel, reference: int, shares: Sequence[float], random_state: int
    ) -> list[tuple[Singles, int]]:
        """Rows with each share of their values replaced, and the number of these values."""
        match = matches_across(self.pairs(), reference)
        known = np.flatnonzero(match >= 0)
        theirs = self.features.copy()
        theirs[known] = self.features[match[known]]
        theirs[:, self.is_financial] = self.features[:, self.is_financial]
        model = as_audited_model(fit(self.features, self.labels))
        influence = np.abs(shapley_values(model, self.features, theirs, random_state) @ self.columns)
        return [replaced(self.features, theirs, influence, share, self.columns) for share in shares]


def matches_across(pairs: Pairs, reference: int) -> Ints:
    """Row of each person's match, -1 for none: in the reference group or, for its people, in any other group.

    Examples
    --------
    >>> pairs = match_pairs([[0.0], [1.0], [1.1], [5.0]], y=[1, 1, 1, 1], group=[0, 0, 1, 2])
    >>> matches_across(pairs, reference=0).tolist()
    [2, 2, 1, 1]
    """
    n = pairs.n_persons
    match, distance = pairs.match.reshape(n, -1), pairs.distance.reshape(n, -1)
    place = np.where(pairs.group == reference, distance.argmin(axis=1), reference - (reference > pairs.group))
    return match[np.arange(n), place]


def shapley_values(model: AuditedModel, x: Singles, against: Singles, random_state: int = 0) -> Floats:
    """Shapley values of the score of each row of `x` relative to the same row of `against`; both of shape (n, d).

    They are exact for linear and additive models and for trees, and from sampled orders of the inputs for others.

    Examples
    --------
    >>> from evenhand.models.dispatch import as_audited_model
    >>> from sklearn.linear_model import LogisticRegression
    >>> model = LogisticRegression().fit([[0.0, 0.0], [1.0, 0.0], [2.0, 1.0]], [0, 0, 1])
    >>> found = shapley_values(as_audited_model(model), np.array([[2.0, 1.0]]), np.array([[1.0, 1.0]]))
    >>> np.allclose(found, model.coef_ * [1, 0])
    True
    """
    asked = model
    if model.attribution not in _EXACT:
        asked = sampled_model(model, n_permutations=_ORDERS, random_state=random_state)
    rows, baseline = (placed(values.astype(asked.dtype, copy=False), asked.device) for values in (x, against))
    found: Floats = as_numpy(double(asked.attribute(rows, baseline, 1, "midpoint").values))
    return found


def replaced(
    features: Singles, theirs: Singles, influence: Floats, share: float, columns: Floats
) -> tuple[Singles, int]:
    """Rows with the most influential values replaced, and the number of these values.

    Parameters
    ----------
    features, theirs
        Rows of shape (n, d), and the rows that values are taken from.
    influence
        Of each column of the table in each row, of shape (n, p); values without influence stay.
    share
        Of the values with an influence, rounded to a whole number of them.
    columns
        1 where a column of `features` (row) comes from a column of the table (column), of shape (d, p).

    Examples
    --------
    >>> mine, theirs = np.zeros((2, 2)), np.ones((2, 2))
    >>> replaced(mine, theirs, np.array([[3.0, 1.0], [2.0, 0.0]]), 0.6, np.eye(2))[0].tolist()
    [[1.0, 0.0], [1.0, 0.0]]
    """
    ranked = np.argsort(-influence, axis=None, kind="stable")[: round(share * int((influence > 0).sum()))]
    is_chosen = np.zeros(influence.shape, dtype=bool)
    is_chosen.flat[ranked] = True
    return np.where(is_chosen @ columns.T > 0, theirs, features), len(ranked)


def _trials_on_folds(
    people: _People, fit: FitModel, reference: int, shares: Sequence[float], random_state: int
) -> tuple[Trial, ...]:
    """Metrics on held-out people of models trained on the repaired others, for each share."""
    metrics = np.zeros((_N_FOLDS, len(shares), 1 + int(people.groups.max())))  # AUC in the place of the reference's gap
    for number, (train, test) in enumerate(stratified_folds(people.labels, people.groups, _N_FOLDS, random_state)):
        learned, held_out = people.rows(train), people.rows(test)
        pairs = held_out.pairs()
        for place, (features, _) in enumerate(learned.repairs(fit, reference, shares, random_state)):
            model = as_audited_model(fit(features, learned.labels))
            metrics[number, place] = _score_gaps(model, held_out, pairs, reference)
            metrics[number, place, reference] = auc(
                held_out.labels, margins_of(model, held_out.features.astype(np.float64))
            )
    means = metrics.mean(axis=0)
    gaps = np.abs(np.delete(means, reference, axis=1)).max(axis=1)
    return tuple(
        Trial(float(share), float(mean[reference]), float(gap))
        for share, mean, gap in zip(shares, means, gaps, strict=True)
    )


def _score_gaps(model: AuditedModel, people: _People, pairs: Pairs, reference: int) -> Floats:
    """The score gap at equal finances of each group, and 0 for the reference group."""
    points, n = pairs.space.transform(people.finances), len(people.labels)
    keys = person_hash(np.arange(n))
    leaves = Leaves.of(points, people.labels, keys, n)
    leaf = leaves.leaf(points, people.labels)
    moved = np.where(people.is_financial, people.features[leaves.row[leaf]], people.features)
    in_leaves = LeafPeople.alike(leaf, people.groups, people.labels, leaves.scale.transform(points))
    controls, score = FinanceControls.of(in_leaves.finances), margins_of(model, moved.astype(np.float64))
    gaps = np.zeros(1 + int(people.groups.max()))
    for group in np.delete(np.arange(len(gaps)), reference).tolist():
        gaps[group] = (gap_coefficients(in_leaves, controls, group, reference, np.ones((1, n))) @ score)[0]
    return gaps


def reweighing(labels: ArrayLike, groups: ArrayLike, weights: ArrayLike | None = None) -> Floats:
    """Training weights that make label and group independent, and keep the size of each group and label.

    Parameters
    ----------
    labels, groups
        Of each person, any values that can be sorted, of shape (n,).
    weights
        Initial weights, which the result multiplies; shares are then shares of weight. None for 1 each.

    Returns
    -------
    Weights of shape (n,) that sum to what the given weights sum to.

    Raises
    ------
    InvalidInputError
        If lengths disagree, a weight is negative or not finite, or a group lacks a label, so that no weights make them
        independent.

    Examples
    --------
    >>> reweighing([1, 1, 1, 0, 1, 0, 0, 0], ["a", "a", "a", "a", "b", "b", "b", "b"]).round(3).tolist()
    [0.667, 0.667, 0.667, 2.0, 2.0, 0.667, 0.667, 0.667]
    """
    label_names, label = np.unique(np.asarray(labels), return_inverse=True)
    group_names, group = np.unique(np.asarray(groups), return_inverse=True)
    own = np.ones(len(label)) if weights is None else np.asarray(weights, dtype=np.float64)
    if not label.shape == group.shape == own.shape or own.ndim != 1 or not len(own):
        raise InvalidInputError(
            f"Reweighing needs a label, a group and a weight for each person, got {len(label)} labels, {len(group)} "
            f"groups and weights of shape {own.shape}; pass columns of one length."
        )
    if not (np.isfinite(own) & (own >= 0)).all():
        n_bad = int((~(np.isfinite(own) & (own >= 0))).sum())
        raise InvalidInputError(
            f"Weights must be finite and at least 0, got {n_bad} of {len(own)} that are not; leave those people out."
        )
    cells = np.bincount(group * len(label_names) + label, own, len(group_names) * len(label_names))
    observed = cells.reshape(len(group_names), len(label_names))
    if not (observed > 0).all():
        empty = [f"{group_names[g]} with label {label_names[y]}" for g, y in np.argwhere(observed <= 0)]
        raise InvalidInputError(
            "Reweighing needs people of every label in every group, but there is no one (with a weight) of "
            f"{', '.join(empty)}; merge groups, or leave reweighing out."
        )
    expected = observed.sum(1, keepdims=True) * observed.sum(0) / observed.sum()
    result: Floats = own * (expected / observed)[group, label]
    return result
