"""Models from files, without running code that a file may contain."""

from evenhand.models.files.load import load_model, register_reader

__all__ = ["load_model", "register_reader"]
