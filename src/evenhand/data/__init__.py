"""Datasets: two embedded, one downloaded, two generated."""

from evenhand.data.adult import load_adult
from evenhand.data.dataset import Dataset, dataset_descriptions, dataset_names, load_dataset
from evenhand.data.german import load_german
from evenhand.data.hmda import fetch_hmda, load_hmda
from evenhand.data.synthetic import PlantedBias, PlantedBiasModel, make_planted_bias, make_synthetic

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
    "make_planted_bias",
    "make_synthetic",
]
