"""The tasks that a device has learned from their retained messages."""

import asyncio

from hush_common.errors import TaskError
from hush_common.task import Task
from hush_common.task_file import decode_task
from hush_common.topics import task_of_task_topic

__all__ = ["Catalogue"]


class Catalogue:
    """Tasks by id, and those who wait for one."""

    def __init__(self) -> None:
        self._tasks: dict[str, Task] = {}
        self._illegal: dict[str, TaskError] = {}
        self._changed = asyncio.Event()

    def tasks(self) -> dict[str, Task]:
        """What is known now."""
        return dict(self._tasks)

    def receive(self, topic: str, payload: bytes) -> None:
        """Take in a retained message: a task, or nothing at all where a task was withdrawn."""
        task_id = task_of_task_topic(topic)
        if task_id is None:
            return
        known = self._tasks.pop(task_id, None)
        self._illegal.pop(task_id, None)
        if payload and known is not None and known.payload == payload:
            self._tasks[task_id] = known  # the same object: its mechanism is built already
        elif payload:
            self._decode(task_id, payload)
        self._changed.set()

    async def wait(self, task_id: str) -> Task:
        """The task, once it is known.

        Raises:
            TaskError: what is published under this id is not a task that may be answered.
        """
        while True:
            if task_id in self._tasks:
                return self._tasks[task_id]
            if task_id in self._illegal:
                raise self._illegal[task_id]
            self._changed.clear()
            await self._changed.wait()

    def _decode(self, task_id: str, payload: bytes) -> None:
        try:
            task = decode_task(payload)
        except TaskError as error:
            self._illegal[task_id] = error
            return
        if task.id == task_id:
            self._tasks[task_id] = task
        else:
            self._illegal[task_id] = TaskError(
                "id", f"{task.id!r} is published under the name of {task_id!r}; tell whoever published it"
            )
