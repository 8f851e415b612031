"""Helpers for asyncio: cancellation that always arrives, delays between attempts, and blocking calls."""

import asyncio
import os
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping, Sized
from concurrent.futures import Executor, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from typing import Any, NoReturn, TypeVar

from hush_common.errors import HushError
from hush_common.forks import before_a_fork
from hush_common.rng import SystemRng

_T = TypeVar("_T")


async def cancellable(call: Awaitable[_T], over: type[Exception] = HushError) -> _T:
    """Await a call so that a cancellation of the caller always gets through; errors of type `over` matter less.

    Before Python 3.12 `asyncio.wait_for` swallows a cancellation that comes together with the result
    (python/cpython#86296); `run_together` and a `TaskGroup` prefer the errors of their tasks to one that comes together
    with them, and `run_to_completion` that of its work. A caller that continues after any of these would never end.
    """
    task = asyncio.current_task()
    before = task.cancelling() if task else 0
    try:
        result = await call
    except over as error:
        if task and task.cancelling() > before:
            raise asyncio.CancelledError from error
        raise
    if task and task.cancelling() > before:
        raise asyncio.CancelledError
    return result


async def run_to_completion(work: Coroutine[Any, Any, None]) -> None:
    """Await `work` to its end, however often the caller is cancelled: a commit must not lose its acknowledgements.

    A failure of the work matters more than a cancellation: a caller that continues after it needs `cancellable`.
    """
    task = asyncio.create_task(work, name="hush-to-the-end")
    cancellation: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancellation = error
    task.result()
    if cancellation is not None:
        raise cancellation


async def run_together(works: Mapping[str, Coroutine[None, None, NoReturn]], least: type[Exception]) -> NoReturn:
    """Run named works until one of them fails or the caller is cancelled; the others are cancelled, and end first.

    Raises:
        Exception: the first error that is not of type `least`, or else the first one.
        asyncio.CancelledError: the caller was cancelled, and no work failed. Each cancellation reaches all works.
    """
    tasks = [asyncio.create_task(work, name=f"hush-{name}") for name, work in works.items()]
    errors: list[BaseException] = []
    cancellation: asyncio.CancelledError | None = None
    left = set(tasks)
    while left:
        try:
            done, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError as error:
            cancellation = error
            is_ending = False
        else:
            is_ending = bool(errors) or cancellation is not None
            errors += [failure for one in tasks if one in done and not one.cancelled() and (failure := one.exception())]
        if not is_ending:
            for one in left:
                one.cancel()
    if errors:
        raise next((error for error in errors if not isinstance(error, least)), errors[0])
    raise cancellation or asyncio.CancelledError


_FIRST_SECONDS = 0.1
_LONGEST_SECONDS = 30.0
_STEPS = 1000


class Backoff:
    """Seconds between attempts: they double up to the longest; each is shortened at random by up to half."""

    def __init__(self, first: float = _FIRST_SECONDS, longest: float = _LONGEST_SECONDS) -> None:
        self._first, self._longest = first, longest
        self._delay = first

    @property
    def longest(self) -> bool:
        """Whether the delay has reached the longest."""
        return self._delay >= self._longest

    def reset(self) -> None:
        self._delay = self._first

    def next(self) -> float:
        """Return the seconds to wait before the next attempt."""
        delay = self._delay * (1 + SystemRng().randbelow(_STEPS) / _STEPS) / 2
        self._delay = min(2 * self._delay, self._longest)
        return delay


class WorkerThread(Executor):
    """One thread for blocking calls, in order, during which no process is forked. A forked process gets its own."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._start()
        if hasattr(os, "register_at_fork"):  # not on Windows
            os.register_at_fork(after_in_child=self._start)

    def submit(self, fn: Callable[..., _T], /, *args: Any, **kwargs: Any) -> Future[_T]:  # noqa: ANN401 - those of `fn`
        return self._pool.submit(before_a_fork, fn, *args, **kwargs)

    def _start(self) -> None:
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix=self._name)


_LOOK_SECONDS = 0.1


def run_blocking(work: Coroutine[Any, Any, _T]) -> _T:
    """Run `work` in a new event loop, and return its result.

    If a loop runs in this thread already, as in a notebook, the work gets a thread, and that loop is blocked meanwhile.
    An exception that ends the waiting (Ctrl-C) cancels the work, waits until it has cleaned up, and is raised.
    """
    try:
        asyncio.get_running_loop()
        in_notebook = True
    except RuntimeError:
        in_notebook = False
    # Outside of the handler: an error of the work is not one "during handling of another".
    return _in_thread(work) if in_notebook else asyncio.run(work)


def _in_thread(work: Coroutine[Any, Any, _T]) -> _T:
    started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Task[Any] | None]] = Future()
    done: Future[_T] = Future()

    async def announced() -> _T:
        started.set_result((asyncio.get_running_loop(), asyncio.current_task()))
        return await work

    def run() -> None:
        try:
            done.set_result(asyncio.run(announced()))
        except BaseException as error:  # noqa: BLE001 - it is raised in the waiting thread
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
    """Return or raise the result. Under `asyncio.run` Ctrl-C raises nothing here: it cancels the caller's task."""
    caller = asyncio.current_task()
    before = caller.cancelling() if caller else 0
    while not wait((done,), _LOOK_SECONDS).done:
        if caller and caller.cancelling() > before:
            raise asyncio.CancelledError
    return done.result()


AT_ONCE = 100  # publications that wait for their acknowledgement at the same time

_SLICE_S = 0.005


async def in_slices(items: Iterable[_T]) -> AsyncIterator[_T]:
    """Yield the items; every 5 ms give the rest of the program a turn."""
    began = time.perf_counter()
    for item in items:
        yield item
        if time.perf_counter() - began > _SLICE_S:
            await asyncio.sleep(0)
            began = time.perf_counter()


async def run_all(calls: Iterable[Callable[[], Awaitable[object]]], at_once: int = AT_ONCE) -> None:
    """Run the calls, in order and at most `at_once` at the same time; the first error cancels the others."""
    queue = iter(calls)
    if isinstance(calls, Sized):
        at_once = min(at_once, len(calls))
    if not at_once:
        return

    async def work() -> None:
        async for call in in_slices(queue):
            await call()

    workers = [asyncio.create_task(work(), name="hush-run-all") for _ in range(at_once)]
    try:
        await asyncio.gather(*workers)
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.wait(workers)
