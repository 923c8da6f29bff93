"""The audit in a browser on the analyst's own machine: `evenhand app`.

The pages write the files that the command line reads, run the commands of the command line, and show the files that
these write. Nothing exists only here.
"""

from evenhand.app.server import serve

__all__ = ["serve"]
