"""The fitted steps of a pipeline, one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from evenhand.models.encoders.named_columns import fitted_names

__all__ = ["Steps", "flat_steps"]


@dataclass(frozen=True, eq=False)
class Steps:
    """Fitted transformers in the order in which they are applied to a table.

    A scikit-learn Pipeline asks its last step whether it is fitted, and treats a step as unfitted if its learned
    attributes have names without a trailing underscore, as in some other libraries. Here every step is simply called.

    Attributes
    ----------
    steps
        Names and transformers.
    """

    steps: tuple[tuple[str, Any], ...]

    @property
    def feature_names_in_(self) -> list[str] | None:
        """Columns that the first step was fitted on, if known."""
        return fitted_names(self.steps[0][1])

    @property
    def n_features_in_(self) -> int:
        """Number of columns that the first step was fitted on, if known."""
        return int(self.steps[0][1].n_features_in_)

    def transform(self, table: Any) -> Any:  # noqa: ANN401 - a table or a matrix
        """The output of the last step for a table."""
        for _, step in self.steps:
            table = step.transform(table)
        return table


def flat_steps(pipeline: Any) -> Iterator[tuple[str, Any]]:  # noqa: ANN401 - a Pipeline of scikit-learn or imblearn
    """Steps of a pipeline that apply when people are scored; nested pipelines are opened.

    Disabled steps, and samplers of imbalanced-learn, which change the people only during fitting, are skipped.
    """
    for name, step in pipeline.steps:
        if step is None or isinstance(step, str) or hasattr(step, "fit_resample"):
            continue
        if hasattr(step, "steps"):
            yield from flat_steps(step)
        else:
            yield name, step
