"""The client for programs that are not asynchronous (scripts, cron, notebooks): the same client in a thread."""

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

from hush_client.client import Client
from hush_client.limits import CAPACITY, LONGEST_KEEP, check_process
from hush_common.broker_url import BrokerUrl

if TYPE_CHECKING:
    from fractions import Fraction
    from ssl import SSLContext

    from hush_client.gateway import OnMissing, ReceiptCallback, Source
    from hush_client.policy import Policy
    from hush_client.receipt import Receipt
    from hush_client.sending.sender import SyncResult
    from hush_client.sending.transport import Transport
    from hush_client.statement import Statement
    from hush_common.task import Task

_T = TypeVar("_T")


class SyncClient:
    """Answers tasks for one device; every call waits until it is done.

        with SyncClient("mqtt://localhost", device="d1", state="/var/lib/d1") as client:
            receipt = client.report("heights", 172.0)

    It may be used from several threads at once. Arguments and errors are those of `Client`.
    """

    def __init__(
        self,
        url: str | BrokerUrl,
        *,
        device: str,
        state: Path | str,
        policy: "Policy | None" = None,
        spread: float = 1.0,
        capacity: int = CAPACITY,
        keep: float = LONGEST_KEEP,
        tls: "SSLContext | None" = None,
        client_id: str = "",
        on_delivery: "ReceiptCallback | None" = None,
        transport: "Transport | None" = None,
    ) -> None:
        self._client = Client(
            url,
            device=device,
            state=state,
            policy=policy,
            spread=spread,
            capacity=capacity,
            keep=keep,
            tls=tls,
            client_id=client_id,
            on_delivery=on_delivery,
            transport=transport,
        )
        self._process = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        if self._loop is not None:
            raise RuntimeError("the client is already open")
        self._process = os.getpid()
        self._loop = asyncio.new_event_loop()
        # A daemon: a program that does not close it still ends; the next run sends what is stored.
        self._thread = threading.Thread(target=_run, args=(self._loop,), name="hush-client", daemon=True)
        self._thread.start()
        try:
            self._call(self._client.__aenter__())
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        if self._process != os.getpid():  # its parent closes it
            return
        try:
            self._call(self._client.__aexit__(*error))
        finally:
            self._stop()

    def report(
        self, task_id: str, value: object, *, timeout: float | None = 30.0, epsilon: "Fraction | None" = None
    ) -> "Receipt":
        """Answer the current round of a task, at most once; see `Gateway.report`."""
        return self._call(self._client.report(task_id, value, timeout=timeout, epsilon=epsilon))

    def answer(
        self,
        task_id: str,
        source: "Source",
        *,
        source_timeout: float = 10.0,
        absent: "OnMissing" = "answer",
        on_receipt: "ReceiptCallback | None" = None,
    ) -> None:
        """Answer a task from a source of values while the client is open; see `Gateway.answer`."""
        answer = partial(self._client.answer, source_timeout=source_timeout, absent=absent, on_receipt=on_receipt)
        self._call(_soon(answer, task_id, source))

    @property
    def trouble(self) -> str:
        """Why there is no connection; see `Gateway.trouble`."""
        return self._client.trouble

    def on_task(self, callback: "Callable[[Task], object]") -> None:
        """Call `callback`, in the client's thread, with every task that is new or changed; see `Gateway.on_task`."""
        self._call(_soon(self._client.on_task, callback))

    def tasks(self) -> "dict[str, Task]":
        """Return the tasks known now, by id; see `Gateway.tasks`."""
        return self._call(_soon(self._client.tasks))

    def task(self, task_id: str, *, timeout: float | None = 30.0) -> "Task":
        """Return the task published under an id; see `Gateway.task`."""
        return self._call(self._client.task(task_id, timeout=timeout))

    def flush(self, *, timeout: float | None = 30.0) -> bool:
        """Wait until everything stored is sent; see `Gateway.flush`."""
        return self._call(self._client.flush(timeout=timeout))

    def sync(self, *, timeout: float | None = 30.0) -> "SyncResult":
        """Send what is due, and what an aggregator recalls; see `Gateway.sync`."""
        return self._call(self._client.sync(timeout=timeout))

    def ledger(self) -> "Statement":
        """Return what this device has spent, and the highest certainty an observer can reach; see `Gateway.ledger`."""
        return self._call(self._client.ledger())

    def _call(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        """Run a coroutine in the client's thread and wait; Ctrl-C cancels it there, which loses nothing."""
        if self._loop is None or threading.current_thread() is self._thread:
            coroutine.close()
            inside = "a callback runs in the client's thread and cannot wait for it; start your own thread"
            raise RuntimeError("the client is closed; use it inside `with`" if self._loop is None else inside)
        if self._process != os.getpid():
            coroutine.close()
            check_process(self._process)
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except KeyboardInterrupt:
            future.cancel()
            with suppress(CancelledError):
                future.exception()
            raise

    def _stop(self) -> None:
        loop, thread = self._loop, self._thread
        self._loop = self._thread = None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()


async def _soon(function: Callable[..., _T], *arguments: object) -> _T:
    """Call a function in the event loop."""
    return function(*arguments)


def _run(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
    finally:
        left = asyncio.all_tasks(loop)
        for task in left:  # calls of other threads, which would wait forever
            task.cancel()
        if left:
            loop.run_until_complete(asyncio.wait(left))
        loop.close()
