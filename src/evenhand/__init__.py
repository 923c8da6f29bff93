"""Counterfactual explanation consistency for credit models.

>>> import evenhand as eh
>>> data = eh.load_dataset("german")
>>> len(data.y)
1000
"""

from __future__ import annotations

import warnings
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from evenhand.system import __version__

if TYPE_CHECKING:
    from evenhand.attribution import integrated_gradients, label_group_baselines
    from evenhand.auditing.audit import audit, sensitivity
    from evenhand.auditing.checking import CheckResult, check
    from evenhand.auditing.given import audit_given
    from evenhand.auditing.history import Change, Comparison, History, Monitoring, compare_audits, monitor, read_history
    from evenhand.auditing.options import AuditOptions, SegmentThresholds, StreamOptions
    from evenhand.auditing.pack import Verification, verify_pack
    from evenhand.auditing.regressions import Regressions, regressions
    from evenhand.auditing.result import AuditResult
    from evenhand.auditing.streaming import audit_stream
    from evenhand.datasets import Dataset, load_dataset, make_planted_bias, make_synthetic
    from evenhand.exceptions import EvenhandError, EvenhandWarning
    from evenhand.inputs.encoding import TableEncoder
    from evenhand.inputs.group_probabilities import GroupProbabilities
    from evenhand.inputs.read_options import ColumnOptions, ReadOptions
    from evenhand.inputs.tables import read_table
    from evenhand.matching import match_diagnostics, match_pairs
    from evenhand.metrics.cec import assign_regimes, cec_scores
    from evenhand.models.files import load_model
    from evenhand.research.paper import PAPER
    from evenhand.searching import SearchOptions, SearchResult, search
    from evenhand.system.libraries import show_versions
    from evenhand.training import cec_loss
    from evenhand.training.classifier import CECClassifier

__all__ = [
    "PAPER",
    "AuditOptions",
    "AuditResult",
    "CECClassifier",
    "Change",
    "CheckResult",
    "ColumnOptions",
    "Comparison",
    "Dataset",
    "EvenhandError",
    "EvenhandWarning",
    "GroupProbabilities",
    "History",
    "Monitoring",
    "ReadOptions",
    "Regressions",
    "SearchOptions",
    "SearchResult",
    "SegmentThresholds",
    "StreamOptions",
    "TableEncoder",
    "Verification",
    "__version__",
    "assign_regimes",
    "audit",
    "audit_given",
    "audit_stream",
    "cec_loss",
    "cec_scores",
    "check",
    "compare_audits",
    "integrated_gradients",
    "label_group_baselines",
    "load_dataset",
    "load_model",
    "make_planted_bias",
    "make_synthetic",
    "match_diagnostics",
    "match_pairs",
    "monitor",
    "read_history",
    "read_table",
    "regressions",
    "search",
    "sensitivity",
    "show_versions",
    "verify_pack",
]

# The module of each public name. Loaded on first use: `evenhand --help` must not wait for torch.
_HOME = {
    "PAPER": "evenhand.research.paper",
    "AuditOptions": "evenhand.auditing.options",
    "AuditResult": "evenhand.auditing.result",
    "CECClassifier": "evenhand.training.classifier",
    "Change": "evenhand.auditing.history",
    "CheckResult": "evenhand.auditing.checking",
    "ColumnOptions": "evenhand.inputs.read_options",
    "Comparison": "evenhand.auditing.history",
    "Dataset": "evenhand.datasets",
    "EvenhandError": "evenhand.exceptions",
    "EvenhandWarning": "evenhand.exceptions",
    "GroupProbabilities": "evenhand.inputs.group_probabilities",
    "History": "evenhand.auditing.history",
    "Monitoring": "evenhand.auditing.history",
    "ReadOptions": "evenhand.inputs.read_options",
    "Regressions": "evenhand.auditing.regressions",
    "SearchOptions": "evenhand.searching.options",
    "SearchResult": "evenhand.searching.result",
    "SegmentThresholds": "evenhand.auditing.options",
    "StreamOptions": "evenhand.auditing.options",
    "TableEncoder": "evenhand.inputs.encoding",
    "Verification": "evenhand.auditing.pack",
    "assign_regimes": "evenhand.metrics.cec",
    "audit": "evenhand.auditing.audit",
    "audit_given": "evenhand.auditing.given",
    "audit_stream": "evenhand.auditing.streaming",
    "cec_loss": "evenhand.training",
    "cec_scores": "evenhand.metrics.cec",
    "check": "evenhand.auditing.checking",
    "compare_audits": "evenhand.auditing.history",
    "integrated_gradients": "evenhand.attribution",
    "label_group_baselines": "evenhand.attribution",
    "load_dataset": "evenhand.datasets",
    "load_model": "evenhand.models.files",
    "make_planted_bias": "evenhand.datasets",
    "make_synthetic": "evenhand.datasets",
    "match_diagnostics": "evenhand.matching",
    "match_pairs": "evenhand.matching",
    "monitor": "evenhand.auditing.history",
    "read_history": "evenhand.auditing.history",
    "read_table": "evenhand.inputs.tables",
    "regressions": "evenhand.auditing.regressions",
    "search": "evenhand.searching.run",
    "sensitivity": "evenhand.auditing.audit",
    "show_versions": "evenhand.system.libraries",
    "verify_pack": "evenhand.auditing.pack",
}


def __getattr__(name: str) -> object:
    if name == "AuditSettings":
        warnings.warn("`AuditSettings` is now `AuditOptions`; the old name goes in the next release.", FutureWarning, 2)
        name = "AuditOptions"
    if name not in _HOME:
        raise AttributeError(f"module 'evenhand' has no attribute {name!r}")
    if name == "load_model":
        import_module("evenhand.models.files").register_reader("evenhand", _read_classifier)
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def _read_classifier(path: Path) -> CECClassifier:
    """Load a saved `CECClassifier`. The training code is imported only for such files."""
    from evenhand.training.classifier import CECClassifier

    return CECClassifier.load(path)


def __dir__() -> list[str]:
    return sorted(__all__)
