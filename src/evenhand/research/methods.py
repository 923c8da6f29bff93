"""The seven ways to train that the paper compares, and FairSHAP, behind one protocol; researchers can add more."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, ClassVar, Protocol, Self, runtime_checkable

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import parameters_to_vector

from evenhand.arrays import Floats, Ints
from evenhand.attribution.explanation import Attribution
from evenhand.attribution.explanation import Method as Integration
from evenhand.attribution.gradients import attribute
from evenhand.exceptions import EvenhandWarning, InvalidInputError
from evenhand.inputs.encoding import Encoding, TableEncoder
from evenhand.inputs.validation import as_groups, as_labels, as_table, in_row_order, is_number_column
from evenhand.models.gradient import DifferentiableModel
from evenhand.models.protocol import AuditedModel
from evenhand.system.libraries import optional_module
from evenhand.training import StackedNetwork, TrainingData, TrainingSettings, train
from evenhand.training.classifier import CECClassifier
from evenhand.training.losses import cell_shares
from evenhand.training.repairs import Repaired, repaired
from evenhand.training.settings import TrainingMethod


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


@dataclass(eq=False, repr=False)
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

    is_random: ClassVar[bool] = False
    """Whether decisions are drawn with the probabilities that `predict_proba` returns."""
    settings: NetworkSettings = NetworkSettings()
    encoder_: TableEncoder = field(init=False)
    network_: nn.Sequential = field(init=False)
    group_names_: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.settings = self.settings or NetworkSettings()

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
        """Decisions 0 or 1, of shape (n,); of a randomized rule, drawn row by row with the method's seed."""
        probability = self.predict_proba(X, sensitive_features)[:, 1]
        random = np.random.default_rng(self.settings.random_state)
        return (random.random(len(probability)) < probability if self.is_random else probability >= 0.5).astype(
            np.int64
        )

    def predict_proba(self, X: Any, sensitive_features: Any = None) -> Floats:
        """Probabilities of the labels 0 and 1, of shape (n, 2)."""
        return two_columns(expit(self._logits(X, sensitive_features)))

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


def batches(settings: NetworkSettings, *people: NDArray[Any]) -> Iterator[tuple[int, list[Tensor]]]:
    """Epoch, from 0, and people of each batch of the whole training, in a new random order each epoch."""
    rng = np.random.default_rng(settings.random_state)
    tensors = [torch.from_numpy(values).to(settings.device) for values in people]
    for epoch in range(settings.epochs):
        for rows in torch.from_numpy(rng.permutation(len(tensors[0]))).to(settings.device).split(settings.batch_size):
            yield epoch, [values[rows] for values in tensors]


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


def two_columns(positive: Floats) -> Floats:
    """Probabilities of 0 and 1 from those of 1."""
    return np.column_stack([1 - positive, positive])


@dataclass(eq=False, repr=False)
class FairSHAP(NetworkMethod):
    """The plain network on rows that `evenhand.training.repairs.repaired` has repaired.

    The network decides on the unchanged table, without groups; only the rows it learns from are changed.

    Parameters
    ----------
    settings
        Network and training, also of the network whose score is explained; None for the paper's.
    financial_features
        Columns on which people are matched, and which do not change; None to match on all and let all change.
    max_auc_loss
        AUC that the repair may cost on folds of the training rows.

    Attributes
    ----------
    repaired_
        The encoded training rows after the repair, and the effect of each number of replaced values on folds.
    """

    financial_features: Sequence[str] | None = None
    max_auc_loss: float = 0.01
    repaired_: Repaired = field(init=False)

    def _learn(self, x: NDArray[np.float32], y: Ints, group: Ints) -> None:
        def fit(rows: NDArray[np.floating], labels: Ints) -> AuditedModel:
            return DifferentiableModel(train_network(rows.astype(np.float32), labels, self.settings), "network")

        is_stated = np.isin(self.encoder_.names, [] if self.financial_features is None else self.financial_features)
        join = self.encoder_.join_matrix
        is_financial = is_stated[join.argmax(axis=1)]
        finances = x if self.financial_features is None else x[:, is_financial]
        self.repaired_ = repaired(
            x,
            y,
            group,
            fit=fit,
            finances=finances.astype(np.float64),
            is_financial=is_financial,
            join=join,
            max_auc_loss=self.max_auc_loss,
            random_state=self.settings.random_state,
        )
        self.network_ = train_network(self.repaired_.features.astype(np.float32), y, self.settings)


