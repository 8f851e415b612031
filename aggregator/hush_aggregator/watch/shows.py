"""Shows: what is watched on a terminal, drawn again in its place; in a pipe a line for each change, or JSON."""

import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from hush_aggregator.watch.picture import Past, picture, refusals
from hush_aggregator.watch.view import View, figures_of
from hush_aggregator.watch.watched import Watched
from hush_common.errors import printable
from hush_common.formatting import whole
from hush_common.terminal import Screen

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text


class Show(Protocol):
    """Where what is watched is shown."""

    def __call__(self, watched: Watched) -> None:
        """It has changed."""
        ...


@contextmanager
def drawn() -> Iterator[Show]:
    """On the terminal that is standard output, until the block ends: then what was drawn is taken away."""
    from rich.console import Console  # noqa: PLC0415 - a pipe needs none
    from rich.live import Live  # noqa: PLC0415 - as above

    console = Console(highlight=False, markup=False, emoji=False)
    seen: list[Watched] = []
    past = Past()

    def draw() -> "Text":
        return _text(console, seen[-1], past) if seen else _text(console, Watched(""), past)

    with Live(get_renderable=draw, console=console, transient=True, refresh_per_second=4) as live:

        def show(watched: Watched) -> None:
            seen[:] = [watched]
            past.add(watched.view)
            live.refresh()

        yield show


def _text(console: "Console", watched: Watched, past: Past) -> "Text":
    """As wide and as high as the terminal is at this moment."""
    from rich.text import Text  # noqa: PLC0415 - as above

    width, height = console.size
    screen = replace(Screen.of(sys.stdout), width=max(width, 20), wraps=True)
    found = picture(watched.view, past, screen, height - 1, watched.told) if watched.id else []
    return Text.from_ansi("\n".join(found), no_wrap=True, overflow="crop")


@contextmanager
def lines() -> Iterator[Show]:
    """A line for each change."""
    told = ""

    def show(watched: Watched) -> None:
        nonlocal told
        if watched.told != told:
            told = watched.told
            if told:
                _write(f"{watched.id}: {told}")
        if watched.document:
            _write(_in_a_line(watched.view))

    yield show


@contextmanager
def as_json() -> Iterator[Show]:
    """Each document as a line, as it was published; what else there is to say on standard error."""
    told, document = "", ""

    def show(watched: Watched) -> None:
        nonlocal told, document
        if watched.told != told:
            told = watched.told
            if told:
                sys.stderr.write(printable(f"hush: {watched.id}: {told}") + "\n")
        text = _dumped(watched.document)
        if watched.document and text != document:
            document = text
            _write(text)

    yield show


def is_drawn() -> bool:
    """Whether standard output is a terminal on which something can be drawn again in its place."""
    return sys.stdout.isatty() and os.environ.get("TERM") not in ("dumb", "unknown")


def _dumped(document: Mapping[str, object]) -> str:
    """In one line of ASCII, so that it cannot write to a terminal."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"))


def _in_a_line(view: View) -> str:
    rounds = "" if view.rounds == 1 else f" round {whole(view.round)},"
    figures = f" {figures_of(view)}," if view.n else ""
    return f"{view.id}:{rounds} {whole(view.n or 0)} counted,{figures} {refusals(view.refused)}, {view.state}"


def _write(text: str) -> None:
    sys.stdout.write(printable(text) + "\n")
    sys.stdout.flush()
