"""A real browser for tests: Debian's chromium, by playwright."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright
from servers import missing

__all__ = ["CHROMIUM", "CHROMIUM_ARGUMENTS", "browsing"]

CHROMIUM = Path("/usr/bin/chromium")
CHROMIUM_ARGUMENTS = ("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage")


@contextmanager
def browsing(*arguments: str) -> Iterator[Browser]:
    """Debian's chromium, with further arguments; skip if it is missing, fail if HUSH_NO_SKIP is set."""
    if not CHROMIUM.exists():
        missing(f"{CHROMIUM} is not installed")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=[*CHROMIUM_ARGUMENTS, *arguments])
        try:
            yield browser
        finally:
            browser.close()
