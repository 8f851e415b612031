"""Interrupts: Ctrl-C and SIGTERM unwind everything, then one line is printed."""

import asyncio
import signal
import sys
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

import typer

__all__ = ["run_to_end"]

T = TypeVar("T")


def run_to_end(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` in a new event loop and return what it returns.

    Raises:
        typer.Exit: stopped by Ctrl-C (130) or SIGTERM (143), after what was started has been stopped as well.
    """
    try:
        return asyncio.run(_cancelled_by_sigterm(work))
    except KeyboardInterrupt:
        status = 128 + signal.SIGINT
    except asyncio.CancelledError:
        status = 128 + signal.SIGTERM
    print("hush: stopped", file=sys.stderr)
    raise typer.Exit(status)


async def _cancelled_by_sigterm(work: Coroutine[Any, Any, T]) -> T:
    task = asyncio.current_task()
    with suppress(NotImplementedError):  # an event loop without signals, as on Windows
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, lambda: task and task.cancel())
    return await work
