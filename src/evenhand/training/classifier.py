"""A scikit-learn classifier trained for accuracy, equal error rates and consistent reasoning."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import Tags, check_array, check_random_state
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import _check_sample_weight, _check_y, check_is_fitted, validate_data

from evenhand.arrays import Floats, Ints
from evenhand.attribution.baselines import label_group_baselines
from evenhand.exceptions import InvalidInputError, warn_caller
from evenhand.inputs.encoding import Encoding, TableEncoder
from evenhand.inputs.read_options import check_seed
from evenhand.inputs.splitting import split_people
from evenhand.inputs.validation import Groups, as_groups, as_table, check_columns, in_row_order
from evenhand.matching.pairs import match_pairs
from evenhand.matching.space import MatchingSpace
from evenhand.models.files.load import register_reader
from evenhand.models.gradient import DifferentiableModel
from evenhand.models.protocol import AuditedModel
from evenhand.system.terminal import progress as shown_progress
from evenhand.training.data import TrainingData, ValidationData
from evenhand.training.engine.loop import Trainer, TrainerState
from evenhand.training.losses import training_triples
from evenhand.training.model_file import read_model, write_model
from evenhand.training.settings import (
    Monitor,
    Procedure,
    TrainingMethod,
    TrainingSettings,
    explained_share,
    is_about_to_collapse,
)

_CONSTANT_SHARE = 0.01


@dataclass(kw_only=True, repr=False, eq=False)
class CECClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    r"""A ReLU network trained with cross-entropy, equalized odds and explanation consistency (Algorithm 2).

    On four datasets, the defaults keep the AUC and the share of favorable decisions of plain training, and at least
    halve the difference in weighing between groups. The paper's objective, which does not, is
    ``CECClassifier(**evenhand.PAPER.training)``.

    .. math:: \mathcal L = \mathcal L_\text{pred} + \lambda_\text{EO} \mathcal L_\text{EO}
              + \lambda_\text{CEC} \mathcal L_\text{CEC}

    Tables with categories and missing values are encoded internally. Groups are needed to fit but never to predict, and
    are not an input of the network unless their column is in `X`.

    Parameters
    ----------
    financial_features
        Columns on which people are matched; names, or positions for an array. None for all columns.
    cec_weight, equalized_odds_weight
        The paper's lambdas, which are 1 there. Both 0: plain training.
    objective
        What `cec_weight` weighs: the square of the ``"reasoning_gap"`` over pairs or of the CEC score (``"cec"``, the
        paper's), or the excess of either over placebo pairs (``"reasoning_excess"``, ``"excess"``).
    n_steps, method
        How attributions are integrated in training; the paper takes 32 steps of a rule that it does not name.
    cec_every
        Add the CEC term in one of this many batches, with a correspondingly larger weight: faster, but noisier.
    hidden, dropout, epochs, learning_rate, batch_size
        The network and its training; the defaults are the paper's.
    encoding
        Categories as ``"onehot"`` columns, or as integer codes, ``"ordinal"`` (standardized) or ``"unscaled"``. The
        paper does not say; its numbers fit integer codes.
    max_distance
        Largest distance of a match, or triple, in the term of `cec_weight`; None for no limit.
    validation_fraction
        Share of the people held out of training, to track the metrics of each epoch; 0 for none.
    patience
        Stop after this many epochs without a better `monitor` on the held-out people, and keep the best epoch; None
        for all epochs and the last one.
    monitor
        ``"objective"``, ``"bce"`` or ``"auc"``.
    checkpoint
        Folder that keeps an unfinished fit; the same fit, called again, continues from there.
    device
        ``"auto"``, ``"cpu"`` or ``"cuda"``.
    random_state
        Seed. The same seed gives the same model on the same CPU, bit for bit.
    progress
        Whether to show progress.
    least_explained
        Share of the labels' entropy that the network must explain for the two terms to count in full; below it they
        count in proportion, so they cannot keep the network from learning. With 0, as in the paper, they always count.

    Attributes
    ----------
    classes_
        The two labels; the second is the favorable one.
    network_
        The trained network, a `torch.nn.Sequential` on the encoded table.
    encoder_
        The encoding learned at fit.
    history_
        Metrics of each epoch by name, each of shape (n_epochs,).
    n_iter_
        Number of epochs trained.
    best_epoch_
        The epoch whose weights are kept, from 0.
    group_names_
        Groups seen at fit.
    n_unmatched_
        People without a match at fit; for an objective with placebo pairs, without a placebo triple.
    n_features_in_, feature_names_in_
        Columns seen at fit; names only if the table had names.

    Examples
    --------
    >>> import evenhand as eh
    >>> data = eh.load_dataset("synthetic", n=400)
    >>> model = CECClassifier(financial_features=data.financial_features, epochs=2)
    >>> model.fit(data.X, data.y, sensitive_features=data.group).predict_proba(data.X).shape
    (400, 2)
    """

    financial_features: Sequence[str] | Sequence[int] | None = None
    cec_weight: float = 2.0
    equalized_odds_weight: float = 0.0
    objective: Procedure = "reasoning_gap"
    n_steps: int = 1
    method: TrainingMethod = "segments"
    cec_every: int = 1
    hidden: Sequence[int] = (128, 64)
    dropout: float = 0.2
    epochs: int = 30
    learning_rate: float = 3e-4
    batch_size: int = 64
    encoding: Encoding = "onehot"
    max_distance: float | None = None
    validation_fraction: float = 0.0
    patience: int | None = None
    monitor: Monitor = "objective"
    checkpoint: str | os.PathLike[str] | None = None
    device: str = "auto"
    random_state: int | np.random.RandomState | None = 0
    progress: bool = False
    least_explained: float = 0.1

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.input_tags.allow_nan = True
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        return tags

    def fit(self, X: Any, y: ArrayLike, *, sensitive_features: Any, sample_weight: ArrayLike | None = None) -> Self:
        """Fit the encoding and the network.

        Parameters
        ----------
        X
            People: a pandas, polars or pyarrow table, or an array.
        y
            Labels with two values; the one that sorts last is favorable.
        sensitive_features
            The protected attribute of each person; several columns are intersected.
        sample_weight
            How often each person counts; 0 to leave someone out.

        Raises
        ------
        InvalidInputError
            If groups are missing, labels do not have two values, or the table cannot be encoded.
        """
        table = self._table(X, reset=True)
        labels = self._labels(in_row_order(y, X, "y"), len(table))
        groups = as_groups(in_row_order(sensitive_features, X, "sensitive_features"), len(table))
        sample_weight = in_row_order(sample_weight, X, "sample_weight")
        weight = _check_sample_weight(sample_weight, table, dtype=np.float64, ensure_non_negative=True)
        kept = np.flatnonzero(weight > 0)
        if len(kept) < len(weight):
            table, labels, weight = table.iloc[kept].reset_index(drop=True), labels[kept], weight[kept]
            if len(np.unique(labels)) < 2:
                raise InvalidInputError("All people with a positive `sample_weight` are of one class; both are needed.")
            groups = as_groups(np.asarray(groups.names)[groups.codes[kept]], len(kept))
        given = self.random_state
        is_seed = isinstance(given, (int, np.integer))
        seed = check_seed(given) if is_seed else int(check_random_state(given).randint(2**31 - 1))
        data = self._training_data(table, labels, groups, weight.astype(np.float32), seed)
        state = self._train(data, seed)
        self.network_ = state.network().member(0)
        self.history_ = {name: values[:, 0].numpy() for name, values in state.history.items()}
        self.n_iter_ = state.epoch
        self.best_epoch_ = int(state.best_epoch[0]) if self.patience is not None else state.epoch - 1
        self.group_names_ = groups.names
        self._warn_if_constant(table, labels)
        return self

    def decision_function(self, X: Any) -> Floats:
        """Logits of the favorable label, of shape (n,)."""
        check_is_fitted(self)
        return self._logits(self._table(X, reset=False))

    def predict_proba(self, X: Any) -> Floats:
        """Probabilities of the two labels, of shape (n, 2), in the order of `classes_`."""
        positive = 1 / (1 + np.exp(-self.decision_function(X)))
        return np.column_stack([1 - positive, positive])

    def predict(self, X: Any) -> NDArray[Any]:
        """The more probable label of each person, of shape (n,)."""
        logits = self.decision_function(X)
        return self.classes_[(logits >= 0).astype(np.int64)]

    def audited_model(self) -> AuditedModel:
        """The fitted model in the form of `evenhand.audit`: attributed by encoded column, reported by table column."""
        check_is_fitted(self)
        return DifferentiableModel(self.network_, type(self).__name__, self.encoder_)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the fitted model, completely or not at all, and return the file's path.

        Parameters
        ----------
        path
            A file ending in ``.safetensors``, or a folder, in which the file is called ``model.safetensors``.
        """
        check_is_fitted(self)
        return write_model(path, self)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a model that `save` wrote. Nothing is unpickled, no code is run.

        Raises
        ------
        ModelFileError
            If the file is truncated, altered, of a different kind or of a different version.
        """
        return read_model(path, cls)

    def _table(self, X: Any, *, reset: bool) -> Any:
        """`X` as a pandas table, with scikit-learn's checks of columns."""
        is_table = hasattr(X, "columns") or hasattr(X, "column_names")
        if is_table:
            validate_data(self, X, reset=reset, skip_check_array=True)
            return as_table(X)
        values = validate_data(self, X, reset=reset, dtype=None, ensure_all_finite="allow-nan")
        if values.dtype.kind not in "biuf":
            values = check_array(values, dtype=np.float64, ensure_all_finite="allow-nan")
        return as_table(values)

    def _logits(self, table: Any) -> Floats:
        """Logits in float64, so that a person's logit does not depend on who else is in the table."""
        x = torch.from_numpy(self.encoder_.transform(table)).double()
        with torch.no_grad():
            logits: Floats = deepcopy(self.network_).double()(x).squeeze(-1).numpy()
        return logits

    def _labels(self, y: ArrayLike, n: int) -> Ints:
        if y is None:
            raise InvalidInputError(f"{type(self).__name__} requires y to be passed, but the target y is None.")
        values = _check_y(y, estimator=self)
        check_classification_targets(values)
        if len(values) != n:
            raise InvalidInputError(f"`y` has {len(values)} values for {n} rows.")
        classes, labels = np.unique(values, return_inverse=True)
        if len(classes) != 2:
            kind = type_of_target(values, input_name="y")
            raise InvalidInputError(
                f"Only binary classification is supported: the target has {len(classes)} class"
                f"{'' if len(classes) == 1 else 'es'} and is {kind}."
            )
        self.classes_ = classes
        return labels.astype(np.int64)

    def _training_data(
        self, table: Any, labels: Ints, groups: Groups, weight: NDArray[np.float32], seed: int
    ) -> TrainingData:
        """Encoded people with their matches and baselines; learns the encoding from the training people."""
        train, held_out = np.arange(len(table)), np.arange(0)
        if self.validation_fraction:
            train, held_out = split_people(labels, groups.codes, 1 - self.validation_fraction, seed)
        self.encoder_ = TableEncoder.fit(table.iloc[train], self.encoding)
        x, codes, n_others = self.encoder_.transform(table), groups.codes, len(groups.names) - 1
        F = self.encoder_.as_matched(table[self._financial_names(list(table.columns))])
        uses_placebo = bool(self.cec_weight) and str(self.objective).endswith("excess")
        points = MatchingSpace.fit(F.iloc[train], missing="indicator").transform(F) if uses_placebo else None

        def fields_of(people: Ints) -> dict[str, Any]:
            """Fields of people who are compared with the training people."""
            their, pool_of = (labels[people], codes[people]), (labels[train], codes[train])
            is_pool = people is train
            match = np.full((len(people), n_others), -1, dtype=np.int64)
            if self.cec_weight:
                pool = None if is_pool else (F.iloc[train], *pool_of)
                pairs = match_pairs(F.iloc[people], *their, pool, self.max_distance, missing="indicator")
                match = pairs.match.reshape(match.shape)
            triples = None
            if points is not None:
                compared = None if is_pool else (points[train], *pool_of)
                triples = training_triples(
                    points[people], *their, n_others + 1, compared, max_distance=self.max_distance
                )[None]
            return {
                "X": x[None, people],
                "y": labels[None, people],
                "group": codes[None, people],
                "match": match[None],
                "weight": weight[None, people],
                "triples": triples,
            }

        own = fields_of(train)
        partner = own["match"] if own["triples"] is None else own["triples"][..., 0, 0]
        self.n_unmatched_ = int((partner < 0).sum()) if self.cec_weight else 0
        is_joined = len(self.encoder_.encoded_names) > len(self.encoder_.columns)
        return TrainingData(
            **own,
            baselines=torch.as_tensor(label_group_baselines(x[train], labels[train], codes[train]))[None],
            join=torch.as_tensor(self.encoder_.join_matrix) if is_joined else None,
            validation=ValidationData(**fields_of(held_out)) if len(held_out) else None,
        )

    def _financial_names(self, columns: list[str]) -> list[str]:
        if self.financial_features is None:
            return columns
        wanted = list(self.financial_features)
        positions = [f for f in wanted if isinstance(f, (int, np.integer))]
        if positions and (min(positions) < 0 or max(positions) >= len(columns)):
            raise InvalidInputError(
                f"`financial_features` must be positions below {len(columns)}, the number of columns, got {wanted}."
            )
        names = [columns[int(f)] if isinstance(f, (int, np.integer)) else str(f) for f in wanted]
        return check_columns(names, columns, "financial_features")

    def _train(self, data: TrainingData, seed: int) -> TrainerState:
        # Every setting except the seed and those of stacks is a parameter of the same name.
        own = {f.name: getattr(self, f.name) for f in fields(TrainingSettings) if hasattr(self, f.name)}
        settings = TrainingSettings(seed=seed, **own)
        trainer = Trainer(data, settings, checkpoint=_checkpoint(self.checkpoint, data, settings))
        with shown_progress("epoch", self.epochs, is_shown=self.progress, done=trainer.state.epoch) as advance:

            def on_epoch(epoch: int, metrics: dict[str, torch.Tensor]) -> None:
                advance(", ".join(f"{k} {float(v):.4f}" for k, v in metrics.items() if k in _SHOWN and not v.isnan()))
                if epoch + 1 == self.epochs // 2:
                    self._warn_if_collapsing(data, trainer.state, float(metrics["bce"]))

            return trainer.run(on_epoch)

    def _warn_if_collapsing(self, data: TrainingData, state: TrainerState, bce: float) -> None:
        """Warn halfway, while it is not too late to stop, if the terms outweigh the labels."""
        if not self.cec_weight and not self.equalized_odds_weight:
            return
        y, weight = data.y[0].numpy(), data.weights[0].numpy()
        with torch.no_grad():
            decisions = state.network().member(0)(data.X[0]).squeeze(-1).numpy() >= 0
        share = explained_share(bce, y, weight)
        rate, base = (float(np.average(values, weights=weight)) for values in (decisions, y))
        if is_about_to_collapse(share, rate, base, int(state.n_steps[0]), self.learning_rate):
            advice = "" if self.least_explained else ", or set `least_explained=0.1`, which makes the terms wait"
            warn_caller(
                f"After {self.epochs // 2} of {self.epochs} epochs the model explains {max(share, 0):.1%} of the "
                f"labels' entropy, and {rate:.1%} of its decisions are favorable ({base:.1%} of labels are): it may "
                f"end with the same decision for everyone. Lower `cec_weight`, now {self.cec_weight:g}, or "
                f"`equalized_odds_weight`, now {self.equalized_odds_weight:g}{advice}.",
            )

    def _warn_if_constant(self, table: Any, labels: Ints) -> None:
        rate = float((self._logits(table) >= 0).mean())
        base = float(labels.mean())
        if min(rate, 1 - rate) < _CONSTANT_SHARE <= min(base, 1 - base):
            is_plain = not self.cec_weight and not self.equalized_odds_weight
            advice = "train longer" if is_plain else "lower `cec_weight` or `equalized_odds_weight`"
            warn_caller(
                f"The model's decisions are (almost) constant: {rate:.1%} are favorable, {base:.1%} of labels are. "
                f"Small gaps between groups follow from that alone; {advice}.",
            )


_SHOWN = ("bce", "equalized_odds", "cec", "validation_auc")


def _checkpoint(folder: str | os.PathLike[str] | None, data: TrainingData, settings: TrainingSettings) -> Path | None:
    """The file of an unfinished fit, named for its data and settings."""
    if folder is None:
        return None
    # Epochs may grow between the two calls, and the device does not change what is learned.
    decisive = {k: v for k, v in settings.to_dict().items() if k not in ("epochs", "device", "n_threads")}
    digest = hashlib.sha256(repr(sorted(decisive.items())).encode())
    for tensor in (data.X, data.y, data.group, data.match, data.baselines, data.weights, data.triples):
        if tensor is not None:
            digest.update(tensor.numpy().tobytes())
    return Path(folder) / f"fit-{digest.hexdigest()[:16]}.safetensors"


register_reader("evenhand", CECClassifier.load)
