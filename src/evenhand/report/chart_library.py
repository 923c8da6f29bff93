"""The charts' script for pages: built once per version of its libraries, then kept in the user's cache."""

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
    """Vega, Vega-Lite and Vega-Embed in one script; the converter includes it, so nothing is downloaded.

    Building it takes a second, half the time of a small audit, so the script is cached. If the cached file was changed,
    it is built again; if nothing can be cached, the script is built each time.
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
    # Inside a page these two would end or comment out the script; in JavaScript strings the escape is equivalent.
    return bundle.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def _digest(script: str) -> str:
    return hashlib.sha256((_ENTRY + script).encode()).hexdigest()
