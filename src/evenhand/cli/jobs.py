"""Whole jobs: the demonstration, and audits, searches and trainings from files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evenhand import load_model
from evenhand.auditing.audit import audit_people
from evenhand.auditing.fitted import audited_model, notes_on_label
from evenhand.auditing.options import AuditOptions, GivenOptions, StreamOptions
from evenhand.cli.options import AuditPlan, SearchPlan, TablePlan, TrainPlan, opened_table, part_of
from evenhand.exceptions import DataFileError, InvalidInputError
from evenhand.inputs.given import attribution_columns, given_columns, rows_by_id, rows_in_order
from evenhand.inputs.identity import fingerprint_file
from evenhand.inputs.people import Columns, People, read_people
from evenhand.inputs.read_options import ColumnOptions, ReadOptions
from evenhand.inputs.reason_maps import ReasonMap
from evenhand.inputs.splitting import sample_people, split_people
from evenhand.inputs.tables import open_table, typed
from evenhand.inputs.tables.open import name_of_input
from evenhand.inputs.tables.raw import RawTable
from evenhand.inputs.validation import as_groups, check_columns
from evenhand.models.dispatch import input_columns, unsettled_columns
from evenhand.searching.options import SearchOptions
from evenhand.system.terminal import PATIENCE, progress

if TYPE_CHECKING:
    from evenhand.auditing.result import AuditResult
    from evenhand.searching import SearchResult
    from evenhand.training.classifier import CECClassifier

_SHOWN = 8


def read_given(
    path: Any, plan: AuditPlan, second: RawTable | None = None
) -> tuple[People, Callable[[People], dict[str, Any]], tuple[str, ...]]:
    """Read the people of a file, what `audit_given` takes for some of them, and notes on the reading.

    If there are attributions, in this file or a second one, the model's inputs are the columns that have them.
    """
    reading = part_of(plan, ReadOptions)
    raw = open_table(path, reading)
    names, others = list(raw.schema.names), [] if second is None else list(second.schema.names)
    is_beside = plan.base_values in others
    scores, base, codes = given_columns(names, plan.scores, None if is_beside else plan.base_values, plan.reason_codes)
    ids = []
    if second is not None and plan.ids is not None:
        ids = check_columns([plan.ids], others, "`ids` (--id), in the attributions file,")
    taken = [*ids, *(name for name in others if is_beside and name == plan.base_values)]
    patterns = plan.attributions or (("*",) if second is not None else ())
    columns = attribution_columns(patterns, [name for name in others or names if name not in taken])
    single = [name for name in (scores, base) if isinstance(name, str)]
    needed = list(dict.fromkeys([*single, *codes, *(columns.values() if second is None else ())]))
    inputs = _inputs(list(columns), names, plan) if columns else None
    people, notes = _applicants(path, replace(plan, drop=(*plan.drop, *needed)), inputs)
    dropped = [name for name in people.columns.get("dropped", ()) if name not in needed]
    people = replace(people, columns={**people.columns, "dropped": dropped})
    if inputs is not None:
        roles = {plan.label, plan.ids, plan.clusters, plan.decisions, *plan.group, *plan.by, *plan.drop}
        rest = [name for name in names if name not in {*roles, *needed, *inputs}]
        more = f" and {len(rest) - _SHOWN} more" if len(rest) > _SHOWN else ""
        unused = f"Not used as inputs, because they have no attributions: {', '.join(map(repr, rest[:_SHOWN]))}{more}."
        notes = (*notes, unused) if rest else notes
    frame = typed(raw, needed or names[:1], reading).table.to_pandas()
    beside = None if second is None else typed(second, [*columns.values(), *taken], reading).table.to_pandas()

    def of(some: People) -> dict[str, Any]:
        own = rows = frame.iloc[some.kept].reset_index(drop=True)
        if second is not None and beside is not None:
            rows = (
                rows_by_id(beside, ids[0], some.ids, second.where)
                if ids and some.ids is not None
                else rows_in_order(beside, len(frame), some.kept, second.where)
            )
        return {
            "scores": None if scores is None else own[scores],
            "base_values": rows[plan.base_values] if is_beside else own[base] if isinstance(base, str) else base,
            "reason_codes": own[codes] if codes else None,
            "attributions": rows[[*columns.values()]].set_axis([*columns], axis=1) if columns else None,
        }

    return people, of, notes


def _inputs(features: Sequence[str], names: Sequence[str], plan: AuditPlan) -> list[str]:
    """The columns that have attributions, in the order of the file."""
    absent = [feature for feature in features if feature not in names]
    if absent:
        raise InvalidInputError(
            f"There are attributions for {absent[:_SHOWN]}, which are not columns of the applicants' file; map a "
            "feature to its column with --attributions feature=column."
        )
    lacking = [name for name in plan.financial_features if name not in features]
    if lacking:
        raise InvalidInputError(
            f"Attributions are missing for the financial features {lacking}; pass them, with 0 for a feature that the "
            "model does not use."
        )
    return [name for name in names if name in features]


_TRAIN_SHARE = 0.7
_QUICK_PEOPLE = 2_000
_DEMO_PEOPLE = 12_000  # out of 30,000, for an answer within seconds


def audit_demo(random_state: int = 0) -> AuditResult:
    """Audit a plain network on Taiwan's credit cards, which does not see sex, on held-out people."""
    from evenhand.datasets import load_dataset

    data = load_dataset("taiwan")
    drawn = sample_people(data.y, as_groups(data.group, len(data)).codes, _DEMO_PEOPLE, random_state)
    people = People.of(data.X.iloc[drawn], data.y[drawn], data.group[drawn])
    return _fit_and_audit(
        people, AuditOptions(financial_features=tuple(data.financial_features), random_state=random_state)
    )


