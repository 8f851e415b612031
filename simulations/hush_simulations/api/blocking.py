"""An asynchronous function for programs that wait: in this thread, or beside an event loop that runs already."""

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future, wait
from contextlib import suppress
from typing import Any, TypeVar

__all__ = ["run_blocking"]

_T = TypeVar("_T")


_LOOK_SECONDS = 0.1


def run_blocking(work: Coroutine[Any, Any, _T]) -> _T:
    """Run `work` in an event loop of its own, and wait for what it returns.

    Where a loop runs in this thread already, as in a notebook, the work gets a thread; that loop stands still until it
    is done. Whatever ends the waiting (Ctrl-C) cancels the work, waits until it has cleaned up, and is raised.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    return _in_thread(work)


def _in_thread(work: Coroutine[Any, Any, _T]) -> _T:
    started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Task[Any] | None]] = Future()
    done: Future[_T] = Future()

    async def announced() -> _T:
        started.set_result((asyncio.get_running_loop(), asyncio.current_task()))
        return await work

    def run() -> None:
        try:
            done.set_result(asyncio.run(announced()))
        except BaseException as error:  # noqa: BLE001 - it is raised where somebody waits
            done.set_exception(error)

    thread = threading.Thread(target=run, name="hush-simulate")
    thread.start()
    try:
        return _result(done)
    except BaseException:
        loop, task = started.result()
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(lambda: task and task.cancel())
        raise
    finally:
        thread.join()


def _result(done: Future[_T]) -> _T:
    """What the work returns or raises. Under `asyncio.run` Ctrl-C raises nothing here: it cancels the caller's task."""
    caller = asyncio.current_task()
    before = caller.cancelling() if caller else 0
    while not wait((done,), _LOOK_SECONDS).done:
        if caller and caller.cancelling() > before:
            raise asyncio.CancelledError
    return done.result()
