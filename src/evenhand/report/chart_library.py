"""The charts' script for pages: made once for each version of its libraries, then kept in the user's cache."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path

import vl_convert
from platformdirs import user_cache_dir

from evenhand.system.files import write_text

__all__ = ["chart_library"]

_ENTRY = "window.vegaEmbed = vegaEmbed;"


@cache
def chart_library() -> str:
    """Vega, Vega-Lite and Vega-Embed in one script; it comes with the converter, so nothing is fetched.

    Putting it together takes a second, half of what a small audit takes, so the script is kept. A file that is not what
    was kept is made anew; where nothing can be kept, the script is made each time.
    """
    kept = Path(user_cache_dir("evenhand", appauthor=False)) / f"charts-{version('vl-convert-python')}.js"
    with suppress(OSError, UnicodeDecodeError):
        digest, _, script = kept.read_text(encoding="utf-8").partition("\n")
        if digest == _digest(script):
            return script
    script = _made()
    with suppress(OSError):
        write_text(kept, f"{_digest(script)}\n{script}")
    return script


def _made() -> str:
    bundle: str = vl_convert.javascript_bundle(_ENTRY)
    # Inside a page these two would end or comment out the script; within JavaScript strings the escape is the same.
    return bundle.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def _digest(script: str) -> str:
    return hashlib.sha256((_ENTRY + script).encode()).hexdigest()
