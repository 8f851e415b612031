"""Prose and pictures of a chapter, which a notebook renders and a terminal can print."""

from base64 import b64encode
from collections.abc import Callable, Sequence
from html import escape
from io import BytesIO
from textwrap import dedent
from typing import TYPE_CHECKING

from hush_simulations.display.style import LIGHT, Palette

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Prose:
    """Markdown. Each block is dedented; an empty line separates two blocks."""

    def __init__(self, *blocks: str) -> None:
        self.markdown: str = "\n\n".join(dedent(block).strip() for block in blocks)

    def _repr_markdown_(self) -> str:
        return self.markdown


def table(*rows: Sequence[object]) -> str:
    """Return a Markdown table; the first row is its heading."""
    head, *body = ("| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |" for row in rows)
    return "\n".join((head, "|" + "---|" * len(rows[0]), *body))


class Plot:
    """A figure, and a sentence that describes it for screen readers and terminals.

    Args:
        shows: the sentence.
        draw: draws the figure from `args` and the palette.
        args: the data.
    """

    def __init__(self, shows: str, draw: Callable[..., "Figure"], *args: object) -> None:
        self.shows = shows
        self._draw = draw
        self._args = args

    def png(self, palette: Palette = LIGHT) -> bytes:
        """Return the figure in the colours of this palette."""
        written = BytesIO()
        self._draw(*self._args, palette=palette).savefig(written, format="png")
        return written.getvalue()

    def _repr_html_(self) -> str:
        """Return an image with its description."""
        encoded = b64encode(self.png()).decode()
        style = "max-width:100%;height:auto"
        return f'<img alt="{escape(self.shows)}" style="{style}" src="data:image/png;base64,{encoded}">'
