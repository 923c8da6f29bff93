"""The search for an alternative model: many candidates, one choice, and a reason why each other was not chosen."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np
import torch

from evenhand._version import __version__
from evenhand.exceptions import InvalidInputError
from evenhand.inputs.encoding import Encoding
from evenhand.inputs.fingerprints import fingerprint_plain
from evenhand.metrics.proxies import feature_strengths
from evenhand.searching.candidates import EstimatorRuns, Fit, NetworkFamily, check_seen
from evenhand.searching.choice import (
    ChoiceRule,
    Collated,
    Constraint,
    asked_effects,
    check_asked,
    check_metric,
    collate,
    parse_constraint,
)
from evenhand.searching.confirming import Confirmation, confirm
from evenhand.searching.families import FamilyName
from evenhand.searching.families.family import held_to_one_thread
from evenhand.searching.metrics import Payoff, direction_of
from evenhand.searching.people import EvaluationSettings, SearchPeople
from evenhand.searching.result import SearchResult
from evenhand.searching.space import Candidate, Drops, Space, candidates_of, family_names
from evenhand.searching.start import Start, read_start
from evenhand.searching.stopping import Stopping, StopRule
from evenhand.searching.store import BlockStore, Scored
from evenhand.system.terminal import progress
from evenhand.system.threads import in_order, n_cores
from evenhand.training.engine.loop import device_of
from evenhand.training.folds import ComparedFold

Block = tuple[Candidate, ...]


class Runs(Protocol):
    """A way to train and score the candidates of some families."""

    @property
    def n_threads(self) -> int | None:
        """How many blocks run at once, each on one core; None to run one after the other, each on all cores."""
        ...

    def takes(self, candidate: Candidate) -> bool:
        """Whether a candidate is of its families."""
        ...

    def blocks(self, candidates: Sequence[Candidate]) -> list[Block]:
        """Candidates that are trained together."""
        ...

    def run(self, block: Block) -> list[Scored]:
        """Train and score a block."""
        ...


def run_rounds(
    ways: Sequence[Runs],
    candidates: Sequence[Candidate],
    store: BlockStore,
    settings: EvaluationSettings,
    stop: StopRule,
    stopping: Callable[[Sequence[Scored], int], Stopping],
    *,
    is_shown: bool,
) -> tuple[list[Scored], int]:
    """Results of every block, read or computed and kept, until the search may stop; and the candidates tried."""
    per_candidate = settings.folds * settings.seeds
    found: list[Scored] = []
    n_tried, bound = 0, ""
    with progress("models", len(candidates) * per_candidate, is_shown=is_shown) as advance:
        for of_round in stop.rounds(candidates):
            for results in _results(ways, of_round, store):
                found += results
                for row in results:
                    advance(f"auc {row.metrics.get('auc', float('nan')):.3f}{bound}")
            n_tried += len(of_round)
            known = stopping(found, n_tried) if stop.gain is not None else None
            if known is not None and known.bounds:
                bound = f", a further candidate gains at most {known.bounds[-1].gain():.2g}"
                if stop.is_reached(known):
                    break
    return found, n_tried


def _results(ways: Sequence[Runs], candidates: Sequence[Candidate], store: BlockStore) -> Iterator[list[Scored]]:
    """Results of every block of a round, in the same order whether read or computed."""
    for way in ways:
        blocks = way.blocks([candidate for candidate in candidates if way.takes(candidate)])

        def kept(block: Block, way: Runs = way) -> list[Scored]:
            name = fingerprint_plain([candidate.key for candidate in block])
            results = store.read(name)
            if results is None:
                results = way.run(block)
                store.write(name, results)
            return results

        if way.n_threads is None:
            yield from map(kept, blocks)
        elif blocks:
            with held_to_one_thread():
                yield from in_order(kept, blocks, way.n_threads)


_MOST = 3


def proxy_drops(people: SearchPeople) -> Drops:
    """Each of the three columns that alone predict the group best, and the three together.

    Columns on which people are matched are never dropped.
    """
    columns = [name for name in people.table.columns if name not in people.financial_features]
    if not columns:
        return ()
    table = people.table[columns].iloc[people.searched].reset_index(drop=True)
    found = feature_strengths(table, people.groups.codes[people.searched])
    best = [strength.feature for strength in found[:_MOST] if strength.auc == strength.auc]
    together = [tuple(best)] if len(best) > 1 else []
    return [*((name,) for name in best), *together]


DEFAULT_KEEP = ("auc >= best - 0.01", "eo_gap <= unconstrained", "positive_rate within 0.05 of unconstrained")


DEFAULT_CONFIRMATION = 0.2


def search(
    X: Any,
    y: Any,
    *,
    sensitive_features: Any,
    financial_features: Sequence[str] | None = None,
    space: Space | Mapping[str, Space] | None = None,
    n_candidates: int | None = None,
    folds: int = 5,
    seeds: int = 1,
    keep: Sequence[str] = DEFAULT_KEEP,
    minimize: str = "reasoning_gap",
    family: FamilyName | Sequence[FamilyName] | None = None,
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
    clusters: Any = None,
    n_jobs: int | None = None,
    start: Any = None,
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
    space
        Values to try by parameter; with several families, a space for each by name. None for the family's default.
        Networks have the parameters of `CECClassifier`. The others have those of the library's class, and ``drop``
        (tuples of columns to leave out), ``monotone`` (mappings from columns to 1 or -1, for boosted trees) and
        ``repair`` (of the training people: ``"none"``, ``"reweighing"`` or ``"fairshap"``). With ``seed``, every
        candidate and seed is a draw.
    n_candidates
        How many constrained combinations to draw at random; None for all.
    folds
        Folds of the cross-validation, at least 2; an honest estimate needs 3.
    seeds
        Models trained per candidate and fold, whose metrics are averaged. A seed is not a candidate: its result in a
        fold says nothing about its result when the model is refitted.
    keep
        Constraints such as ``"auc >= best - 0.01"``; see `evenhand.searching.parse_constraint`.
    minimize
        The metric to minimize. A few folds are enough to tell reasoning gaps apart; a small excess is mostly noise.
    family
        One or more of ``"network"``; ``"trees"``, ``"xgboost"`` and ``"lightgbm"`` for gradient-boosted trees of
        scikit-learn, XGBoost and LightGBM; ``"logistic"`` for logistic regressions; ``"scorecard"`` for those on bins.
        None for the family of `start`, or for networks.
    confirmation
        Share of the people to hold out of training and choosing, who confirm the choice or not; 0 for no one.
    encoding
        Of categories, for networks.
    decision_threshold, consistency_threshold, max_distance
        As in `evenhand.audit`.
    n_compared
        The most test people of a fold whose reasoning is compared.
    device
        ``"auto"``, ``"cpu"`` or ``"cuda"``.
    checkpoint
        Folder for finished blocks. The same search, called again, continues from them.
    random_state
        Decides folds, draws and seeds.
    progress
        Whether to show progress.
    stop_gain
        Stop early, once one further candidate is expected to gain at most this much of `minimize`. The result always
        has the bound on the gain, as `stopping`.
    stop_delta
        Probability that this bound is wrong at any moment of the search.
    stop_floor
        The best value of `minimize` that you consider possible; None for 0 (1 if more is better). A floor closer to
        the best value found makes the bound tighter.
    payoff
        What a decision about a person is worth: ``approve_good``, ``approve_bad``, ``decline_good`` and
        ``decline_bad``; costs are negative. `profit` is its mean over people.
    alternatives
        How many of the candidates that meet the constraints are refitted and confirmed, best first. Intervals allow
        for their number.
    clusters
        Which rows belong to the same applicant or household. They stay in one fold, and are held out together.
    n_jobs
        Candidates that are trained at once, each on one core; None for as many as there are cores. Networks are trained
        in stacks on all cores. The result does not depend on it.
    start
        Your fitted model of XGBoost, LightGBM or scikit-learn, or its file. The search varies its parameters and keeps
        its columns and monotone constraints. It is retrained in every fold as candidate 0 and takes the place of the
        unconstrained candidate: everything is compared with it.

    Raises
    ------
    InvalidInputError
        If people, space or constraints cannot be used; the message says why.

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
        raise InvalidInputError(f"`minimize` must be a metric for which less or more is better, got {minimize!r}.")
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
    if n_jobs is not None and (not isinstance(n_jobs, int) or n_jobs < 1):
        raise InvalidInputError(f"`n_jobs` must be None or at least 1, got {n_jobs!r}.")
    people = SearchPeople.of(X, y, sensitive_features, financial_features, confirmation, random_state, clusters)
    check_asked(asked, people, has_payoff=payoff is not None)
    begun = _begun(start, people, constraints)
    wanted = family_names(family or ("network" if begun is None else begun.point.family))
    candidates = _candidates(wanted, space, n_candidates, people, begun, settings)
    families = tuple(dict.fromkeys(candidate.family for candidate in candidates))
    where = device_of(device)
    compared = people.compared_folds(settings, has_training_triples=any(map(_uses_placebo, candidates)))
    ways = _ways(families, people, compared, settings, where, n_jobs or n_cores())
    run = fingerprint_plain([__version__, people.digest, asdict(settings), where.type])
    if minimize == "profit" and stop_floor is None and settings.payoff is not None:
        stop_floor = max(settings.payoff.to_dict().values())
    stop = StopRule(stop_gain, stop_delta, stop_floor)
    judge = _Judge(candidates, people, settings, constraints, minimize, stop, is_whole_space=n_candidates is None)
    store = BlockStore(checkpoint, run)
    scored, n_tried = run_rounds(ways, candidates, store, settings, stop, judge.stopping, is_shown=progress)
    tried = candidates[:n_tried]
    rule, found = judge(scored, n_tried)
    if all(k in found.notes for k in range(n_tried)):
        raise InvalidInputError(f"No candidate could be trained: {next(iter(found.notes.values()))}.")
    fit = Fit(people, settings, str(where))
    confirmed = _confirmed(rule, found, tried, people, settings, fit, alternatives)
    bound = judge.stopping(scored, n_tried)
    return SearchResult(found, tried, rule, settings, families, people, confirmed, fit, bound, begun)


def _begun(start: Any, people: SearchPeople, constraints: Sequence[Constraint]) -> Start | None:
    """The starting model, if there is one; constraints that name it need one."""
    if start is not None:
        return read_start(start, people)
    named = [constraint.text for constraint in constraints if constraint.reference == "start"]
    if named:
        raise InvalidInputError(f"The constraints {named} compare with `start`; pass a model as `start`.")
    return None


def _candidates(
    families: Sequence[FamilyName],
    space: Space | Mapping[str, Space] | None,
    n_candidates: int | None,
    people: SearchPeople,
    begun: Start | None,
    settings: EvaluationSettings,
) -> tuple[Candidate, ...]:
    """What is tried, checked against the people."""
    drops = proxy_drops(people) if space is None and set(families) != {"network"} else ()
    point = None if begun is None else begun.point
    found = candidates_of(families, space, n_candidates, settings.random_state, drops=drops, start=point)
    if settings.seeds > 1 and len({candidate.seed for candidate in found}) > 1:
        raise InvalidInputError(
            f"`seeds` averages over {settings.seeds} seeds and `space['seed']` searches over seeds: "
            "leave one of them out."
        )
    check_seen(found, people)
    return found


@dataclass(frozen=True, eq=False)
class _Judge:
    """How the candidates tried so far are judged, during the search and at its end.

    Attributes
    ----------
    candidates, people, settings
        All candidates, in the order in which they are tried; the people, and how they are evaluated.
    constraints, minimize
        What a candidate must meet, and the metric that decides between those that do.
    stop, is_whole_space
        When the search may stop, and whether the candidates are all that the space holds.
    """

    candidates: Sequence[Candidate]
    people: SearchPeople
    settings: EvaluationSettings
    constraints: tuple[Constraint, ...]
    minimize: str
    stop: StopRule
    is_whole_space: bool

    def __call__(self, scored: Sequence[Scored], n_tried: int) -> tuple[ChoiceRule, Collated]:
        """The rule by which one of the first `n_tried` candidates is chosen, and their metrics."""
        tried, columns = self.candidates[:n_tried], [str(column) for column in self.people.table.columns]
        is_plain = np.array([candidate.is_unconstrained for candidate in tried])
        rule = ChoiceRule(self.constraints, self.minimize, is_plain, test_share=1 / (self.settings.folds - 1))
        return rule, collate(scored, tried, self.settings, columns)

    def stopping(self, scored: Sequence[Scored], n_tried: int) -> Stopping:
        """What is known about the candidates that were not tried."""
        rule, found = self(scored, n_tried)
        n_left = len(self.candidates) - n_tried
        return Stopping.of(self.stop, rule, found.metrics, n_left, is_whole_space=self.is_whole_space)


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


def _confirmed(
    rule: ChoiceRule,
    found: Collated,
    candidates: Sequence[Candidate],
    people: SearchPeople,
    settings: EvaluationSettings,
    fit: Fit,
    n_alternatives: int,
) -> Confirmation | None:
    """The best candidates on the people held out; None if there are no such people or no better candidates."""
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
