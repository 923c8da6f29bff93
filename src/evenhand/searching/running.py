"""The search for an alternative model: many candidates, judged alike, one chosen and the rest accounted for."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Protocol

import numpy as np
import torch

from evenhand._version import __version__
from evenhand.exceptions import InvalidInputError
from evenhand.inputs.encoding import Encoding
from evenhand.inputs.fingerprints import fingerprint_plain
from evenhand.searching.choosing import ChoiceRule
from evenhand.searching.collating import Collated, collate
from evenhand.searching.confirming import Confirmation, confirm
from evenhand.searching.constraints import asked_effects, check_asked, check_metric, parse_constraint
from evenhand.searching.draws import Stopping, StopRule
from evenhand.searching.metrics import direction_of
from evenhand.searching.networks import NetworkFamily
from evenhand.searching.people import EvaluationSettings, SearchPeople
from evenhand.searching.result import SearchResult
from evenhand.searching.space import Candidate, Family, Space, candidates_of
from evenhand.searching.store import BlockStore, Scored
from evenhand.searching.trees import TreeFamily, make_tree_model
from evenhand.searching.utility import Payoff
from evenhand.system.progress import progress as shown_progress
from evenhand.training.classifier import CECClassifier
from evenhand.training.engine.loop import device_of
from evenhand.training.folds import ComparedFold

__all__ = ["search"]

DEFAULT_KEEP = ("auc >= best - 0.01", "eo_gap <= unconstrained", "positive_rate within 0.05 of unconstrained")


DEFAULT_CONFIRMATION = 0.2


class _Runs(Protocol):
    """A family's way to train and score."""

    def blocks(self, candidates: Sequence[Candidate]) -> list[tuple[Candidate, ...]]: ...

    def run(self, block: Sequence[Candidate]) -> list[Scored]: ...


