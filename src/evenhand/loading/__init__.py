"""Models from files, without running code that a file may hold."""

from evenhand.loading.model_files import load_model

__all__ = ["load_model"]
