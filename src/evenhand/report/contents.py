"""Everything a report says, as plain data: from an audit's `to_dict` and a sample of its pairs, and nothing else."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from evenhand.auditing.sample import MAX_PAIRS, PairSample
from evenhand.metrics.cec import N_REASONS
from evenhand.report import tables
from evenhand.report.figures import Figure, figures
from evenhand.report.formatting import count, decimal, estimate_interval, is_number, percent, shortened
from evenhand.report.glossary import GLOSSARY
from evenhand.report.tables import Table
from evenhand.report.verdict import Verdict, verdict

__all__ = ["KeyFigure", "ReportContents", "explorer_data", "key_figures", "pairs_to_show", "report_contents"]

_MOST_CELLS = 150_000  # sampled pairs times features: bounds the size of the page
_LONGEST_VALUE = 200

_MORE_WORDS = {
    "baseline": "The mean of the people with the person's label and group; both of a pair are explained from it.",
    "consistency threshold": "The CEC score above which reasoning counts as different.",
    "prediction flip rate": "The share of pairs whose two people get different decisions: regimes C and D.",
}
_DATA_WORDS = {
    "model": "Model",
    "n_people": "People audited",
    "n_reference": "People matched in",
    "n_features": "Features",
    "groups": "Groups",
    "group_columns": "Columns that tell the group",
    "attribution_method": "Attribution",
    "completeness_gap": "Attribution left over",
    "attribution_error": "Standard error of attributions",
    "n_without_baseline": "Left out, without a baseline",
    "exclusions": "Rows left out before the audit",
}
_SETTING_WORDS = {
    "financial_features": "Financial features",
    "decision_threshold": "Decision threshold",
    "consistency_threshold": "Consistency threshold",
    "max_distance": "Farthest match",
    "attribution": "Attribution asked for",
    "method": "Rule of integration",
    "n_steps": "Steps of integration",
    "n_permutations": "Permutations",
    "random_state": "Seed",
}


@dataclass(frozen=True)
class KeyFigure:
    """A figure that the reader should take away: its name, value, and what stands beside it."""

    name: str
    value: str
    beside: str


@dataclass(frozen=True)
class ReportContents:
    """What a report says.

    Attributes
    ----------
    title
        Of the page.
    audited, settings, hashes, versions
        Names and values: what was audited, every choice that moves a figure, and the software.
    verdict, key_figures, warnings
        The finding in words, in numbers, and its reservations.
    figures
        Charts by name, each with caption and table.
    matching
        Names and values on the quality of the matches.
    coverage, approvals, scores, errors, gaps, cutoffs, segments
        Tables that are shown as they are.
    explorer
        The sampled pairs, column by column.
    sample
        How the pairs were sampled, in words.
    pairs_file
        Name of the file with every pair; None if there is none.
    has_evidence
        Whether pairs were compared with placebo pairs.
    glossary
        Words and their meanings.
    """

    title: str
    audited: tuple[tuple[str, str], ...]
    settings: tuple[tuple[str, str], ...]
    hashes: tuple[tuple[str, str], ...]
    versions: tuple[tuple[str, str], ...]
    verdict: Verdict
    key_figures: tuple[KeyFigure, ...]
    warnings: tuple[str, ...]
    figures: Mapping[str, Figure]
    matching: tuple[tuple[str, str], ...]
    coverage: Table
    approvals: Table
    scores: Table
    errors: Table
    gaps: Table
    cutoffs: Table
    segments: tuple[Table, ...]
    explorer: Mapping[str, Any]
    sample: str
    pairs_file: str | None
    has_evidence: bool
    glossary: tuple[tuple[str, str], ...]


def report_contents(
    data: Mapping[str, Any], sample: PairSample, *, title: str | None = None, pairs_file: str | None = None
) -> ReportContents:
    """What a report says of an audit.

    Parameters
    ----------
    data
        The audit as plain data: `AuditResult.to_dict()`.
    sample
        Pairs for the explorer: `AuditResult.pair_sample()`.
    title
        Of the page; by default it names the model.
    pairs_file
        Name of a file beside the page that has every pair.
    """
    return ReportContents(
        title=title or f"Audit of {shortened(data['data']['model'])}",
        audited=_facts({k: v for k, v in data["data"].items() if k not in ("fingerprint", "hashes")}, _DATA_WORDS),
        hashes=_hashes(data["data"]),
        settings=_facts(data["settings"], _SETTING_WORDS),
        versions=tuple((str(k), str(v)) for k, v in data["versions"].items()),
        verdict=verdict(data),
        key_figures=key_figures(data),
        warnings=tuple(data["warnings"]),
        figures=figures(data),
        matching=_matching(data),
        coverage=tables.coverage_table(data),
        approvals=tables.approval_table(data),
        scores=tables.score_table(data),
        errors=tables.error_table(data),
        gaps=tables.gap_table(data),
        cutoffs=tables.cutoff_table(data),
        segments=tuple(tables.segment_tables(data)),
        explorer=explorer_data(data, sample),
        sample=sample.how,
        pairs_file=pairs_file,
        has_evidence=data["evidence"] is not None,
        glossary=_glossary(),
    )


def _glossary() -> tuple[tuple[str, str], ...]:
    """The words in the order of the alphabet; the page has no empty cells."""
    words = {**GLOSSARY, **_MORE_WORDS}
    words.pop("empty cell", None)
    return tuple(sorted(words.items(), key=lambda word: word[0].lower()))


def pairs_to_show(n_features: int) -> int:
    """How many pairs a page can hold: fewer where people have very many features.

    Examples
    --------
    >>> pairs_to_show(20), pairs_to_show(1500)
    (2000, 100)
    """
    return max(1, min(MAX_PAIRS, _MOST_CELLS // max(1, n_features)))


def explorer_data(data: Mapping[str, Any], sample: PairSample) -> dict[str, Any]:
    """The sampled pairs column by column, with numbers rounded; a missing value is None.

    Attributions are given as ten-thousandths of the unit vector that the CEC score compares, and `length` times that
    is the attribution.
    """
    pairs, groups = sample.pairs, [str(name) for name in data["data"]["groups"]]
    place = {name: i for i, name in enumerate(groups)}
    own, own_length = _unit(sample.attributions)
    match, match_length = _unit(sample.match_attributions)
    financial = set(map(str, data["settings"]["financial_features"]))
    return {
        "threshold": data["settings"]["consistency_threshold"],
        "n_reasons": N_REASONS,
        "n_strongest": sample.n_strongest,
        "groups": [shortened(name, _LONGEST_VALUE) for name in groups],
        "features": [shortened(name, _LONGEST_VALUE) for name in sample.values.columns],
        "financial": [int(str(name) in financial) for name in sample.values.columns],
        "person": pairs["person"].tolist(),
        "match": pairs["match"].tolist(),
        "group": [place[str(name)] for name in pairs["group"]],
        "other": [place[str(name)] for name in pairs["other_group"]],
        "label": pairs["label"].tolist(),
        "decision": pairs["decision"].tolist(),
        "match_decision": [int(value) for value in pairs["match_decision"]],
        "regime": "".join(pairs["regime"].astype(str)),
        "negligible": pairs["is_negligible"].astype(int).tolist(),
        **{
            name: _rounded(pairs[name])
            for name in (
                "distance",
                "score",
                "match_score",
                "cec",
                "placebo_cec",
                "input_gap",
                "reasoning_gap",
                "shared_reasons",
                "q_value",
            )
        },
        "values": [
            _column(sample.values.iloc[:, j], sample.match_values.iloc[:, j]) for j in range(sample.values.shape[1])
        ],
        "own": own,
        "own_length": own_length,
        "match_attribution": match,
        "match_length": match_length,
    }


def _unit(attributions: np.ndarray[Any, np.dtype[np.float32]]) -> tuple[list[list[int]], list[float]]:
    """Directions in ten-thousandths, a list for each feature, and lengths."""
    wide = np.nan_to_num(attributions.astype(np.float64))
    length = np.linalg.norm(wide, axis=1)
    unit = np.rint(1e4 * wide / np.maximum(length, 1e-30)[:, None]).astype(int)
    return unit.T.tolist(), [float(f"{value:.5g}") for value in length]


def _rounded(column: pd.Series[Any]) -> list[float | None]:
    return [round(float(v), 4) if math.isfinite(v) else None for v in column.to_numpy(dtype=float)]


def _column(own: pd.Series[Any], match: pd.Series[Any]) -> dict[str, Any]:
    """Values of one feature: numbers as they are, anything else as places in a list of its levels."""
    if pd.api.types.is_numeric_dtype(own.dtype) and not pd.api.types.is_bool_dtype(own.dtype):
        return {"own": [_number(v) for v in own], "match": [_number(v) for v in match]}
    both = pd.concat([own.astype(object), match.astype(object)], ignore_index=True)
    text = both.map(lambda value: shortened(value, _LONGEST_VALUE), na_action="ignore")
    codes, levels = pd.factorize(text)
    places = [None if code < 0 else int(code) for code in codes]
    return {"levels": [str(level) for level in levels], "own": places[: len(own)], "match": places[len(own) :]}


def _number(value: Any) -> float | int | None:  # noqa: ANN401 - a cell of a user's table

    if pd.isna(value) or not math.isfinite(value):
        return None
    return int(value) if float(value).is_integer() and abs(value) < 2**53 else float(f"{float(value):.6g}")


def _hashes(data: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """SHA-256 of what was audited, by what it is of."""
    named = {"audited people": data.get("fingerprint"), **data.get("hashes", {})}
    return tuple((f"{name[:1].upper()}{name[1:]}", value) for name, value in named.items() if value)


def _facts(found: Mapping[str, Any], words: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Names and values in a known order; a name that is new is shown as it is."""
    known = [name for name in words if name in found]
    return tuple(
        (words.get(name, name.replace("_", " ").capitalize()), _fact(name, found[name]))
        for name in (*known, *(n for n in found if n not in words))
    )


