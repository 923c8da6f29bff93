"""Check a table before an audit: what each column is, and what is suspicious about it."""

from evenhand.inputs.checking.columns import ColumnCheck, check_column, check_table
from evenhand.inputs.checking.signs import UNFIT, Sign

__all__ = ["UNFIT", "ColumnCheck", "Sign", "check_column", "check_table"]