@dataclass(frozen=True, eq=False)
class QuantileRepair:
    r"""Repair of one number, fitted on some people and applied to any.

    A person at quantile q of their group moves toward the median, over groups, of the groups' values at q:

    .. math:: x' = (1 - \lambda) x + \lambda \operatorname{median}_h F_h^{-1}(F_g(x))

    Quantile functions are linear between the values seen, with a tied value at the middle of its ranks. A value
    outside the range of its group at fit keeps its distance from the end of the range. So the repair is
    increasing within every group.

    Attributes
    ----------
    values, ranks
        For each group, its distinct values, ascending, and their quantiles; empty for a group without values.
    level
        The share of the way to go, lambda in [0, 1].

    Examples
    --------
    >>> repair = QuantileRepair.fit(np.array([0.0, 1.0, 2.0, 10.0, 11.0, 12.0]), np.array([0, 0, 0, 1, 1, 1]))
    >>> repair(np.array([1.0, 11.0, 1.5, 13.0]), np.array([0, 1, 0, 1]))
    array([6. , 6. , 6.5, 8. ])
    """

    values: tuple[Floats, ...]
    ranks: tuple[Floats, ...]
    level: float

    @classmethod
    def fit(cls, numbers: Floats, group: Ints, level: float = 1.0) -> QuantileRepair:
        """Learn each group's quantile function; missing values are left out."""
        if not 0 <= level <= 1:
            raise InvalidInputError(f"`level` must be between 0 (no repair) and 1 (full repair), got {level!r}.")
        values, ranks = [], []
        for code in range(int(group.max()) + 1):
            known = numbers[(group == code) & ~np.isnan(numbers)]
            distinct, counts = np.unique(known, return_counts=True)
            values.append(distinct)
            ranks.append((np.cumsum(counts) - counts / 2) / max(1, len(known)))
        return cls(tuple(values), tuple(ranks), level)

    def __call__(self, numbers: Floats, group: Ints) -> Floats:
        """Repaired numbers, of shape (n,); missing ones, and those of a group without values at fit, are unchanged."""
        repaired = np.array(numbers, dtype=np.float64)
        for code, (values, ranks) in enumerate(zip(self.values, self.ranks, strict=True)):
            if len(values) == 0:
                continue
            members = (group == code) & ~np.isnan(repaired)
            own = repaired[members]
            beyond = own - own.clip(values[0], values[-1])
            quantile = np.interp(own, values, ranks)
            by_group = [np.interp(quantile, r, v) for v, r in zip(self.values, self.ranks, strict=True) if len(v)]
            aim = np.median(by_group, axis=0) + beyond
            repaired[members] = (1 - self.level) * own + self.level * aim
        return repaired


@dataclass(eq=False, repr=False)
class DisparateImpactRemover(NetworkMethod):
    """The plain network on repaired numbers; categories are unchanged.

    The attributed score is a function of the *repaired* table, which `audited_table` returns. Predicting needs
    groups, because the repair does.

    Parameters
    ----------
    settings
        Network and training; None for the paper's.
    repair_level
        0 changes nothing, 1 makes the groups' distributions of every number alike.

    Attributes
    ----------
    repairs_
        By column, its `QuantileRepair`.
    """

    repair_level: float = 1.0
    repairs_: dict[str, QuantileRepair] = field(init=False)

    def audited_table(self, X: Any, sensitive_features: Any = None) -> pd.DataFrame:
        """The repaired table."""
        table = as_table(X)
        return self._repaired(table, self._group_codes(sensitive_features, X, len(table)), is_fit=False)

    def _repaired(self, table: pd.DataFrame, group: Ints, *, is_fit: bool) -> pd.DataFrame:
        numbers = {
            str(column): table[column].to_numpy(dtype=np.float64, na_value=np.nan)
            for column in table.columns
            if is_number_column(table[column])
        }
        if is_fit:
            self.repairs_ = {
                column: QuantileRepair.fit(values, group, self.repair_level) for column, values in numbers.items()
            }
        return table.assign(**{column: self.repairs_[column](values, group) for column, values in numbers.items()})


