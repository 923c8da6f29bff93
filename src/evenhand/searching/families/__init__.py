"""Families of candidates: networks, boosted trees of three libraries, logistic regressions and scorecards."""

from evenhand.searching.families.family import (
    FAMILY_NAMES,
    NETWORK,
    QUICK_REPAIRS,
    REPAIRS,
    EstimatorFamily,
    FamilyName,
    FamilySpec,
    Parameters,
    Training,
    repaired,
)
from evenhand.searching.families.lightgbm_models import LightgbmModels
from evenhand.searching.families.sklearn import HistTrees, LogisticModels, ScorecardModels
from evenhand.searching.families.xgboost import XgboostModels

__all__ = [
    "ESTIMATORS",
    "FAMILY_NAMES",
    "QUICK_REPAIRS",
    "REPAIRS",
    "SPECS",
    "EstimatorFamily",
    "FamilyName",
    "FamilySpec",
    "Parameters",
    "Training",
    "repaired",
]

ESTIMATORS: dict[str, EstimatorFamily] = {
    family.name: family
    for family in (HistTrees(), XgboostModels(), LightgbmModels(), LogisticModels(), ScorecardModels())
}
"""Every family but the networks, which are trained in stacks, by name."""

SPECS: dict[str, FamilySpec] = {"network": NETWORK, **{name: family.spec for name, family in ESTIMATORS.items()}}
"""What a search knows about each family, by name."""
