"""Pictures of the demonstration's report for the documentation: wide, narrow, and as PDF.

Run after `make browser`: .venv/bin/python tools/report_pictures.py demo/report.html docs/images
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
SIZES = {"report-wide": (1440, 900), "report-narrow": (390, 844)}


def main(report: Path, folder: Path) -> None:
    """Write the pictures of `report` into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    browser_path = os.environ.get("EVENHAND_CHROMIUM") or shutil.which("chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path, args=FLAGS)
        for name, (width, height) in SIZES.items():
            page = browser.new_page(viewport={"width": width, "height": height})
            page.goto(report.resolve().as_uri())
            page.wait_for_selector("html[data-drawn]")
            page.screenshot(path=folder / f"{name}.png")
            page.close()
        page = browser.new_page()
        page.goto(report.resolve().as_uri())
        page.wait_for_selector("html[data-drawn]")
        page.pdf(path=folder / "report.pdf", format="A4")
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
