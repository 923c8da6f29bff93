"""Families of candidates: networks, boosted trees of three libraries, logistic regressions and scorecards."""

from evenhand.searching.families.family import FAMILY_NAMES, EstimatorFamily, FamilyName, FamilySpec, Parameters
from evenhand.searching.families.hist_trees import HistTrees
from evenhand.searching.families.lightgbm_models import LightgbmModels
from evenhand.searching.families.logistic import LogisticModels
from evenhand.searching.families.network_models import NETWORK
from evenhand.searching.families.repairs import QUICK_REPAIRS, REPAIRS, Training, repaired
from evenhand.searching.families.scorecard import ScorecardModels
from evenhand.searching.families.xgboost_models import XgboostModels

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
