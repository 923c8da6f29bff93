"""The audit, end to end: people and a model in, pairs, attributions, scores and regimes out."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from evenhand.attribution import Explanation
from evenhand.attribution.gradients import Method
from evenhand.disparity import (
    approval_disparity,
    approval_disparity_by_cutoff,
    error_rates,
    outcome_gaps,
    score_disparity,
    segmented_approvals,
)
from evenhand.evidence import Evidence, gather_evidence
from evenhand.exceptions import EvenhandWarning, InvalidInputError
from evenhand.explaining import Explainer, People
from evenhand.matching import MatchDiagnostics, Pairs, match_diagnostics, match_pairs
from evenhand.matching.space import Missing
from evenhand.models import AuditedModel, as_audited_model
from evenhand.outcome_metrics import Figure, group_outcomes, outcome_figures
from evenhand.proxies import ProxyScreen, proxy_screen
from evenhand.regimes import assign_regimes
from evenhand.result import AuditResult, Outcome, Provenance
from evenhand.scoring import reason_overlap, score_contributions
from evenhand.validation import as_groups, as_labels, as_table, check_columns, check_fraction

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["AuditSettings", "audit", "sensitivity"]

_PAIR_BLOCK = 16_384  # pairs scored at once: bounds memory whatever the number of people
_PAIR_FIGURES = ("cec", "input_gap", "reasoning_gap", "match_score", "shared_reasons")
_SMALL_GROUP = 30
_PROXY_PEOPLE = 5_000  # the screen for proxies is a screen: a sample will do
_PROXY_FOLDS, _PROXY_TREES = 3, 25
_LOW_COVERAGE = 0.9
_LARGE_GAP = 0.05  # completeness gap, as a share of the logit's distance from the baseline's
_PROTECTED_WORDS = frozenset(
    {"age", "sex", "gender", "race", "ethnicity", "religion", "marital", "nationality", "national", "colour", "color"}
)


@dataclass(frozen=True)
class AuditSettings:
    """Every choice that moves a figure of the audit."""

    financial_features: tuple[str, ...]
    decision_threshold: float
    consistency_threshold: float
    max_distance: float | None
    n_steps: int
    method: Method
    random_state: int


@dataclass(frozen=True)
class _ScoredPairs:
    """Figures of every pair, NaN where it could not be scored."""

    cec: NDArray[np.float64]
    input_gap: NDArray[np.float64]
    reasoning_gap: NDArray[np.float64]
    is_negligible: NDArray[np.bool_]
    contributions: NDArray[np.float32]
    match_score: NDArray[np.float64]
    match_attributions: NDArray[np.float32]
    shared_reasons: NDArray[np.float64]

    @property
    def is_scored(self) -> NDArray[np.bool_]:
        return ~np.isnan(self.cec)


def audit(
    model: Any,  # noqa: ANN401 - any model that `as_audited_model` takes
    X: Any,  # noqa: ANN401 - any table
    y: Any,  # noqa: ANN401 - any column
    *,
    sensitive_features: Any,  # noqa: ANN401 - any column or table
    financial_features: Sequence[str],
    reference: tuple[Any, Any, Any] | None = None,
    decision_threshold: float = 0.5,
    consistency_threshold: float = 0.3,
    max_distance: float | None = None,
    random_state: int = 0,
    n_steps: int = 8,
    method: Method = "segments",
    by: Any = None,  # noqa: ANN401 - any column or table
    evidence: bool = True,
) -> AuditResult:
    """Audit how a model reasons about comparable people of different groups.

    Each person is matched with the nearest person of every other group who has the same label, by the standardised
    financial features; both are explained by integrated gradients from the person's own (label, group) mean; the
    distance between the two explanations is the CEC score.

    Parameters
    ----------
    model
        A torch module mapping (n, d) to one logit per row, fed `X` as it is; or a fitted `CECClassifier`.
    X
        People to audit: a pandas, polars or pyarrow table, or an array (columns are then named x0, x1, ...).
    y
        True labels, 1 for the favourable outcome.
    sensitive_features
        The protected attribute of each person. Several columns: their intersection.
    financial_features
        Columns of `X` on which people are comparable.
    reference
        `(X, y, sensitive_features)` of the people to match in and to take baselines from, usually the training data;
        by default the audited people themselves.
    decision_threshold
        Probability from which the decision is favourable.
    consistency_threshold
        CEC score above which the reasoning counts as different.
    max_distance
        Matches farther than this, in standard deviations of the financial features, are left out; None for no limit.
    random_state
        Seed of everything drawn at random.
    n_steps, method
        How attributions are integrated: see `integrated_gradients`.
    by
        Further columns of the audited people within whose values the excess is wanted, such as product or state.
    evidence
        Whether to compare with placebo pairs and to screen for proxies. Without, the audit takes less than half the
        time and says nothing of noise.

    Returns
    -------
    AuditResult

    Raises
    ------
    InvalidInputError, InvalidTypeError
        If the input cannot be audited; the message says what was expected, what came and what to do.

    Examples
    --------
    >>> import evenhand as eh, torch
    >>> data = eh.load_dataset("synthetic", n=500)
    >>> _ = torch.manual_seed(0)
    >>> model = torch.nn.Linear(data.X.shape[1], 1)
    >>> result = eh.audit(model, data.X, data.y, sensitive_features=data.group,
    ...                   financial_features=data.financial_features)
    >>> bool(result.to_dict()["cec"]["reasoning_gap"] < 1e-6)  # a linear model reasons alike about everyone
    True
    """
    audited = as_audited_model(model)
    table = as_table(X)
    financial = check_columns(financial_features, list(table.columns), "financial_features")
    settings = AuditSettings(
        financial_features=tuple(financial),
        decision_threshold=check_fraction(decision_threshold, "decision_threshold"),
        consistency_threshold=check_fraction(consistency_threshold, "consistency_threshold"),
        max_distance=max_distance,
        n_steps=n_steps,
        method=method,
        random_state=random_state,
    )
    people, pool = _checked_people(audited, table, y, sensitive_features, reference)
    columns = _by_columns(by, len(people))
    F, F_pool = _financial_tables(audited, people, pool, financial)
    pairs, diagnostics = _matched(audited, people, pool, F, F_pool, settings.max_distance)
    explainer = Explainer.of(audited, pool, n_steps, method)
    own = explainer.explain(people.x, people.cells)
    scored = _scored(explainer, own, people, pool, pairs)
    found = screen = None
    if evidence:
        points = pairs.space.transform(F)
        found = gather_evidence(
            explainer,
            own,
            people,
            pool,
            points,
            points if pool is people else pairs.space.transform(F_pool),
            audited.is_financial(list(table.columns), financial),
            decision_threshold=settings.decision_threshold,
            consistency_threshold=settings.consistency_threshold,
            max_distance=max_distance,
            random_state=random_state,
            by=columns,
        )
        screen = _screened(people, random_state)
    return _assembled(explainer, own, people, pool, pairs, diagnostics, scored, found, screen, columns, settings)


def sensitivity(
    model: Any,  # noqa: ANN401
    X: Any,  # noqa: ANN401
    y: Any,  # noqa: ANN401
    *,
    financial_features: Sequence[str],
    **settings: Any,  # noqa: ANN401 - passed on to `audit`
) -> pd.DataFrame:
    """How the figures move when each financial feature is left out of the matching.

    Parameters
    ----------
    model, X, y, financial_features, **settings
        As in `audit`; one audit is made for each of at least two financial features, and one with all.

    Returns
    -------
    Table with columns left_out ("none" first), cec, excess, ci_low, ci_high, p_value, regime_b, regime_b_excess,
    median_distance.

    Examples
    --------
    >>> import evenhand as eh
    >>> planted = eh.make_planted_bias(300, strength=1.0)
    >>> data = planted.dataset
    >>> table = sensitivity(planted.model, data.X, data.y, sensitive_features=data.group,
    ...                     financial_features=["income", "credit_score"])
    >>> table["left_out"].tolist()
    ['none', 'income', 'credit_score']
    """
    import pandas as pd

    features = check_columns(financial_features, list(as_table(X).columns), "financial_features")
    if len(features) < 2:
        raise InvalidInputError(f"At least two financial features are needed to leave one out, got {features}.")

    def row(left_out: str) -> dict[str, Any]:
        kept = [feature for feature in features if feature != left_out]
        result = audit(model, X, y, financial_features=kept, **settings)
        figures = result.to_dict()
        low, high = figures["cec"].get("excess_ci", (np.nan, np.nan))
        return {
            "left_out": left_out,
            "cec": figures["cec"]["mean"],
            "excess": figures["cec"].get("excess", np.nan),
            "ci_low": low,
            "ci_high": high,
            "p_value": figures["cec"].get("p_value", np.nan),
            "regime_b": figures["regimes"]["B"],
            "regime_b_excess": figures["cec"].get("regime_b_excess", np.nan),
            "median_distance": result.matching.distance_quantiles[0.5],
        }

    return pd.DataFrame([row(left_out) for left_out in ("none", *features)])


def _checked_people(
    model: AuditedModel,
    table: pd.DataFrame,
    y: Any,  # noqa: ANN401
    sensitive_features: Any,  # noqa: ANN401
    reference: tuple[Any, Any, Any] | None,
) -> tuple[People, People]:
    """The audited people and the pool they are matched in, with one coding of the groups."""
    labels, groups = as_labels(y, len(table)), as_groups(sensitive_features, len(table))
    if reference is None:
        people = People(table, model.encode(table), labels, groups)
        return people, people
    if not isinstance(reference, (tuple, list)) or len(reference) != 3:
        raise InvalidInputError("`reference` must be (X, y, sensitive_features) of the people to match in.")
    pool_table = as_table(reference[0], "reference X")
    if list(pool_table.columns) != list(table.columns):
        missing = [c for c in table.columns if c not in pool_table.columns]
        extra = [c for c in pool_table.columns if c not in table.columns]
        raise InvalidInputError(
            "The reference's columns must be those of `X`, in the same order: "
            + (f"missing {missing}, unexpected {extra}." if missing or extra else "the order differs.")
        )
    pool_labels = as_labels(reference[1], len(pool_table), "reference y")
    pool_groups = as_groups(reference[2], len(pool_table), "reference sensitive_features")
    unknown = [name for name in groups.names if name not in pool_groups.names]
    if unknown:
        raise InvalidInputError(
            f"No one of the groups {unknown} is in the reference, which has {list(pool_groups.names)}; "
            "people are compared with, and explained from, the people of the reference."
        )
    people = People(table, model.encode(table), labels, groups.recoded(pool_groups.names))
    return people, People(pool_table, model.encode(pool_table, "reference X"), pool_labels, pool_groups)


def _by_columns(by: Any, n: int) -> dict[str, NDArray[np.str_]]:  # noqa: ANN401
    """User columns as text, one value per audited person; a missing value is a value of its own."""
    if by is None:
        return {}
    if isinstance(by, Mapping):
        import pandas as pd

        by = pd.DataFrame({str(name): list(values) for name, values in by.items()})
    is_column = getattr(by, "ndim", 2) == 1 or isinstance(by, list)
    table = as_table(np.asarray(by, dtype=object)[:, None] if is_column else by, "by")
    if len(table) != n:
        raise InvalidInputError(f"`by` has {len(table)} values for {n} rows.")
    names = [str(getattr(by, "name", None) or "by")] if is_column else list(table.columns)
    return {
        name: table.iloc[:, k].astype(object).where(table.iloc[:, k].notna(), "(missing)").map(str).to_numpy(dtype=str)
        for k, name in enumerate(names)
    }


def _financial_tables(
    model: AuditedModel, people: People, pool: People, financial: list[str]
) -> tuple[pd.DataFrame, pd.DataFrame | None]:
    own = model.financial_table(people.table, financial)
    return own, None if pool is people else model.financial_table(pool.table, financial)


def _matched(
    model: AuditedModel,
    people: People,
    pool: People,
    F: pd.DataFrame,
    F_pool: pd.DataFrame | None,
    max_distance: float | None,
) -> tuple[Pairs, MatchDiagnostics]:
    names = np.asarray(people.groups.names)
    reference = None if F_pool is None else (F_pool, pool.labels, names[pool.groups.codes])
    # A bare network refuses missing values anyway; a model with an encoder of its own has a place for them.
    missing: Missing = "indicator" if model.accepts_missing else "error"
    pairs = match_pairs(F, people.labels, names[people.groups.codes], reference, max_distance, missing=missing)
    return pairs, match_diagnostics(pairs, F, F_pool)


def _scored(explainer: Explainer, own: Explanation, people: People, pool: People, pairs: Pairs) -> _ScoredPairs:
    """Scores of every pair whose person has a baseline and a match."""
    usable = np.flatnonzero((pairs.match >= 0) & explainer.has_baseline(people)[pairs.person])
    other = explainer.see(pool, pairs.match[usable], people.cells[pairs.person[usable]])
    join = explainer.model.join_matrix()
    join = None if join is None else join.double()
    shape = (len(pairs.person), len(people.table.columns))
    scored = _ScoredPairs(
        **{name: np.full(shape[0], np.nan) for name in _PAIR_FIGURES},
        is_negligible=np.zeros(shape[0], dtype=bool),
        contributions=np.zeros(shape, dtype=np.float32),
        match_attributions=np.full(shape, np.nan, dtype=np.float32),
    )
    scored.match_score[usable] = explainer.model.probability(other.logit).cpu().numpy()
    for start in range(0, len(usable), _PAIR_BLOCK):
        block = usable[start : start + _PAIR_BLOCK]
        first = torch.as_tensor(pairs.person[block], device=people.x.device)
        me, them = own.rows(first), other[slice(start, start + _PAIR_BLOCK)]
        part = score_contributions(me.values, them.values, me.with_inputs_of(them), them.with_inputs_of(me), join)
        for field in fields(part):
            getattr(scored, field.name)[block] = getattr(part, field.name).cpu().numpy()
        scored.match_attributions[block] = (them.values if join is None else them.values @ join).cpu().numpy()
        scored.shared_reasons[block] = reason_overlap(me.values, them.values, join).cpu().numpy()
    return scored


def _assembled(
    explainer: Explainer,
    own: Explanation,
    people: People,
    pool: People,
    pairs: Pairs,
    diagnostics: MatchDiagnostics,
    scored: _ScoredPairs,
    evidence: Evidence | None,
    screen: ProxyScreen | None,
    by: Mapping[str, NDArray[np.str_]],
    settings: AuditSettings,
) -> AuditResult:
    """Tables and figures of a finished audit."""
    score = explainer.model.probability(own.logit).cpu().numpy()
    decision = (score >= settings.decision_threshold).astype(np.int64)
    outcome = _outcome(people, score, decision, by, settings.random_state)
    provenance = Provenance(
        model=explainer.model.kind,
        n_people=len(people),
        n_reference=None if pool is people else len(pool),
        n_features=len(people.table.columns),
        groups=people.groups.counts,
        group_columns=_columns_that_tell_the_group(people),
        attribution_method=own.method,
        completeness_gap=_relative_gap(own),
        n_without_baseline=int((~explainer.has_baseline(people)).sum()),
    )
    attributions = _joined_attributions(explainer.model, own)
    reservations = _reservations(provenance, settings, diagnostics, scored, outcome.figures, evidence)
    return AuditResult(
        pairs=_pair_table(people, pairs, scored, score, decision, evidence, settings),
        features=_feature_table(attributions, people, scored, evidence),
        outcome=outcome,
        matching=diagnostics,
        evidence=evidence,
        proxies=screen,
        settings=asdict(settings),
        provenance=provenance,
        warnings=tuple(reservations),
        table=people.table,
        reference_table=pool.table,
        attributions=attributions,
        match_attributions=scored.match_attributions,
    )


def _outcome(
    people: People,
    score: NDArray[np.float64],
    decision: NDArray[np.int64],
    by: Mapping[str, NDArray[np.str_]],
    random_state: int,
) -> Outcome:
    labels, codes, names = people.labels, people.groups.codes, people.groups.names
    outcomes = group_outcomes(labels, decision, score, codes, names)
    return Outcome(
        figures=outcome_figures(labels, decision, score, outcomes),
        groups=tuple(outcomes),
        gaps=outcome_gaps(labels, decision, codes, names=names, random_state=random_state),
        approvals=approval_disparity(decision, codes, names=names),
        scores=tuple(score_disparity(score, codes, names=names)),
        error_rates=tuple(error_rates(labels, decision, score, codes, names=names)),
        cutoffs=tuple(approval_disparity_by_cutoff(score, codes, names=names)),
        segments={
            column: tuple(segmented_approvals(decision, codes, values, names=names)) for column, values in by.items()
        },
    )


def _screened(people: People, random_state: int) -> ProxyScreen | None:
    """Screen for proxies; None where fewer than two groups have people enough to hold some out."""
    if sum(count >= 2 * _PROXY_FOLDS for count in people.groups.counts.values()) < 2:
        return None
    return proxy_screen(
        people.table,
        people.groups.codes,
        names=people.groups.names,
        n_folds=_PROXY_FOLDS,
        n_trees=_PROXY_TREES,
        max_people=_PROXY_PEOPLE,
        random_state=random_state,
    )


def _joined_attributions(model: AuditedModel, own: Explanation) -> NDArray[np.float32]:
    join = model.join_matrix()
    joined: NDArray[np.float32] = (own.values if join is None else own.values @ join).float().cpu().numpy()
    return joined


def _pair_table(
    people: People,
    pairs: Pairs,
    scored: _ScoredPairs,
    score: NDArray[np.float64],
    decision: NDArray[np.int64],
    evidence: Evidence | None,
    settings: AuditSettings,
) -> pd.DataFrame:
    import pandas as pd

    cell = (pairs.person, pairs.other_group)

    match_decision = scored.match_score >= settings.decision_threshold
    done = scored.is_scored
    regime = np.full(len(done), None, dtype=object)
    regime[done] = assign_regimes(
        decision[pairs.person[done]],
        match_decision[done].astype(np.int64),
        scored.cec[done],
        settings.consistency_threshold,
    )
    names = np.asarray(people.groups.names, dtype=object)
    return pd.DataFrame(
        {
            "person": pairs.person,
            "match": pairs.match,
            "distance": pairs.distance,
            "group": names[people.groups.codes[pairs.person]],
            "other_group": names[pairs.other_group],
            "label": people.labels[pairs.person],
            "score": score[pairs.person],
            "match_score": scored.match_score,
            "decision": decision[pairs.person],
            "match_decision": pd.Series(match_decision.astype(np.int64), dtype="Int64").mask(~done),
            "cec": scored.cec,
            "placebo_cec": np.nan if evidence is None else evidence.placebo_cec[cell],
            "input_gap": scored.input_gap,
            "reasoning_gap": scored.reasoning_gap,
            "regime": regime,
            "shared_reasons": scored.shared_reasons,
            "q_value": np.nan if evidence is None else evidence.q_value[cell],
            "is_negligible": scored.is_negligible,
        }
    )


def _feature_table(
    attributions: NDArray[np.float32], people: People, scored: _ScoredPairs, evidence: Evidence | None
) -> pd.DataFrame:
    """Each feature's mean part of the CEC score, its share, its part of the excess, its mean attribution by group."""
    import pandas as pd

    n_features = len(people.table.columns)
    n_scored = int(scored.is_scored.sum())
    contribution = (
        scored.contributions.sum(axis=0, dtype=np.float64) / n_scored if n_scored else np.full(n_features, np.nan)
    )
    columns: dict[str, Any] = {
        "feature": list(people.table.columns),
        "contribution": contribution,
        "share": contribution / contribution.sum() if contribution.sum() > 0 else np.nan,
    }
    if evidence is not None:
        estimates = [feature.estimate for feature in evidence.features]
        columns |= {
            "excess": [e.value for e in estimates],
            "excess_ci_low": [e.ci_low for e in estimates],
            "excess_ci_high": [e.ci_high for e in estimates],
        }
    for code, name in enumerate(people.groups.names):
        members = people.groups.codes == code
        columns[f"mean attribution: {name}"] = attributions[members].mean(axis=0) if members.any() else np.nan
    return pd.DataFrame(columns).sort_values("contribution", ascending=False, kind="stable", ignore_index=True)


