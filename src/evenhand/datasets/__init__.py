"""Datasets: three embedded, one downloaded, two generated."""

import difflib
import inspect
from typing import Any

from evenhand.datasets.dataset import Dataset, load_adult, load_german, load_taiwan
from evenhand.datasets.hmda import fetch_hmda, load_hmda
from evenhand.datasets.synthetic import PlantedBias, make_planted_bias, make_synthetic
from evenhand.exceptions import InvalidInputError

__all__ = [
    "Dataset",
    "PlantedBias",
    "dataset_descriptions",
    "dataset_names",
    "fetch_hmda",
    "load_adult",
    "load_dataset",
    "load_german",
    "load_hmda",
    "load_taiwan",
    "make_planted_bias",
    "make_synthetic",
]

_LOADERS = {
    "taiwan": (load_taiwan, "Taiwan credit cards (UCI), 30,000 accounts, sex; embedded"),
    "german": (load_german, "German Credit (UCI), 1,000 loans, sex as the paper reads it; embedded"),
    "adult": (load_adult, "Adult census income (UCI), 48,842 people, sex or race; embedded"),
    "hmda": (load_hmda, "US mortgage applications (CFPB), race, sex, ethnicity or age; by state and year"),
    "synthetic": (make_synthetic, "the paper's generator, 10,000 people, two groups; seeded"),
}


def dataset_names() -> tuple[str, ...]:
    """Names that `load_dataset` knows.

    Examples
    --------
    >>> dataset_names()
    ('taiwan', 'german', 'adult', 'hmda', 'synthetic')
    """
    return tuple(_LOADERS)


def dataset_descriptions() -> dict[str, str]:
    """One line on each dataset, by name.

    Examples
    --------
    >>> dataset_descriptions()["taiwan"]
    'Taiwan credit cards (UCI), 30,000 accounts, sex; embedded'
    """
    return {name: description for name, (_, description) in _LOADERS.items()}


def load_dataset(name: str, **options: Any) -> Dataset:
    """Load a dataset with its financial features and protected attribute (as in the paper, if it has the data).

    Parameters
    ----------
    name
        One of `dataset_names`.
    **options
        Passed to the dataset's loader: `load_german`, `load_adult`, `load_hmda` or `make_synthetic`; that of
        ``"taiwan"`` has none.

    Raises
    ------
    InvalidInputError
        If there is no such dataset, or its loader has no such option.

    Examples
    --------
    >>> load_dataset("synthetic", n=200).X.shape
    (200, 20)
    """
    if name not in _LOADERS:
        close = difflib.get_close_matches(str(name).lower(), _LOADERS, n=1)
        hint = f"Did you mean {close[0]!r}?" if close else "Use one of those names."
        raise InvalidInputError(f"`name` must be one of {', '.join(map(repr, _LOADERS))}, got {name!r}. {hint}")
    loader: Any = _LOADERS[name][0]
    accepted = list(inspect.signature(loader).parameters)
    unknown = sorted(set(options) - set(accepted))
    if unknown:
        raise InvalidInputError(
            f"Dataset {name!r} has no option {', '.join(map(repr, unknown))}; it has {', '.join(accepted) or 'none'}."
        )
    data: Dataset = loader(**options)
    return data
