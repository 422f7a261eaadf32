"""Pages in Chromium, or Chrome: for the pictures of the documentation, and for tests."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


def find_chromium() -> str | None:
    """Return the program that CHROMIUM names, or one on PATH; None without any."""
    if named := os.environ.get("CHROMIUM"):
        return shutil.which(named) or named
    return next(filter(None, map(shutil.which, NAMES)), None)


@contextmanager
def opened(program: str) -> Iterator[Browser]:
    """Yield the browser; its processes end with the block."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        try:
            yield browser
        finally:
            browser.close()
