"""Folds as plain arrays: encoded people, their matches and baselines, all learned on the training fold."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from evenhand.inputs.encoding import TableEncoder
from evenhand.inputs.splitting import stratified_folds
from evenhand.training.folds import Fold, match_fold

if TYPE_CHECKING:
    from evenhand.datasets import Dataset
    from evenhand.research.reproduction.settings import ProtocolSettings

__all__ = ["Fold", "Prepared", "prepare_folds"]

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Prepared:
    """A dataset's folds.

    Attributes
    ----------
    dataset
        Its name.
    digest
        Changes when any value, label, group or financial feature does.
    folds
        One per test fold.
    """

    dataset: str
    digest: str
    folds: tuple[Fold, ...]


def prepare_folds(data: Dataset, settings: ProtocolSettings) -> Prepared:
    """Split, encode and match a dataset."""
    codes = np.unique(data.group.astype(str), return_inverse=True)[1].astype(np.int64)
    split = stratified_folds(data.y, codes, settings.n_folds, settings.random_state)
    folds = tuple(_prepare(data, codes, train, test, settings) for train, test in split)
    return Prepared(data.name, _digest(data), folds)


def _prepare(data: Dataset, group: Ints, train: Ints, test: Ints, settings: ProtocolSettings) -> Fold:
    encoder = TableEncoder.fit(data.X.iloc[train], settings.encoding)
    F = encoder.as_matched(data.X[list(data.financial_features)])
    return match_fold(encoder.transform(data.X), F, data.y, group, train, test, encoder.join_matrix)


def _digest(data: Dataset) -> str:

    content = hashlib.sha256(repr((data.name, list(data.X.columns), list(data.financial_features))).encode())
    content.update(pd.util.hash_pandas_object(data.X, index=False).to_numpy().tobytes())
    content.update(data.y.tobytes())
    content.update("\0".join(data.group.astype(str)).encode())
    return content.hexdigest()[:16]
