"""What a method must provide to be compared with the others, and the network that they share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from evenhand.arrays import Floats, Ints
from evenhand.exceptions import InvalidInputError
from evenhand.inputs.encoding import Encoding, TableEncoder
from evenhand.inputs.validation import as_groups, as_labels, as_table, in_row_order
from evenhand.models.gradient import DifferentiableModel
from evenhand.models.protocol import AuditedModel
from evenhand.training import StackedNetwork, TrainingData, TrainingSettings, train


@runtime_checkable
class Method(Protocol):
    """A way to train a model, its decisions, and the score whose reasons are compared."""

    def fit(self, X: Any, y: ArrayLike, *, sensitive_features: Any) -> Self:
        """Learn from people, their labels 0 or 1 and their groups."""

    def predict(self, X: Any, sensitive_features: Any = None) -> NDArray[np.int64]:
        """Decisions 0 or 1, of shape (n,); always the same for the same rows."""

    def predict_proba(self, X: Any, sensitive_features: Any = None) -> NDArray[np.float64]:
        """Expected decisions or probabilities, of shape (n, 2)."""

    def audited_model(self) -> AuditedModel:
        """The differentiable score that is attributed."""


@runtime_checkable
class RepairsTable(Protocol):
    """A method whose score is a function of a changed table."""

    def audited_table(self, X: Any, sensitive_features: Any = None) -> pd.DataFrame:
        """The table that `audited_model()` takes."""


@dataclass(frozen=True)
class NetworkSettings:
    """Network, optimizer and encoding of every method; defaults are those of `PAPER`.

    Attributes
    ----------
    hidden, dropout, epochs, learning_rate, batch_size
        The network and its training with Adam.
    encoding
        Categories as ``"ordinal"`` integer codes, ``"unscaled"`` ones, or ``"onehot"`` columns; the paper does not say.
    device
        ``"cpu"``, ``"cuda"`` or ``"auto"``.
    random_state
        Determines initial weights, batch order, dropout and, if decisions are randomized, the draws.
    """

    hidden: tuple[int, ...] = (128, 64)
    dropout: float = 0.2
    epochs: int = 30
    learning_rate: float = 3e-4
    batch_size: int = 64
    encoding: Encoding = "ordinal"
    device: str = "cpu"
    random_state: int = 0


class NetworkMethod:
    """A method whose decisions come from one network: favorable from probability 0.5 on.

    Parameters
    ----------
    settings
        Network and training; None for the paper's.

    Attributes
    ----------
    encoder_
        The encoding learned at fit.
    network_
        The trained network, on the CPU and in evaluation mode.
    group_names_
        Groups seen at fit, in the order of their codes.
    """

    encoder_: TableEncoder
    network_: nn.Sequential
    group_names_: tuple[str, ...]

    def __init__(self, settings: NetworkSettings | None = None) -> None:
        self.settings = NetworkSettings() if settings is None else settings

    def fit(self, X: Any, y: ArrayLike, *, sensitive_features: Any) -> Self:
        """Learn the encoding and the network from people, labels 0 or 1, and one column of groups."""
        table = as_table(X)
        labels = as_labels(in_row_order(y, X, "y"), len(table))
        groups = as_groups(in_row_order(sensitive_features, X, "sensitive_features"), len(table))
        self.group_names_ = groups.names
        table = self._repaired(table, groups.codes, is_fit=True)
        self.encoder_ = TableEncoder.fit(table, self.settings.encoding)
        self._learn(self.encoder_.transform(table), labels, groups.codes)
        return self

    def predict(self, X: Any, sensitive_features: Any = None) -> Ints:
        """Decisions 0 or 1, of shape (n,)."""
        return (self.predict_proba(X, sensitive_features)[:, 1] >= 0.5).astype(np.int64)

    def predict_proba(self, X: Any, sensitive_features: Any = None) -> Floats:
        """Probabilities of the labels 0 and 1, of shape (n, 2)."""
        return two_columns(sigmoid(self._logits(X, sensitive_features)))

    def audited_model(self) -> AuditedModel:
        """The network's logit over the encoded table."""
        return DifferentiableModel(self.network_, type(self).__name__, self.encoder_)

    def audited_table(self, X: Any, sensitive_features: Any = None) -> pd.DataFrame:
        """The table that the network takes."""
        return as_table(X)

    def _learn(self, x: NDArray[np.float32], y: Ints, group: Ints) -> None:
        """Set `network_` from encoded people, labels and group codes; plain training unless a method overrides it."""
        self.network_ = train_network(x, y, self.settings)

    def _repaired(self, table: pd.DataFrame, group: Ints, *, is_fit: bool) -> pd.DataFrame:
        """The table as the network's input."""
        return table

    def _logits(self, X: Any, sensitive_features: Any) -> Floats:
        return logits_of(self.network_, self.encoder_.transform(self.audited_table(X, sensitive_features)))

    def _group_codes(self, sensitive_features: Any, X: Any, n: int) -> Ints:
        """Codes, as at fit, of the n people of a table, who may all be in one group."""
        if sensitive_features is None:
            raise InvalidInputError(
                f"{type(self).__name__} needs `sensitive_features` to predict: its rule depends on the group."
            )
        given = list(in_row_order(sensitive_features, X, "sensitive_features"))
        groups = as_groups([*given, *self.group_names_], len(given) + len(self.group_names_))
        unknown = sorted(set(groups.names) - set(self.group_names_))
        if unknown or len(given) != n:
            raise InvalidInputError(
                f"`sensitive_features` must be one of {list(self.group_names_)} in each of {n} rows, "
                f"got {len(given)} values{f' and the unknown groups {unknown}' if unknown else ''}."
            )
        return groups.codes[: len(given)]