def audit_table(path: Any, plan: AuditPlan) -> AuditResult:
    """Audit the applicants of a table.

    Without a model, and without scores or decisions in its place, a plain network is fitted on 70% of the people and
    audited on the rest, who are matched to people in the 70%.
    """
    if is_without_model(plan):
        return _audit_given_table(path, plan)
    if plan.model is None and plan.reference is not None:
        raise InvalidInputError(
            "--reference needs --model: without a model, the people are split into a reference and an audited part."
        )
    reference = None if plan.reference is None else opened_table(plan.reference, plan)
    path = open_table(path, part_of(plan, ReadOptions))
    files = _Files(plan.model, data=path, reference=reference)
    with progress("reading", 2, after=PATIENCE) as advance:
        model = None if plan.model is None else load_model(plan.model, trust_pickle=plan.trust_pickle)
        advance("model")
        features: Sequence[str] | None = plan.columns
        if model is None or plan.columns in ((), _AS_IS):
            features = None if model is None else input_columns(model)
        everyone, notes = _applicants(path, plan, features)
        advance("people")
    people = _drawn(everyone, plan.random_state) if plan.quick else everyone
    options = part_of(plan, AuditOptions)
    if model is None:
        result = _fit_and_audit(people, options, as_paper=plan.paper)
    else:
        if features is None and not plan.columns:
            unsettled = unsettled_columns(model, audited_model(model, options, people.table), people.table)
            if unsettled:
                raise _unsettled(unsettled, people.table.columns)
        columns = [str(name) for name in people.table.columns]
        pool = None if reference is None else _applicants(reference, plan, columns, is_checked=True)[0]
        result = audit_people(model, people, pool, options, progress=True)
    return _finished(result, people, len(everyone), notes, files)


_AS_IS = ("as-is",)


def _unsettled(unsettled: Sequence[str], columns: Iterable[str] = ()) -> InvalidInputError:
    order = ",".join(map(str, columns))
    return InvalidInputError(
        f"The model has no names for its inputs{f', which would be taken in the order {order}' if order else ''}, and "
        f"nothing in it tells {', '.join(map(repr, unsettled)) or 'them'} apart: list its inputs in the order of "
        "training with --columns a,b,c, or confirm the order of the file with --columns as-is."
    )


class _Files:
    """The tables and the model of an audit, by what they are; a table stays as it was opened, or is refused."""

    def __init__(self, model: str | None = None, **tables: Any) -> None:
        self._tables = {what: table for what, table in tables.items() if table is not None}
        self._model, self._before = model, "" if model is None or not Path(model).exists() else fingerprint_file(model)

    def names(self) -> dict[str, str]:
        """Names of the files, without folders and passwords."""
        files = self._tables | ({} if self._model is None else {"model": self._model})
        return {f"{what} file": name_of_input(file) for what, file in files.items()}

    def hashes(self) -> dict[str, str]:
        """Hashes of what was read, and versions of the tables that have them.

        Raises
        ------
        DataFileError
            If a file has changed since.
        """
        hashes = {f"{what} file": table.fingerprint() for what, table in self._tables.items()}
        if self._model is not None:
            hashes["model file"] = fingerprint_file(self._model)
            if hashes["model file"] != self._before:
                raise DataFileError("The model file changed while it was audited; start again.")
        return hashes | {f"{what} version": table.version for what, table in self._tables.items() if table.version}


