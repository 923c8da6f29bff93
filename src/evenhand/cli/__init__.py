"""The command line. Heavy modules are imported inside each command, so that ``--help`` is instant."""

from evenhand.cli.app import app, main

__all__ = ["app", "main"]
