"""Pictures of the page: `python tests/tools/page_picture.py` makes docs/images/page.png.

With `--all DIR` every page is drawn there, at three widths and in both themes, to look at.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

import page_tasks  # noqa: E402 - it lies beside this folder
from page_browser import browsing  # noqa: E402 - as above
from page_server import served  # noqa: E402 - as above

PICTURE = ROOT / "docs/images/page.png"
WIDTHS = (390, 768, 1440)
THEMES = ("light", "dark")
TASK = page_tasks.TASKS[0]


def shot(browser: Browser, address: str, width: int, theme: str, path: Path, *, height: int = 0) -> None:
    """Draw a page as a whole, or its top `height` pixels."""
    page = browser.new_page(viewport={"width": width, "height": height or 900}, color_scheme=theme)  # type: ignore[arg-type]
    page.goto(address)
    page.wait_for_selector("#live:not(:empty)")
    page.screenshot(path=path, full_page=not height)
    page.close()


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--all", type=Path, help="a folder for pictures of all pages")
    folder = arguments.parse_args().all
    with tempfile.TemporaryDirectory() as scratch:
        store = Path(scratch) / "hush.sqlite3"
        page_tasks.fill(store)
        with served(store) as address, browsing() as browser:
            if folder is None:
                shot(browser, f"{address}/tasks/{TASK.id}", 1180, "light", PICTURE, height=1060)
                with Image.open(PICTURE) as drawn:
                    drawn.quantize(256, Image.Quantize.MAXCOVERAGE).save(PICTURE, optimize=True)
                print(PICTURE, PICTURE.stat().st_size)
                return
            folder.mkdir(parents=True, exist_ok=True)
            for theme in THEMES:
                for width in WIDTHS:
                    for name in ("", *(task.id for task in page_tasks.TASKS)):
                        where = f"{address}/tasks/{name}" if name else address
                        shot(browser, where, width, theme, folder / f"{name or 'all'}-{width}-{theme}.png")


if __name__ == "__main__":
    main()
