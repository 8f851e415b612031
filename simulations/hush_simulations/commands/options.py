"""Options that several commands have, each checked by itself; and what Ctrl-C and SIGTERM do to a command."""

import asyncio
import math
import re
import signal
from collections.abc import Callable, Collection, Coroutine, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args

import typer

from hush_common.errors import OptionError
from hush_common.mechanisms.registry import known
from hush_common.options import OUTPUT, Option
from hush_common.terminal import note
from hush_simulations.display.style import Theme, parse_theme
from hush_simulations.engines.experiment import (
    CLIENTS,
    CONNECTIONS,
    ROUNDS,
    SEED,
    TRIALS,
    WORKERS,
    Drawing,
    Engine,
    Whole,
    check_confidence,
    check_drawing,
    check_engine,
)

OWN_DATA, SIMULATED = "Your own data", "How it is simulated"
"""Groups of options."""

MECHANISMS: tuple[str, ...] = ("auto", *(kind.name for kind in known()))

JsonOption = Annotated[bool, Option("--json", group=OUTPUT, help="Print one JSON object and nothing else.")]

_ARGUMENT = re.compile(r"\b(engine|dask|broker|missing)=(?:\.\.\.|['\"]([^'\"]*)['\"])")


@contextmanager
def in_words_of_the_command(arguments: Collection[str]) -> Iterator[None]:
    """Name options of the command in place of the arguments that an error names."""
    try:
        yield
    except OptionError as error:
        if error.option not in arguments:
            raise
        option = f"--{error.option.replace('_', '-')}"
        raise OptionError(option, with_options(error.message)) from error.__cause__


def with_options(text: str) -> str:
    """Return a message about arguments as one about options: `--dask` in place of `dask=...`."""
    return _ARGUMENT.sub(lambda found: f"--{found[1]} {found[2] or ''}".rstrip(), text)


T = TypeVar("T")


INTERRUPTED = 128 + signal.SIGINT
"""How a command ends that was stopped by Ctrl-C."""


@contextmanager
def stopped_in_words() -> Iterator[None]:
    """Say that Ctrl-C stopped what is not a coroutine: reading options, writing files. Exits with 130."""
    try:
        yield
    except KeyboardInterrupt:
        note("stopped")
        raise typer.Exit(INTERRUPTED) from None


def run_to_end(work: Coroutine[Any, Any, T], stop: asyncio.Event | None = None) -> T:
    """Run `work` in a new event loop and return its result; exit with 130 after Ctrl-C, 143 after SIGTERM.

    A first Ctrl-C sets `stop`, so that the work may end regularly; a second one cancels it.
    """
    signals: list[int] = []
    try:
        return asyncio.run(_cancelled_by_signals(work, stop, signals))
    except KeyboardInterrupt:
        status = INTERRUPTED
    except asyncio.CancelledError:
        status = 128 + (signals or [signal.SIGTERM])[-1]
    note("stopped")
    raise typer.Exit(status)


async def _cancelled_by_signals(work: Coroutine[Any, Any, T], stop: asyncio.Event | None, signals: list[int]) -> T:
    task = asyncio.current_task()

    def cancel(number: int) -> None:
        signals.append(number)
        if task is not None:
            task.cancel()

    def ask() -> None:
        if stop is None or stop.is_set():
            cancel(signal.SIGINT)
            return
        stop.set()
        note("stopping; what was sent is counted. Ctrl-C again stops at once")

    with suppress(NotImplementedError):  # an event loop without signals, as on Windows
        loop = asyncio.get_running_loop()
        handlers: dict[int, Callable[[], None]] = {signal.SIGTERM: lambda: cancel(signal.SIGTERM)}
        if stop is not None:
            handlers[signal.SIGINT] = ask
        for number, handler in handlers.items():
            loop.add_signal_handler(number, handler)
    return await work


ThemeOption = Annotated[
    Theme | None,
    Option(group=OUTPUT, parser=parse_theme, values=get_args(Theme), help="Ground of pictures: light, dark or both."),
]


def _parse_plot(text: str) -> str:
    if text != "terminal":
        raise OptionError(
            "--plot", f"{text[:40]!r} is not a place for charts; write terminal, or --out DIR for pictures in files"
        )
    return text


PlotOption = Annotated[
    str | None,
    Option(
        group=OUTPUT,
        metavar="WHERE",
        parser=_parse_plot,
        values=["terminal"],
        help="terminal: charts in text below the table.",
    ),
]


def check_theme(theme: Theme | None, out: Path | None) -> None:
    if theme is not None and out is None:
        raise OptionError("--theme", "is for the pictures that --out writes; add --out DIR, or leave it out")


_WholeParser = Callable[[str | int], int]


def _whole(option: str, limits: Whole) -> _WholeParser:
    """Return the parser of an option that is a whole number; a default comes as a number."""
    remedy = f"write {limits.meaning}, as in {option} {limits.example}"

    def parse(given: str | int) -> int:
        text = str(given)
        digits = text.strip().replace("_", "")
        if len(digits.lstrip("+-")) > 20 or not digits.lstrip("+-").isdecimal():  # noqa: PLR2004 - 2^64 has 20 digits
            raise OptionError(option, f"{text[:40]!r} is not a whole number; {remedy}")
        return limits.check(int(digits), option, remedy)

    return parse


parse_count: _WholeParser = _whole("--clients", CLIENTS)
parse_rounds: _WholeParser = _whole("--rounds", ROUNDS)
parse_connections: _WholeParser = _whole("--connections", CONNECTIONS)
parse_workers: _WholeParser = _whole("--workers", WORKERS)
parse_trials: _WholeParser = _whole("--trials", TRIALS)
parse_seed: _WholeParser = _whole("--seed", SEED)
parse_port: _WholeParser = _whole("--port", Whole(0, 65535, "a free TCP port", 1883))


def parse_engine(text: str) -> Engine:
    return check_engine(text, "--engine")


def parse_drawing(text: str) -> Drawing:
    return check_drawing(text, "--draw")


def parse_confidence(text: str | float) -> float:
    """Return the confidence of an interval; a default comes as a number."""
    text = str(text)
    value = _number("--confidence", text, "write a number between 0 and 1, as in --confidence 0.95")
    return check_confidence(value, "--confidence", text.strip())


def parse_shares(text: str) -> tuple[float, ...]:
    """Return shares of the devices, one for each epsilon that a task offers; they need not add up to one."""
    return tuple(
        _number("--shares", part, "write one share for each epsilon offered, as in 1,1,2") for part in text.split(",")
    )


def parse_bound(option: str, text: str) -> float:
    return _number(option, text, f"write the bound as a number, as in {option} 120")


def _number(option: str, text: str, remedy: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise OptionError(option, f"{text[:40]!r} is not a number; {remedy}") from None
    if not math.isfinite(value):
        raise OptionError(option, f"{text[:40]!r} is not finite; {remedy}")
    return value
