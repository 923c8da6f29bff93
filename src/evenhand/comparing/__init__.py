"""Several audits side by side: what moved between them, and whether a history of them has departed from its past."""

from evenhand.comparing.changes import Change, Comparison, compare_audits
from evenhand.comparing.history import History, read_audit, read_history
from evenhand.comparing.monitoring import Monitoring, monitor

__all__ = [
    "Change",
    "Comparison",
    "History",
    "Monitoring",
    "compare_audits",
    "monitor",
    "read_audit",
    "read_history",
]
