"""The search for an alternative model: many candidates, one choice, and a reason why each other was not chosen.

Candidates are trained and scored on the folds block by block; finished blocks are kept on disk. Networks are trained in
stacks, on all folds at once; the models of libraries one by one, each on one thread.
"""

from __future__ import annotations

import json
import math
import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any, TypeAlias

import numpy as np
import torch

from evenhand.arrays import Floats, Ints
from evenhand.exceptions import DataFileError, InvalidInputError
from evenhand.inputs.identity import fingerprint_plain
from evenhand.inputs.validation import moved_keywords
from evenhand.metrics.names import SEARCHED, metric_of
from evenhand.searching.choice import ChoiceRule, effects_in, parse_constraint
from evenhand.searching.confirming import Confirmation, confirm
from evenhand.searching.families import (
    ESTIMATORS,
    QUICK_REPAIRS,
    FamilyName,
    Training,
    held_to_one_thread,
    kept_columns,
    repaired,
)
from evenhand.searching.options import DEFAULT_KEEP, SearchOptions, SearchSettings
from evenhand.searching.people import ComparedFold, SearchPeople
from evenhand.searching.result import SearchResult
from evenhand.searching.scoring import Metrics, is_signed_gap, score_model, score_stack, with_sizes
from evenhand.searching.space import Candidate, Space, candidates_of, family_names, proxy_drops, read_start
from evenhand.searching.stopping import Stopping
from evenhand.system import __version__
from evenhand.system.files import json_ready, write_text
from evenhand.system.terminal import progress
from evenhand.system.threads import in_order, n_cores, on_this_core
from evenhand.training import StackedNetwork, Trainer, TrainingData, TrainingDivergedError, TrainingSettings
from evenhand.training.classifier import CECClassifier
from evenhand.training.data import stack_tables
from evenhand.training.engine.loop import device_of

_FORMAT = "evenhand-search-block"

# Members trained together: as many as fill a device, and few enough that a stopped search loses little.
_MEMBERS_PER_BLOCK = {"cpu": 40, "cuda": 3_000}

_SHARED = ("hidden", "dropout", "batch_size", "n_steps", "method", "cec_every", "least_explained")

Trained: TypeAlias = tuple[float, float, float, int]
"""cec_weight, equalized_odds_weight, learning_rate and seed of a model."""


@dataclass(frozen=True)
class Scored:
    """Metrics of one candidate, trained with one seed, on one fold; NaN if a metric could not be estimated.

    Attributes
    ----------
    candidate
        Its key.
    fold, seed
        Numbers of the fold and the seed.
    metrics
        By name; empty if training failed.
    note
        Why training failed, if it did.
    """

    candidate: str
    fold: int
    seed: int
    metrics: dict[str, float]
    note: str = ""


Scoring: TypeAlias = Callable[[Sequence[Candidate]], list[Scored]]


def collate(
    scored: Sequence[Scored], candidates: Sequence[Candidate], settings: SearchSettings, features: Sequence[str]
) -> tuple[dict[str, Floats], dict[str, Floats], dict[int, str]]:
    """Metrics of candidates from the metrics of their models in each fold and for each seed.

    Returns metrics by name, of shape (n_candidates, n_folds), averaged over seeds, NaN if one could not be estimated;
    signed gaps of scores by `gap_name`, of the same shape; and why a candidate has no metrics, by its number.

    Parameters
    ----------
    scored
        A row for each model.
    candidates, settings
        What was trained, and on how many folds and seeds.
    features
        Names of the table's columns.
    """
    number = {candidate.key: candidate.number for candidate in candidates}
    names = dict.fromkeys([*SEARCHED, *(name for row in scored for name in row.metrics)])
    if settings.payoff is None:
        del names["profit"]
    sums = {name: np.zeros((len(candidates), settings.folds)) for name in names}
    notes: dict[int, list[str]] = defaultdict(list)
    for row in scored:
        k = number[row.candidate]
        if row.note:
            notes[k].append(row.note)
        for name, values in sums.items():
            values[k, row.fold] += row.metrics.get(name, np.nan) / settings.seeds
    gaps = {name: values for name, values in sums.items() if is_signed_gap(name)}
    metrics = with_sizes(sums, {name: values.mean(1) for name, values in gaps.items()}, features)
    return metrics, gaps, {k: of_one[0] for k, of_one in notes.items()}