class HardtPostProcessing(NetworkMethod):
    """Group thresholds that equalize odds (Hardt et al., 2016), on the plain network's scores of its training people.

    The rule, fairlearn's `ThresholdOptimizer`, mixes two thresholds per group at random. `predict_proba` returns the
    expected decision; `predict` draws, row by row, from the seed. The logit of the underlying network is attributed.
    Predicting needs groups.
    """

    is_random = True
    rule_: Any

    def _learn(self, x: NDArray[np.float32], y: Ints, group: Ints) -> None:
        postprocessing = optional_module("fairlearn.postprocessing", "This method", "fairlearn", "methods")
        self.network_ = train_network(x, y, self.settings)
        score = expit(logits_of(self.network_, x))
        rule = postprocessing.ThresholdOptimizer(
            estimator=_GivenScore().fit(),
            constraints="equalized_odds",
            objective="accuracy_score",
            prefit=True,
            predict_method="predict_proba",
        )
        self.rule_ = rule.fit(score[:, None], y, sensitive_features=group)

    def predict_proba(self, X: Any, sensitive_features: Any = None) -> Floats:
        """Expected decisions, of shape (n, 2)."""
        score = expit(self._logits(X, sensitive_features))
        group = self._group_codes(sensitive_features, X, len(score))
        expected: Floats = self.rule_._pmf_predict(score[:, None], sensitive_features=group)
        return two_columns(expected[:, 1])


class _GivenScore(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Takes the place of the fitted network: its only input column is the score."""

    def fit(self) -> Self:
        self.classes_ = np.array([0, 1])
        return self

    def predict_proba(self, X: Any) -> Floats:
        return two_columns(np.asarray(X, dtype=np.float64)[:, 0])


@dataclass(eq=False, repr=False)
class AgarwalReduction(NetworkMethod):
    """fairlearn's `ExponentiatedGradient` (Agarwal et al., 2018) with equalized odds, over weighted networks.

    The result decides by a predictor drawn by weight. `predict_proba` returns the expected decision; `predict` draws,
    row by row, from the seed. The weighted average of the predictors' logits is attributed.

    Parameters
    ----------
    settings
        Network and training of every predictor; None for the paper's.
    tolerance
        Allowed difference of a group's rate from the overall one.
    max_iterations
        Largest number of rounds of the game; each trains one or two networks. fairlearn's default, 50, takes hours on
        larger data for little gain.

    Attributes
    ----------
    weights_
        Probability of each predictor that is ever drawn.
    n_networks_
        Number of networks trained.
    """

    is_random = True
    tolerance: float = 0.01
    max_iterations: int = 15
    network_: AverageLogit = field(init=False)  # type: ignore[assignment]
    weights_: Floats = field(init=False)
    n_networks_: int = field(init=False)

    def _learn(self, x: NDArray[np.float32], y: Ints, group: Ints) -> None:
        reductions = optional_module("fairlearn.reductions", "This method", "fairlearn", "methods")
        reduction = reductions.ExponentiatedGradient(
            WeightedNetwork(self.settings),
            # The bound of the constraint and the scale of the multipliers both have the size of the tolerance.
            reductions.EqualizedOdds(difference_bound=self.tolerance),
            eps=self.tolerance,
            max_iter=self.max_iterations,
        )
        with warnings.catch_warnings():
            # fairlearn grows pandas series in a way that pandas has deprecated.
            warnings.simplefilter("ignore", FutureWarning)
            warnings.simplefilter("ignore", DeprecationWarning)
            reduction.fit(x, y, sensitive_features=group)
        self.n_networks_ = int(reduction.n_oracle_calls_)
        used = reduction.weights_[reduction.weights_ > 0].sort_index()
        self.weights_ = np.array(used / used.sum(), dtype=np.float64)
        members = [_network_of(reduction.predictors_[index], x.shape[1], len(x), self.settings) for index in used.index]
        self.network_ = AverageLogit(members, self.weights_).eval()

    def predict_proba(self, X: Any, sensitive_features: Any = None) -> Floats:
        """Expected decisions, of shape (n, 2)."""
        encoded = self.encoder_.transform(self.audited_table(X))
        decisions = np.stack([logits_of(member, encoded) >= 0 for member in self.network_.members])
        return two_columns((self.weights_ @ decisions).clip(0, 1))

    def audited_model(self) -> AuditedModel:
        """The weighted average of the predictors' logits."""
        return _AuditedAverage(self.network_, type(self).__name__, self.encoder_)


class AverageLogit(nn.Module):
    """Weighted average of the logits of several networks, of shape (n,).

    Examples
    --------
    >>> average = AverageLogit([nn.Linear(2, 1), nn.Linear(2, 1)], np.array([0.25, 0.75]))
    >>> average(torch.zeros(3, 2)).shape
    torch.Size([3])
    """

    weights: Tensor

    def __init__(self, members: list[nn.Module], weights: Floats) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)
        self.register_buffer("weights", torch.as_tensor(weights, dtype=torch.float32))

    def forward(self, x: Tensor) -> Tensor:
        """Logits of rows of shape (n, d)."""
        return self.weights @ torch.stack([member(x).squeeze(-1) for member in self.members])


