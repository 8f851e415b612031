"""`hush tour`: the documents that hush was created from, at work: a chapter each."""

import subprocess
import sys
from typing import Annotated

import typer

from hush_common.errors import MissingExtraError, OptionError
from hush_common.terminal.screen import show
from hush_common.terminal.table import Column, Row, Table
from hush_common.terminal.words import Sentence
from hush_simulations.tour.contents import CHAPTERS, Chapter

__all__ = ["app"]

app: typer.Typer = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.command()
def tour(
    name: Annotated[
        str | None, typer.Argument(metavar="[CHAPTER]", help="A chapter; without one they are listed.")
    ] = None,
    open_: Annotated[
        bool, typer.Option("--open", help="Open it as a notebook in a browser, with sliders, instead of printing it.")
    ] = False,
) -> None:
    """List the chapters of the tour, print one, or open it as a notebook."""
    if name is None:
        if open_:
            raise OptionError("--open", "which chapter? Write for example: hush tour heights --open")
        _list()
        return
    found = next((one for one in CHAPTERS if one.name == name), None)
    if found is None:
        raise OptionError("CHAPTER", f"there is no such chapter; choose {', '.join(one.name for one in CHAPTERS)}")
    _need_marimo()
    if open_:
        command = [sys.executable, "-m", "marimo", "edit", str(found.path)]
        raise typer.Exit(subprocess.call(command))  # noqa: S603 - our own interpreter and file
    _print(found)


def _list() -> None:
    rows = [Row([one.name, one.title, one.source]) for one in CHAPTERS]
    columns = [Column("chapter"), Column("what it is about"), Column("after")]
    note = "hush tour heights prints a chapter; hush tour heights --open shows it as a notebook, with sliders."
    show([Table(columns, rows), Sentence(""), Sentence(note)])


def _print(found: Chapter) -> None:
    from hush_simulations.tour.reading import blocks, run  # noqa: PLC0415 - marimo takes a second to import

    show(blocks(run(found)[0]))


def _need_marimo() -> None:
    try:
        import marimo  # noqa: F401, PLC0415 - a second, for those who look at a chapter
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            "hush tour needs marimo, which comes with hush-ldp[tour]; in a clone of hush, run: pip install '.[tour]'"
        ) from error
