"""Sampling weights."""

from __future__ import annotations

from collections.abc import Sequence

from evenhand.report.section import Section, Summary
from evenhand.report.tables import Column, Record, Table, flag, text


class Weights(Section):
    """How many people each group stands for, and how much information their weights leave."""

    key, title, reads, is_pooled = "weights", "Sampling weights", "weighting", True
    prose = (
        "Each row stands for as many people of the population as its sampling weight says. Rates, means and gaps "
        "refer to the population; numbers of people and standard errors refer to the sample. Unequal weights carry "
        "less information than equal ones: the effective number of people says how much."
    )

    def tables(self, summary: Summary) -> Sequence[Table]:
        weighting = summary["weighting"]
        everyone = {**weighting, "group": "everyone", "share": 1.0, "share_of_sample": 1.0}
        columns = (
            text("group"),
            Column("people", "whole", "n_people"),
            Column("counted", "whole", "n_counted"),
            Column("effective number", "number", "n_effective", 1),
            Column("share of the sample", "share", "share_of_sample"),
            Column("share of the population", "share", "share"),
            flag(_uneven),
        )
        caption = (
            "People of each group, and the number of equally weighted people who would carry the same information "
            "(Kish)."
        )
        return (Table("Sampling weights", caption, columns, [*weighting["groups"], everyone]),)


def _uneven(row: Record) -> str:
    is_uneven = row["n_effective"] < row["n_counted"] / 2
    return "effective number below half of the people counted" if is_uneven else ""