@dataclass(frozen=True)
class BlockStore:
    """A folder with one file for each finished block; without a folder, nothing is kept.

    Attributes
    ----------
    folder
        The folder; None to keep nothing.
    run
        Fingerprint of data and settings. Blocks of other runs may be in the same folder and are left alone.

    Examples
    --------
    >>> import tempfile
    >>> store = BlockStore(tempfile.mkdtemp(), "run")
    >>> store.kept("first", lambda: [Scored("a", 0, 0, {"auc": 0.8})])[0].metrics
    {'auc': 0.8}
    >>> store.kept("first", lambda: [])[0].metrics
    {'auc': 0.8}
    """

    folder: str | os.PathLike[str] | None
    run: str

    def kept(self, block: str, compute: Callable[[], list[Scored]]) -> list[Scored]:
        """Results of a block: read if it is finished, else computed and written, whole or not at all.

        Raises
        ------
        DataFileError
            If the file cannot be read.
        """
        if self.folder is None:
            return compute()
        path = Path(self.folder) / f"search-{self.run}-{block}.json"
        identity = {"format": _FORMAT, "run": self.run, "block": block}
        if not path.is_file():
            results = compute()
            rows = [json_ready(asdict(row)) for row in results]
            write_text(path, json.dumps({**identity, "results": rows}, allow_nan=False))
            return results
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            if {name: data[name] for name in identity} != identity:
                raise ValueError("it contains a different block")
            results = [Scored(**row) for row in data["results"]]
            for row in results:
                row.metrics.update({name: math.nan for name, value in row.metrics.items() if value is None})
            return results
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataFileError(f"{path} is not a block of this search ({error}): remove the file.") from error


