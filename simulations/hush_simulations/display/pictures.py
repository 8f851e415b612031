"""Pictures as files: PNG and SVG, on a light or a dark ground, each with a title and a description for who cannot see.

Texts of an SVG are texts: they can be searched, read aloud, and shown in a font of the viewer's. The same figure gives
the same bytes, for nothing in a file says when it was made.
"""

import io
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from hush_common.errors import OptionError
from hush_simulations.display.fonts import FAMILY, without_missing_letters
from hush_simulations.display.style import DARK, LIGHT, Palette

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Picture", "Theme", "drawn", "parse_theme", "png", "svg", "write"]

Theme = Literal["light", "dark", "both"]
_GROUNDS: Mapping[Theme, tuple[tuple[str, Palette], ...]] = {
    "light": (("", LIGHT),),
    "dark": (("-dark", DARK),),
    "both": (("", LIGHT), ("-dark", DARK)),
}
_FONTS = f"'{FAMILY}', Verdana, sans-serif"
_NAME = re.compile(r"(?<=[#\"])[a-z]+[0-9a-f]{10}(?=[\")])")
_ILLEGAL = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]")  # in XML, however it is written


@dataclass(frozen=True, slots=True)
class Picture:
    """A figure that can be drawn on either ground.

    Args:
        title: what it is about, in a few words.
        shows: what is to be seen on it, in a sentence or two.
        draw: draws it; takes the palette.
    """

    title: str
    shows: str
    draw: "Callable[[Palette], Figure]"


def parse_theme(text: str) -> Theme:
    """What grounds pictures are drawn on.

    Raises:
        OptionError: there is no such theme.
    """
    for theme in get_args(Theme):
        if text == theme:
            return theme  # type: ignore[no-any-return] # get_args gives Any
    raise OptionError("--theme", f"{text[:40]!r} is none; write light, dark or both")


def write(picture: Picture, folder: Path, name: str, theme: Theme = "light") -> list[Path]:
    """Write `name`.png and `name`.svg, for a dark ground `name`-dark.png and `name`-dark.svg.

    Raises:
        OSError: the folder cannot be written.
    """
    written = []
    for file, content in drawn(picture, name, theme).items():
        written.append(folder / file)
        written[-1].write_bytes(content)
    return written


def drawn(picture: Picture, name: str, theme: Theme = "light") -> dict[str, bytes]:
    """The content of the files that `write` writes, by their names."""
    found = {}
    for suffix, palette in _GROUNDS[theme]:
        figure = picture.draw(palette)
        for kind, as_bytes in (("png", png), ("svg", svg)):
            found[f"{name}{suffix}.{kind}"] = as_bytes(figure, picture.title, picture.shows)
    return found


def png(figure: "Figure", title: str, shows: str) -> bytes:
    """The figure as PNG, with title and description as texts in it."""
    file = io.BytesIO()
    with without_missing_letters():
        figure.savefig(file, format="png", metadata={"Title": title, "Description": shows})
    return file.getvalue()


def svg(figure: "Figure", title: str, shows: str) -> bytes:
    """The figure as SVG, which names itself to whoever has it read aloud."""
    from matplotlib import rc_context  # noqa: PLC0415 - matplotlib takes a second to import

    file = io.BytesIO()
    with without_missing_letters(), rc_context({"svg.fonttype": "none", "svg.hashsalt": "hush"}):
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None, "Title": title})
    text = _ILLEGAL.sub(b"", file.getvalue()).decode("utf-8")
    text = text.replace(f"'{FAMILY}'", _FONTS)
    names: dict[str, str] = {}  # of what is referred to: matplotlib's follow from numbers in their last bits
    text = _NAME.sub(lambda found: names.setdefault(found[0], f"part{len(names) + 1}"), text)
    text = text.replace("<svg ", '<svg role="img" aria-labelledby="title shows" ', 1)
    text = text.replace("<title>", '<title id="title">', 1)
    said = f'</title>\n <desc id="shows">{escape(shows, quote=False)}</desc>'
    return _ILLEGAL.sub(b"", text.replace("</title>", said, 1).encode("utf-8"))
