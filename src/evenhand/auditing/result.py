"""The result of an audit, in memory or streamed, and everything that is shown and written from it."""

from __future__ import annotations

import copy
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from rich.console import RenderableType

from evenhand.auditing.evidence import Evidence
from evenhand.auditing.findings import findings_of, with_words
from evenhand.auditing.pack import ARTIFACTS, log_audit, write_pack
from evenhand.auditing.reasons import Reasons
from evenhand.auditing.regressions import Regressions
from evenhand.auditing.sample import (
    MAX_PAIRS,
    LabeledPairs,
    PairSample,
    PairsInMemory,
    PairSource,
    cases_of,
    draw_pair_sample,
    review_of,
    strongest_pairs,
)
from evenhand.auditing.scope import Scope
from evenhand.auditing.sections import CHARTS, SECTIONS
from evenhand.auditing.sections.matching import Weighting
from evenhand.auditing.sections.outcome import Outcomes
from evenhand.auditing.sections.pairs import PairMetrics, review_table
from evenhand.auditing.summary import SCHEMA, Provenance, library_versions, write_json
from evenhand.exceptions import InvalidInputError
from evenhand.matching.diagnostics import MatchDiagnostics
from evenhand.metrics.proxies import ProxyScreen
from evenhand.report.explorer import pairs_to_show
from evenhand.report.labels import Labels
from evenhand.report.markdown import audit_markdown
from evenhand.report.memo import write_memo
from evenhand.report.page import ShownReport, audit_card, audit_page, summary_records
from evenhand.report.section import Plots, number, sheets_of
from evenhand.report.tables import Table, frame_of, name_in_code
from evenhand.report.terminal import as_text, terminal_summary
from evenhand.report.workbook import MAX_PAIRS as MAX_ROWS
from evenhand.report.workbook import write_workbook
from evenhand.system.files import time_of_writing, write_atomically, write_text


