"""Build steps of the site: notebooks, help, a sample report, and a check that nothing is fetched from elsewhere."""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

COMMANDS = "<!-- commands -->"
FOREIGN = re.compile(r"^(?:https?:)?//", re.IGNORECASE)
IN_STYLE = re.compile(r"""(?:url\(\s*|@import\s+)["']?((?:https?:)?//[^"')\s]+)""", re.IGNORECASE)
FETCHED = {
    "audio": ("src",), "embed": ("src",), "iframe": ("src",), "image": ("href", "xlink:href"), "img": ("src", "srcset"),
    "object": ("data",), "script": ("src",), "source": ("src", "srcset"), "track": ("src",), "video": ("src", "poster"),
}  # fmt: skip
FETCHED_LINKS = {"stylesheet", "icon", "preload", "prefetch", "preconnect", "dns-prefetch", "modulepreload", "manifest"}


def on_files(files: Any, config: Any) -> Any:
    """Add a page for every notebook, with the outputs that were saved in it, and the sample report."""
    from mkdocs.structure.files import File

    sample = sample_report(Path(config["docs_dir"], "first-audit.md"))
    files.append(File.generated(config, "sample-report.html", content=sample))
    for notebook in sorted(Path(config["docs_dir"], "notebooks").glob("*.ipynb")):
        files.append(File.generated(config, f"notebooks/{notebook.stem}.md", content=notebook_page(notebook)))
    return files


def sample_report(page: Path) -> str:
    """The report that the commands of a page write."""
    commands = "\n".join(re.findall(r"^```sh\n(.*?)^```$", page.read_text("utf-8"), re.MULTILINE | re.DOTALL))
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    with TemporaryDirectory() as folder:
        written = {"cwd": folder, "env": {**os.environ, "PATH": path}, "stdout": subprocess.DEVNULL}
        subprocess.run(["bash", "-e", "-c", commands], check=True, **written)
        return Path(folder, "report", "report.html").read_text("utf-8")


def notebook_page(notebook: Path) -> str:
    """The cells of a notebook and their saved outputs as Markdown."""
    cells = json.loads(notebook.read_text("utf-8"))["cells"]
    parts = []
    for cell in cells:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        for output in cell.get("outputs", ()):
            data = output.get("data", {"text/plain": output.get("text", "")})
            picture, table = "".join(data.get("image/svg+xml", "")), "".join(data.get("text/html", ""))
            if picture:
                encoded = base64.b64encode(picture.encode()).decode()
                parts.append(f'<img alt="The chart of this cell" src="data:image/svg+xml;base64,{encoded}">')
            elif "<table" in table:
                parts.append(re.sub(r"<style.*?</style>|\n\s*", "", table, flags=re.DOTALL))
            else:
                parts.append(f"```text\n{''.join(data['text/plain']).rstrip()}\n```")
    address = f"https://github.com/evenhand/evenhand/blob/main/docs/notebooks/{notebook.name}"
    return "\n\n".join([*parts, f"[The notebook of this page]({address})"])


def on_page_markdown(markdown: str, page: Any, **kwargs: Any) -> str:
    """Put the help of every command where a page asks for it."""
    return markdown.replace(COMMANDS, "\n".join(command_sections())) if COMMANDS in markdown else markdown


def command_sections() -> Iterator[str]:
    """A heading and the help text of each command, in the order of ``evenhand --help``."""
    import typer
    from typer.testing import CliRunner

    from evenhand.cli import app

    def sections(command: Any, name: str) -> Iterator[str]:
        asked = CliRunner().invoke(app, [*name.split()[1:], "--help"], prog_name="evenhand", env={"COLUMNS": "100"})
        yield f"## `{name}`\n\n```text\n{asked.output.strip()}\n```\n"
        for child in getattr(command, "commands", {}).values():
            yield from sections(child, f"{name} {child.name}")

    return sections(typer.main.get_command(app), "evenhand")


def on_post_build(config: Any, **kwargs: Any) -> None:
    """Stop the build where a page or style sheet would fetch something from another host."""
    from mkdocs.exceptions import PluginError

    found = foreign_assets(Path(config["site_dir"]))
    if found:
        raise PluginError("The site must not fetch from other hosts:\n" + "\n".join(found))


def foreign_assets(site: Path) -> list[str]:
    """``file: address`` of everything that a browser would fetch from another host on opening a page."""
    found = []
    for path in sorted(site.rglob("*")):
        if path.suffix in {".html", ".svg"}:
            collector = _Fetched()
            collector.feed(path.read_text("utf-8"))
            addresses = collector.addresses
        elif path.suffix == ".css":
            addresses = IN_STYLE.findall(path.read_text("utf-8"))
        else:
            continue
        found += [f"{path.relative_to(site)}: {address}" for address in addresses]
    return found


class _Fetched(HTMLParser):
    """Collects addresses on other hosts that are fetched without a click."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self._in_style = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        if tag == "link" and FETCHED_LINKS & set(values.get("rel", "").lower().split()):
            self._add(values.get("href", ""))
        for name in FETCHED.get(tag, ()):
            for candidate in values.get(name, "").split(","):
                self._add(candidate.strip())
        self.addresses += IN_STYLE.findall(values.get("style", ""))
        self._in_style = tag == "style"

    def handle_data(self, data: str) -> None:
        if self._in_style:
            self.addresses += IN_STYLE.findall(data)
            self._in_style = False

    def _add(self, address: str) -> None:
        if FOREIGN.match(address):
            self.addresses.append(address.split()[0])
