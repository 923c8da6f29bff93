"""Models in the PMML format, scored with sklearn-pmml-model: logistic regressions are read, others are black boxes."""

from __future__ import annotations

import io
import warnings
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from xml.parsers import expat

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from evenhand.exceptions import InvalidInputError, first_line
from evenhand.models.black_box import black_box_model
from evenhand.models.encoders import NamedColumns
from evenhand.models.protocol import AuditedModel, LinearModel
from evenhand.models.sklearn import coefficients, is_kind
from evenhand.system.libraries import optional_module

_MADE_UP = 64  # people
_TOLERANCE = 1e-9


@dataclass(frozen=True, eq=False)
class PmmlModel:
    """A classifier of two classes from a PMML document.

    Attributes
    ----------
    content
        The document.

    Raises
    ------
    InvalidInputError
        If the document is not XML, declares entities or a document type, or does not describe a binary classifier.
    """

    content: bytes

    def __post_init__(self) -> None:
        _check_document(self.content)
        n_classes = len(self.classes_)
        if n_classes != 2:
            raise InvalidInputError(f"The PMML model has {n_classes} classes; an audit needs one outcome with two.")

    def __getstate__(self) -> dict[str, bytes]:
        """Only the document."""
        return {"content": self.content}

    @cached_property
    def estimator(self) -> Any:
        """The classifier as sklearn-pmml-model reads it."""
        library = optional_module("sklearn_pmml_model.auto_detect", "A PMML model", "sklearn-pmml-model", "pmml")
        try:
            return library.auto_detect_classifier(pmml=io.BytesIO(self.content))
        except Exception as error:  # it raises several kinds of errors, including plain ones
            raise InvalidInputError(f"sklearn-pmml-model cannot read the PMML model: {first_line(error)}.") from error

    @cached_property
    def feature_names_in_(self) -> list[str]:
        """Columns that the model uses."""
        fields, target = self.estimator.fields.items(), self.estimator.target_field
        return [str(name) for name, field in fields if field is not target and field.tag == "DataField"]

    @property
    def classes_(self) -> NDArray[Any]:
        """The two classes, the favorable one last."""
        return np.asarray(self.estimator.classes_)

    @property
    def takes_numbers(self) -> bool:
        """Whether every column is a number."""
        return all(self.estimator.fields[name].get("optype") == "continuous" for name in self.feature_names_in_)

    def predict_proba(self, table: pd.DataFrame) -> NDArray[np.float64]:
        """Probabilities of the two classes."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # a warning that it was fitted without the names it uses
                found = self.estimator.predict_proba(table[self.feature_names_in_].copy())
            return np.asarray(found, dtype=np.float64)
        except Exception as error:
            raise InvalidInputError(f"The PMML model cannot score the table: {first_line(error)}.") from error


def pmml_model(model: PmmlModel, table: pd.DataFrame | None, **sampling: Any) -> AuditedModel:
    """A PMML model in the form of the audit: exact for a logistic regression on numbers, else a black box."""
    linear = _linear(model) if sampling.get("output") != "probability" else None
    return linear or black_box_model(model, table=table, kind="PMML model (black box)", **sampling)


def _linear(model: PmmlModel) -> LinearModel | None:
    """The log-odds of a logistic regression, after checking that they give its probabilities."""
    names = model.feature_names_in_
    if not is_kind(model.estimator, "LogisticRegression") or not model.takes_numbers:
        return None
    weights, intercept = coefficients(model.estimator)
    if len(weights) != len(names):
        return None
    found = LinearModel(weights, intercept, "PMML logistic regression", NamedColumns(names))
    people = pd.DataFrame(np.random.default_rng(0).normal(size=(_MADE_UP, len(names))), columns=names)
    ours = found.probability(found.margin(found.encode(people)))
    return found if np.abs(ours - model.predict_proba(people)[:, 1]).max() <= _TOLERANCE else None


def _check_document(content: bytes) -> None:
    """Reject a document that is not XML, or that declares what an XML reader may expand or fetch."""

    def refuse(*_: object) -> None:
        raise InvalidInputError(
            "The PMML file declares a document type or entities, which a model does not need and which can make a "
            "reader expand or fetch what it should not; remove the declaration."
        )

    parser = expat.ParserCreate()
    parser.StartDoctypeDeclHandler = refuse
    parser.EntityDeclHandler = refuse
    try:
        parser.Parse(content, True)
    except expat.ExpatError as error:
        raise InvalidInputError(f"The PMML file is not valid XML: {first_line(error)}.") from None