def _finished(
    result: AuditResult,
    people: People,
    n_everyone: int,
    notes: Sequence[str],
    files: _Files,
) -> AuditResult:
    """Add to a result its source files, the rows left out of them, and the notes on them."""
    own = result.provenance
    hashes = {**own.hashes, **files.hashes()}
    provenance = replace(own, exclusions=people.exclusions, hashes=hashes, files=files.names())
    looked = (
        f"This is a quick look at {len(people):,} of {n_everyone:,} people, drawn at random with the same shares "
        "of label and group: audit everyone before you base a decision on it.",
    )
    is_part = len(people) < n_everyone
    return replace(result, provenance=provenance, warnings=(*(looked if is_part else ()), *notes, *result.warnings))


def is_without_model(plan: AuditPlan) -> bool:
    """Whether scores, attributions, reasons or decisions take the place of a model.

    Raises
    ------
    InvalidInputError
        If there is a model as well.
    """
    given = [option.name for option in fields(GivenOptions) if getattr(plan, option.name)]
    if plan.model is not None and given:
        shown = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise InvalidInputError(f"{shown} take the place of a model, but --model names one too: use only one of them.")
    return plan.model is None and (bool(given) or plan.decisions is not None)


def _audit_given_table(path: Any, plan: AuditPlan) -> AuditResult:
    """Audit the scores, decisions and attributions that a file holds."""
    from evenhand.auditing.given import audit_given_people

    if plan.reference is not None:
        raise InvalidInputError("--reference needs --model: without a model, people are matched with each other.")
    if not plan.evidence:
        raise InvalidInputError(
            "--no-evidence needs --model: without a model, an audit consists of the evidence alone."
        )
    path = open_table(path, part_of(plan, ReadOptions))
    beside = None if plan.attributions_file is None else opened_table(plan.attributions_file, plan)
    files = _Files(data=path, attributions=beside)
    with progress("reading", 2, after=PATIENCE) as advance:
        everyone, given, notes = read_given(path, plan, beside)
        advance("people")
        people = _drawn(everyone, plan.random_state) if plan.quick else everyone
        columns = {**given(people), "decisions": people.decisions}
        advance("columns")
    options = part_of(plan, AuditOptions)
    result = audit_given_people(people, columns, options, progress=True)
    return _finished(result, people, len(everyone), notes, files)


def _drawn(everyone: People, random_state: int) -> People:
    """The people drawn for a quick look."""
    if len(everyone) <= _QUICK_PEOPLE:
        return everyone
    rows = sample_people(everyone.labels, everyone.groups.codes, _QUICK_PEOPLE, random_state)
    left_out = {**everyone.exclusions, "not drawn for a quick look": len(everyone) - len(rows)}
    return replace(everyone.rows(rows), exclusions=left_out)


def stream_table(path: Any, plan: AuditPlan, out: Path) -> AuditResult:
    """Audit a model file on the applicants of files of any size, in batches: see `evenhand.audit_stream`."""
    from evenhand.auditing.streaming import audit_stream

    if plan.quick:
        raise InvalidInputError("--quick draws people from a table in memory: drop --quick or --stream.")
    if is_without_model(plan):
        raise InvalidInputError(
            "An audit without a model runs in memory: drop --stream, and pass one file rather than a folder."
        )
    if plan.model is None:
        raise InvalidInputError(
            "An audit in batches needs --model: train one first, for example with `evenhand train`."
        )
    if plan.regressions or plan.outcomes:
        raise InvalidInputError(
            "--regressions needs the people in memory: drop it and --outcomes from an audit in batches, or pass one "
            "file without --stream."
        )
    model = load_model(plan.model, trust_pickle=plan.trust_pickle)
    if not plan.columns and input_columns(model) is None:  # statistics are compared with people in memory
        raise _unsettled(())
    result = audit_stream(
        model,
        path,
        label=plan.label,
        group=plan.group,
        financial_features=plan.financial_features,
        out=out,
        reference=plan.reference,
        columns=replace(part_of(plan, ColumnOptions), features=None if plan.columns in ((), _AS_IS) else plan.columns),
        reading=part_of(plan, ReadOptions),
        stream=part_of(plan, StreamOptions),
        options=part_of(plan, AuditOptions),
        progress=True,
    )
    files = {"model file": plan.model, "reference file": plan.reference}
    names = {what: name_of_input(file) for what, file in files.items() if file is not None}
    provenance = replace(result.provenance, files={**result.provenance.files, **names})
    return replace(result, provenance=provenance)