@dataclass(frozen=True)
class _AuditedAverage(DifferentiableModel):
    """Integrated gradients are linear in the model: those of an average are the average of the members'."""

    def integrated(self, x: Tensor, baseline: Tensor, n_steps: int, method: Integration) -> Attribution:
        network = self.network
        assert isinstance(network, AverageLogit)
        parts = [attribute(member, x, baseline, n_steps, method) for member in network.members]

        def average(name: str) -> Tensor:
            return torch.stack([getattr(part, name) for part in parts], -1) @ network.weights

        return Attribution(
            average("gradients"), parts[0].offset, average("logit"), average("baseline_logit"), parts[0].method
        )


@dataclass(eq=False, repr=False)
class WeightedNetwork(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """The network as a scikit-learn estimator with sample weights."""

    settings: NetworkSettings

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train from the start."""
        weight = None if sample_weight is None else np.asarray(sample_weight, dtype=np.float32)
        labels = np.asarray(y, dtype=np.int64).ravel()
        self.network_ = train_network(np.asarray(X, dtype=np.float32), labels, self.settings, weight)
        self.classes_ = np.array([0, 1])
        return self

    def predict(self, X: Any) -> Ints:
        """The more probable label of each row."""
        return (logits_of(self.network_, np.asarray(X, dtype=np.float32)) >= 0).astype(np.int64)


def _network_of(predictor: Any, n_inputs: int, n_rows: int, settings: NetworkSettings) -> nn.Module:
    """A predictor's network. fairlearn returns a constant if all labels of a round are the same.

    A constant has no attribution; its logit is that of a rate one person short of all.
    """
    if isinstance(predictor, WeightedNetwork):
        return predictor.network_
    constant = int(predictor.predict(np.zeros((1, n_inputs)))[0])
    network = new_network(n_inputs, settings).cpu()
    for parameter in network.parameters():
        nn.init.zeros_(parameter)
    last = network[-1]
    assert isinstance(last, nn.Linear)
    nn.init.constant_(last.bias, (2 * constant - 1) * float(np.log(n_rows)))
    return network


@dataclass(eq=False, repr=False)
class LagrangianConstraints(NetworkMethod):
    """Cross-entropy under equal true and false positive rates, as a game between network and multipliers.

    The constraints are proxies (Cotter et al., 2019). Every group's two rates must equal the first group's: equality
    constraints with signed multipliers, so that the noise of a batch moves them both ways. The network's step uses soft
    rates, the means of its probabilities, which have a gradient; the multipliers' step uses the rates of its decisions,
    which should be equal. A difference with only one side in a batch is left out of that step.

    Parameters
    ----------
    settings
        Network and training; None for the paper's.
    dual_learning_rate
        Step of the multipliers, which start at 0 and climb by gradient ascent.

    Attributes
    ----------
    multipliers_
        The last multipliers: true positive rates of groups 1, 2, ..., then false positive rates.
    """

    dual_learning_rate: float = 0.02
    multipliers_: Floats = field(init=False)

    def _learn(self, x: NDArray[np.float32], y: Ints, group: Ints) -> None:
        cooper = optional_module("cooper", "This method", "cooper-optim", "methods")
        n_groups, device = len(self.group_names_), self.settings.device
        network = new_network(x.shape[1], self.settings)
        multiplier = cooper.multipliers.DenseMultiplier(num_constraints=2 * (n_groups - 1), device=device)
        constraint = cooper.Constraint(
            constraint_type=cooper.ConstraintType.EQUALITY,
            formulation_type=cooper.formulations.Lagrangian,
            multiplier=multiplier,
        )
        game = _game(cooper, network, constraint, n_groups)
        optimizer = cooper.optim.SimultaneousOptimizer(
            cmp=game,
            primal_optimizers=torch.optim.Adam(network.parameters(), lr=self.settings.learning_rate),
            dual_optimizers=torch.optim.SGD(game.dual_parameters(), lr=self.dual_learning_rate, maximize=True),
        )
        with seeded(self.settings):
            for _, (people, labels, groups) in batches(self.settings, x, y, group):
                optimizer.roll(compute_cmp_state_kwargs={"x": people, "y": labels, "group": groups})
        self.multipliers_ = multiplier.weight.detach().double().cpu().numpy()
        self.network_ = network.eval().cpu()


def rate_differences(score: Tensor, y: Tensor, group: Tensor, n_groups: int) -> Tensor:
    """Each group's true, then false, positive rate minus the first group's, of shape (2 * (n_groups - 1),).

    Parameters
    ----------
    score
        Probabilities for soft rates, decisions 0 or 1 for hard ones, of shape (n,).
    y, group
        Labels and group codes.

    Returns
    -------
    Differences; 0 if either group has no one with that label.

    Examples
    --------
    >>> decisions, y = torch.tensor([1.0, 0.0, 1.0, 1.0]), torch.tensor([1, 1, 1, 0])
    >>> rate_differences(decisions, y, torch.tensor([0, 0, 1, 1]), n_groups=2)
    tensor([0.5000, 0.0000])
    """
    shares, is_present = cell_shares(y, group, n_groups, dtype=score.dtype)
    rates = (score @ shares).unflatten(0, (2, n_groups)).flip(0)
    both = (is_present[:, 1:] & is_present[:, :1]).flip(0)
    differences: Tensor = (rates[:, 1:] - rates[:, :1]) * both
    return differences.flatten()


def _game(cooper: Any, network: nn.Module, constraint: Any, n_groups: int) -> Any:
    class Game(cooper.ConstrainedMinimizationProblem):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.odds = constraint

        def compute_cmp_state(self, x: Tensor, y: Tensor, group: Tensor) -> Any:
            logits = network(x).squeeze(-1)
            loss = functional.binary_cross_entropy_with_logits(logits, y.to(logits.dtype))
            soft = rate_differences(torch.sigmoid(logits), y, group, n_groups)
            hard = rate_differences((logits.detach() >= 0).to(logits.dtype), y, group, n_groups)
            state = cooper.ConstraintState(violation=soft, strict_violation=hard)
            return cooper.CMPState(loss=loss, observed_constraints={self.odds: state})

    return Game()


@dataclass(eq=False, repr=False)
class AdversarialDebiasing(NetworkMethod):
    r"""A network trained against an adversary that predicts the group from score and label (Zhang et al., 2018).

    .. math:: g = \nabla L_P - \operatorname{proj}_{\nabla L_A} \nabla L_P - \alpha \nabla L_A

    is the gradient that Adam follows: that of the network, minus its part that would help the adversary, minus alpha
    times the adversary's. Alpha grows from `strength` with the square root of the epoch; the learning rate, which the
    authors decrease, stays that of all methods.

    Parameters
    ----------
    settings
        Network and training; None for the paper's.
    strength
        Alpha in the first epoch. The default was chosen on simulated people with a known gap: ten times as much
        overshoots equal odds and swings back.
    adversary_learning_rate
        Learning rate of the adversary's Adam; larger than the network's, because the adversary must keep up.
    """

    strength: float = 0.1
    adversary_learning_rate: float = 1e-2

    def _learn(self, x: NDArray[np.float32], y: Ints, group: Ints) -> None:
        network = new_network(x.shape[1], self.settings)
        with seeded(self.settings):
            adversary = Adversary(len(self.group_names_)).to(self.settings.device)
            own, theirs = list(network.parameters()), list(adversary.parameters())
            optimizers = (
                torch.optim.Adam(own, lr=self.settings.learning_rate),
                torch.optim.Adam(theirs, lr=self.adversary_learning_rate),
            )
            sizes = [parameter.numel() for parameter in own]
            for epoch, (people, labels, groups) in batches(self.settings, x, y, group):
                logits = network(people).squeeze(-1)
                loss = functional.binary_cross_entropy_with_logits(logits, labels.to(logits.dtype))
                helps = parameters_to_vector(torch.autograd.grad(loss, own, retain_graph=True))
                against = functional.cross_entropy(adversary(logits, labels), groups)
                gradients = torch.autograd.grad(against, [*own, *theirs])
                harms = parameters_to_vector(gradients[: len(own)])
                update = adversarial_update(helps, harms, self.strength * math.sqrt(epoch + 1))
                for parameter, gradient in zip(
                    [*own, *theirs], [*update.split(sizes), *gradients[len(own) :]], strict=True
                ):
                    parameter.grad = gradient.view_as(parameter)
                for optimizer in optimizers:
                    optimizer.step()
        self.network_ = network.eval().cpu()


class Adversary(nn.Module):
    """Predicts the group from the sharpened score s and the label: a linear map of s, s y and s (1 - y)."""

    def __init__(self, n_groups: int) -> None:
        super().__init__()
        self.sharpness = nn.Parameter(torch.zeros(()))
        self.guess = nn.Linear(3, n_groups)

    def forward(self, logits: Tensor, y: Tensor) -> Tensor:
        """Logits of the groups, of shape (n, n_groups), from those of the network and the labels, of shape (n,)."""
        score = torch.sigmoid((1 + self.sharpness.abs()) * logits)
        is_positive = y.to(score.dtype)
        result: Tensor = self.guess(torch.stack((score, score * is_positive, score * (1 - is_positive)), dim=1))
        return result


def adversarial_update(own: Tensor, against: Tensor, alpha: float) -> Tensor:
    """The gradient to follow, from the network's and the adversary's over all parameters, of shape (P,).

    Examples
    --------
    >>> adversarial_update(torch.tensor([1.0, 1.0]), torch.tensor([0.0, 2.0]), alpha=0.0)
    tensor([1., 0.])
    >>> adversarial_update(torch.tensor([1.0, 1.0]), torch.tensor([0.0, 2.0]), alpha=0.5)
    tensor([ 1., -1.])
    """
    direction = against / against.norm().clamp_min(torch.finfo(against.dtype).tiny)
    result: Tensor = own - (own @ direction) * direction - alpha * against
    return result


@dataclass(eq=False, repr=False)
class CEC(NetworkMethod):
    """`CECClassifier` as a method, with the paper's integration by default.

    There is no warning about a constant model here: the comparison reports every method's positive rate.

    Parameters
    ----------
    settings
        Network and training; None for the paper's.
    financial_features
        Columns on which people are matched; None for all.
    cec_weight, equalized_odds_weight
        The paper's lambdas.
    n_steps, integration
        How attributions are integrated in training.
    """

    financial_features: Sequence[str] | None = None
    _: KW_ONLY
    cec_weight: float = 1.0
    equalized_odds_weight: float = 1.0
    n_steps: int = 32
    integration: TrainingMethod = "midpoint"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.classifier = CECClassifier(
            financial_features=self.financial_features,
            objective="cec",
            least_explained=0.0,
            cec_weight=self.cec_weight,
            equalized_odds_weight=self.equalized_odds_weight,
            n_steps=self.n_steps,
            method=self.integration,
            **vars(self.settings),
        )

    def fit(self, X: Any, y: ArrayLike, *, sensitive_features: Any) -> Self:
        """Match, and train the network on the three terms."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", EvenhandWarning)
            fitted = self.classifier.fit(X, y, sensitive_features=sensitive_features)
        self.encoder_, self.network_, self.group_names_ = fitted.encoder_, fitted.network_, fitted.group_names_
        return self

    def _logits(self, X: Any, sensitive_features: Any) -> Floats:
        return self.classifier.decision_function(X)


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
