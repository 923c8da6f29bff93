"""Pictures of what audits write, for the documentation: the demonstration's report, and the files of the first audit.

The report is shown wide, narrow and as PDF; the first audit adds the page of the check, the pair explorer, and memo and
workbook as LibreOffice and Poppler print them.

Run after `make browser`: .venv/bin/python tools/report_pictures.py docs/images
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from PIL import Image
from playwright.sync_api import sync_playwright

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
COMMANDS = """
evenhand demo --no-open --out demo
evenhand data save messy --out messy
evenhand check messy/applications.csv --out check
sed -i.bak 's/^# groups =/groups =/; s/^# missing =/missing =/' check/audit.toml
evenhand audit messy/applications.csv --config check/audit.toml --model messy/model.skops --memo --out report
soffice --headless --convert-to pdf --outdir report report/memo.docx
soffice --headless --convert-to pdf --outdir report report/audit.xlsx
pdftoppm -png -r 80 -f 1 -l 1 -singlefile report/memo.pdf memo
pdftoppm -png -r 80 -f 1 -l 1 -singlefile report/audit.pdf workbook
"""


def small(path: Path) -> None:
    """Keep a picture's 128 most important colors, which halves it or better."""
    Image.open(path).convert("RGB").quantize(128, dither=Image.Dither.NONE).save(path, optimize=True)


def pictures(folder: Path, out: Path) -> None:
    """Write pictures of the files in `folder`."""
    browser_path = os.environ.get("EVENHAND_CHROMIUM") or shutil.which("chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path, args=FLAGS)

        def opened(name: str, width: int, height: int) -> Any:
            page = browser.new_page(viewport={"width": width, "height": height})
            page.goto((folder / name).resolve().as_uri())
            page.wait_for_selector("html[data-drawn]")
            return page

        for name, file, width, height in (
            ("report-wide", "demo/report.html", 1440, 900),
            ("report-narrow", "demo/report.html", 390, 844),
            ("check", "check/check.html", 1200, 900),
        ):
            opened(file, width, height).screenshot(path=out / f"{name}.png")
        page = opened("report/report.html", 1200, 1100)
        page.locator("#pairs tbody tr").first.click()
        page.locator("#pair").scroll_into_view_if_needed()
        page.locator("#pair").screenshot(path=out / "explorer.png")
        page = opened("demo/report.html", 1440, 900)
        page.pdf(path=out / "report.pdf", format="A4")
        browser.close()
    for name in ("memo", "workbook"):
        with Image.open(folder / f"{name}.png") as page:
            page.crop((0, 0, page.width, min(page.height, 620))).save(out / f"{name}.png")
    for name in ("report-wide", "report-narrow", "check", "explorer", "memo", "workbook"):
        small(out / f"{name}.png")


def main(out: Path) -> None:
    """Run the audits and write the pictures into `out`."""
    out.mkdir(parents=True, exist_ok=True)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    with TemporaryDirectory() as folder:
        subprocess.run(["bash", "-e", "-c", COMMANDS], cwd=folder, env={**os.environ, "PATH": path}, check=True)
        pictures(Path(folder), out)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
