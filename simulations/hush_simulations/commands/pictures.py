"""The option about the ground of pictures, for every command that writes some."""

from pathlib import Path
from typing import Annotated

import typer

from hush_common.errors import OptionError
from hush_simulations.display.pictures import Theme, parse_theme

__all__ = ["ThemeOption", "check_theme"]

ThemeOption = Annotated[
    Theme | None,
    typer.Option("--theme", metavar="NAME", parser=parse_theme, help="Ground of pictures: light, dark or both."),
]


def check_theme(theme: Theme | None, out: Path | None) -> None:
    """A ground is for what is written.

    Raises:
        OptionError: nothing is.
    """
    if theme is not None and out is None:
        raise OptionError("--theme", "is about the pictures that --out writes; add --out DIR, or leave it out")