def search(
    X: Any,  # noqa: ANN401 - any table
    y: Any,  # noqa: ANN401 - any array-like
    *,
    sensitive_features: Any,  # noqa: ANN401
    financial_features: Sequence[str] | None = None,
    space: Space | None = None,
    n_candidates: int | None = None,
    folds: int = 5,
    seeds: int = 1,
    keep: Sequence[str] = DEFAULT_KEEP,
    minimize: str = "reasoning_gap",
    family: Family = "network",
    confirmation: float = DEFAULT_CONFIRMATION,
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
    payoff: Mapping[str, float] | str | None = None,
    alternatives: int = 1,
    clusters: Any = None,  # noqa: ANN401
) -> SearchResult:
    """Search for a model as useful as the unconstrained one whose reasoning is more alike between groups.

    Every candidate is trained on the same folds and judged on the same people by utility (AUC, KS, F1, profit), outcome
    (EO gap, adverse impact ratio, approvals), scores (the score gap, in all and through each input) and procedure
    (excess, reasoning gap, weighing, excess Regime B). Of those that meet the constraints, the one with the least of
    `minimize` is chosen. Unconstrained candidates are always among them. People held out of all that say whether the
    choice is confirmed.

    Parameters
    ----------
    X, y, sensitive_features, financial_features
        People as in `evenhand.audit`; labels 0 and 1, 1 the favorable one. None for all columns.
    space
        Values to try by parameter; None for the family's own. Parameters of networks are those of `CECClassifier`; of
        trees, those of the library, and ``drop`` (tuples of columns to leave out) and ``monotone`` (mappings from
        columns to 1 or -1). With ``seed``, every candidate and seed is a draw.
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
        ``"network"``, or ``"trees"`` for gradient-boosted trees.
    confirmation
        Share of the people held out of training and choosing, on whom the choice is confirmed or not; 0 for no one.
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
    payoff
        What a decision about a person is worth: ``approve_good``, ``approve_bad``, ``decline_good`` and
        ``decline_bad``, costs below 0. `profit` is its mean over people.
    alternatives
        How many of the candidates that meet the constraints are fitted anew and confirmed, best first. Intervals
        allow for their number.
    clusters
        Which rows are the same applicant or household: they stay in one fold, and on one side of the confirmation.

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
    constraints = tuple(parse_constraint(text) for text in ([keep] if isinstance(keep, str) else keep))
    minimize = check_metric(minimize, "`minimize`")
    if direction_of(minimize) == 0:
        raise InvalidInputError(f"`minimize` must be a metric of which less or more is better, got {minimize!r}.")
    asked = [minimize, *(constraint.metric for constraint in constraints)]
    settings = EvaluationSettings(
        folds=folds,
        seeds=seeds,
        encoding=encoding,
        decision_threshold=decision_threshold,
        consistency_threshold=consistency_threshold,
        max_distance=max_distance,
        n_compared=n_compared,
        random_state=random_state,
        payoff=None if payoff is None else Payoff.of(payoff),
        effects=asked_effects(asked),
    )
    if not isinstance(alternatives, int) or alternatives < 1:
        raise InvalidInputError(f"`alternatives` must be a whole number of at least 1, got {alternatives!r}.")
    if seeds > 1 and space is not None and "seed" in space:
        raise InvalidInputError(
            f"`seeds` averages over {seeds} seeds and `space['seed']` searches over seeds: leave one of them out."
        )
    candidates = candidates_of(family, space, n_candidates, random_state)
    people = SearchPeople.of(X, y, sensitive_features, financial_features, confirmation, random_state, clusters)
    check_asked(asked, people, has_payoff=payoff is not None)
    where = device_of(device)
    uses_placebo = family == "network" and any(_uses_placebo(candidate) for candidate in candidates)
    compared = people.compared_folds(settings, has_training_triples=uses_placebo)
    runs = _family(family, people, compared, settings, where)
    run = fingerprint_plain([__version__, people.digest, asdict(settings), family, where.type])
    if minimize == "profit" and stop_floor is None and settings.payoff is not None:
        stop_floor = max(settings.payoff.to_dict().values())
    stop = StopRule(stop_gain, stop_delta, stop_floor)
    test_share = 1 / (folds - 1)
    is_plain = np.array([c.is_unconstrained for c in candidates])

    def judged(scored: Sequence[Scored], n_tried: int) -> tuple[ChoiceRule, Collated]:
        found = collate(scored, candidates[:n_tried], settings, [str(column) for column in people.table.columns])
        return ChoiceRule(constraints, minimize, is_plain[:n_tried], test_share), found

    def stopping(scored: Sequence[Scored], n_tried: int) -> Stopping:
        rule, found = judged(scored, n_tried)
        return Stopping.of(stop, rule, found.metrics, len(candidates) - n_tried, is_whole_space=n_candidates is None)

    scored, n_tried = _run_rounds(runs, candidates, BlockStore(checkpoint, run), settings, stop, stopping, progress)
    tried = candidates[:n_tried]
    rule, found = judged(scored, n_tried)
    if all(k in found.notes for k in range(n_tried)):
        raise InvalidInputError(f"No candidate could be trained: {next(iter(found.notes.values()))}.")
    fit = _Fit(family, people, settings, str(where))
    confirmed = _confirmed(rule, found, tried, people, settings, fit, alternatives)
    return SearchResult(found, tried, rule, settings, family, people, confirmed, fit, stopping(scored, n_tried))


def _uses_placebo(candidate: Candidate) -> bool:
    return bool(candidate.parameters["cec_weight"]) and str(candidate.parameters["objective"]).endswith("excess")


def _family(
    family: Family,
    people: SearchPeople,
    compared: Sequence[ComparedFold],
    settings: EvaluationSettings,
    device: torch.device,
) -> _Runs:
    if family == "trees":
        return TreeFamily(people, compared, settings)
    return NetworkFamily(people, people.encoder(settings.encoding), compared, settings, device)


def _run_rounds(
    runs: _Runs,
    candidates: Sequence[Candidate],
    store: BlockStore,
    settings: EvaluationSettings,
    stop: StopRule,
    stopping: Callable[[Sequence[Scored], int], Stopping],
    is_shown: bool,
) -> tuple[list[Scored], int]:
    """Results of every block, those kept and those run now and kept, until the search may stop; candidates tried."""
    per_candidate = settings.folds * settings.seeds
    found: list[Scored] = []
    n_tried, bound = 0, ""
    with shown_progress("models", len(candidates) * per_candidate, is_shown=is_shown) as advance:
        for candidates_of_round in stop.rounds(candidates):
            for block in runs.blocks(candidates_of_round):
                name = fingerprint_plain([candidate.key for candidate in block])
                results = store.read(name)
                if results is None:
                    results = runs.run(block)
                    store.write(name, results)
                found += results
                for row in results:
                    advance(f"auc {row.metrics.get('auc', float('nan')):.3f}{bound}")
            n_tried += len(candidates_of_round)
            known = stopping(found, n_tried) if stop.gain is not None else None
            if known is not None and known.bounds:
                bound = f", a further candidate gains at most {known.bounds[-1].gain():.2g}"
                if stop.is_reached(known):
                    break
    return found, n_tried


def _confirmed(
    rule: ChoiceRule,
    found: Collated,
    candidates: Sequence[Candidate],
    people: SearchPeople,
    settings: EvaluationSettings,
    fit: _Fit,
    n_alternatives: int,
) -> Confirmation | None:
    """The best candidates on the people held out; None where no one is, or nothing is better than the unconstrained."""
    choice = rule.choose(found.metrics)
    reported = choice.alternatives(n_alternatives)
    if not len(people.confirming) or not reported:
        return None
    means = direction_of(rule.minimize) * found.metrics[rule.minimize].mean(1)
    best = {c.metric: rule.best(found.metrics, c.metric) for c in rule.constraints if c.reference == "best"}
    needed = dict.fromkeys((choice.unconstrained, *reported, *best.values()))
    return confirm(
        {k: fit(candidates[k]) for k in needed},
        people,
        settings,
        unconstrained=choice.unconstrained,
        promised={k: float(means[k] - means[choice.unconstrained]) for k in reported},
        best=best,
        minimize=rule.minimize,
        constraints=rule.constraints,
    )


class _Fit:
    """Trains a candidate on everyone searched on; remembers what it trained."""

    def __init__(self, family: Family, people: SearchPeople, settings: EvaluationSettings, device: str) -> None:
        self._family, self._people, self._settings, self._device = family, people, settings, device
        self._fitted: dict[str, Any] = {}

    def __call__(self, candidate: Candidate) -> Any:  # noqa: ANN401 - a classifier of the family
        if candidate.key not in self._fitted:
            self._fitted[candidate.key] = self._fit(candidate)
        return self._fitted[candidate.key]

    def _fit(self, candidate: Candidate) -> Any:  # noqa: ANN401
        people, settings = self._people, self._settings
        X = people.table.iloc[people.searched].reset_index(drop=True)
        y, group = people.labels[people.searched], people.groups.codes[people.searched]
        random_state = settings.random_state + candidate.seed
        if self._family == "trees":
            return make_tree_model(candidate, X, random_state).fit(X, y)
        parameters = {**candidate.parameters, "hidden": tuple(candidate.parameters["hidden"])}
        del parameters["seed"]
        model = CECClassifier(
            **parameters,
            financial_features=people.financial_features,
            encoding=settings.encoding,
            max_distance=settings.max_distance,
            device=self._device,
            random_state=random_state,
        )
        names = np.asarray(people.groups.names)[group]
        return model.fit(X, y, sensitive_features=names)
