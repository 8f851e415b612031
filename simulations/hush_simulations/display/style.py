"""The style of every picture, and pictures as PNG and SVG files, light and dark.

matplotlib without pyplot: figures are objects, drawn by Agg, so that no display and no global state is involved.
"""

import io
import logging
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from html import escape
from math import floor, log10
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from hush_common.axis import ROUND
from hush_common.errors import OptionError
from hush_common.formatting import significant, whole

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import LayoutEngine


FAMILY = "DejaVu Sans"
_FONT_FILES = ("DejaVuSans.ttf", "DejaVuSans-Bold.ttf")
DPI = 225
_MANY = ((2e9, 1e9, "billion "), (2e6, 1e6, "million "), (2e4, 1e3, "thousand "))
WIDTH = 6.4
"""Inches of every picture: at 320 pixels its letters are still eight high."""
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_SMALLEST_PLAIN, _LARGEST_PLAIN = 1e-6, 1e5
_THOUSANDS = re.compile(r"(?<=\d)(?=(\d{3})+$)")
_FEW_DECADES = 2


@dataclass(frozen=True, slots=True)
class Palette:
    """Colours of a picture. People with any colour blindness can tell `true`, `noisy`, `third` and `fourth` apart."""

    ground: str
    ink: str
    faint: str
    true: str
    noisy: str
    third: str
    fourth: str

    @property
    def lines(self) -> tuple[str, str, str, str]:
        """Colours of several lines, in their order."""
        return self.true, self.noisy, self.third, self.fourth


LIGHT = Palette("#ffffff", "#22303c", "#5f6d79", "#2478b5", "#d2730f", "#003d34", "#b3206f")
DARK = Palette("#161c22", "#e3e9ee", "#98a6b2", "#4f9fdc", "#f0a34f", "#c3f3d4", "#d4467c")


@contextmanager
def styled(palette: Palette = LIGHT) -> Iterator[None]:
    """Draw in this style; a figure has to be made and drawn inside."""
    _use_own_font()
    from matplotlib import rc_context  # noqa: PLC0415 - matplotlib takes a second to import

    with (
        without_missing_letters(),
        rc_context(
            {
                "font.family": [FAMILY],
                "font.sans-serif": [FAMILY],
                "text.parse_math": False,  # two dollars in a name are no formula
                "figure.constrained_layout.h_pad": 0.08,
                "figure.constrained_layout.w_pad": 0.08,
                "figure.facecolor": palette.ground,
                "savefig.facecolor": palette.ground,
                "axes.facecolor": palette.ground,
                "legend.frameon": False,
                "font.size": 11.5,
                "text.color": palette.ink,
                "axes.labelcolor": palette.ink,
                "axes.edgecolor": palette.faint,
                "axes.formatter.useoffset": False,  # ticks show whole values
                "axes.spines.top": False,
                "axes.spines.right": False,
                "axes.titlesize": 12,
                "axes.titlelocation": "left",
                "axes.titleweight": "bold",
                "axes.titlepad": 8,
                "xtick.color": palette.ink,
                "ytick.color": palette.ink,
            }
        ),
    ):
        yield


