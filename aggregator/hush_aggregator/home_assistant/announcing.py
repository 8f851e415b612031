"""Announcing: what Home Assistant is told of the tasks of this store, and when it is told again or no longer.

A task is announced while this store publishes it and it is open; then its message is cleared, with which Home Assistant
removes the device. What another store publishes is neither announced nor cleared. When Home Assistant starts it says
so, and is told again after a random moment, so that many programs do not answer at once.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

from hush_aggregator.broker.session import BrokerSession
from hush_aggregator.home_assistant.device import announcement
from hush_aggregator.result import encode
from hush_aggregator.store.base import TaskState
from hush_aggregator.tasks import KnownTasks
from hush_common.rng import SystemRng

__all__ = ["PREFIX", "Announcing"]

PREFIX = "homeassistant"
"""Where Home Assistant looks, if it was not told otherwise."""

_BORN = b"online"
_LOOK_EVERY_S = 1.0
_SPREAD_MS = 10_000


class Announcing:
    """Announces tasks over the connection of their aggregator.

    Args:
        prefix: of the topics of discovery, one level.
        status: the topic that says whether the aggregator is connected.
        store: public identity of the store.
        page: the address of the page with all tasks, without a slash at its end; empty where there is none.
    """

    def __init__(self, prefix: str, status: str, store: str, page: str = "") -> None:
        self._prefix = prefix
        self._status = status
        self._store = store
        self._page = page
        self._made: dict[bytes, bytes] = {}  # by digest: a task never changes
        self._sent: dict[str, bytes] = {}
        self._born = asyncio.Event()

    async def serve(self, session: BrokerSession, tasks: KnownTasks, owns: Callable[[str], bool]) -> NoReturn:
        """Announce, until cancelled or the connection is lost.

        Args:
            session: the connection.
            tasks: those counted.
            owns: whether this store publishes of a task, as far as that is decided on this connection.
        """
        self._sent.clear()
        self._born.clear()
        await session.hear(f"{self._prefix}/status", self._hear)
        while True:
            for task_id, payload in self._wanted(tasks, owns).items():
                if self._sent.get(task_id) != payload:
                    self._sent[task_id] = payload
                    await session.publish(f"{self._prefix}/device/hush_{task_id}/config", payload, retain=True)
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_EVERY_S):
                    await self._born.wait()
            if self._born.is_set():
                await asyncio.sleep(SystemRng().randbelow(_SPREAD_MS) / 1000)
                self._born.clear()
                # It has nothing of the others, and would warn of each that is cleared once more.
                self._sent = {task_id: payload for task_id, payload in self._sent.items() if not payload}

    def _hear(self, _: str, payload: bytes) -> None:
        """In the event loop, at once."""
        if payload == _BORN:
            self._born.set()

    def _wanted(self, tasks: KnownTasks, owns: Callable[[str], bool]) -> dict[str, bytes]:
        """What is to be there, by task; of other tasks nothing is known here."""
        wanted = {}
        for row in tasks.rows.values():
            task = tasks.get(row.id)
            if task is not None and owns(row.id):
                if row.digest not in self._made:
                    self._made[row.digest] = encode(announcement(task, self._status, self._page))
                wanted[row.id] = self._made[row.digest] if row.state is TaskState.OPEN else b""
            elif task is None and row.owner == self._store:  # it is forgotten, and was this store's
                wanted[row.id] = b""
        return wanted
