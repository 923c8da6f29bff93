"""Models from files, without running code that a file may hold."""

from evenhand.models.files.model_files import load_model, register_reader

__all__ = ["load_model", "register_reader"]