def canvas(height: float, layout: "LayoutEngine | None" = None) -> "Figure":
    """An empty figure of this height in inches, ready to be drawn and saved."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415 - matplotlib takes a second to import
    from matplotlib.figure import Figure  # noqa: PLC0415

    figure = Figure(figsize=(WIDTH, height), dpi=DPI, layout="constrained" if layout is None else layout)
    FigureCanvasAgg(figure)
    return figure


def finish(figure: "Figure") -> None:
    """Write round numbers at the axes, and draw once: ticks take their style when they are first drawn."""
    from matplotlib.ticker import MaxNLocator, ScalarFormatter  # noqa: PLC0415 - matplotlib takes a second to import

    class Grouped(ScalarFormatter):
        """Its numbers, with a space between thousands."""

        def __call__(self, x: float, pos: int | None = None) -> str:
            number, point, fraction = super().__call__(x, pos).partition(".")
            return _THOUSANDS.sub(" ", number) + point + fraction

    for axis in (one for axes in figure.axes for one in (axes.xaxis, axes.yaxis)):
        locator, formatter = axis.get_major_locator(), axis.get_major_formatter()
        if isinstance(locator, MaxNLocator):
            locator.set_params(steps=[*ROUND, 10])
        if type(formatter) is ScalarFormatter:
            axis.set_major_formatter(Grouped())
    figure.draw_without_rendering()


def logarithmic(axes: "Axes", directions: str) -> None:
    """Make the axes "x", "y" or "xy" logarithmic, with plain labels."""
    from matplotlib.ticker import LogFormatter  # noqa: PLC0415 - matplotlib takes a second to import

    class LogTicks(LogFormatter):
        """Plain text for the ticks that matplotlib would label, and up to two decades for those of 2 and 5.

        matplotlib's powers of ten need twenty fonts.
        """

        def __call__(self, x: float, pos: int | None = None) -> str:
            low, high = self.axis.get_view_interval() if self.axis is not None else (x, x)
            if 1 < log10(high / low) <= _FEW_DECADES:
                return on_log_axis(x) if round(x / 10.0 ** floor(log10(x) + 1e-9), 6) in ROUND else ""
            return on_log_axis(x) if super().__call__(x, pos) else ""

    for direction, set_scale, axis in (("x", axes.set_xscale, axes.xaxis), ("y", axes.set_yscale, axes.yaxis)):
        if direction in directions:
            set_scale("log")
            axis.set_major_formatter(LogTicks())
            axis.set_minor_formatter(LogTicks(labelOnlyBase=False))


def counted(axes: "Axes", what: str) -> None:
    """Make the vertical axis, drawn already, one of whole numbers: of thousands or millions where they are many."""
    from matplotlib.ticker import FuncFormatter  # noqa: PLC0415 - matplotlib takes a second to import

    top = axes.get_ylim()[1]
    scale, word = next(((scale, word) for least, scale, word in _MANY if top >= least), (1.0, ""))
    axes.set_ylabel(word + what)
    axes.locator_params(axis="y", integer=scale == 1, nbins=4)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: whole(value) if scale == 1 else f"{value / scale:g}"))


def mark_truth(axes: "Axes", x: float, y: float, palette: Palette, *, size: float = 19, upright: bool = True) -> None:
    """Mark a true value behind an interval that is drawn next, by a line across it, so that neither hides the other."""
    axes.plot(x, y, "|" if upright else "_", color=palette.true, ms=size, mew=3.2, label="truth", zorder=1)


def on_log_axis(value: float) -> str:
    """Return a positive number in few letters: `"0.00001"`, `"20 000"`, `"10⁶"`, `"2·10⁶"`."""
    if _SMALLEST_PLAIN <= value < _LARGEST_PLAIN:
        return whole(value) if value >= 1 and value == int(value) else significant(value)
    power = floor(log10(value) + 1e-9)
    ten = "10" + str(power).translate(_SUPERSCRIPTS)
    factor = significant(value / 10.0**power)
    return ten if factor == "1" else f"{factor}·{ten}"


@cache
def _use_own_font() -> None:
    """Put the font that comes with matplotlib first in the list of this process.

    matplotlib looks fonts up in a list in the user's cache folder, which another installation may have made: it then
    warns on stderr about each font that the other one lacks. No picture asks for another font.
    """
    with _without_cache_messages():
        from matplotlib import get_data_path  # noqa: PLC0415 - matplotlib takes a second to import
        from matplotlib.font_manager import fontManager  # noqa: PLC0415

    known = len(fontManager.ttflist)
    for path in (Path(get_data_path(), "fonts", "ttf", file) for file in _FONT_FILES):
        if path.is_file():  # a distribution may keep its fonts elsewhere, and then has them in its list
            fontManager.addfont(path)
    ours = fontManager.ttflist[known:]
    fontManager.ttflist[known:] = []
    fontManager.ttflist[:0] = ours


@contextmanager
def _without_cache_messages() -> Iterator[None]:
    """Keep messages about matplotlib's cache off stderr: the picture is drawn anyway."""
    logger = logging.getLogger("matplotlib")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


