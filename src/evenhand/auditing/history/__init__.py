"""Several audits side by side: what changed between them, and whether a history of them has departed from its past."""

from evenhand.auditing.history.compare import Change, Comparison, compare_audits
from evenhand.auditing.history.monitoring import Monitoring, monitor
from evenhand.auditing.history.records import History, read_audit, read_history, read_result

__all__ = [
    "Change",
    "Comparison",
    "History",
    "Monitoring",
    "compare_audits",
    "monitor",
    "read_audit",
    "read_history",
    "read_result",
]