class AuditReport:
    """An audit as numbers and words, and everything that is written from them: what `read_result` returns.

    Tables, charts and memo are those of the run. People are not in the JSON, so there are no pairs, applicants to
    review, cases and reasons by person; the page and the workbook say so.
    """

    @cached_property
    def _summary(self) -> Mapping[str, Any]:
        """What every output is made from; never changed."""
        raise NotImplementedError

    @cached_property
    def _labels(self) -> Labels:
        return Labels.of(self._summary.get("report", {}).get("labels", {}), self._summary)

    @cached_property
    def _shown(self) -> Mapping[str, Any]:
        """The summary in the user's words."""
        return self._labels.summary(self._summary)

    def to_dict(self) -> dict[str, Any]:
        """Everything except the pairs as plain data; a metric that could not be estimated is NaN with a note."""
        return copy.deepcopy(dict(self._summary))

    def summary(self) -> pd.DataFrame:
        """The metrics of the audit, as a table with columns metric, value, ci_low, ci_high, note."""
        rows = [
            (row["metric"], number(row["value"]), number(row["low"]), number(row["high"]), row["note"])
            for row in summary_records(self._summary, SECTIONS)
        ]
        return pd.DataFrame(rows, columns=["metric", "value", "ci_low", "ci_high", "note"])

    @cached_property
    def tables(self) -> dict[str, pd.DataFrame]:
        """The tables of the workbook as frames, by name: "approvals", "errors", "score_gap", "features", "balance".

        An estimate has three columns, such as approval_rate, approval_rate_low and approval_rate_high. A table without
        rows, because it was not asked for or cannot be found from what was given, is absent.
        """
        tables = [table for table in sheets_of(self._summary, SECTIONS) if table.records]
        return {table.key or name_in_code(table.name): frame_of(table) for table in tables}

    @property
    def findings(self) -> pd.DataFrame:
        """The four findings, strongest first: key, question, answer, estimate, low, high, unit, p-values, sentence."""
        first = ["key", "question", "answer", "estimate", "low", "high"]
        rest = ["unit", "p_value", "p_adjusted", "limit", "within_limit", "sentence"]
        rows = [{**one, "low": one["ci"][0], "high": one["ci"][1]} for one in self._summary["findings"]]
        return pd.DataFrame(rows, columns=[*first, *rest])

    def to_json(self, path: str | os.PathLike[str]) -> None:
        """Write `to_dict` and the time as JSON, completely or not at all; a missing number is null."""
        schema, *rest = self._summary.items()
        write_json(dict([schema, ("created", time_of_writing().isoformat(timespec="seconds")), *rest]), path)

    def to_html(self, path: str | os.PathLike[str], *, title: str | None = None, pairs_file: str | None = None) -> None:
        """Write the report as one HTML file that needs no network, completely or not at all.

        Parameters
        ----------
        path
            Path of the file.
        title
            Title of the page; by default that of the audit, or else it names the model.
        pairs_file
            Name of the file of `to_parquet`, if it is in the same folder as the page.
        """
        write_text(path, self._page(title, pairs_file))

    def _page(self, title: str | None = None, pairs_file: str | None = None) -> str:
        return audit_page(self._shown, SECTIONS, title=title)

    def show(self, height: int = 900) -> ShownReport:
        """The report inside a notebook, without a network.

        Parameters
        ----------
        height
            Height in pixels.
        """
        return ShownReport(self._page(), height)

    def to_markdown(self, path: str | os.PathLike[str] | None = None) -> str:
        """The front page with the score gap by input and the approvals as Markdown, for model cards and pull requests.

        Parameters
        ----------
        path
            File to write, completely or not at all; None for none.
        """
        text = audit_markdown(self._shown, SECTIONS)
        if path is not None:
            write_text(path, text)
        return text

    def to_excel(self, path: str | os.PathLike[str]) -> None:
        """Write the metrics and tables as an Excel workbook, completely or not at all; needs the extra `excel`.

        Pairs are listed up to the row limit of a sheet; if there are more, those with the strongest evidence.
        """
        write_workbook(self._shown, SECTIONS, path)

    def to_word(self, path: str | os.PathLike[str], *, template: str | os.PathLike[str] | None = None) -> None:
        """Write the audit as an editable Word memo, completely or not at all; needs the extra `word`.

        Parameters
        ----------
        path
            Path of the file.
        template
            Your own Word file, .docx or .dotx without macros: its text comes first, and its styles, headers and footers
            are kept.
        """
        write_memo(self._shown, SECTIONS, path, template=template)

    @property
    def plot(self) -> Plots:
        """Charts of the result by name, such as `result.plot.regimes()`; notebooks show them, and they can be saved."""
        return Plots(self._shown, self._sample_of, CHARTS)

    def _sample_of(self, person: int) -> dict[str, Any]:
        raise InvalidInputError("A result that was read from a file has no people: draw the pair where it was audited.")

    def _repr_html_(self) -> str:
        """A card for notebooks with the answers and the warnings."""
        return audit_card(self._shown)

    def __repr__(self) -> str:
        data = self._summary
        return f"{type(self).__name__}({data['data']['n_people']} people, {data['verdict']['headline']!r})"

    def __str__(self) -> str:
        """The summary as plain text."""
        return as_text(self)

    def __rich__(self) -> RenderableType:
        """The summary for a terminal."""
        return terminal_summary(self._shown, SECTIONS)


T = TypeVar("T")


class Part(Generic[T]):
    """An attribute of a result that one of its sections computed; None if the section has nothing."""

    def __init__(self, key: str) -> None:
        self.key = key

    def __get__(self, result: AuditResult, kind: type) -> T:
        part: T = result.sections[self.key]
        return part


