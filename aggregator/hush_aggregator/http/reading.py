"""Reading: the store as HTTP sees it, and the results in it, each made once for what is counted.

The file is opened when it is first asked for, and again where another one is in its place: a store may come after the
service, and be put back from a backup while it runs.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TypeVar, TypeVarTuple, Unpack

from hush_aggregator.estimating import Estimator, InThread
from hush_aggregator.http.places import Places
from hush_aggregator.http.problems import Kind
from hush_aggregator.known_tasks import stored_task
from hush_aggregator.result import Counted, Result, result_of
from hush_aggregator.result_reader import read_round, utc_now
from hush_aggregator.store import SqliteReader
from hush_aggregator.store.base import StoreReader
from hush_common.errors import StoreError
from hush_common.task import Task

__all__ = ["Reading"]

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_AT_ONCE = 2  # estimates that are made at the same time, whoever asks
_ASIDE = 2  # threads for what takes long: exports, and writing
_KEPT = 2048  # results that are remembered: those of a thousand tasks, and of some of their rounds


class Reading:
    """The store of a service. Its reads run one after the other, in a thread of their own.

    Args:
        store: the file.
        confidence: nominal coverage of the intervals, inside (0, 1).
        estimator: makes the estimates; None for threads.

    Attributes:
        path: the file.
        exports: places of those that are under way at the same time.
    """

    def __init__(self, store: Path, confidence: float = 0.95, estimator: Estimator | None = None) -> None:
        self.path: Path = store
        self.confidence: float = confidence
        self._estimator = estimator or InThread()
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="hush-http-store")
        self._aside = ThreadPoolExecutor(_ASIDE, thread_name_prefix="hush-http-aside")
        self.exports: Places = Places(_ASIDE, Kind.TOO_MANY_EXPORTS, "other exports are under way; ask again later")
        self._opened: SqliteReader | None = None
        self._file: tuple[int, int] | None = None
        self._tasks: OrderedDict[bytes, Task] = OrderedDict()  # by digest: a task never changes
        self._results: OrderedDict[tuple[bytes, int], tuple[Counted, Result]] = OrderedDict()
        self.on_result: Callable[[Result], object] = lambda _: None
        self._turn = asyncio.Semaphore(_AT_ONCE)
        self._making: dict[tuple[bytes, int], asyncio.Lock] = {}

    async def run(self, function: Callable[[StoreReader], T]) -> T:
        """What `function` returns of the store, called in its thread: keep it short, others wait for it.

        Raises:
            StoreError: the store is not there or cannot be read.
        """
        return await asyncio.get_running_loop().run_in_executor(self._worker, self._with_store, function)

    async def aside(self, function: Callable[[Unpack[Ts]], T], *args: *Ts) -> T:
        """Call what blocks for longer in another thread: not that of the reads, nor one that estimates need."""
        return await asyncio.get_running_loop().run_in_executor(self._aside, function, *args)

    async def result(self, task: Task, round_: int | None = None) -> Result:
        """The result of a round, by default of the latest that has a report, from what is committed now.

        It is made once for what is counted, however often it is asked for. If it fails, `failures` says so.

        Raises:
            StoreError: the store is not there or cannot be read.
        """
        counted = await self.run(lambda store: read_round(store, task, round_, utc_now()))
        key = task.digest, counted.round
        lock = self._making.setdefault(key, asyncio.Lock())
        try:
            async with lock:
                there = self._results.get(key)
                if there is not None and there[0] == counted:
                    self._results.move_to_end(key)
                    return there[1]
                async with self._turn:
                    made = await self._estimator(task, counted.tally, self.confidence)
                result = result_of(counted, made, self.confidence, utc_now())
                self._results[key] = counted, result
                self.on_result(result)
                while len(self._results) > _KEPT:
                    self._results.popitem(last=False)
                return result
        finally:
            if not lock.locked() and self._making.get(key) is lock:
                del self._making[key]

    def task(self, digest: bytes, payload: bytes) -> Task:
        """The task that is stored as `payload`; in any thread.

        Raises:
            StoreError: this version cannot read it.
        """
        known = self._tasks.get(digest)
        if known is None:
            known = self._tasks[digest] = stored_task(payload)
            while len(self._tasks) > _KEPT:
                with suppress(KeyError):  # another thread was faster
                    self._tasks.popitem(last=False)
        return known

    async def close(self) -> None:
        """Close the file."""
        await asyncio.get_running_loop().run_in_executor(self._worker, self._close)
        self._worker.shutdown()
        self._aside.shutdown(wait=False, cancel_futures=True)

    def _with_store(self, function: Callable[[StoreReader], T]) -> T:
        return function(self._there())

    def _there(self) -> SqliteReader:
        try:
            found = self.path.stat()
            file = found.st_dev, found.st_ino
        except OSError:
            file = None
        if self._opened is None or file != self._file:
            self._close()
            self._opened = SqliteReader(self.path)  # names what is wrong where the file is missing
            self._file = file
        return self._opened

    def _close(self) -> None:
        if self._opened is not None:
            with suppress(StoreError):
                self._opened.close()
            self._opened = None
