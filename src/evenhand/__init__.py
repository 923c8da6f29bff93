"""Counterfactual explanation consistency for credit models.

>>> import evenhand as eh
>>> data = eh.load_dataset("german")
>>> len(data.y)
1000
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from evenhand._version import __version__

if TYPE_CHECKING:
    from evenhand.attribution import integrated_gradients, label_group_baselines
    from evenhand.auditing import audit, sensitivity
    from evenhand.comparing import compare_audits
    from evenhand.data import Dataset, load_dataset, make_planted_bias, make_synthetic
    from evenhand.encoding import TableEncoder
    from evenhand.exceptions import EvenhandError, EvenhandWarning
    from evenhand.loading import load_model
    from evenhand.matching import match_diagnostics, match_pairs
    from evenhand.regimes import assign_regimes
    from evenhand.result import AuditResult
    from evenhand.scale import audit_stream
    from evenhand.scoring import cec_scores
    from evenhand.searching import search
    from evenhand.training import cec_loss
    from evenhand.training.classifier import CECClassifier

__all__ = [
    "AuditResult",
    "CECClassifier",
    "Dataset",
    "EvenhandError",
    "EvenhandWarning",
    "TableEncoder",
    "__version__",
    "assign_regimes",
    "audit",
    "audit_stream",
    "cec_loss",
    "cec_scores",
    "compare_audits",
    "integrated_gradients",
    "label_group_baselines",
    "load_dataset",
    "load_model",
    "make_planted_bias",
    "make_synthetic",
    "match_diagnostics",
    "match_pairs",
    "search",
    "sensitivity",
]

# Where each public name lives. Loaded on first use: `evenhand --help` must not wait for torch, and the core must
# import on a machine that has no dataframe library.
_HOME = {
    "AuditResult": "evenhand.result",
    "CECClassifier": "evenhand.training.classifier",
    "Dataset": "evenhand.data",
    "EvenhandError": "evenhand.exceptions",
    "EvenhandWarning": "evenhand.exceptions",
    "TableEncoder": "evenhand.encoding",
    "assign_regimes": "evenhand.regimes",
    "audit": "evenhand.auditing",
    "audit_stream": "evenhand.scale",
    "cec_loss": "evenhand.training",
    "cec_scores": "evenhand.scoring",
    "compare_audits": "evenhand.comparing",
    "integrated_gradients": "evenhand.attribution",
    "label_group_baselines": "evenhand.attribution",
    "load_dataset": "evenhand.data",
    "load_model": "evenhand.loading",
    "make_planted_bias": "evenhand.data",
    "make_synthetic": "evenhand.data",
    "match_diagnostics": "evenhand.matching",
    "match_pairs": "evenhand.matching",
    "search": "evenhand.searching",
    "sensitivity": "evenhand.auditing",
}


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'evenhand' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
