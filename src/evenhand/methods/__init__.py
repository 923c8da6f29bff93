"""The seven ways to train that the paper compares, behind one protocol."""

from evenhand.methods.adversarial import AdversarialDebiasing
from evenhand.methods.agarwal import AgarwalReduction
from evenhand.methods.cec import CEC
from evenhand.methods.disparate_impact_remover import DisparateImpactRemover
from evenhand.methods.hardt import HardtPostProcessing
from evenhand.methods.lagrangian import LagrangianConstraints
from evenhand.methods.network import NetworkMethod, NetworkSettings
from evenhand.methods.protocol import Method, RepairsTable
from evenhand.methods.registry import make_method, method_names, register_method
from evenhand.methods.unconstrained import Unconstrained

__all__ = [
    "CEC",
    "AdversarialDebiasing",
    "AgarwalReduction",
    "DisparateImpactRemover",
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
