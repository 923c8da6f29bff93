"""The sections of an audit, in the order of the page: each file owns one feature of the result."""

from typing import Any

from evenhand.auditing.findings import Finding, Verdict
from evenhand.auditing.sections.drawn import DrawnGroups
from evenhand.auditing.sections.evidence import Excess, Features, Sensitivity
from evenhand.auditing.sections.matching import Matching, Weights
from evenhand.auditing.sections.outcome import Outcome
from evenhand.auditing.sections.overrides import Overrides
from evenhand.auditing.sections.pairs import Pairs
from evenhand.auditing.sections.proxies import Proxies
from evenhand.auditing.sections.reasons import Reasons
from evenhand.auditing.sections.regressions import Regressions
from evenhand.auditing.sections.roc import Roc
from evenhand.auditing.sections.score_gap import ScoreGap
from evenhand.auditing.summary import Provenance
from evenhand.report.schema import schema_with
from evenhand.report.section import AuditChart, Section

SECTIONS: tuple[Section, ...] = (
    DrawnGroups(),
    ScoreGap(),
    Proxies(),
    Outcome(),
    Roc(),
    Overrides(),
    Regressions(),
    Excess(),
    Pairs(),
    Features(),
    Reasons(),
    Matching(),
    Sensitivity(),
    Weights(),
)
"""Add a section here, and it is in page, workbook, memo, tables, charts, JSON, comparisons, histories and MLflow."""

CHARTS: dict[str, AuditChart] = {chart.name: chart for section in SECTIONS for chart in section.charts}
"""The charts of all sections by name, in the order of the page."""


def load_schema() -> dict[str, Any]:
    """The schema of the audit's JSON, version 3, as plain data (JSON Schema 2020-12).

    The documentation of the JSON says what may change within the version.

    Examples
    --------
    >>> schema = load_schema()
    >>> schema["title"], "cec" in schema["required"]
    ('evenhand.audit/3', True)
    """
    kinds = (Provenance, Finding, Verdict, *(kind for section in SECTIONS for kind in section.parts))
    return schema_with(kinds, (section.schema for section in SECTIONS))
