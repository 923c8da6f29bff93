"""The seven ways to train that the paper compares, and FairSHAP, behind one protocol."""

from evenhand.research.methods.adversarial import AdversarialDebiasing
from evenhand.research.methods.agarwal import AgarwalReduction
from evenhand.research.methods.cec import CEC
from evenhand.research.methods.hardt import HardtPostProcessing
from evenhand.research.methods.lagrangian import LagrangianConstraints
from evenhand.research.methods.method import Method, NetworkMethod, NetworkSettings, RepairsTable, Unconstrained
from evenhand.research.methods.preprocessing import DisparateImpactRemover, FairSHAP
from evenhand.research.methods.registry import make_method, method_names, register_method

__all__ = [
    "CEC",
    "AdversarialDebiasing",
    "AgarwalReduction",
    "DisparateImpactRemover",
    "FairSHAP",
    "HardtPostProcessing",
    "LagrangianConstraints",
    "Method",
    "NetworkMethod",
    "NetworkSettings",
    "RepairsTable",
    "Unconstrained",
    "make_method",
    "method_names",
    "register_method",
]
