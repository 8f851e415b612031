"""The tasks that a device knows from their retained messages, of now or of before: as many as it has room for."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from hush_client.state.shelf import MOST_BYTES, MOST_TASKS, KeptTask
from hush_common.errors import TaskError
from hush_common.task import Task, decode_task, is_task_id
from hush_common.topics import ALL_TASKS, task_of_task_topic, task_topic

__all__ = ["Catalogue"]

_LOG = logging.getLogger(__name__)


@dataclass(slots=True)
class _Known:
    """What was published under an id.

    Args:
        payload: as it came.
        what: the task in it, or why it is none; None as long as nobody has read it.
        delivered: whether the broker has sent it over the present connection.
        withdrawn: whether it was withdrawn: the broker has sent an empty message, or none.
        told: whether the listeners were told of this payload.
    """

    payload: bytes
    what: Task | TaskError | None = None
    delivered: bool = False
    withdrawn: bool = False
    told: bool = False


class Catalogue:
    """Tasks by id, those who wait for one, and those who are told of every one.

    While there is a connection, a task is what the broker has sent over it. Without one it is what was sent last,
    perhaps to an earlier run, unless it was withdrawn. Before the first attempt to connect has ended there is none.

    A broker must not fill the memory of a device: beyond 1000 tasks or 8 MiB, legal or not, some are forgotten. The
    oldest of those that were never answered go first, withdrawn ones before others and a new one among them; then the
    oldest that were. A task that somebody waits for, or that has a source, stays: the program names those, not the
    broker.

    Args:
        kept: what an earlier run has left.
    """

    def __init__(self, kept: Iterable[KeptTask] = ()) -> None:
        self._known: dict[str, _Known] = {}  # the oldest first
        self._bytes = 0
        self._offline = False
        self._answered: set[str] = set()
        self._held: Counter[str] = Counter()
        self._crowded = False
        self._listeners: list[Callable[[Task], object]] = []
        self._changed = asyncio.Event()
        self.version: int = 0
        """Grows with every message that is taken in, and whenever a connection begins or ends."""
        for task in kept:
            self._put(task.id, _Known(task.payload, withdrawn=task.withdrawn))
            if task.answered:
                self._answered.add(task.id)

    def tasks(self) -> dict[str, Task]:
        """What may be answered now, as far as the times of the tasks go."""
        known = ((task_id, self._usable(task_id)) for task_id in tuple(self._known))
        return {task_id: what for task_id, what in known if isinstance(what, Task)}

    def kept(self) -> Iterator[KeptTask]:
        """What the next run is to know."""
        for task_id, known in self._known.items():
            if not isinstance(known.what, TaskError):
                yield KeptTask(task_id, known.payload, known.withdrawn, task_id in self._answered)

    def listen(self, listener: Callable[[Task], object]) -> None:
        """Call `listener` with every task: those known now, and each one that is new or changed from now on."""
        self._listeners.append(listener)
        for task_id, task in self.tasks().items():
            self._known[task_id].told = True
            _tell(listener, task)

    def hold(self, task_id: str) -> None:
        """Never forget this one: it has a source."""
        self._held[task_id] += 1

    def note_answer(self, task_id: str) -> bool:
        """Forget this one later than those that were never answered; whether that is news."""
        news = task_id not in self._answered
        self._answered.add(task_id)
        return news

    def may_have_forgotten(self, task_id: str) -> bool:
        """Whether its retained message must be asked for again."""
        return self._crowded and task_id not in self._known

    def delivered(self, task_id: str) -> bool:
        """Whether the broker has sent it over the present connection."""
        known = self._known.get(task_id)
        return known is not None and known.delivered

    def withdrawn(self, task_id: str) -> bool:
        """Whether it was withdrawn, as far as is known."""
        known = self._known.get(task_id)
        return known is not None and known.withdrawn

    def remembered(self, task_id: str) -> Task | None:
        """The task as it was sent last, unless it was withdrawn, whatever the connection does."""
        known = self._known.get(task_id)
        what = None if known is None or known.withdrawn else self._read(task_id, known)
        return what if isinstance(what, Task) else None

    def connected(self, now: bool) -> None:
        """Take notice of a connection that begins, or of an attempt that failed or a connection that ended."""
        if now:
            for known in self._known.values():
                known.delivered = False
        self._offline = not now
        self._news()
        if not now and self._listeners:
            for task_id, task in self.tasks().items():
                self._tell_once(self._known[task_id], task)

    def heard(self, topic: str) -> None:
        """All that is retained under a topic has come: what has not is withdrawn."""
        for task_id, known in self._known.items():
            if not known.delivered and topic in (ALL_TASKS, task_topic(task_id)):
                known.withdrawn = True
                self._news()

    def receive(self, topic: str, payload: bytes) -> None:
        """Take in a retained message: a task, or nothing at all where a task was withdrawn."""
        task_id = task_of_task_topic(topic)
        if task_id is None or not is_task_id(task_id):
            return
        before = self._forget(task_id)
        if before is not None:
            self._news()
        if payload and not self._make_room(task_id, len(payload)):
            return
        if payload and before is not None and before.payload == payload:  # whose mechanism is built already
            before.withdrawn, before.delivered, known = False, True, before
        elif payload:
            known = _Known(payload, delivered=True)
        elif before is not None and not isinstance(before.what, TaskError):
            before.withdrawn, before.delivered, known = True, False, before
        else:
            return
        self._put(task_id, known)
        self._news()
        if known.delivered and isinstance(what := self._read(task_id, known), Task):
            self._tell_once(known, what)

    async def wait(self, task_id: str) -> Task:
        """The task, once it may be answered.

        Raises:
            TaskError: what is published under this id is not a task that may be answered.
        """
        self._held[task_id] += 1
        try:
            while (what := self._usable(task_id)) is None:
                await self.change(self.version)
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

    def _usable(self, task_id: str) -> Task | TaskError | None:
        """The task of now, or why what is published is none; None where there is neither."""
        known = self._known.get(task_id)
        if known is None or known.withdrawn or not (known.delivered or self._offline):
            return None
        what = self._read(task_id, known)
        if isinstance(what, TaskError) and not known.delivered:
            return None  # it was damaged since it was kept, or what came last was none: nobody but the broker knows
        return what

    def _read(self, task_id: str, known: _Known) -> Task | TaskError:
        """What a payload says, read when somebody asks: a thousand kept tasks would make a slow start."""
        if known.what is None:
            known.what = _read(task_id, known.payload)
        return known.what

    def _news(self) -> None:
        self.version += 1
        self._changed.set()

    def _tell_once(self, known: _Known, task: Task) -> None:
        if not known.told:
            known.told = True
            for listener in self._listeners:
                _tell(listener, task)

    def _put(self, task_id: str, known: _Known) -> None:
        self._known[task_id] = known
        self._bytes += len(known.payload)

    def _forget(self, task_id: str) -> _Known | None:
        known = self._known.pop(task_id, None)
        if known is not None:
            self._bytes -= len(known.payload)
        return known

    def _make_room(self, task_id: str, size: int) -> bool:
        """Forget others until there is room for this one; whether it is to be taken in."""
        if self._has_room(size):
            return True
        self._complain()
        held, answered = task_id in self._held, task_id in self._answered
        loose = [other for other in self._known if other not in self._held]
        first = [other for other in loose if other not in self._answered]
        first.sort(key=lambda other: not self._known[other].withdrawn)
        last = [other for other in loose if other in self._answered] if held or answered else []
        for other in (*first, *last):
            self._forget(other)
            if self._has_room(size):
                return True
        return held

    def _has_room(self, size: int) -> bool:
        return len(self._known) < MOST_TASKS and self._bytes + size <= MOST_BYTES

    def _complain(self) -> None:
        if not self._crowded:
            self._crowded = True
            _LOG.warning(
                "there are more tasks on this broker than are remembered (%d, or %d MiB): those that were never "
                "answered are forgotten, the oldest first",
                MOST_TASKS,
                MOST_BYTES >> 20,
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