def _relative_gap(own: Explanation) -> float:
    """Mean completeness gap as a share of the mean distance of the logit from the baseline's."""
    moved = float((own.logit - own.baseline_logit).abs().mean())
    return float(own.completeness_gap.mean()) / moved if moved > 0 else 0.0


def _columns_that_tell_the_group(people: People) -> list[str]:
    """Discrete columns of which each value occurs in one group only."""
    found = []
    for column in people.table.columns:
        values = people.table[column]
        if values.nunique(dropna=False) > min(50, len(people) // 10):
            continue
        codes = values.astype(object).where(values.notna(), None).map(str)
        pairs_seen = codes.str.cat([str(c) for c in people.groups.codes], sep="\x00")
        if pairs_seen.nunique() == codes.nunique() > 1:
            found.append(str(column))
    return found


def _reservations(
    provenance: Provenance,
    settings: AuditSettings,
    diagnostics: MatchDiagnostics,
    scored: _ScoredPairs,
    figures: Mapping[str, Figure],
    evidence: Evidence | None,
) -> list[str]:
    """What a careful reader must know before using the figures; the grave ones are also Python warnings."""
    grave: list[str] = []
    other: list[str] = []
    n_negligible = int(scored.is_negligible.sum())
    if figures["positive_rate"].note:
        grave.append(f"The model's {figures['positive_rate'].note}.")
    if diagnostics.coverage < _LOW_COVERAGE:
        grave.append(f"Only {diagnostics.coverage:.1%} of comparisons have a match; the figures speak of those alone.")
    if provenance.completeness_gap > _LARGE_GAP:
        grave.append(
            f"Attributions miss {provenance.completeness_gap:.1%} of the change in the logit they should sum to; "
            "raise `n_steps`."
        )
    if n_negligible:
        share = n_negligible / max(1, int(scored.is_scored.sum()))
        message = f"{n_negligible} pairs ({share:.1%}) have an attribution too short to have a direction."
        (grave if share > 0.05 else other).append(message)
    if provenance.n_without_baseline:
        other.append(
            f"{provenance.n_without_baseline} people are left out: no one of their label and group to explain from."
        )
    small = {name: n for name, n in provenance.groups.items() if n < _SMALL_GROUP}
    if small:
        other.append(f"Groups with fewer than {_SMALL_GROUP} people, whose figures are unstable: {small}.")
    protected = [
        f for f in settings.financial_features if _PROTECTED_WORDS & set(f.lower().replace("-", "_").split("_"))
    ]
    if protected:
        other.append(f"Financial features that may be protected characteristics themselves: {protected}.")
    if diagnostics.constant_features:
        constant = list(diagnostics.constant_features)
        other.append(f"Financial features that are constant, and so play no part in matching: {constant}.")
    if evidence is not None and evidence.cec.note:
        other.append(f"The excess: {evidence.cec.note}.")
    if evidence is not None and evidence.common_support < _LOW_COVERAGE:
        other.append(
            f"Only {evidence.common_support:.1%} of comparisons have a placebo pair at the same distance; "
            "the excess speaks of those alone."
        )
    if evidence is not None and evidence.hangs_on:
        other.append(f"The verdict on the excess would be another with {'; with '.join(evidence.hangs_on)}.")
    for message in grave:
        warnings.warn(message, EvenhandWarning, stacklevel=4)
    return grave + other
