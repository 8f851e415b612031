"""`hush tour`: a chapter for each document that hush was created from."""

import subprocess
from pathlib import Path
from typing import Annotated

import typer

from hush_common.child_python import python_command
from hush_common.errors import MissingExtraError, OptionError
from hush_common.options import Argument, Commands, Option
from hush_common.suggestion import meant
from hush_common.terminal import Column, Row, Sentence, Table, note, show
from hush_tour.contents import CHAPTERS, MARIMO, Chapter
from hush_tour.exercises import EXERCISES

app: Commands = Commands()


@app.command()
def tour(
    name: Annotated[
        str | None, Argument(metavar="[CHAPTER]", help="Name of a chapter; without it hush lists them.")
    ] = None,
    open_: Annotated[
        bool,
        Option("--open", help="Open it in a browser, with sliders; nothing is written."),
    ] = False,
    edit: Annotated[
        bool,
        Option("--edit", help="Copy it to tour-CHAPTER/CHAPTER.py, and open that as a notebook to change."),
    ] = False,
    answer: Annotated[
        float | None, Option(metavar="NUMBER", help="Check an answer to the exercise of the chapter.")
    ] = None,
) -> None:
    """List the chapters of the tour, print one, open it in a browser, or check an answer to its exercise."""
    if open_ and edit:
        raise OptionError("--edit", "opens a copy, and --open the chapter itself; leave one of them out")
    if answer is not None and (name is None or open_ or edit):
        raise OptionError("--answer", "needs a chapter and no other option; for example: hush tour heights --answer 5")
    if name is None:
        if open_ or edit:
            option = "--open" if open_ else "--edit"
            raise OptionError(option, f"which chapter? Write for example: hush tour heights {option}")
        _list()
        return
    found = next((one for one in CHAPTERS if one.name == name), None)
    if found is None:
        names = [one.name for one in CHAPTERS]
        raise OptionError(
            "CHAPTER", f"{name[:40]!r} is not a chapter; choose one of {', '.join(names)}{meant(name, names)}"
        )
    if answer is not None:
        show([Sentence(EXERCISES[found.name].check(answer), indent=0)])
        return
    _need_marimo()
    if not open_ and not edit:
        _print(found)
        return
    if open_:
        note(
            f"opening the chapter {found.name} to read; hush tour {found.name} --edit opens a copy that you can change"
        )
    words = ("edit", str(_copied(found))) if edit else ("run", str(found.path))
    raise typer.Exit(subprocess.call(python_command(MARIMO, *words)))  # noqa: S603 - our own interpreter


def _copied(found: Chapter) -> Path:
    """Copy a chapter into a directory here, because a notebook saves changes in its file.

    The directory is for the copy alone: marimo lets a notebook import modules from where it is, before all others.

    Raises:
        OptionError: the copy cannot be written.
    """
    path = Path(f"tour-{found.name}") / f"{found.name}.py"
    try:
        path.parent.mkdir(exist_ok=True)
        with path.open("xb") as file:
            file.write(found.path.read_bytes())
    except FileExistsError:
        note(f"opening {path} with your changes; delete it to start again")
    except OSError as error:
        here = f"cannot write {path} in {Path.cwd()} ({error.strerror})"
        raise OptionError("--edit", f"{here}; change to a directory that you can write to") from None
    else:
        note(f"opening {path}, a copy of the chapter; your changes are saved in it")
    return path


def _list() -> None:
    rows = [Row([one.name, one.title, one.source]) for one in CHAPTERS]
    columns = [Column("chapter"), Column("what it is about"), Column("source")]
    note = "hush tour heights prints a chapter; --open opens it in a browser, with sliders, --edit a copy to change."
    show([Table(columns, rows), Sentence(""), Sentence(note)])


def _print(found: Chapter) -> None:
    from hush_tour.reading import blocks, run  # noqa: PLC0415 - marimo takes a second to import

    note(f"running the chapter {found.name}, which takes a few seconds")
    show(blocks(run(found)[0]))


def _need_marimo() -> None:
    try:
        import marimo  # noqa: F401, PLC0415 - takes a second
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            "hush tour needs marimo, which comes with hush-ldp[tour]; in a clone of hush, run: pip install '.[tour]'"
        ) from error
