"""Files of applicants as typed tables."""

from evenhand.inputs.tables.open import ENDINGS, TypedFile, is_folder, is_near, open_table, read_table, typed

__all__ = ["ENDINGS", "TypedFile", "is_folder", "is_near", "open_table", "read_table", "typed"]
