"""The search for an alternative model: many candidates, one choice, and a reason why each other was not chosen."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from evenhand.exceptions import InvalidInputError
from evenhand.inputs.identity import fingerprint_plain
from evenhand.inputs.validation import moved_keywords
from evenhand.metrics.names import metric_of
from evenhand.searching.candidates import BlockStore, Evaluator, Scored, check_seen, collate
from evenhand.searching.choice import ChoiceRule, effects_in, parse_constraint
from evenhand.searching.confirming import Confirmation, confirm
from evenhand.searching.families import FamilyName
from evenhand.searching.options import DEFAULT_KEEP, SearchOptions, SearchSettings
from evenhand.searching.people import SearchPeople
from evenhand.searching.result import SearchResult
from evenhand.searching.scoring import Metrics
from evenhand.searching.space import Candidate, Space, candidates_of, family_names, proxy_drops, read_start
from evenhand.searching.stopping import Stopping
from evenhand.system import __version__
from evenhand.system.terminal import progress
from evenhand.training.engine.loop import device_of

_ROUND = 20  # draws between two looks at the bound on further gains
_OWN = (
    "financial_features", "clusters", "start", "family", "space", "n_candidates", "keep", "minimize", "checkpoint",
    "random_state", "sensitive_features",
)  # fmt: skip


def search(
    X: Any,
    y: Any,
    *,
    sensitive_features: Any,
    financial_features: Sequence[str] | None = None,
    clusters: Any = None,
    start: Any = None,
    family: FamilyName | Sequence[FamilyName] | None = None,
    space: Space | Mapping[str, Space] | None = None,
    n_candidates: int | None = None,
    keep: Sequence[str] = DEFAULT_KEEP,
    minimize: str = "reasoning_gap",
    checkpoint: str | os.PathLike[str] | None = None,
    random_state: int = 0,
    options: SearchOptions | None = None,
    **old: Any,
) -> SearchResult:
    """Search for a model as useful as the unconstrained one whose reasoning is more alike between groups.

    The search trains every candidate on the same folds and judges it on the same people by utility (AUC, KS, F1,
    profit), outcome (EO gap, adverse impact ratio, approvals), scores (the score gap, in total and through each input)
    and procedure (excess, reasoning gap, weighing, excess Regime B). Of those that meet the constraints, it chooses the
    one with the least of `minimize`. It always tries unconstrained candidates, too. People held out of training and
    choosing show whether the choice is confirmed.

    Parameters
    ----------
    X, y, sensitive_features, financial_features
        People as in `evenhand.audit`; labels 0 and 1, 1 the favorable one. None for all columns.
    clusters
        Which rows belong to the same applicant or household. They stay in one fold, and are held out together.
    start
        Your fitted model of XGBoost, LightGBM or scikit-learn, or its file. The search varies its parameters and keeps
        its columns and monotone constraints. It is retrained in every fold as candidate 0 and takes the place of the
        unconstrained candidate: everything is compared with it.
    family
        One or more of ``"network"``; ``"trees"``, ``"xgboost"`` and ``"lightgbm"`` for gradient-boosted trees of
        scikit-learn, XGBoost and LightGBM; ``"logistic"`` for logistic regressions; ``"scorecard"`` for those on bins.
        None for the family of `start`, or for networks.
    space
        Values to try by parameter; with several families, a space for each by name. None for the family's default.
        Networks have the parameters of `CECClassifier`. The others have those of the library's class, and ``drop``
        (tuples of columns to leave out), ``monotone`` (mappings from columns to 1 or -1, for boosted trees) and
        ``repair`` (of the training people: ``"none"``, ``"reweighing"`` or ``"fairshap"``). With ``seed``, every
        candidate and seed is a draw.
    n_candidates
        How many constrained combinations to draw at random; None for all.
    keep
        Constraints such as ``"auc >= best - 0.01"``; see `evenhand.searching.parse_constraint`.
    minimize
        The metric to minimize. A few folds are enough to tell reasoning gaps apart; a small excess is mostly noise.
    checkpoint
        Folder for finished blocks. The same search, called again, continues from them.
    random_state
        Decides folds, draws and seeds.
    options
        How candidates are judged and confirmed, when to stop, and where to train; None for the defaults.
    old
        Fields of `SearchOptions`, which were parameters of this function; with a FutureWarning.

    Raises
    ------
    InvalidInputError
        If people, space or constraints cannot be used; the message says why.

    Examples
    --------
    >>> import evenhand as eh
    >>> data = eh.load_dataset("synthetic", n=300)
    >>> result = search(data.X, data.y, sensitive_features=data.group, financial_features=data.financial_features,
    ...                 space={"cec_weight": [0.3, 1.0], "epochs": [2]}, keep=["auc >= 0.1"],
    ...                 options=eh.SearchOptions(folds=2, device="cpu"))
    >>> len(result.candidates), result.candidates["status"].tolist().count("chosen")
    (3, 1)
    """
    options = moved_keywords("eh.search", old, options, SearchOptions, own=_OWN)
    constraints = tuple(parse_constraint(text) for text in ([keep] if isinstance(keep, str) else keep))
    minimize = metric_of(minimize, "`minimize`").name
    if metric_of(minimize).direction == 0:
        raise InvalidInputError(f"`minimize` must be a metric for which less or more is better, got {minimize!r}.")
    people = SearchPeople.of(X, y, sensitive_features, financial_features, options.confirmation, random_state, clusters)
    asked = [minimize, *(constraint.metric for constraint in constraints)]
    effects = effects_in(asked, people, has_payoff=options.payoff is not None)
    settings = SearchSettings(**vars(options), random_state=random_state, effects=effects)
    if minimize == "profit" and settings.stop_floor is None and settings.payoff is not None:
        settings = replace(settings, stop_floor=max(vars(settings.payoff).values()))
    begun = None if start is None else read_start(start, people)
    named = [constraint.text for constraint in constraints if constraint.reference == "start"]
    if named and begun is None:
        raise InvalidInputError(f"The constraints {named} compare with `start`; pass a model as `start`.")

    names = family_names(family or ("network" if begun is None else begun.family))
    drops = proxy_drops(people) if space is None and set(names) != {"network"} else ()
    candidates = candidates_of(names, space, n_candidates, random_state, drops=drops, start=begun)
    if settings.seeds > 1 and len({candidate.seed for candidate in candidates}) > 1:
        raise InvalidInputError(
            f"`seeds` averages over {settings.seeds} seeds and `space['seed']` searches over seeds: "
            "leave one of them out."
        )
    check_seen(candidates, people)
    is_plain = np.array([candidate.is_unconstrained for candidate in candidates])

    def judged(results: Sequence[Scored], n: int) -> tuple[ChoiceRule, dict[str, Any], Stopping]:
        """The rule that chooses among the first `n` candidates, their metrics, and a bound on those not tried."""
        rule = ChoiceRule(constraints, minimize, is_plain[:n], test_share=1 / (settings.folds - 1))
        metrics, gaps, notes = collate(results, candidates[:n], settings, people.columns)
        is_whole = n_candidates is None
        stopping = Stopping.of(settings, rule, metrics, len(candidates) - n, is_whole_space=is_whole)
        return rule, {"metrics": metrics, "gaps": gaps, "notes": notes}, stopping

    where = device_of(settings.device)
    folds = people.compared_folds(settings, has_training_triples=any(map(_uses_placebo, candidates)))
    evaluator = Evaluator(people, settings, folds, where)
    store = BlockStore(checkpoint, fingerprint_plain([__version__, people.digest, settings.to_dict(), where.type]))
    # Unconstrained candidates are tried before the first look at the bound.
    ends = [len(candidates)]
    if settings.stop_gain is not None:
        ends = [*range(int(is_plain.sum()), len(candidates), _ROUND), len(candidates)]
    results: list[Scored] = []
    n_tried, note = 0, ""
    with progress("models", len(candidates) * settings.folds * settings.seeds, is_shown=settings.progress) as advance:
        for end in ends:
            for block in evaluator.results(candidates[n_tried:end], store):
                results += block
                for row in block:
                    advance(f"auc {row.metrics.get('auc', float('nan')):.3f}{note}")
            n_tried = end
            if settings.stop_gain is not None:
                stopping = judged(results, n_tried)[2]
                if stopping.bounds:
                    note = f", a further candidate gains at most {stopping.bounds[-1].gain():.2g}"
                if stopping.is_enough:
                    break

    tried = candidates[:n_tried]
    rule, measured, stopping = judged(results, n_tried)
    if len(measured["notes"]) == n_tried:
        raise InvalidInputError(f"No candidate could be trained: {next(iter(measured['notes'].values()))}.")
    return SearchResult(
        **measured,
        tried=tried,
        rule=rule,
        settings=settings,
        people=people,
        confirmation=_confirmation(rule, measured["metrics"], tried, evaluator),
        fit=evaluator.fit,
        stopping=stopping,
        start=begun,
    )


def _uses_placebo(candidate: Candidate) -> bool:
    p = candidate.parameters
    return candidate.family == "network" and bool(p["cec_weight"]) and str(p["objective"]).endswith("excess")


def _confirmation(
    rule: ChoiceRule, metrics: Metrics, candidates: Sequence[Candidate], evaluator: Evaluator
) -> Confirmation | None:
    """The best candidates on the people held out; None if there are no such people or no better candidates."""
    choice, people, settings = rule.choose(metrics), evaluator.people, evaluator.settings
    reported = choice.alternatives(settings.alternatives)
    if not len(people.confirming) or not reported:
        return None
    means = metric_of(rule.minimize).direction * metrics[rule.minimize].mean(1)
    best = {c.metric: rule.best(metrics, c.metric) for c in rule.constraints if c.reference == "best"}
    return confirm(
        {k: evaluator.fit(candidates[k]) for k in dict.fromkeys((choice.unconstrained, *reported, *best.values()))},
        people,
        settings,
        unconstrained=choice.unconstrained,
        promised={k: float(means[k] - means[choice.unconstrained]) for k in reported},
        best=best,
        rule=rule,
    )