class Unconstrained(NetworkMethod):
    """The plain network, with which every other method is compared.

    Examples
    --------
    >>> import evenhand as eh
    >>> data = eh.load_dataset("synthetic", n=200)
    >>> method = Unconstrained(NetworkSettings(epochs=1)).fit(data.X, data.y, sensitive_features=data.group)
    >>> method.predict(data.X).shape
    (200,)
    """


def train_network(
    x: NDArray[np.float32], y: Ints, settings: NetworkSettings, weight: NDArray[np.float32] | None = None
) -> nn.Sequential:
    """A network trained with (weighted) cross-entropy alone, on the CPU and in evaluation mode.

    Parameters
    ----------
    x, y
        Encoded people, of shape (n, d), and labels 0 or 1.
    settings
        Network and training.
    weight
        How much each row counts, of shape (n,); rows of weight 0 are left out. None for 1 each.

    Examples
    --------
    >>> x, y = np.zeros((4, 3), dtype=np.float32), np.array([0, 1, 0, 1])
    >>> train_network(x, y, NetworkSettings(hidden=(8,), epochs=1))(torch.zeros(2, 3)).shape
    torch.Size([2, 1])
    """
    if weight is not None:
        kept = weight > 0
        x, y, weight = x[kept], y[kept], weight[kept]
    data = TrainingData(
        X=torch.as_tensor(x).unsqueeze(0),
        y=torch.as_tensor(y).unsqueeze(0),
        group=torch.zeros(1, len(y), dtype=torch.int64),
        match=torch.full((1, len(y), 1), -1),
        baselines=torch.zeros(1, 2, 1, x.shape[1]),
        weight=None if weight is None else torch.as_tensor(weight).unsqueeze(0),
    )
    own = {name: value for name, value in vars(settings).items() if name not in ("encoding", "random_state")}
    training = TrainingSettings(seed=settings.random_state, cec_weight=0.0, equalized_odds_weight=0.0, **own)
    return train(data, training).network().member(0)


def new_network(n_inputs: int, settings: NetworkSettings) -> nn.Sequential:
    """The initial network of `train_network` with the same seed, in training mode, for a method's training loop."""
    stack = StackedNetwork(n_inputs, settings.hidden, settings.dropout, seeds=(settings.random_state,))
    return stack.member(0).train().to(settings.device)


def batches(n: int, settings: NetworkSettings) -> Iterator[tuple[int, Tensor]]:
    """Epoch, from 0, and rows of each batch of the whole training, in a new random order each epoch."""
    rng = np.random.default_rng(settings.random_state)
    for epoch in range(settings.epochs):
        for rows in torch.from_numpy(rng.permutation(n)).split(settings.batch_size):
            yield epoch, rows


@contextmanager
def seeded(settings: NetworkSettings) -> Iterator[None]:
    """Seed the dropout of the block, and leave the caller's random state unchanged."""
    device = torch.device(settings.device)
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(settings.random_state)
        yield


def logits_of(network: nn.Module, x: NDArray[np.float32]) -> Floats:
    """Logits of a network on the CPU, of shape (n,)."""
    with torch.no_grad():
        logits: Floats = network(torch.from_numpy(x)).squeeze(-1).double().numpy()
    return logits


def sigmoid(logits: Floats) -> Floats:
    """Probabilities without overflow at either end."""
    return 0.5 * (1 + np.tanh(0.5 * logits))


def two_columns(positive: Floats) -> Floats:
    """Probabilities of 0 and 1 from those of 1."""
    return np.column_stack([1 - positive, positive])


def drawn_decisions(probability: Floats, random_state: int) -> Ints:
    """A decision per row, favorable with the given probability.

    Examples
    --------
    >>> drawn_decisions(np.array([0.0, 1.0, 0.0]), random_state=0)
    array([0, 1, 0])
    """
    return (np.random.default_rng(random_state).random(len(probability)) < probability).astype(np.int64)
