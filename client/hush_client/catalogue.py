"""The tasks that a device has learned from their retained messages."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

from hush_common.errors import TaskError
from hush_common.task import Task
from hush_common.task_file import decode_task
from hush_common.topics import task_of_task_topic

__all__ = ["Catalogue"]

_LOG = logging.getLogger(__name__)

_MOST = 1000  # tasks that nobody asked for by name: a broker must not fill the memory of a device with them


class Catalogue:
    """Tasks by id, those who wait for one, and those who are told of every one."""

    def __init__(self) -> None:
        self._tasks: dict[str, Task] = {}
        self._illegal: dict[str, TaskError] = {}
        self._asked: set[str] = set()
        self._listeners: list[Callable[[Task], object]] = []
        self._changed = asyncio.Event()
        self.version = 0
        """Grows with every message that is taken in."""

    def tasks(self) -> dict[str, Task]:
        """What is known now."""
        return dict(self._tasks)

    def listen(self, listener: Callable[[Task], object]) -> None:
        """Call `listener` with every task: those known now, and each one that is new or changed from now on."""
        self._listeners.append(listener)
        for task in self.tasks().values():
            _tell(listener, task)

    def receive(self, topic: str, payload: bytes) -> None:
        """Take in a retained message: a task, or nothing at all where a task was withdrawn."""
        task_id = task_of_task_topic(topic)
        if task_id is None or not self._has_room(task_id):
            return
        known = self._tasks.pop(task_id, None)
        self._illegal.pop(task_id, None)
        if payload and known is not None and known.payload == payload:
            self._tasks[task_id] = known  # the same object: its mechanism is built already
        elif payload:
            self._decode(task_id, payload)
        self.version += 1
        self._changed.set()

    async def wait(self, task_id: str) -> Task:
        """The task, once it is known.

        Raises:
            TaskError: what is published under this id is not a task that may be answered.
        """
        self._asked.add(task_id)
        while True:
            if task_id in self._tasks:
                return self._tasks[task_id]
            if task_id in self._illegal:
                raise self._illegal[task_id]
            await self.change(self.version)

    async def change(self, since: int, timeout: float | None = None) -> None:  # noqa: ASYNC109 - its end is no error
        """Return when anything was taken in since that version, or after `timeout` seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while self.version == since:
                    self._changed.clear()
                    await self._changed.wait()

    def _has_room(self, task_id: str) -> bool:
        if len(self._tasks) + len(self._illegal) < _MOST or task_id in self._tasks or task_id in self._illegal:
            return True
        return task_id in self._asked

    def _decode(self, task_id: str, payload: bytes) -> None:
        try:
            task = decode_task(payload)
        except TaskError as error:
            self._illegal[task_id] = error
            return
        if task.id != task_id:
            self._illegal[task_id] = TaskError(
                "id", f"{task.id!r} is published under the name of {task_id!r}; tell whoever published it"
            )
            return
        self._tasks[task_id] = task
        for listener in self._listeners:
            _tell(listener, task)


def _tell(listener: Callable[[Task], object], task: Task) -> None:
    try:
        listener(task)
    except Exception:  # noqa: BLE001 - an application's mistake must not end the connection
        _LOG.exception("%s: a callback of on_task failed; the client goes on", task.id)
