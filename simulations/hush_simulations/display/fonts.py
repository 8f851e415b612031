"""The one font of every picture: DejaVu Sans, from the files that come with matplotlib.

matplotlib looks fonts up in a list that it keeps in its user's cache folder, and that another installation of it may
have made: what that one did not have is missed on stderr, a line for each. So the files are put first in the list of
this process, whatever the cache says, and nothing that we draw asks for another font.
"""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

__all__ = ["FAMILY", "made_available", "without_missing_letters", "without_remarks"]

FAMILY = "DejaVu Sans"
_FILES = ("DejaVuSans.ttf", "DejaVuSans-Bold.ttf")


@cache
def made_available() -> None:
    """Put the files of the font first in the list of this process."""
    with without_remarks():
        from matplotlib import get_data_path  # noqa: PLC0415 - matplotlib takes a second to import
        from matplotlib.font_manager import fontManager  # noqa: PLC0415

    known = len(fontManager.ttflist)
    for path in (Path(get_data_path(), "fonts", "ttf", file) for file in _FILES):
        if path.is_file():  # a distribution may keep its fonts elsewhere, and then has them in its list
            fontManager.addfont(path)
    ours = fontManager.ttflist[known:]
    fontManager.ttflist[known:] = []
    fontManager.ttflist[:0] = ours


@contextmanager
def without_remarks() -> Iterator[None]:
    """Nothing on stderr about caches that matplotlib makes, or cannot keep: the picture is drawn all the same."""
    logger = logging.getLogger("matplotlib")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


@contextmanager
def without_missing_letters() -> Iterator[None]:
    """No warning of letters that the font does not have: a PNG has a box in their place, an SVG the letters."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"Glyph \d+ .* missing from font", UserWarning)
        yield
