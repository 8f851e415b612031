"""The option about the ground of pictures, for every command that writes some."""

from pathlib import Path
from typing import Annotated

import typer

from hush_common.errors import OptionError
from hush_simulations.display.style import Theme, parse_theme

__all__ = ["PlotOption", "ThemeOption", "check_theme"]

ThemeOption = Annotated[
    Theme | None,
    typer.Option("--theme", metavar="NAME", parser=parse_theme, help="Ground of pictures: light, dark or both."),
]


def _parse_plot(text: str) -> str:
    if text != "terminal":
        raise OptionError("--plot", f"{text[:40]!r} is none; write terminal, and --out for pictures in files")
    return text


PlotOption = Annotated[
    str | None,
    typer.Option("--plot", metavar="WHERE", parser=_parse_plot, help="terminal: charts in text below the table."),
]


def check_theme(theme: Theme | None, out: Path | None) -> None:
    """A ground is for what is written.

    Raises:
        OptionError: nothing is.
    """
    if theme is not None and out is None:
        raise OptionError("--theme", "is about the pictures that --out writes; add --out DIR, or leave it out")
