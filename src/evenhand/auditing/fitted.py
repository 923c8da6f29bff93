"""What is fitted once, on the people whom all others are matched with and explained from."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from evenhand.arrays import as_numpy, double, gpu_of, like, mixed_hash
from evenhand.auditing.options import AuditOptions, Favorable, SegmentThresholds, check_value
from evenhand.auditing.reasons import ReasonReference
from evenhand.auditing.scope import Scope
from evenhand.auditing.triples import EvidenceReference
from evenhand.exceptions import InvalidInputError, warn_caller
from evenhand.inputs.checking import MATCHED_ON_DECISION
from evenhand.inputs.identity import hash_rows
from evenhand.inputs.names import names_a_bad_outcome, names_a_decision
from evenhand.inputs.people import People
from evenhand.inputs.reason_maps import ReasonMap
from evenhand.inputs.validation import MISSING, category_text, is_number_column
from evenhand.matching.pairs import MatchReference
from evenhand.matching.placebos import N_NEAR, N_NEIGHBORS
from evenhand.matching.space import Missing
from evenhand.metrics.estimate import Estimate
from evenhand.metrics.outcomes import auc_interval
from evenhand.models.dispatch import FittedScale, as_audited_model, fitted_scales, notes_on_order, own_threshold
from evenhand.models.explaining import (
    MOST_SEGMENTS,
    Explainer,
    is_sampled,
    needed_permutations,
    needed_segments,
    with_permutations,
)
from evenhand.models.protocol import AuditedModel
from evenhand.models.wrapped import RiskModel

_SAME_THRESHOLD = 1e-9
_SHOWN = 6  # number of values without a cutoff that a message names
_ORDERS = 32  # number of orders of sampled Shapley values, until a trial shows how many are needed

# Candidates of each kind, and triples of a person with a group, by the number of people. More triples make the
# estimates more precise; with many people they mainly cost time and memory.
_REACH = {5_000: (64, 12), np.inf: (N_NEIGHBORS, N_NEAR)}


@dataclass(frozen=True, eq=False)
class Fitted:
    """Everything that is fitted once, on the people whom all others are matched with and explained from.

    Attributes
    ----------
    pool
        The people of the reference.
    explainer
        Their baselines.
    matcher
        Their standardized financial features, indexed for matching.
    evidence
        The same, indexed for placebo triples; None if no evidence is wanted.
    scope
        What can be found with the given inputs.
    reasons
        What the reasons of declined people are measured from.
    integration_error
        Error of attributions as a share of their size: see `models.segments`.
    """

    model: AuditedModel
    settings: AuditOptions
    pool: People
    explainer: Explainer
    matcher: MatchReference
    evidence: EvidenceReference | None
    scope: Scope
    reasons: ReasonReference
    integration_error: float | None = None

    @property
    def approval_threshold(self) -> float:
        """Probability of the favorable outcome from which the decision is favorable; NaN if segments differ."""
        return self.settings.approval_threshold

    @classmethod
    def of(
        cls, model: AuditedModel, settings: AuditOptions, pool: People, n_people: int, scope: Scope | None = None
    ) -> Fitted:
        """Fit standardization, neighbors and baselines on a pool, to audit `n_people`.

        The default `scope` is that of an audit with a model.
        """
        if (group := settings.reference_group) is not None and not pool.groups.counts.get(group):
            raise InvalidInputError(
                "`reference_group` (--reference-group) must be one of the groups "
                f"{', '.join(map(repr, pool.groups.names))}, got {group!r}."
            )
        financial = list(settings.financial_features)
        reason_map = ReasonMap.of(settings.reason_map, [str(column) for column in pool.table.columns])
        if settings.reason_map is not None:
            settings = replace(settings, reason_map=reason_map.to_dict())
        # A bare network rejects missing values anyway; a model with an encoder can represent them.
        missing: Missing = "indicator" if model.accepts_missing else "error"
        names = np.asarray(pool.groups.names)[pool.groups.codes]
        explainer = Explainer.of(
            model,
            pool.x,
            pool.labels,
            pool.groups.codes,
            settings.n_steps or MOST_SEGMENTS,
            settings.method,
            sample_weight=pool.sample_weight,
        )
        order = np.argsort(pool.identity.content, kind="stable")  # whoever is tried, the order of rows plays no part
        tried = pool.x[like(order, pool.x)], pool.cells[order]
        segments = needed_segments(explainer, *tried, settings.n_steps)
        explainer, settings = replace(explainer, n_steps=segments.n), replace(settings, n_steps=segments.n)
        if is_sampled(explainer) and settings.n_permutations is None:
            n_orders = needed_permutations(explainer, *tried, settings.sampling_error)
            explainer, settings = with_permutations(explainer, n_orders), replace(settings, n_permutations=n_orders)
        F = model.financial_table(pool.table, financial)
        keys = pool.identity.content if settings.ties == "content" else None
        matcher = MatchReference.of(F, pool.labels, names, missing=missing, device=gpu_of(pool.x), keys=keys)
        is_financial = model.is_financial(list(pool.table.columns), financial)
        return cls(
            model=explainer.model,
            settings=settings,
            pool=pool,
            explainer=explainer,
            matcher=matcher,
            evidence=EvidenceReference.of(
                pool,
                explainer,
                matcher.points,
                is_financial,
                settings.random_state,
                n_people,
                **_reach(model, max(n_people, len(pool))),
            )
            if settings.evidence
            else None,
            scope=scope or _scope_of_model(settings, pool),
            reasons=ReasonReference.of(reason_map, settings, explainer, pool),
            integration_error=segments.error,
        )


def _reach(model: AuditedModel, n_people: float) -> dict[str, int]:
    """Candidates and triples of each person; the fewest if every explanation is sampled anew."""
    n_people = np.inf if model.attribution == "sampled_shapley" else n_people
    n_neighbors, n_triples = next(reach for most, reach in _REACH.items() if n_people <= most)
    return {"n_neighbors": n_neighbors, "n_triples": n_triples}


def _scope_of_model(settings: AuditOptions, pool: People) -> Scope:
    """What can be found with a model: everything, unless its score is a value or there are no labels."""
    has_decisions = settings.unit is None or pool.decisions is not None
    return Scope(decisions=has_decisions, labels=pool.has_labels, unit=settings.unit)


def audited_model(model: Any, options: AuditOptions, table: pd.DataFrame) -> AuditedModel:
    """The model in the form the audit needs, explained according to the options; `table` holds people to be scored."""
    check_value(options)
    audited = as_audited_model(
        model,
        attribution=options.attribution,
        output=options.output if options.unit is None else "value",
        n_permutations=options.n_permutations or _ORDERS,
        random_state=options.random_state,
        table=table,
    )
    return RiskModel(audited) if options.favorable == "low" else audited


def settled_options(
    model: Any,
    audited: AuditedModel,
    options: AuditOptions,
    financial_features: Sequence[str],
) -> tuple[AuditOptions, tuple[str, ...]]:
    """Fill in unset options from the model; return them with what a reader must know about it."""
    threshold, notes = _settled_threshold(model, audited, options)
    settled = replace(
        options,
        financial_features=tuple(financial_features),
        attribution=audited.attribution,
        favorable=options.favorable or "high",
        decision_threshold=threshold,
    )
    return settled, notes


def _settled_threshold(
    model: Any,
    audited: AuditedModel,
    options: AuditOptions,
) -> tuple[float | SegmentThresholds | None, tuple[str, ...]]:
    """The user's threshold, or else the model's, or else 0.5; and what a reader must know about it.

    If the user's threshold differs from the model's, this also raises a Python warning. A value has no threshold.
    """
    if options.unit is not None:
        return None, ()
    own, given = own_threshold(model, audited), options.decision_threshold
    if own is None:
        return 0.5 if given is None else given, ()
    decides = f"the {type(model).__name__} decides at a probability of {own:.6g}"
    if given is None:
        return own, (f"Decisions use the model's threshold: {decides}.",)
    if not isinstance(given, SegmentThresholds) and abs(own - given) <= _SAME_THRESHOLD:
        return given, ()
    is_by = f"depends on {given.column!r}" if isinstance(given, SegmentThresholds) else f"is {given:g}"
    message = (
        f"`decision_threshold` (--decision-threshold) {is_by}, but {decides}: the audit covers decisions that the "
        "model does not make. Leave the option out to audit the model's decisions."
    )
    warn_caller(message)
    return given, (message,)


def as_seen_by(
    model: AuditedModel,
    people: People,
    options: AuditOptions,
    *,
    pool: People | None = None,
    prefix: str = "",
    where: str = "`X`",
) -> People:
    """Checked people as the model sees them: their inputs, favorable labels, cutoffs, and the codes of their groups.

    Parameters
    ----------
    model, people, options
        The people are checked; the model is that of the audit.
    pool
        The people they are matched in, whose group codes and unit of weights they get; None if these are the pool.
    prefix, where
        What comes before `X` in messages, and the name of the table.

    Raises
    ------
    InvalidInputError, InvalidTypeError
        If the model cannot be applied to them, or a group is not in the pool.
    """
    table = model.aligned(people.table, f"{prefix}X")
    people = replace(
        people,
        table=table,
        x=model.encode(table, f"{prefix}X"),
        labels=model.favorable_labels(people.labels) if people.has_labels else people.labels,
        known_by=model.identifying(table),
    )
    if people.given_probabilities is not None:
        probable = people.given_probabilities.of_people(_drawn_by(people))
        people = replace(people, groups=probable.drawn(0, 0), probabilities=probable)
    if pool is not None:
        if list(table.columns) != list(pool.table.columns):
            missing = [c for c in table.columns if c not in pool.table.columns]
            extra = [c for c in pool.table.columns if c not in table.columns]
            raise InvalidInputError(
                "The reference must have the columns of `X`, in the same order: "
                + (f"missing {missing}, unexpected {extra}." if missing or extra else "the order differs.")
            )
        unknown = [name for name in people.groups.names if name not in pool.groups.names]
        if unknown:
            raise InvalidInputError(
                f"The reference has no one of the groups {unknown}, only of {list(pool.groups.names)}; people are "
                "compared with, and explained from, the people of the reference."
            )
        people = replace(people, groups=people.groups.recoded(pool.groups.names))
    return _with_cut_offs(people, options, where)


def unit_of_weight(people: People) -> float:
    """The largest weight, used as the unit of weights, so that equal weights are exactly 1."""
    return 1.0 if people.sample_weight is None else float(people.sample_weight.max())


def in_units(people: People, unit: float) -> People:
    """The same people with their weights in a different unit."""
    if people.sample_weight is None:
        return people
    return replace(people, sample_weight=people.sample_weight / unit)


def _drawn_by(people: People) -> NDArray[np.uint64]:
    """Who each row is: given by the clusters, by the ids, or else by all that is known, whatever the row order.

    Identical rows are numbered, so that each is drawn separately.
    """
    if people.ids is not None:
        keys = hash_rows(pd.DataFrame({"id": people.ids}))
    else:
        assert people.given_probabilities is not None
        content = hash_rows(people.table) + hash_rows(people.given_probabilities.probabilities)
        content = mixed_hash(content, people.labels)
        keys = mixed_hash(content, pd.Series(content).groupby(content).cumcount().to_numpy().astype(np.int64))
    return keys if people.clusters is None else np.where(people.clusters == 0, keys, people.clusters)


def check_finances_apart(people: People, financial_features: Sequence[str]) -> None:
    """Reject a financial feature that is the group or a part of it: people of different groups would never be alike.

    Raises
    ------
    InvalidInputError
        If everyone in a group has the same value of a feature, and groups differ in it.
    """
    for name in financial_features:
        codes, values = pd.factorize(people.table[name])
        if not 1 < len(values) <= len(people.groups.names):
            continue
        pairs = np.unique(np.stack([people.groups.codes, codes]), axis=1).shape[1]
        if pairs == len(np.unique(people.groups.codes)):
            raise InvalidInputError(
                f"The financial feature {name!r} is the group: everyone in a group has the same value, so people "
                "of different groups are never comparable. Remove it from `financial_features`."
            )


def _with_cut_offs(people: People, options: AuditOptions, where: str) -> People:
    """Give people the cutoffs of their segments; unchanged if there is one threshold for all.

    Raises
    ------
    InvalidInputError
        If there is no such column in `where`, one of its values has no cutoff, or decisions were given as well.
    """
    segments = options.decision_threshold
    if not isinstance(segments, SegmentThresholds):
        return people
    if people.decisions is not None:
        raise InvalidInputError(
            "`decisions` (--decision) and cutoffs by segment in `decision_threshold` both say who is approved; use "
            "only one of them."
        )
    codes, values = pd.factorize(_segments(people, segments.column, where))
    unknown = [k for k, value in enumerate(values) if value not in segments.cut_offs]
    if unknown:
        counts = np.bincount(codes)
        raise InvalidInputError(
            f"`decision_threshold` has no cutoff for {len(unknown)} of {len(values)} values of {segments.column!r} in "
            f"{where}: {', '.join(f'{str(values[k])!r} ({counts[k]:,} people)' for k in unknown[:_SHOWN])}"
            f"{', ...' if len(unknown) > _SHOWN else ''}; it has cutoffs for "
            f"{', '.join(map(repr, segments.cut_offs))}. Add the missing ones."
        )
    cut_offs = np.array([segments.cut_offs[value] for value in values])[codes]
    return replace(people, cut_offs=1 - cut_offs if options.favorable == "low" else cut_offs)


def _segments(people: People, column: str, where: str) -> NDArray[np.str_] | pd.Series[str]:
    """The value of each person in the column of the cutoffs, as text."""
    if column in people.by:
        return people.by[column]
    if column in people.table.columns:
        return people.table[column].astype(object).map(category_text, na_action="ignore").fillna(MISSING)
    raise InvalidInputError(
        f"The column {column!r} of `decision_threshold` is neither an input of the model nor a column of `by` (--by) "
        f"in {where}; add it to `by`."
    )


_ASKED = 20_000  # people who are scored to see which end of the score is good
_FEW = 10  # people with each label, whom a score may rank in the wrong order by chance

Score = TypeVar("Score", float, NDArray[np.float64])


def own_score(score: Score, favorable: Favorable, unit: str | None = None) -> Score:
    """Convert the score of the favorable outcome to the model's score, or back.

    Without a unit it is a probability.

    Examples
    --------
    >>> own_score(0.75, "low"), own_score(0.75, "high"), own_score(-6.5, "low", "percent")
    (0.25, 0.75, 6.5)
    """
    if favorable == "high":
        return score
    return 1 - score if unit is None else -score


def notes_on_label(name: object, favorable: str | None) -> tuple[str, ...]:
    """Notes on a label named like a decision, or like a bad outcome, unless the user said which value or score is good.

    Examples
    --------
    >>> notes_on_label("repaid", None), notes_on_label("default", "low")
    ((), ())
    >>> notes_on_label("default", None)[0][:72]
    "The label is called 'default', and 1 counts as the favorable outcome: if"
    >>> notes_on_label("approved", None)[0][:58]
    "The label 'approved' is, by its name, the lender's decisio"
    """
    if not isinstance(name, str):
        return ()
    notes = (f"The label {name!r} {MATCHED_ON_DECISION}",) if names_a_decision(name) else ()
    if favorable is not None or not names_a_bad_outcome(name):
        return notes
    return (
        f"The label is called {name!r}, and 1 counts as the favorable outcome: if 1 is the bad one, pass "
        '`favorable="low"` (--favorable low), or decisions, regimes and reasons will be reversed.',
        *notes,
    )


def is_wrong_way_round(area: Estimate, n_fewest: int) -> bool:
    """Whether an area under the ROC curve is below one half by more than chance, given the size of the rarer label.

    Examples
    --------
    >>> is_wrong_way_round(Estimate(0.35, 0.33, 0.37), 100), is_wrong_way_round(Estimate(0.45, 0.3, 0.6), 20)
    (True, False)
    """
    return area.high < 0.5 if math.isfinite(area.high) else area.value == 0 and n_fewest >= _FEW


def check_direction(model: AuditedModel, people: People) -> None:
    """Reject a score that ranks people against their labels, if they have any.

    Raises
    ------
    InvalidInputError
        If the area under the ROC curve is below one half by more than chance.
    """
    if not people.has_labels:
        return
    rows = np.linspace(0, len(people) - 1, min(len(people), _ASKED)).astype(np.int64)
    score = as_numpy(double(model.margin(people.x[like(rows, people.x)])))
    labels = people.labels[rows]
    if not np.isfinite(score).all():
        return  # rejected when people are explained
    area = auc_interval(labels, score)
    if is_wrong_way_round(area, int(np.bincount(labels, minlength=2).min())):
        interval = f" (95% interval {area.low:.3f} to {area.high:.3f})" if math.isfinite(area.high) else ""
        raise InvalidInputError(
            f"The model ranks people against `y`, with an AUC of {area.value:.3f}{interval}; high scores and 1 "
            'in `y` should both be favorable: for a score that is a risk, pass `favorable="low"` (--favorable low) and '
            "`y` as the model was fitted, 1 for the bad outcome, or name the good one with --positive-label; if only "
            '`y` is reversed, flip it; if the model really is this bad, pass `favorable="high"` '
            "(--favorable high)."
        )


_FACTORS = (1000.0, 100.0, 0.01, 0.001)
_ABOUT = 0.4  # orders of magnitude from a factor
_NEAR = 2.0  # standard deviations from the center, after dividing by the factor
_FEWEST = 20  # people


def unit_factor(values: pd.Series[Any], fitted: FittedScale) -> float | None:
    """The ratio of values to those that a scale was fitted on, if it is a change of unit; else None.

    Examples
    --------
    >>> shares = FittedScale(center=0.4, spread=0.2)
    >>> unit_factor(pd.Series(range(100)), shares), unit_factor(pd.Series(range(100)) / 100, shares)
    (100.0, None)
    """
    numbers = _finite(values)
    if len(numbers) < _FEWEST or fitted.spread <= 0 or numbers.min() == numbers.max():
        return None
    center, ratio = float(numbers.mean()), float(numbers.std()) / fitted.spread
    for factor in _FACTORS:
        if abs(math.log10(ratio / factor)) < _ABOUT and abs(center / factor - fitted.center) < _NEAR * fitted.spread:
            return factor
    return None


def notes_on_scales(
    model: Any, audited: AuditedModel, table: pd.DataFrame, reference: pd.DataFrame | None = None
) -> tuple[str, ...]:
    """A sentence, and a Python warning, on an order of the inputs that nothing settles, and on units that differ.

    Parameters
    ----------
    model, audited
        The user's model, and the same model in the form of the audit.
    table
        People of the audit.
    reference
        The people they are matched in, if these are different people.
    """
    numbers = [str(name) for name in table.columns if is_number_column(table[name])]
    fitted = fitted_scales(model, audited, [str(name) for name in table.columns])
    notes = (*notes_on_order(model, audited, table), *_notes(table, numbers, fitted, "the model was fitted on"))
    if not notes and reference is not None and reference is not table:
        known = {name: _finite(reference[name]) for name in numbers if is_number_column(reference[name])}
        scales = {name: FittedScale(float(v.mean()), float(v.std())) for name, v in known.items() if len(v)}
        notes = _notes(table, list(scales), scales, "the reference has")
    for note in notes:
        warn_caller(note)
    return notes


def _finite(values: pd.Series[Any]) -> NDArray[np.float64]:
    numbers: NDArray[np.float64] = values.to_numpy(dtype=np.float64, na_value=np.nan)
    return numbers[np.isfinite(numbers)]


def _notes(table: pd.DataFrame, names: list[str], fitted: Mapping[str, FittedScale], where: str) -> tuple[str, ...]:
    notes = []
    for name in names:
        factor = None if name not in fitted else unit_factor(table[name], fitted[name])
        if factor is not None:
            times, what = (factor, "large") if factor > 1 else (1 / factor, "small")
            notes.append(
                f"The input {name!r} is about {times:.0f} times as {what} as what {where} (mean "
                f"{float(table[name].mean()):.3g} here, about {fitted[name].center:.3g} there): if it is in a "
                f"different unit, such as percent, {'divide' if factor > 1 else 'multiply'} it by {times:.0f}."
            )
    return tuple(notes)
