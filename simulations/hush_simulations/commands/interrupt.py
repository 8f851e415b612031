"""Interrupts: Ctrl-C and SIGTERM unwind everything, then one line is printed."""

import asyncio
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import typer

__all__ = ["INTERRUPTED", "run_to_end", "stopped_in_words"]

T = TypeVar("T")

INTERRUPTED = 128 + signal.SIGINT
"""How a command ends that was stopped by Ctrl-C."""


@contextmanager
def stopped_in_words() -> Iterator[None]:
    """Say that Ctrl-C stopped what is no coroutine: options that are read, files that are written.

    Raises:
        typer.Exit: with 130, after what was begun was undone.
    """
    try:
        yield
    except KeyboardInterrupt:
        print("hush: stopped", file=sys.stderr)
        raise typer.Exit(INTERRUPTED) from None


def run_to_end(work: Coroutine[Any, Any, T], stop: asyncio.Event | None = None) -> T:
    """Run `work` in a new event loop and return what it returns.

    Args:
        work: what to do.
        stop: set by a first Ctrl-C, so that the work may come to an end of its own; a second one stops it.

    Raises:
        typer.Exit: stopped by Ctrl-C (130) or SIGTERM (143), after what was started has been stopped as well.
    """
    signals: list[int] = []
    try:
        return asyncio.run(_cancelled_by_signals(work, stop, signals))
    except KeyboardInterrupt:
        status = INTERRUPTED
    except asyncio.CancelledError:
        status = 128 + (signals or [signal.SIGTERM])[-1]
    print("hush: stopped", file=sys.stderr)
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
        print("hush: stopping; what was sent is counted. Ctrl-C again stops at once", file=sys.stderr)

    with suppress(NotImplementedError):  # an event loop without signals, as on Windows
        loop = asyncio.get_running_loop()
        handlers: dict[int, Callable[[], None]] = {signal.SIGTERM: lambda: cancel(signal.SIGTERM)}
        if stop is not None:
            handlers[signal.SIGINT] = ask
        for number, handler in handlers.items():
            loop.add_signal_handler(number, handler)
    return await work
