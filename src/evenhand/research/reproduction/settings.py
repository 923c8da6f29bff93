"""Settings of a comparison; the defaults are the paper's."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from platform import python_version
from typing import Any

from evenhand.attribution.gradients import Method as Integration
from evenhand.inputs.encoding import Encoding
from evenhand.research.methods.network import NetworkSettings
from evenhand.training.settings import TrainingMethod, TrainingSettings

__all__ = ["GRID_WEIGHTS", "ProtocolSettings", "versions"]

GRID_WEIGHTS = (0.1, 0.5, 1.0, 2.0, 5.0, 10.0)


@dataclass(frozen=True)
class ProtocolSettings:
    """Everything that affects a metric of the comparison, apart from the data.

    Attributes
    ----------
    n_folds
        Folds of the cross-validation, stratified on (label, group).
    random_state
        Decides the folds; fold k trains with seed `random_state` + k.
    encoding
        ``"ordinal"`` integer codes or ``"onehot"`` columns.
    consistency_threshold
        CEC score above which reasoning counts as different.
    cec_weight, equalized_odds_weight
        The lambdas of the method ``cec``.
    hidden, dropout, epochs, learning_rate, batch_size
        The network of every method and its training.
    training_integration, training_steps, cec_every
        How attributions are integrated in training, and in which steps the CEC term is computed. The paper uses 32
        midpoints in every step; this library uses one segment, which is many times as fast.
    integration, n_steps
        How attributions are integrated when people are compared.
    is_quick
        Whether the run is only a trial.

    Examples
    --------
    >>> ProtocolSettings().epochs, ProtocolSettings.quick().epochs
    (30, 10)
    """

    n_folds: int = 5
    random_state: int = 0
    encoding: Encoding = "ordinal"
    consistency_threshold: float = 0.3
    cec_weight: float = 1.0
    equalized_odds_weight: float = 1.0
    hidden: tuple[int, ...] = (128, 64)
    dropout: float = 0.2
    epochs: int = 30
    learning_rate: float = 3e-4
    batch_size: int = 64
    training_integration: TrainingMethod = "midpoint"
    training_steps: int = 32
    cec_every: int = 1
    integration: Integration = "midpoint"
    n_steps: int = 32
    is_quick: bool = False

    @classmethod
    def quick(cls, **changes: Any) -> ProtocolSettings:  # noqa: ANN401
        """A third of the epochs and coarser integration, to check that everything runs; do not quote the results."""
        coarse: dict[str, Any] = {"training_integration": "segments", "training_steps": 1, "integration": "segments"}
        return cls(**{"epochs": 10, "n_steps": 8, "is_quick": True, **coarse, **changes})

    def with_fast_training(self) -> ProtocolSettings:
        """The same with this library's integration in training."""
        return replace(self, training_integration="segments", training_steps=1)

    @property
    def _shared(self) -> dict[str, Any]:
        """What all networks have in common."""
        return {name: getattr(self, name) for name in ("hidden", "dropout", "epochs", "learning_rate", "batch_size")}

    def network(self, fold: int, device: str = "cpu") -> NetworkSettings:
        """Network settings of a method in one fold."""
        return NetworkSettings(
            **self._shared, encoding=self.encoding, device=device, random_state=self.random_state + fold
        )

    def training(self, members: list[tuple[int, float, float]], device: str) -> TrainingSettings:
        """Settings of a stack whose members are (fold, cec_weight, equalized_odds_weight)."""
        folds, cec, odds = zip(*members, strict=True)
        return TrainingSettings(
            table=folds,
            seed=tuple(self.random_state + fold for fold in folds),
            cec_weight=cec,
            equalized_odds_weight=odds,
            **self._shared,
            n_steps=self.training_steps,
            method=self.training_integration,
            cec_every=self.cec_every,
            device=device,
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {name: list(v) if isinstance(v, tuple) else v for name, v in asdict(self).items()}


def versions() -> dict[str, str]:
    """Versions of the installed libraries that a metric may depend on."""
    found = {"python": python_version()}
    for name in ("evenhand", "torch", "numpy", "scipy", "scikit-learn", "fairlearn", "cooper-optim"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
