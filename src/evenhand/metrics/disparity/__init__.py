"""Approvals, scores and errors of each group next to a reference group, with intervals and tests.

Group membership is either known (integer codes) or a matrix of probabilities with one row per person. The name of
every difference states its direction, and a metric that cannot be estimated is NaN with the reason in its note.
"""

from evenhand.metrics.disparity.approvals import (
    FOUR_FIFTHS,
    ApprovalTable,
    CutoffApprovals,
    GroupApproval,
    approval_disparity,
    approval_disparity_by_cutoff,
)
from evenhand.metrics.disparity.calibration import (
    CalibrationBin,
    CalibrationTable,
    GroupCalibration,
    group_calibration,
)
from evenhand.metrics.disparity.errors import (
    GapEstimate,
    GroupErrorRates,
    ScoreDisparity,
    error_rates,
    outcome_gaps,
    score_disparity,
)
from evenhand.metrics.disparity.segments import SegmentApproval, SegmentedApproval, segmented_approvals
from evenhand.metrics.estimate import Estimate

__all__ = [
    "FOUR_FIFTHS",
    "ApprovalTable",
    "CalibrationBin",
    "CalibrationTable",
    "CutoffApprovals",
    "Estimate",
    "GapEstimate",
    "GroupApproval",
    "GroupCalibration",
    "GroupErrorRates",
    "ScoreDisparity",
    "SegmentApproval",
    "SegmentedApproval",
    "approval_disparity",
    "approval_disparity_by_cutoff",
    "error_rates",
    "group_calibration",
    "outcome_gaps",
    "score_disparity",
    "segmented_approvals",
]