@dataclass(frozen=True, eq=False)
class Evaluator:
    """Trains candidates, on the folds of a search to measure them or on everyone searched on, and keeps the models.

    Attributes
    ----------
    people, settings
        Everyone, and how candidates are evaluated.
    folds
        The folds.
    device
        Where networks are trained.
    """

    people: SearchPeople
    settings: SearchSettings
    folds: Sequence[ComparedFold]
    device: torch.device
    _repaired: dict[tuple[Any, ...], Training] = field(default_factory=dict, init=False, repr=False)
    _fitted: dict[str, Any] = field(default_factory=dict, init=False, repr=False)
    _turn: Lock = field(default_factory=Lock, init=False, repr=False)

    def results(self, candidates: Sequence[Candidate], store: BlockStore) -> Iterator[list[Scored]]:
        """Results of every block of candidates, in the same order whether read or computed."""

        def kept(score: Scoring, block: Sequence[Candidate]) -> list[Scored]:
            return store.kept(fingerprint_plain([candidate.key for candidate in block]), lambda: score(block))

        # A stack is trained on all cores or on a GPU, so these blocks run one after the other.
        yield from map(partial(kept, self.score_networks), self.stacks(candidates))
        others = [(candidate,) for candidate in candidates if candidate.family != "network"]
        if others:
            with held_to_one_thread():
                yield from in_order(partial(kept, self.score_estimator), others, self.settings.n_jobs or n_cores())

    @property
    def places(self) -> list[tuple[int, int]]:
        """Every fold with every seed."""
        return [(fold, seed) for fold in range(len(self.folds)) for seed in range(self.settings.seeds)]

    def stacks(self, candidates: Sequence[Candidate]) -> list[tuple[Candidate, ...]]:
        """Networks that are trained together: the same blocks for the same candidates, also in a resumed search."""
        groups: dict[str, dict[Trained, list[Candidate]]] = defaultdict(lambda: defaultdict(list))
        for candidate in (c for c in candidates if c.family == "network"):
            p = candidate.parameters
            objective = p["objective"] if p["cec_weight"] else "none"
            groups[repr((objective, [p[name] for name in _SHARED]))][_trained(candidate)].append(candidate)
        n_members = _MEMBERS_PER_BLOCK.get(self.device.type, _MEMBERS_PER_BLOCK["cpu"])
        per_block = max(1, n_members // len(self.places))
        blocks = []
        for models in groups.values():
            # Models that train for equally long go together.
            ordered = sorted(models.values(), key=lambda same: max(c.parameters["epochs"] for c in same))
            for start in range(0, len(ordered), per_block):
                blocks.append(tuple(c for same in ordered[start : start + per_block] for c in same))
        return blocks

    def score_networks(self, block: Sequence[Candidate]) -> list[Scored]:
        """Train and score a block. A candidate whose training diverges is left without metrics, with a note."""
        models = list(dict.fromkeys(map(_trained, block)))
        try:
            return list(self._scored_stack(block, models))
        except TrainingDivergedError as error:
            if len(models) == 1:
                return [
                    Scored(c.key, *place, {}, f"training diverged: {error}") for c in block for place in self.places
                ]
        # Candidates that are one model at different numbers of epochs stay together: it would be trained twice.
        first = set(models[: len(models) // 2])
        return [
            row
            for is_first in (True, False)
            for row in self.score_networks([c for c in block if (_trained(c) in first) is is_first])
        ]

    def _scored_stack(self, block: Sequence[Candidate], models: Sequence[Trained]) -> Iterator[Scored]:
        members = [(model, fold, seed) for model in models for fold, seed in self.places]
        place_of = {member: index for index, member in enumerate(members)}
        epochs = sorted({int(c.parameters["epochs"]) for c in block})
        trained, tables, seeds = zip(*members, strict=True)
        cec, odds, rates, own = zip(*trained, strict=True)
        n_folds, first = len(self.folds), self.settings.random_state
        settings = TrainingSettings(
            table=tables,
            seed=tuple(first + f + n_folds * (seed + s) for f, seed, s in zip(tables, seeds, own, strict=True)),
            cec_weight=cec,
            equalized_odds_weight=odds,
            learning_rate=rates,
            objective=block[0].parameters["objective"],
            epochs=epochs[-1],
            device=str(self.device),
            **{name: block[0].parameters[name] for name in _SHARED},
        )
        triples = [fold.triples for fold in self.folds if fold.triples is not None]
        stacks = train_stack(stack_tables(self.folds, triples if settings.uses_placebo else None), settings, epochs)
        layout = stacks[epochs[-1]].layout
        judged = [(candidate, seed) for candidate in block for seed in range(self.settings.seeds)]
        for number, fold in enumerate(self.folds):
            rows = [
                stacks[int(c.parameters["epochs"])].flat.detach()[place_of[_trained(c), number, seed]]
                for c, seed in judged
            ]
            stack = torch.stack(rows).to(self.device)
            metrics = score_stack(stack, layout, fold)
            for (candidate, seed), of_one in zip(judged, metrics, strict=True):
                yield Scored(candidate.key, number, seed, of_one)

    def score_estimator(self, block: Sequence[Candidate]) -> list[Scored]:
        """Train and score the one candidate of a block, on one thread; candidates share slow repairs."""
        (candidate,) = block
        repair, drop = candidate.parameters["repair"], tuple(sorted(candidate.parameters["drop"]))
        scored = []
        with on_this_core():
            for number, fold in enumerate(self.folds):
                with nullcontext() if repair in QUICK_REPAIRS else self._turn:
                    training = self._repaired.get((repair, drop, number))
                    if training is None:
                        training = repaired_people(candidate, self.people, fold.train)
                    if repair not in QUICK_REPAIRS:
                        self._repaired[repair, drop, number] = training
                for seed in range(self.settings.seeds):
                    random_state = self.settings.random_state + candidate.seed + seed
                    model = ESTIMATORS[candidate.family].fit(candidate.parameters, training, random_state)
                    scored.append(Scored(candidate.key, number, seed, score_model(model, fold)))
        return scored

    def fit(self, candidate: Candidate) -> Any:
        """The candidate's model, fitted on everyone searched on."""
        if candidate.key not in self._fitted:
            self._fitted[candidate.key] = self._fit(candidate)
        return self._fitted[candidate.key]

    def _fit(self, candidate: Candidate) -> Any:
        people, settings, rows = self.people, self.settings, self.people.searched
        random_state = settings.random_state + candidate.seed
        if candidate.family != "network":
            with held_to_one_thread():
                return fit_estimator(candidate, people, rows, random_state)
        model = CECClassifier(
            **{name: value for name, value in candidate.parameters.items() if name != "seed"},
            financial_features=people.financial_features,
            encoding=settings.encoding,
            max_distance=settings.max_distance,
            device=str(self.device),
            random_state=random_state,
        )
        X = people.table.iloc[rows].reset_index(drop=True)
        return model.fit(X, people.labels[rows], sensitive_features=people.group_names[rows])


def train_stack(data: TrainingData, settings: TrainingSettings, epochs: Sequence[int]) -> dict[int, StackedNetwork]:
    """Trained stacks by number of epochs; the last number is that of the settings."""
    trainer, kept = Trainer(data, settings), {}

    def after_epoch(epoch: int, metrics: dict[str, torch.Tensor]) -> None:
        if epoch + 1 in epochs:
            kept[epoch + 1] = trainer.network()

    trainer.run(after_epoch)
    return kept


def _trained(candidate: Candidate) -> Trained:
    p = candidate.parameters
    return p["cec_weight"], p["equalized_odds_weight"], p["learning_rate"], candidate.seed


def fit_estimator(candidate: Candidate, people: SearchPeople, rows: Ints, random_state: int) -> Any:
    """A candidate's model, fitted on some of the people."""
    training = repaired_people(candidate, people, rows)
    return ESTIMATORS[candidate.family].fit(candidate.parameters, training, random_state)


def repaired_people(candidate: Candidate, people: SearchPeople, rows: Ints) -> Training:
    """Some of the people, as training data of a candidate."""
    X = people.categorized.iloc[rows].reset_index(drop=True)
    training = Training(X, people.labels[rows], people.groups.codes[rows], people.financial_features)
    return repaired(candidate.parameters["repair"], training, kept_columns(candidate.parameters, people.columns))


def check_seen(candidates: Sequence[Candidate], people: SearchPeople) -> None:
    """Refuse to drop columns that people are matched on, if the model's file names only the columns it keeps.

    Raises
    ------
    InvalidInputError
        If a candidate drops one.
    """
    for candidate in candidates:
        if candidate.family != "network" and ESTIMATORS[candidate.family].is_native:
            lost = [name for name in candidate.parameters["drop"] if name in people.financial_features]
            if lost:
                raise InvalidInputError(
                    f"`drop` names {lost}, on which people are matched: an audit needs a model of {candidate.family} "
                    "to take the financial features. Drop different columns, or match on different ones."
                )


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
