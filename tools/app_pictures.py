"""Pictures of `evenhand app` for the documentation, on its embedded data.

Run after `make browser`: .venv/bin/python tools/app_pictures.py docs/images
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from playwright.sync_api import sync_playwright

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
WIDE = {"width": 1280, "height": 900}
PATIENCE = 600_000  # milliseconds


def main(folder: Path) -> None:
    """Write the pictures into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    browser_path = os.environ.get("EVENHAND_CHROMIUM") or shutil.which("chromium")
    with TemporaryDirectory() as parent, sync_playwright() as playwright:
        command = [sys.executable, "-m", "evenhand", "app", "--demo", "--no-open", "--folder", f"{parent}/cards"]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        address = next(word for line in server.stdout for word in line.split() if word.startswith("http"))
        browser = playwright.chromium.launch(executable_path=browser_path, args=FLAGS)
        page = browser.new_page(viewport=WIDE)
        page.set_default_timeout(PATIENCE)

        def picture(name: str) -> None:
            page.wait_for_timeout(500)
            page.screenshot(path=folder / f"app-{name}.png")

        page.goto(address)
        page.click("text=Next: look at the table")
        page.click("text=Next: columns and model")
        picture("columns")
        page.check("text=Word memo")
        page.check("text=Evidence pack")
        page.click("text=Next: confirm")
        page.click("text=Start the audit")
        page.frame_locator("iframe[title=Report]").locator("html[data-drawn]").wait_for()
        page.wait_for_timeout(2000)
        picture("report")
        browser.close()
        server.send_signal(signal.SIGINT)
        server.wait()
        server.stdout.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
