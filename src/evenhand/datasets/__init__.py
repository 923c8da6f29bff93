"""Datasets: three embedded, one downloaded, two generated."""

from evenhand.datasets.dataset import Dataset, dataset_descriptions, dataset_names, load_dataset
from evenhand.datasets.embedded import load_adult, load_german, load_taiwan
from evenhand.datasets.hmda import fetch_hmda, load_hmda
from evenhand.datasets.synthetic import PlantedBias, PlantedBiasModel, make_planted_bias, make_synthetic

__all__ = [
    "Dataset",
    "PlantedBias",
    "PlantedBiasModel",
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