@dataclass(frozen=True, eq=False, repr=False)
class AuditResult(AuditReport):
    """Result of `audit` and of `audit_stream`.

    Attributes
    ----------
    features
        One row per feature: its mean contribution to the CEC score, its share of the total, its contribution to the
        excess with an interval and, unless it is 0 by construction, its mean attribution in each group; the largest
        contribution first.
    outcome
        Utility, and decisions and errors by group.
    matching
        Quality of the matches.
    evidence
        Excess over placebo pairs; None if it was not asked for.
    proxies
        How well features predict the group; None if evidence was not asked for.
    settings
        All options that change a metric.
    provenance
        What was audited.
    warnings
        Reservations, in words.
    pair_metrics
        Metrics of all scored pairs.
    source
        Where the pairs and their people are stored.
    stream
        For a streamed audit: how it was split into batches, and how the reference was chosen.
    folder
        For a streamed audit: the folder with all files.
    scope
        What could and could not be found with the given inputs; None if a model was audited on labels.
    regressions
        Regressions of decisions, scores and additional outcomes on the group; None if not asked for.
    weighting
        Sampling weights of the people; None if there are none.
    drawn_groups
        For groups known as probabilities: the metrics pooled over their draws, as in the summary; None if groups are
        known.
    reason_codes
        Reasons of declined people: how often each is given to which group, and how many comparable people share.
    sections
        What every section computed, by its key; None where it has nothing.
    report
        What the report calls things, as far as it is given: see `ReportOptions`.
    """

    settings: Mapping[str, Any]
    provenance: Provenance
    warnings: tuple[str, ...]
    source: PairSource
    sections: Mapping[str, Any]
    stream: Mapping[str, Any] | None = None
    folder: Path | None = None
    scope: Scope | None = None
    report: Mapping[str, Any] = field(default_factory=dict)

    features = Part[pd.DataFrame]("drivers")
    outcome = Part[Outcomes]("outcome")
    matching = Part[MatchDiagnostics]("matching")
    evidence = Part[Evidence | None]("excess")
    proxies = Part[ProxyScreen | None]("proxies")
    pair_metrics = Part[PairMetrics]("regimes")
    regressions = Part[Regressions | None]("regressions")
    weighting = Part[Weighting | None]("weights")
    drawn_groups = Part[Mapping[str, Any] | None]("drawn-groups")
    reason_codes = Part[Reasons | None]("reasons-given")

    @cached_property
    def pairs(self) -> pd.DataFrame:
        """Table with one row per person and other group.

        Columns: person (row of the audited table), match (row of the reference, -1 if unmatched), distance, group,
        other_group, label (1 for the favorable outcome), score and match_score (the model's probabilities),
        decision and match_decision (1 for favorable), cec, placebo_cec, input_gap, reasoning_gap, regime,
        shared_reasons (for two declined people), q_value, is_negligible; with sampling weights, also sample_weight, up
        to a common factor. A pair that could not be scored has missing values.

        For a streamed audit, all pairs are read from disk: if there are very many, read the files at `pairs_path`.
        """
        parts = list(self.source.parts())
        return parts[0] if len(parts) == 1 else pd.concat(parts, ignore_index=True)

    @property
    def pairs_path(self) -> Path | None:
        """Folder of the pair table of a streamed audit, one Parquet file per batch; None for an audit in memory."""
        return None if self.folder is None else self.folder / "pairs"

    def reasons(self) -> pd.DataFrame:
        """The principal reasons of each declined person.

        Returns
        -------
        Table with one row per person with an unfavorable decision: person (row of the audited table), person_id
        if ids were given, group, decision, reason_1, reason_2, ... (missing after the last) and share_1, share_2,
        ..., the share of each in everything that lowers the person's score below the baseline. For a streamed audit, it
        is read from the Parquet files of the folder ``reasons``.
        """
        parts = list(self.source.reason_parts())
        return parts[0] if len(parts) == 1 else pd.concat(parts, ignore_index=True)

    @cached_property
    def pairs_sample(self) -> PairSample:
        """Up to 2,000 pairs to inspect one by one: see `pair_sample`."""
        return draw_pair_sample(self.source)

    @property
    def table(self) -> pd.DataFrame:
        """The audited people's columns; only for an audit in memory."""
        return self._in_memory.table

    @property
    def reference_table(self) -> pd.DataFrame:
        """Columns of the people they were matched in; only for an audit in memory."""
        return self._in_memory.reference_table

    @property
    def attributions(self) -> NDArray[np.float32]:
        """Attributions of each audited person by feature, (n_people, n_features); only for an audit in memory."""
        return self._in_memory.attributions

    @property
    def match_attributions(self) -> NDArray[np.float32]:
        """The same for the match of each pair, (n_pairs, n_features), from the person's baseline."""
        return self._in_memory.match_attributions

    @property
    def _in_memory(self) -> PairsInMemory:
        if not isinstance(self.source, PairsInMemory):
            raise InvalidInputError(
                "A streamed audit does not keep everyone's values and attributions; use `pair_sample` or `cases` for "
                "some people, or `evenhand.audit`, which keeps all."
            )
        return self.source

    def pair_sample(self, max_pairs: int = MAX_PAIRS, random_state: int = 0) -> PairSample:
        """Pairs to inspect one by one: a fifth are the strongest cases, the rest are drawn over regimes and groups.

        Parameters
        ----------
        max_pairs
            Largest number of pairs.
        random_state
            Seed of the draw.

        Returns
        -------
        The pairs, the values and attributions of both people, and a description of how they were drawn.
        """
        if (max_pairs, random_state) == (MAX_PAIRS, 0):
            return self.pairs_sample
        return draw_pair_sample(self.source, max_pairs, random_state)

    def cases(self, n: int = 20) -> pd.DataFrame:
        """The people with the strongest evidence next to their matches, feature by feature.

        Parameters
        ----------
        n
            Number of pairs.

        Returns
        -------
        Table with one row per pair and feature: person, match, group, other_group, q_value, cec, placebo_cec, score,
        match_score, feature, value, match_value, attribution, match_attribution, and reason and match_reason: for
        declined people, the rank of the feature's reason among their principal reasons. Pairs with the lowest
        `q_value`, the false discovery rate of a list that ends with them, come first.
        """
        return cases_of(self.source, n, () if self.reason_codes is None else self.reason_codes.of_features)

    def review(self, n: int = 25, *, ids: Sequence[Any] | None = None) -> pd.DataFrame:
        """The applicants to look at first: declined, while the closest applicant of a better-off group was approved.

        Worse off is the group that is approved less often at equal finances: that of the score gap in decisions, the
        largest first; without evidence, the group with the lower approval rate, compared with the reference group.
        Among its applicants, those with the closest match come first.

        Parameters
        ----------
        n
            Number of pairs.
        ids
            Ids of applicants, or row numbers if the audit has no ids: all their pairs are returned, whatever was
            decided, the closest first.

        Returns
        -------
        Table with one row per pair: person, group, score and decision of the applicant, match, other_group, match_score
        and match_decision of the closest applicant, ids if there are any, distance, inputs_that_differ (the largest
        difference in attributions first), and each input of both. Empty if there are no decisions, and without `ids` if
        groups are only known as probabilities.

        Raises
        ------
        InvalidInputError
            If there is no applicant with such an id.
        """
        return review_of(self.source, self._sides, n, ids)

    @property
    def _sides(self) -> list[tuple[str, str]]:
        """Two groups each, the one that is worse off first; the farthest apart come first."""
        approvals = self.outcome.approvals
        if self.evidence is not None:
            apart = {(gap.group, gap.reference): gap.decision.value for gap in self.evidence.score_gaps}
        else:
            rates = {row.group: row.approval_rate.value for row in approvals.groups}
            apart = {(name, approvals.reference): rate - rates[approvals.reference] for name, rate in rates.items()}
        known = {} if self.drawn_groups is not None else {two: gap for two, gap in apart.items() if not math.isnan(gap)}
        return [two if known[two] < 0 else two[::-1] for two in sorted(known, key=lambda two: -abs(known[two]))]

    @cached_property
    def _summary(self) -> Mapping[str, Any]:
        """What every output is made from; never changed."""
        summary: dict[str, Any] = {
            "schema": SCHEMA,
            "versions": library_versions(),
            "settings": dict(self.settings),
            "data": asdict(self.provenance),
            "warnings": list(self.warnings),
            **dict.fromkeys(("reasons", "evidence", "proxies")),  # null rather than absent
        }
        for section in SECTIONS:
            if (part := self.sections.get(section.key)) is not None:
                for key, value in section.summary(part).items():
                    summary[key] = {**summary[key], **value} if summary.get(key) else value
        if self.scope is not None:
            summary["scope"] = self.scope.to_dict()
        if self.stream is not None:
            summary["stream"] = dict(self.stream)
        findings = [finding.to_dict() for finding in findings_of(summary)]
        return with_words({**summary, "findings": findings}, self.report)

    @cached_property
    def _labeled(self) -> LabeledPairs:
        return LabeledPairs(self.source, self._labels)

    @cached_property
    def _review_table(self) -> Table:
        return review_table(review_of(self._labeled, [tuple(map(self._labels.group, two)) for two in self._sides], 25))

    @cached_property
    def _sample(self) -> PairSample:
        n = pairs_to_show(self.provenance.n_features)
        return draw_pair_sample(self._labeled, n) if self._labels.names else self.pair_sample(n)

    def _page(self, title: str | None = None, pairs_file: str | None = None) -> str:
        sample, review = self._sample.to_dict(), self._review_table
        return audit_page(self._shown, SECTIONS, sample, title=title, pairs_file=pairs_file, review=review)

    def to_excel(self, path: str | os.PathLike[str]) -> None:
        """Write the metrics and tables as an Excel workbook, completely or not at all; needs the extra `excel`.

        Pairs are listed up to the row limit of a sheet; if there are more, those with the strongest evidence.
        """
        n_pairs = sum(len(part) for part in self.source.parts())
        pairs = self.pairs if n_pairs <= MAX_ROWS else strongest_pairs(self.source, MAX_ROWS)
        of_features = () if self.reason_codes is None else self.reason_codes.of_features
        write_workbook(
            self._shown,
            SECTIONS,
            path,
            pairs=self._labels.frame(pairs),
            n_left_out=n_pairs - len(pairs),
            review=self._review_table,
            cases=cases_of(self._labeled, 50, of_features),
            reasons=None if self.reason_codes is None else self._labels.frame(self.reasons()),
        )

    def _sample_of(self, person: int) -> dict[str, Any]:
        pairs = self._labeled.of_person(person)
        scored = pairs[pairs["cec"].notna()]
        return {"pairs": scored, **vars(self._labeled.explained(scored))}

    def to_pack(
        self,
        path: str | os.PathLike[str],
        *,
        plan: Mapping[str, Any] | None = None,
        inputs: Mapping[str, str | os.PathLike[str]] | None = None,
        template: str | os.PathLike[str] | None = None,
    ) -> None:
        """Write an evidence pack, completely or not at all: one zip file to check, and to run the audit again from.

        It holds the report, the workbook and the memo if their extras are installed, the JSON, the pairs, settings,
        hashes, versions and a script, but no data. `evenhand verify` and `verify_pack` read it.

        Parameters
        ----------
        path
            Path of the file.
        plan
            Options of `evenhand audit` that give this audit, by name, if any.
        inputs
            Files that were read, as `data`, `model` and `reference`: their names and hashes are written.
        template
            Template of the memo: see `to_word`.
        """
        write_pack(path, self._writers(template), self._summary, plan=plan, inputs=inputs)

    def log_to_mlflow(self, run_id: str | None = None, *, artifacts: Sequence[str] = ARTIFACTS) -> str:
        """Log metrics, settings, the verdict and files to an MLflow run; needs the extra `mlflow`.

        Parameters
        ----------
        run_id
            Id of the run; None for the active run, or else a new one.
        artifacts
            Files to log, among report.html, audit.json, audit.xlsx, memo.docx and pairs.parquet. Report, workbook and
            pairs hold values of people.

        Returns
        -------
        The id of the run.
        """
        writers = self._writers()
        unknown = [name for name in artifacts if name not in writers]
        if unknown:
            raise InvalidInputError(f"`artifacts` must be among {', '.join(writers)}, got {unknown[0]!r}.")
        return log_audit(self._summary, {name: writers[name] for name in artifacts}, run_id=run_id)

    def _writers(self, template: str | os.PathLike[str] | None = None) -> dict[str, Callable[[Path], None]]:
        """The function that writes each file of an audit, by its usual name."""
        return {
            "report.html": lambda path: self.to_html(path, pairs_file="pairs.parquet"),
            "audit.json": self.to_json,
            "audit.xlsx": self.to_excel,
            "memo.docx": lambda path: self.to_word(path, template=template),
            "pairs.parquet": self.to_parquet,
        }

    def to_parquet(self, path: str | os.PathLike[str]) -> None:
        """Write the pair table as one Parquet file, completely or not at all."""
        parts = (pa.Table.from_pandas(part, preserve_index=False) for part in self.source.parts())
        with write_atomically(path) as temporary:
            first = next(parts)
            with pq.ParquetWriter(temporary, first.schema) as writer:
                writer.write_table(first)
                for part in parts:
                    writer.write_table(part.cast(first.schema))

    def __repr__(self) -> str:
        data = self._summary
        if self.scope is not None:
            return f"{type(self).__name__}({self.provenance.n_people} people, {data['verdict']['headline']!r})"
        return (
            f"{type(self).__name__}({self.provenance.n_people} people, {data['cec']['n_pairs']} pairs, "
            f"cec={data['cec']['mean']:.3f}, excess={data['cec'].get('excess', math.nan):.3f}, "
            f"regime_b={data['regimes']['B']:.1%}, auc={data['outcome']['auc']:.3f})"
        )
