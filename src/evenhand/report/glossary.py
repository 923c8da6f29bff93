"""The terms of a report, each with one meaning."""

from __future__ import annotations

__all__ = ["GLOSSARY"]

GLOSSARY: dict[str, str] = {
    "group": "The value of the protected attribute, or the combination of several.",
    "financial features": "The features on which people are matched: they decide which applicants are comparable.",
    "match, pair": "A person and the nearest person of a different group with the same label, by financial features.",
    "attribution": "How far a feature moved a person's score away from the score of the average person with their "
    "label and group.",
    "CEC score": "How differently the model reasons about the two people of a pair: 0 identical reasoning, 1 opposed.",
    "input gap": "The part of the CEC score that comes from different inputs under the same weights.",
    "reasoning gap": "The part of the CEC score that comes from different weights on the same inputs.",
    "regime": "A: same decision, same reasoning. B: same decision, different reasoning. C: different decision, same "
    "reasoning. D: both differ.",
    "placebo pair": "A person and someone of the same group and label who is as far away as the match. It shows what "
    "the CEC score is when the group plays no role.",
    "excess": "The CEC score of pairs minus that of placebo pairs, adjusted for unequal finances: the evidence.",
    "score gap": "Difference in score between comparable people of two groups at equal finances and label, group minus "
    "reference group.",
    "weighing": "Whether the same inputs count alike for both groups: the reasoning gap of pairs minus that of placebo "
    "pairs.",
    "log-odds": "The logarithm of the odds of the favorable outcome; near even odds, 0.1 is 2.5 points of probability.",
    "lower, upper": "Ends of the 95% confidence interval.",
    "p-value": "How often chance alone would give a result at least as large if there were nothing to find. It is "
    "one-sided for an excess.",
    "adjusted p-value": "A p-value that allows for the number of tests (Holm).",
    "q-value": "Expected share of false alarms in a list of people that ends with this one.",
    "people, effective": "Number of equally used people who would be as informative as those compared.",
    "positive rate, approval rate": "Share of people whose decision is favorable.",
    "true positive rate": "Share of favorable decisions among people with label 1.",
    "false positive rate": "Share of favorable decisions among people with label 0.",
    "false discovery rate": "Share of label 0 among people with a favorable decision.",
    "statistical parity gap": "Largest difference in approval rates between groups.",
    "equalized odds gap": "Largest difference between groups in the true or the false positive rate.",
    "approval ratio": "The group's approval rate divided by that of the reference group (adverse impact ratio). A "
    "ratio below 0.8 is flagged: a rule of thumb from US employment guidance, not a rule for lending.",
    "odds ratio": "Odds of approval in the group divided by those in the reference group; 1 means equal odds.",
    "shortfall of approvals": "Additional approvals with which the group's rate would reach that of the reference "
    "group.",
    "AUC": "How often the score ranks a person with label 1 above one with label 0: 0.5 is chance, 1 is always.",
    "F1": "Harmonic mean of two shares: of label 1 among those approved, and of those approved among label 1.",
    "Brier score": "Mean squared difference between score and label; 0 is perfect.",
    "calibration error": "Mean distance between score and observed rate over bins of the score. Chance alone makes it "
    "positive, by the amount in the next column.",
    "intercept": "Log-odds to add to everyone's score so that predicted and observed rates agree; below 0, the score "
    "predicts too much.",
    "slope": "Factor of the log-odds that fits the labels best; below 1, scores are too extreme.",
    "held equal": "What a regression controls for.",
    "average marginal effect": "How much the share of favorable decisions would change if everyone were in the group "
    "rather than in the reference group, all else being equal.",
    "KS distance": "Largest difference between two cumulative score distributions: 0 identical, 1 disjoint.",
    "standardized difference": "A difference of means in units of the standard deviation.",
    "coverage": "How many people have a match in a different group.",
    "overlap": "How many people have a match and, at the same distance, a placebo (common support).",
    "principal reasons": (
        "What lowers the score of a declined person the most, measured from the mean of approved people; features "
        "that share a reason are added up."
    ),
    "rank-biased overlap": "How alike two ordered lists of reasons are, where the first reasons count most: 0 nothing "
    "in common, 1 identical.",
    "empty cell": "A metric that could not be estimated; the note next to it says why.",
}
