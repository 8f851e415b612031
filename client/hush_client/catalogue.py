"""The tasks that a device has learned from their retained messages: as many as its memory has room for."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from hush_common.errors import TaskError
from hush_common.task import Task, is_task_id
from hush_common.task_file import decode_task
from hush_common.topics import task_of_task_topic

__all__ = ["Catalogue"]

_LOG = logging.getLogger(__name__)

_MOST_TASKS = 1000
_MOST_BYTES = 8 * 1024 * 1024
"""Of payloads as they came. What is made of them may take seven times as much memory."""


@dataclass(frozen=True, slots=True)
class _Known:
    """What is published under an id: a task, or why it is none; and the bytes of its payload."""

    what: Task | TaskError
    size: int


class Catalogue:
    """Tasks by id, those who wait for one, and those who are told of every one.

    A broker must not fill the memory of a device: beyond 1000 tasks or 8 MiB, legal or not, some are forgotten. The
    oldest of those that were never answered go first, a new one among them; then the oldest that were. A task that
    somebody waits for, or that has a source, stays: the program names those, not the broker.
    """

    def __init__(self) -> None:
        self._known: dict[str, _Known] = {}  # the oldest first
        self._bytes = 0
        self._answered: set[str] = set()
        self._held: Counter[str] = Counter()
        self._crowded = False
        self._listeners: list[Callable[[Task], object]] = []
        self._changed = asyncio.Event()
        self.version: int = 0
        """Grows with every message that is taken in."""

    def tasks(self) -> dict[str, Task]:
        """What is known now."""
        return {task_id: known.what for task_id, known in self._known.items() if isinstance(known.what, Task)}

    def listen(self, listener: Callable[[Task], object]) -> None:
        """Call `listener` with every task: those known now, and each one that is new or changed from now on."""
        self._listeners.append(listener)
        for task in self.tasks().values():
            _tell(listener, task)

    def hold(self, task_id: str) -> None:
        """Never forget this one: it has a source."""
        self._held[task_id] += 1

    def note_answer(self, task_id: str) -> None:
        """Forget this one later than those that were never answered."""
        self._answered.add(task_id)

    def may_have_forgotten(self, task_id: str) -> bool:
        """Whether its retained message must be asked for again."""
        return self._crowded and task_id not in self._known

    def receive(self, topic: str, payload: bytes) -> None:
        """Take in a retained message: a task, or nothing at all where a task was withdrawn."""
        task_id = task_of_task_topic(topic)
        if task_id is None or not is_task_id(task_id):
            return
        before = self._forget(task_id)
        taken_in = bool(payload) and self._make_room(task_id, len(payload))
        if taken_in:
            self._keep(task_id, before, payload)
        if taken_in or before is not None:
            self.version += 1
            self._changed.set()

    async def wait(self, task_id: str) -> Task:
        """The task, once it is known.

        Raises:
            TaskError: what is published under this id is not a task that may be answered.
        """
        self._held[task_id] += 1
        try:
            while task_id not in self._known:
                await self.change(self.version)
            what = self._known[task_id].what
        finally:
            self._held[task_id] -= 1
            if not self._held[task_id]:
                del self._held[task_id]
        if isinstance(what, TaskError):
            raise what.with_traceback(None)
        return what

    async def change(self, since: int, timeout: float | None = None) -> None:  # noqa: ASYNC109 - its end is no error
        """Return when anything was taken in since that version, or after `timeout` seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while self.version == since:
                    self._changed.clear()
                    await self._changed.wait()

    def _keep(self, task_id: str, before: Task | TaskError | None, payload: bytes) -> None:
        changed = not (isinstance(before, Task) and before.payload == payload)
        what = _read(task_id, payload) if before is None or changed else before  # whose mechanism is built already
        self._known[task_id] = _Known(what, len(payload))
        self._bytes += len(payload)
        if isinstance(what, Task) and changed:
            for listener in self._listeners:
                _tell(listener, what)

    def _forget(self, task_id: str) -> Task | TaskError | None:
        known = self._known.pop(task_id, None)
        if known is None:
            return None
        self._bytes -= known.size
        return known.what

    def _make_room(self, task_id: str, size: int) -> bool:
        """Forget others until there is room for this one; whether it is to be taken in."""
        if self._has_room(size):
            return True
        self._tell_once()
        held, answered = task_id in self._held, task_id in self._answered
        loose = [other for other in self._known if other not in self._held]
        first = [other for other in loose if other not in self._answered]
        last = [other for other in loose if other in self._answered] if held or answered else []
        for other in (*first, *last):
            self._forget(other)
            if self._has_room(size):
                return True
        return held

    def _has_room(self, size: int) -> bool:
        return len(self._known) < _MOST_TASKS and self._bytes + size <= _MOST_BYTES

    def _tell_once(self) -> None:
        if not self._crowded:
            self._crowded = True
            _LOG.warning(
                "there are more tasks on this broker than are remembered (%d, or %d MiB): those that were never "
                "answered are forgotten, the oldest first",
                _MOST_TASKS,
                _MOST_BYTES >> 20,
            )


def _read(task_id: str, payload: bytes) -> Task | TaskError:
    """What a payload says, or why it is no task: without the traceback, which would keep all that was read of it."""
    try:
        task = decode_task(payload)
    except TaskError as error:
        error.__cause__ = error.__context__ = None
        return error.with_traceback(None)
    if task.id == task_id:
        return task
    return TaskError("id", f"{task.id!r} is published under the name of {task_id!r}; tell whoever published it")


def _tell(listener: Callable[[Task], object], task: Task) -> None:
    try:
        listener(task)
    except Exception:  # noqa: BLE001 - an application's mistake must not end the connection
        _LOG.exception("%s: a callback of on_task failed; the client goes on", task.id)
