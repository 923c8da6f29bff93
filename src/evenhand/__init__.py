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
    from evenhand.attribution.baselines import label_group_baselines
    from evenhand.attribution.gradients import integrated_gradients
    from evenhand.auditing.audit import audit, sensitivity
    from evenhand.auditing.checking import CheckResult, check
    from evenhand.auditing.given import audit_given
    from evenhand.auditing.history.compare import Change, Comparison, compare_audits
    from evenhand.auditing.history.monitoring import Monitoring, monitor
    from evenhand.auditing.history.records import History, read_history, read_result
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
    from evenhand.matching.diagnostics import match_diagnostics
    from evenhand.matching.pairs import match_pairs
    from evenhand.metrics.cec import assign_regimes, cec_scores
    from evenhand.models.files.load import load_model
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
    "read_result",
    "read_table",
    "regressions",
    "search",
    "sensitivity",
    "show_versions",
    "verify_pack",
]

# The public names of each module. Loaded on first use: `evenhand --help` must not wait for their libraries.
_HOME = {
    name: f"evenhand.{module}"
    for module, names in {
        "attribution.baselines": "label_group_baselines",
        "attribution.gradients": "integrated_gradients",
        "auditing.audit": "audit sensitivity",
        "auditing.checking": "CheckResult check",
        "auditing.given": "audit_given",
        "auditing.history.compare": "Change Comparison compare_audits",
        "auditing.history.monitoring": "Monitoring monitor",
        "auditing.history.records": "History read_history read_result",
        "auditing.options": "AuditOptions SegmentThresholds StreamOptions",
        "auditing.pack": "Verification verify_pack",
        "auditing.regressions": "Regressions regressions",
        "auditing.result": "AuditResult",
        "auditing.streaming": "audit_stream",
        "datasets": "Dataset load_dataset make_planted_bias make_synthetic",
        "exceptions": "EvenhandError EvenhandWarning",
        "inputs.encoding": "TableEncoder",
        "inputs.group_probabilities": "GroupProbabilities",
        "inputs.read_options": "ColumnOptions ReadOptions",
        "inputs.tables": "read_table",
        "matching.diagnostics": "match_diagnostics",
        "matching.pairs": "match_pairs",
        "metrics.cec": "assign_regimes cec_scores",
        "models.files.load": "load_model",
        "research.paper": "PAPER",
        "searching.options": "SearchOptions",
        "searching.result": "SearchResult",
        "searching.run": "search",
        "system.libraries": "show_versions",
        "training": "cec_loss",
        "training.classifier": "CECClassifier",
    }.items()
    for name in names.split()
}

_OF_NETWORKS = ("CECClassifier", "SearchResult", "cec_loss", "integrated_gradients", "search")


def __getattr__(name: str) -> object:
    if name == "AuditSettings":
        warnings.warn("`AuditSettings` is now `AuditOptions`; the old name goes in the next release.", FutureWarning, 2)
        name = "AuditOptions"
    if name not in _HOME:
        raise AttributeError(f"module 'evenhand' has no attribute {name!r}")
    if name == "load_model":
        import_module("evenhand.models.files.load").register_reader("evenhand", _read_classifier)
    if name in _OF_NETWORKS:
        module = import_module("evenhand.system.libraries").optional_module(_HOME[name], f"`{name}`", "torch", "torch")
    else:
        module = import_module(_HOME[name])
    value = getattr(module, name)
    globals()[name] = value
    return value


def _read_classifier(path: Path) -> CECClassifier:
    """Load a saved `CECClassifier`. The training code is imported only for such files."""
    from evenhand.system.libraries import optional_module

    module = optional_module("evenhand.training.classifier", "A model saved by `CECClassifier`", "torch", "torch")
    found: CECClassifier = module.CECClassifier.load(path)
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