@contextmanager
def without_missing_letters() -> Iterator[None]:
    """Do not warn about letters that the font lacks: a PNG shows a box, an SVG the letters."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"Glyph \d+ .* missing from font", UserWarning)
        yield


Theme = Literal["light", "dark", "both"]
_GROUNDS: Mapping[Theme, tuple[tuple[str, Palette], ...]] = {
    "light": (("", LIGHT),),
    "dark": (("-dark", DARK),),
    "both": (("", LIGHT), ("-dark", DARK)),
}
_FONTS = f"'{FAMILY}', Verdana, sans-serif"
_NAME = re.compile(r"(?<=[#\"])[a-z]+[0-9a-f]{10}(?=[\")])")
_ILLEGAL = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]")  # in XML


@dataclass(frozen=True, slots=True)
class Picture:
    """A figure that `draw` draws with a palette; `shows` describes it for people who cannot see it."""

    title: str
    shows: str
    draw: "Callable[[Palette], Figure]"


def parse_theme(text: str) -> Theme:
    for theme in get_args(Theme):
        if text == theme:
            return theme  # type: ignore[no-any-return] # get_args gives Any
    raise OptionError("--theme", f"{text[:40]!r} is not a theme; write light, dark or both")


def write_picture(picture: Picture, folder: Path, name: str, theme: Theme = "light") -> list[Path]:
    """Write `name`.png and `name`.svg, for a dark ground `name`-dark.png and `name`-dark.svg."""
    written = []
    for file, content in picture_files(picture, name, theme).items():
        written.append(folder / file)
        written[-1].write_bytes(content)
    return written


def picture_files(picture: Picture, name: str, theme: Theme = "light") -> dict[str, bytes]:
    """Return the content of the files that `write_picture` writes, by their names."""
    found = {}
    for suffix, palette in _GROUNDS[theme]:
        figure = picture.draw(palette)
        for kind, as_bytes in (("png", png), ("svg", svg)):
            found[f"{name}{suffix}.{kind}"] = as_bytes(figure, picture.title, picture.shows)
    return found


def png(figure: "Figure", title: str, shows: str) -> bytes:
    """Return the figure as PNG, with title and description in its metadata."""
    file = io.BytesIO()
    with without_missing_letters():
        figure.savefig(file, format="png", metadata={"Title": title, "Description": shows})
    return file.getvalue()


def svg(figure: "Figure", title: str, shows: str) -> bytes:
    """Return the figure as SVG, with title and description for screen readers."""
    from matplotlib import rc_context  # noqa: PLC0415 - matplotlib takes a second to import

    file = io.BytesIO()
    with without_missing_letters(), rc_context({"svg.fonttype": "none", "svg.hashsalt": "hush"}):
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None, "Title": title})
    text = _ILLEGAL.sub(b"", file.getvalue()).decode("utf-8")
    text = text.replace(f"'{FAMILY}'", _FONTS)
    names: dict[str, str] = {}  # of referenced elements: matplotlib derives them from the last bits of numbers
    text = _NAME.sub(lambda found: names.setdefault(found[0], f"part{len(names) + 1}"), text)
    text = text.replace("<svg ", '<svg role="img" aria-labelledby="title shows" ', 1)
    text = text.replace("<title>", '<title id="title">', 1)
    said = f'</title>\n <desc id="shows">{escape(shows, quote=False)}</desc>'
    return _ILLEGAL.sub(b"", text.replace("</title>", said, 1).encode("utf-8"))