def search_table(path: Any, plan: SearchPlan, checkpoint: Path) -> tuple[SearchResult, list[str]]:
    """Search for an alternative on the applicants of a file; return it and the notes on how cells were read."""
    from evenhand.searching import search
    from evenhand.searching.space import default_space, family_names

    families: Any = plan.family or None
    space: Any = None
    if plan.seed_search is not None:
        if plan.seed_search < 2:
            raise InvalidInputError(f"--seed-search must be at least 2, got {plan.seed_search}.")
        seeds = list(range(plan.seed_search))
        space = {name: {**default_space(name), "seed": seeds} for name in family_names(families or "network")}
        if plan.start is not None and families is None:
            space = {"seed": seeds}
    people, notes = _applicants(path, plan)
    clusters = None if people.clusters is None else people.clusters.astype(object)
    if clusters is not None:
        clusters[people.clusters == 0] = None  # a row whose value is missing is alone
    encoding: Any = plan.categories
    result = search(
        people.table,
        people.labels,
        sensitive_features=people.group_of_each,
        financial_features=list(plan.financial_features),
        clusters=clusters,
        family=families,
        space=space,
        checkpoint=checkpoint,
        **{name: getattr(plan, name) for name in ("start", "n_candidates", "keep", "minimize", "random_state")},
        options=replace(part_of(plan, SearchOptions), encoding=encoding, progress=True),
    )
    return result, [*notes, *_left_out(people)]


def train_table(path: Any, plan: TrainPlan) -> tuple[CECClassifier, list[str]]:
    """Fit a classifier on the applicants of a file; return it with notes on rows left out and how cells were read."""
    from evenhand.research.paper import PAPER
    from evenhand.training.classifier import CECClassifier

    people, notes = _applicants(path, plan)
    # Options of `evenhand train` are parameters of the same name, but `encoding` is that of the file.
    own = dict(PAPER.training) if plan.paper else {}
    own |= {name: getattr(plan, name) for name in CECClassifier().get_params() if hasattr(plan, name)}
    own |= {"encoding": plan.categories, "financial_features": list(plan.financial_features), "progress": True}
    model = CECClassifier(**own)
    return model.fit(people.table, people.labels, sensitive_features=people.group_of_each), [*notes, *_left_out(people)]


def _left_out(people: People) -> list[str]:
    return [f"Left out {count:,} rows: {reason}." for reason, count in people.exclusions.items()]


def _applicants(
    path: Any, plan: AuditPlan | TablePlan, features: Sequence[str] | None = None, *, is_checked: bool = False
) -> tuple[People, tuple[str, ...]]:
    """The people of a file, with notes on how it was read; `is_checked` says that its columns were checked before."""
    favorable = getattr(plan, "favorable", None)
    named: Any = None if features is None else tuple(features)
    outcome_favors = None if getattr(plan, "unit", None) else favorable
    roles = replace(part_of(plan, Columns), features=named, favorable=outcome_favors)
    people, notes = read_people(path, roles, part_of(plan, ReadOptions), is_checked=is_checked)
    if isinstance(plan, AuditPlan) and people.given_probabilities is not None:
        given = replace(people.given_probabilities, n_draws=plan.draws, threshold=plan.group_threshold)
        people = replace(people, given_probabilities=given)
    if not is_checked and plan.label:
        notes = (*notes_on_label(plan.label, plan.positive_label or favorable), *notes)
    return people, notes


def _fit_and_audit(people: People, options: AuditOptions, *, as_paper: bool = False) -> AuditResult:
    """Fit a plain network on some of the people, and audit it on the others."""
    from evenhand.research.paper import PAPER
    from evenhand.training.classifier import CECClassifier

    ReasonMap.of(options.reason_map, list(people.table.columns))  # rejected before a network is fitted
    train, test = split_people(people.labels, people.groups.codes, _TRAIN_SHARE, options.random_state)
    pool = people.rows(train)
    model = CECClassifier(
        financial_features=list(options.financial_features),
        cec_weight=0.0,
        equalized_odds_weight=0.0,
        encoding=PAPER.encoding if as_paper else "onehot",
        random_state=options.random_state,
        progress=True,
    )
    model.fit(pool.table, pool.labels, sensitive_features=pool.group_of_each)
    return audit_people(model, people.rows(test), pool, options, progress=True)
