"""Files of applicants as typed tables."""

from evenhand.inputs.tables.files import ENDINGS, TypedFile, open_table, read_table, typed

__all__ = ["ENDINGS", "TypedFile", "open_table", "read_table", "typed"]
