"""The words of a report, each with one meaning."""

from __future__ import annotations

__all__ = ["GLOSSARY"]

GLOSSARY: dict[str, str] = {
    "group": "The value of the protected attribute, or of several together.",
    "financial features": "The features on which people are matched: what makes two applicants comparable.",
    "match, pair": "A person and the nearest person of another group with the same label, by financial features.",
    "attribution": "How far a feature moved a person's score from that of the average person of their label and group.",
    "CEC score": "How differently the model reasons about the two of a pair: 0 identical reasoning, 1 opposed.",
    "input gap": "The part of the CEC score that comes from other inputs under the same weights.",
    "reasoning gap": "The part of the CEC score that comes from other weights on the same inputs.",
    "regime": "A: same decision, same reasoning. B: same decision, different reasoning. C: different decision, same "
    "reasoning. D: both differ.",
    "placebo pair": "A person and someone of their own group and label as far away as the match: what the score is "
    "when the group plays no part.",
    "excess": "What pairs score over placebo pairs, adjusted for what unlike finances explain: the evidence.",
    "score gap": "Difference in score between comparable people of two groups at equal finances and label, group minus "
    "reference group.",
    "weighing": "Whether the same inputs count alike for both groups: the reasoning gap of pairs over that of placebo "
    "pairs.",
    "lower, upper": "Ends of the 95 % confidence interval.",
    "p-value": "How often chance alone would give as much, were there nothing to find. It is one-sided for an excess.",
    "adjusted p-value": "A p-value that allows for the number of tests made (Holm).",
    "q-value": "Expected share of false alarms in a list of people that ends with this one.",
    "people, effective": "Number of equally used people that would be as informative as those compared.",
    "positive rate, approval rate": "Share of people whose decision is favorable.",
    "true positive rate": "Share of favorable decisions among people with label 1.",
    "false positive rate": "Share of favorable decisions among people with label 0.",
    "false discovery rate": "Share of label 0 among people with a favorable decision.",
    "approval ratio": "The group's approval rate over that of the reference group (adverse impact ratio). A ratio "
    "below 0.8 is flagged: a rule of thumb from US employment guidance, not a rule for lending.",
    "odds ratio": "Odds of approval in the group over those in the reference group; 1 equal odds.",
    "shortfall of approvals": "Further approvals with which the group's rate would reach that of the reference group.",
    "AUC": "How often the score ranks a person with label 1 above one with label 0: 0.5 chance, 1 always.",
    "Brier score": "Mean squared difference of score and label; 0 is perfect.",
    "calibration error": "Mean distance of score and observed rate over bins of the score; chance alone makes it "
    "positive, by as much as the column beside it says.",
    "intercept": "Log-odds to be added to everyone's score, so that it promises what was observed; below 0 it promises "
    "too much.",
    "slope": "Factor of the log-odds that fits the labels best; below 1 scores are too extreme.",
    "held equal": "What a regression controls for.",
    "average marginal effect": "By how much the share of favorable decisions would change, were everyone of the group "
    "rather than of the reference group, all else equal.",
    "KS distance": "Largest difference between two cumulative score distributions: 0 the same, 1 disjoint.",
    "standardized difference": "A difference of means in units of the standard deviation.",
    "coverage": "How often a person has a match in another group.",
    "common support": "How often a pair has a placebo pair too.",
    "principal reasons": (
        "What pulls the score of a declined person down the most, measured from the mean of approved people; features "
        "that share a reason are added up."
    ),
    "empty cell": "A metric that could not be estimated; the note beside it says why.",
}