def _fact(name: str, value: Any) -> str:  # noqa: ANN401 - any plain data
    if name == "n_reference" and value is None:
        return "the audited people themselves"
    if name == "max_distance" and value is None:
        return "no limit"
    if name == "attribution_error":
        return "none: nothing is sampled" if value is None else f"{percent(value, 1)} of their size"
    if name == "completeness_gap":
        return f"{percent(value, 2)} of the change in the model's output"
    if isinstance(value, Mapping):
        shown = ", ".join(f"{key}: {_fact('', item)}" for key, item in value.items() if item != 0)
        return shown or "none"
    if isinstance(value, (list, tuple)):
        return ", ".join(str(item) for item in value) or "none"
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "none"}[value]
    if isinstance(value, int) and name != "random_state":
        return count(value)
    return f"{value:g}" if is_number(value) else str(value)


def key_figures(data: Mapping[str, Any]) -> tuple[KeyFigure, ...]:
    """The six figures to take away."""
    cec, found = data["cec"], data["evidence"]
    flips = KeyFigure(
        "Prediction flip rate", percent(data["outcome"]["pfr"]), "matched people with different decisions"
    )
    regime_b = KeyFigure("Regime B", percent(data["regimes"]["B"]), "same decision, different reasoning")
    gap = data["outcome"]["gaps"]["eo_gap"]
    outcome = (
        KeyFigure("AUC", decimal(data["outcome"]["auc"]), "of all audited people"),
        KeyFigure("Equalized odds gap", decimal(gap["value"]), estimate_interval(gap) or gap["note"]),
        KeyFigure("Coverage", percent(data["matching"]["coverage"]), "comparisons with a match"),
    )
    if found is None:
        mean = KeyFigure("Mean CEC score", decimal(cec["mean"]), "not compared with placebo pairs")
        return (mean, regime_b, flips, *outcome)
    estimate = found["cec"]
    excess = KeyFigure("Excess", decimal(estimate["value"]), estimate_interval(estimate) or estimate["note"])
    mean = KeyFigure(
        "CEC score, compared pairs", decimal(found["compared_mean"]), f"placebo pairs {decimal(found['placebo_mean'])}"
    )
    over = found["regime_b"]["value"]
    if is_number(over):
        beside = f"{decimal(abs(100 * over), 1)} points {'over' if over >= 0 else 'under'} placebo pairs"
        regime_b = KeyFigure(regime_b.name, regime_b.value, beside)
    return (excess, mean, regime_b, flips, *outcome[:2])


def _matching(data: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    found, reuse = data["matching"], data["matching"]["reuse"]
    rows = [
        ("Coverage", f"{percent(found['coverage'])} of {count(found['n_pairs'])} comparisons have a match"),
        ("Exact financial twins", percent(found["twin_share"])),
        (
            "Reuse of matches",
            f"{count(reuse['n_distinct'])} people serve as matches, one of them {count(reuse['max'])} times; they are "
            f"worth {count(reuse['effective_n'])} used equally",
        ),
    ]
    rows += [("Without a match", f"{count(n)}: {why}") for why, n in found["unmatched"].items() if n]
    if data["evidence"] is not None:
        rows.append(("With a placebo pair", percent(data["evidence"]["common_support"])))
        rows += [
            ("Without a placebo pair", f"{count(n)}: {why}")
            for why, n in data["evidence"]["without_support"].items()
            if n
        ]
    return tuple(rows)
