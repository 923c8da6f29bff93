"""The search for an alternative model: many candidates, judged alike, one chosen and the rest accounted for."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import torch

from evenhand._version import __version__
from evenhand.exceptions import InvalidInputError
from evenhand.inputs.encoding import Encoding
from evenhand.inputs.fingerprints import fingerprint_plain
from evenhand.searching.choosing import ChoiceRule
from evenhand.searching.constraints import Constraint, check_metric, parse_constraint
from evenhand.searching.draws import Stopping, StopRule
from evenhand.searching.estimators import EstimatorRuns, check_seen
from evenhand.searching.families import FamilyName
from evenhand.searching.fitting import Fit
from evenhand.searching.metrics import DIRECTIONS
from evenhand.searching.networks import NetworkFamily
from evenhand.searching.people import EvaluationSettings, SearchPeople
from evenhand.searching.removals import proxy_drops
from evenhand.searching.result import SearchResult
from evenhand.searching.rounds import Runs, run_rounds
from evenhand.searching.scoring import score_model
from evenhand.searching.space import Candidate, Space, candidates_of, family_names
from evenhand.searching.start import Start, read_start
from evenhand.searching.store import BlockStore, Scored
from evenhand.system.threads import n_cores
from evenhand.training.engine.loop import device_of
from evenhand.training.folds import ComparedFold

__all__ = ["search"]

DEFAULT_KEEP = ("auc >= best - 0.01", "eo_gap <= unconstrained", "positive_rate within 0.05 of unconstrained")


def search(
    X: Any,  # noqa: ANN401 - any table
    y: Any,  # noqa: ANN401 - any array-like
    *,
    sensitive_features: Any,  # noqa: ANN401
    financial_features: Sequence[str] | None = None,
    space: Space | Mapping[str, Space] | None = None,
    n_candidates: int | None = None,
    folds: int = 5,
    seeds: int = 1,
    keep: Sequence[str] = DEFAULT_KEEP,
    minimize: str = "reasoning_gap",
    family: FamilyName | Sequence[FamilyName] | None = None,
    confirmation: float = 0.0,
    encoding: Encoding = "onehot",
    decision_threshold: float = 0.5,
    consistency_threshold: float = 0.3,
    max_distance: float | None = None,
    n_compared: int = 1_000,
    device: str = "auto",
    checkpoint: str | os.PathLike[str] | None = None,
    random_state: int = 0,
    progress: bool = False,
    stop_gain: float | None = None,
    stop_delta: float = StopRule.delta,
    stop_floor: float | None = None,
    n_jobs: int | None = None,
    start: Any = None,  # noqa: ANN401 - a model or the path of one
) -> SearchResult:
    """Search for a model as useful as the unconstrained one whose reasoning is more alike between groups.

    Every candidate is trained on the same folds and judged on the same people by utility (AUC, KS, F1), outcome (EO
    gap, adverse impact ratio, approvals) and procedure (excess, reasoning gap, excess Regime B). Of those that meet
    the constraints, the one with the least of `minimize` is chosen. Unconstrained candidates are always among them.

    Parameters
    ----------
    X, y, sensitive_features, financial_features
        People as in `evenhand.audit`; labels 0 and 1, 1 the favorable one. None for all columns.
    space
        Values to try by parameter; of several families, a space for each by name. None for the family's own. Parameters
        of networks are those of `CECClassifier`; of the others, those of the library's class, and ``drop`` (tuples of
        columns to leave out), ``monotone`` (mappings from columns to 1 or -1, for boosted trees) and ``repair``
        (of the training people: ``"none"``, ``"reweighing"`` or ``"fairshap"``).
    n_candidates
        How many constrained combinations to draw at random; None for all.
    folds
        Folds of the cross-validation, at least 2; from 3 on there is an honest estimate.
    seeds
        Models trained per candidate and fold, whose metrics are averaged. A seed is no candidate: what it does in a
        fold says nothing about what it does when the model is fitted anew.
    keep
        Constraints such as ``"auc >= best - 0.01"``; see `evenhand.searching.parse_constraint`.
    minimize
        The metric to minimize. The reasoning gap is one that a few folds can tell apart; the excess of a table without
        much of it is mostly noise.
    family
        One or more of ``"network"``; ``"trees"``, ``"xgboost"`` and ``"lightgbm"`` for gradient-boosted trees of
        scikit-learn, XGBoost and LightGBM; ``"logistic"`` for logistic regressions; ``"scorecard"`` for those on bins.
        None for that of `start`, or for networks.
    confirmation
        Share of the people held out of the whole search, to look at the choice once.
    encoding
        Of categories, for networks.
    decision_threshold, consistency_threshold, max_distance
        As in `evenhand.audit`.
    n_compared
        Most test people of a fold whose reasoning is compared.
    device
        ``"auto"``, ``"cpu"`` or ``"cuda"``.
    checkpoint
        Folder in which finished blocks are kept. The same search, called again, goes on from there.
    random_state
        Decides folds, draws and seeds.
    progress
        Whether to show progress.
    stop_gain
        Stop before all candidates are tried, once one further candidate gains at most this of `minimize` in
        expectation. The bound on the gain is in the result either way, as `stopping`.
    stop_delta
        Probability that this bound is wrong at any moment of the search.
    stop_floor
        The best value of `minimize` that you take for possible; None for 0 (1 where more is better). A floor nearer to
        what is found makes the bound tighter.
    n_jobs
        Candidates that are trained at once, each on one core; None for as many as there are cores. Networks are trained
        in stacks and take all. The result does not depend on it.
    start
        Your model, fitted, or the file of one: of XGBoost, LightGBM or scikit-learn. The search varies its parameters;
        its columns and monotone constraints stay. It is trained anew in every fold, as candidate 0, and takes the place
        of the unconstrained candidate: everything is compared with it.

    Raises
    ------
    InvalidInputError
        If people, space or constraints cannot be used; each says why.

    Examples
    --------
    >>> import evenhand as eh
    >>> data = eh.load_dataset("synthetic", n=300)
    >>> result = search(data.X, data.y, sensitive_features=data.group, financial_features=data.financial_features,
    ...                 space={"cec_weight": [0.3, 1.0], "epochs": [2]}, folds=2, keep=["auc >= 0.1"], device="cpu")
    >>> len(result.candidates), result.candidates["status"].tolist().count("chosen")
    (3, 1)
    """
    settings = EvaluationSettings(
        folds=folds,
        seeds=seeds,
        encoding=encoding,
        decision_threshold=decision_threshold,
        consistency_threshold=consistency_threshold,
        max_distance=max_distance,
        n_compared=n_compared,
        random_state=random_state,
    )
    constraints = tuple(parse_constraint(text) for text in ([keep] if isinstance(keep, str) else keep))
    if DIRECTIONS[check_metric(minimize, "`minimize`")] == 0:
        raise InvalidInputError(f"`minimize` must be a metric of which less or more is better, got {minimize!r}.")
    if n_jobs is not None and (not isinstance(n_jobs, int) or n_jobs < 1):
        raise InvalidInputError(f"`n_jobs` must be None or at least 1, got {n_jobs!r}.")
    people = SearchPeople.of(X, y, sensitive_features, financial_features, confirmation, random_state)
    begun = _begun(start, people, constraints)
    families = family_names(family or ("network" if begun is None else begun.point.family))
    drops = proxy_drops(people) if space is None and set(families) != {"network"} else ()
    point = None if begun is None else begun.point
    candidates = candidates_of(families, space, n_candidates, random_state, drops=drops, start=point)
    families = tuple(dict.fromkeys(candidate.family for candidate in candidates))
    check_seen(candidates, people)
    where = device_of(device)
    compared = people.compared_folds(settings, has_training_triples=any(map(_uses_placebo, candidates)))
    ways = _ways(families, people, compared, settings, where, n_jobs or n_cores())
    run = fingerprint_plain([__version__, people.digest, asdict(settings), where.type])
    stop = StopRule(stop_gain, stop_delta, stop_floor)
    test_share = 1 / (folds - 1)
    is_plain = np.array([c.is_unconstrained for c in candidates])

    def judged(scored: Sequence[Scored], n_tried: int) -> tuple[ChoiceRule, dict[str, np.ndarray], dict[int, str]]:
        metrics, notes = _collated(scored, candidates[:n_tried], settings)
        return ChoiceRule(constraints, minimize, is_plain[:n_tried], test_share), metrics, notes

    def stopping(scored: Sequence[Scored], n_tried: int) -> Stopping:
        rule, metrics, _ = judged(scored, n_tried)
        return Stopping.of(stop, rule, metrics, len(candidates) - n_tried, is_whole_space=n_candidates is None)

    store = BlockStore(checkpoint, run)
    scored, n_tried = run_rounds(ways, candidates, store, settings, stop, stopping, is_shown=progress)
    tried = candidates[:n_tried]
    rule, metrics, notes = judged(scored, n_tried)
    if all(k in notes for k in range(n_tried)):
        raise InvalidInputError(f"No candidate could be trained: {next(iter(notes.values()))}.")
    fit = Fit(people, settings, str(where))
    confirmed = _confirmed(rule, metrics, tried, people, settings, fit)
    return SearchResult(
        metrics, tried, notes, rule, settings, families, people, confirmed, fit, stopping(scored, n_tried), begun
    )


def _begun(start: Any, people: SearchPeople, constraints: Sequence[Constraint]) -> Start | None:  # noqa: ANN401
    """The starting point, where there is one; constraints that name it need one."""
    if start is not None:
        return read_start(start, people)
    named = [constraint.text for constraint in constraints if constraint.reference == "start"]
    if named:
        raise InvalidInputError(f"The constraints {named} compare with `start`, and no model was given to start from.")
    return None


def _uses_placebo(candidate: Candidate) -> bool:
    if candidate.family != "network":
        return False
    return bool(candidate.parameters["cec_weight"]) and str(candidate.parameters["objective"]).endswith("excess")


def _ways(
    families: Sequence[FamilyName],
    people: SearchPeople,
    compared: Sequence[ComparedFold],
    settings: EvaluationSettings,
    device: torch.device,
    n_jobs: int,
) -> list[Runs]:
    """How the candidates of the families are trained and scored."""
    ways: list[Runs] = []
    if "network" in families:
        ways.append(NetworkFamily(people, people.encoder(settings.encoding), compared, settings, device))
    if set(families) - {"network"}:
        ways.append(EstimatorRuns(people, compared, settings, n_jobs))
    return ways


def _collated(
    scored: Sequence[Scored], candidates: Sequence[Candidate], settings: EvaluationSettings
) -> tuple[dict[str, np.ndarray], dict[int, str]]:
    """Metrics of shape (n_candidates, n_folds), means over seeds, and notes on candidates that have none."""
    number = {candidate.key: candidate.number for candidate in candidates}
    sums = {name: np.zeros((len(candidates), settings.folds)) for name in DIRECTIONS}
    notes: dict[int, list[str]] = defaultdict(list)
    for row in scored:
        k = number[row.candidate]
        if row.note:
            notes[k].append(row.note)
        for name, values in sums.items():
            values[k, row.fold] += row.metrics.get(name, np.nan) / settings.seeds
    return sums, {k: told[0] for k, told in notes.items()}


def _confirmed(
    rule: ChoiceRule,
    metrics: Mapping[str, np.ndarray],
    candidates: Sequence[Candidate],
    people: SearchPeople,
    settings: EvaluationSettings,
    fit: Fit,
) -> dict[str, dict[str, float]]:
    """Metrics of the chosen and the unconstrained candidate on people held out of the search."""
    choice = rule.choose(metrics)
    if not len(people.confirming) or choice.chosen is None:
        return {}
    fold = people.confirming_fold(settings)
    return {
        who: score_model(fit(candidates[k]), people, fold, settings)
        for who, k in (("unconstrained", choice.unconstrained), ("chosen", choice.chosen))
    }
