"""The seven ways to train that the paper compares, and FairSHAP, behind one protocol; researchers can add more."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from evenhand.exceptions import InvalidInputError
from evenhand.research.methods.inprocessing import CEC, AdversarialDebiasing, AgarwalReduction, LagrangianConstraints
from evenhand.research.methods.method import Method, NetworkMethod, NetworkSettings, RepairsTable, Unconstrained
from evenhand.research.methods.processing import DisparateImpactRemover, FairSHAP, HardtPostProcessing

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

MethodFactory = Callable[[NetworkSettings, Sequence[str]], Method]

_METHODS: dict[str, MethodFactory] = {
    "unconstrained": lambda settings, financial: Unconstrained(settings),
    "disparate_impact_remover": lambda settings, financial: DisparateImpactRemover(settings),
    "hardt": lambda settings, financial: HardtPostProcessing(settings),
    "agarwal": lambda settings, financial: AgarwalReduction(settings),
    "lagrangian": lambda settings, financial: LagrangianConstraints(settings),
    "adversarial": lambda settings, financial: AdversarialDebiasing(settings),
    "cec": lambda settings, financial: CEC(settings, financial),
    "fairshap": lambda settings, financial: FairSHAP(settings, financial),
}


def method_names() -> tuple[str, ...]:
    """Names that `make_method` knows: the paper's seven in its order, FairSHAP, then those registered.

    Examples
    --------
    >>> method_names()[:2]
    ('unconstrained', 'disparate_impact_remover')
    """
    return tuple(_METHODS)


def register_method(name: str, factory: MethodFactory) -> None:
    """Add a method to the comparison; a name that is taken is refused.

    Parameters
    ----------
    name
        Its name in results and tables.
    factory
        Creates a new, unfitted method from network settings and the names of the financial features.
    """
    if name in _METHODS:
        raise InvalidInputError(f"There is already a method {name!r}; choose a name other than {list(_METHODS)}.")
    _METHODS[name] = factory


def make_method(name: str, settings: NetworkSettings, financial_features: Sequence[str]) -> Method:
    """A new, unfitted method.

    Examples
    --------
    >>> type(make_method("hardt", NetworkSettings(), ["income"])).__name__
    'HardtPostProcessing'
    """
    if name not in _METHODS:
        raise InvalidInputError(f"`methods` must be among {list(_METHODS)}, got {name!r}.")
    return _METHODS[name](settings, financial_features)
