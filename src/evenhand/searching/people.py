"""The people of a search, checked once, split into folds, matched and compared."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from evenhand.arrays import Floats, Ints
from evenhand.inputs.encoding import TableEncoder
from evenhand.inputs.identity import fingerprint_numbers, fingerprint_table
from evenhand.inputs.people import People
from evenhand.inputs.splitting import split_people, stratified_folds, units_of
from evenhand.inputs.validation import Groups, check_columns
from evenhand.matching.placebos import PlaceboPairs, placebo_pairs
from evenhand.matching.space import MatchingSpace
from evenhand.searching.families import with_categories
from evenhand.searching.options import SearchSettings
from evenhand.training.data import Fold, match_fold
from evenhand.training.losses import training_triples


@dataclass(frozen=True, eq=False)
class ComparedFold(Fold):
    """A fold with the placebo triples of its people, and how models are evaluated on it.

    Attributes
    ----------
    people, settings
        Everyone, and how models are evaluated.
    encoder
        Encoding of the inputs: that of the people searched on, the same in every fold, without labels and groups.
    triples
        Triples of the training people among themselves, as `training_triples` returns them; None if no candidate
        trains on them.
    test_pairs
        Triples of the test people with the training fold.
    points_train, points_test
        Standardized finances, of shape (n, k).
    """

    people: SearchPeople
    settings: SearchSettings
    encoder: TableEncoder
    triples: Ints | None
    test_pairs: PlaceboPairs
    points_train: Floats
    points_test: Floats


@dataclass(frozen=True, eq=False)
class SearchPeople:
    """People searched on, and those held out to confirm the choice.

    Attributes
    ----------
    table, labels, groups
        Everyone.
    financial_features
        Columns on which people are matched.
    searched, confirming
        Rows of the two parts; the second may be empty.
    units
        A code for each row, the same for rows of the same applicant or household, who stay in one part and fold.
    """

    table: pd.DataFrame
    labels: Ints
    groups: Groups
    financial_features: tuple[str, ...]
    searched: Ints
    confirming: Ints
    units: Ints

    @classmethod
    def of(
        cls,
        X: Any,
        y: Any,
        sensitive_features: Any,
        financial_features: Any,
        confirmation: float,
        random_state: int,
        clusters: Any = None,
    ) -> SearchPeople:
        """Check the people, and set some aside."""
        people = People.of(X, y, sensitive_features, clusters=clusters)
        table, labels, groups = people.table.reset_index(drop=True), people.labels, people.groups
        names = [str(column) for column in table.columns]
        chosen = names if financial_features is None else financial_features
        financial = tuple(check_columns(chosen, names, "`financial_features`"))
        units = np.arange(len(table)) if people.clusters is None else units_of(people.clusters)
        searched, confirming = np.arange(len(table)), np.arange(0)
        if confirmation:
            searched, confirming = split_people(labels, groups.codes, 1 - confirmation, random_state, units)
        return cls(table, labels, groups, financial, searched, confirming, units)

    @property
    def columns(self) -> list[str]:
        """Names of the table's columns."""
        return [str(column) for column in self.table.columns]

    @property
    def group_names(self) -> NDArray[np.str_]:
        """The name of everyone's group."""
        return np.asarray(self.groups.names)[self.groups.codes]

    @property
    def reference_group(self) -> int:
        """Code of the group with which others are compared: the one with the most people, as in an audit."""
        return int(np.bincount(self.groups.codes).argmax())

    @property
    def digest(self) -> str:
        """Sixteen hexadecimal digits that differ when any value, label, group or part does."""
        numbers = fingerprint_numbers(self.labels, self.groups.codes, self.searched, self.units)
        words = "\0".join((*self.groups.names, *self.financial_features)).encode()
        content = (fingerprint_table(self.table) + numbers).encode() + words
        return fingerprint_numbers(np.frombuffer(content, np.uint8))[:16]

    @cached_property
    def categorized(self) -> pd.DataFrame:
        """The table with text as categories of everyone's values, so that every fold knows all of them."""
        return with_categories(self.table)

    def compared_folds(self, settings: SearchSettings, *, has_training_triples: bool) -> list[ComparedFold]:
        """Folds of the people searched on."""
        y, group = self.labels[self.searched], self.groups.codes[self.searched]
        split = stratified_folds(y, group, settings.folds, settings.random_state, self.units[self.searched])
        parts = [(self.searched[train], self.searched[test]) for train, test in split]
        return self._compared(parts, settings, has_training_triples)

    def confirming_fold(self, settings: SearchSettings) -> ComparedFold:
        """The people held out, compared with all those searched on."""
        return self._compared([(self.searched, self.confirming)], settings, has_training_triples=False)[0]

    def _compared(
        self, parts: list[tuple[Ints, Ints]], settings: SearchSettings, has_training_triples: bool
    ) -> list[ComparedFold]:
        encoder = TableEncoder.fit(self.table.iloc[self.searched], settings.encoding)
        x, F = encoder.transform(self.table), encoder.as_matched(self.table[list(self.financial_features)])
        how: dict[str, Any] = {"max_distance": settings.max_distance, "random_state": settings.random_state}
        codes, folds = self.groups.codes, []
        for train, test in parts:
            fold = match_fold(x, F, self.labels, codes, train, test, encoder.join_matrix, settings.max_distance)
            space = MatchingSpace.fit(F.iloc[train], missing="indicator")
            own: dict[str, Any] = {
                "points_train": space.transform(F.iloc[train]),
                "points_test": space.transform(F.iloc[test]),
            }
            pool = (own["points_train"], fold.y_train, fold.group_train)
            triples = training_triples(*pool, fold.n_groups, **how) if has_training_triples else None
            pairs = placebo_pairs(own["points_test"], fold.y_test, fold.group_test, pool, **how)
            if len(test) > settings.n_compared:  # compare a random part of them
                rng = np.random.default_rng(settings.random_state)
                is_compared = np.zeros(len(test), dtype=bool)
                is_compared[rng.choice(len(test), size=settings.n_compared, replace=False)] = True
                fold = replace(fold, match_test=np.where(is_compared[:, None], fold.match_test, -1))
                pairs = pairs.where(is_compared[pairs.person])
            own |= {"people": self, "settings": settings, "encoder": encoder}
            folds.append(ComparedFold(**vars(fold), triples=triples, test_pairs=pairs, **own))
        return folds
