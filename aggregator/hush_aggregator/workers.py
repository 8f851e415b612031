"""Several aggregators that count into one store: a shared subscription, and a lease that one of them publishes under.

Each worker counts what the broker gives to it. Tasks, estimates and recalls are published by the worker that holds the
lease, a row of the store. It is taken for `LEASE_S` seconds and renewed every second. A worker whose lease may have
ended, by its own clock since it asked for it, sends nothing more; if it was stopped, that holds when it goes on. The
next holder publishes everything again with a higher number, and so replaces what was still on its way.
"""

import asyncio
import logging
import re
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import NoReturn, Protocol

from hush_aggregator.broker.session import BrokerSession
from hush_aggregator.logs import fields
from hush_common.errors import BrokerError

LEASE_S = 6.0
"""Seconds for which a lease holds. A server that answers later is none that one may publish for."""
_RENEW_S, _ASK_S = 1.0, 0.5
_DRAIN_S = 3.0
_MARGIN_S = 0.5  # clocks of two machines run at one speed, nearly

_LOG = logging.getLogger("hush.aggregator")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


def is_group(name: str) -> bool:
    """Whether a text may be the name of a group or of a worker: letters, digits and `_.-`, at most 64."""
    return _NAME.fullmatch(name) is not None


class SharedSession(BrokerSession, Protocol):
    """A session of a worker."""

    def leave(self, topic_filter: str) -> None:
        """End a subscription; what the broker has queued for it still comes."""


class LeasedStore(Protocol):
    """What the lease needs of a store."""

    def take_lease(self, seconds: float) -> int | None:
        """Take or renew the lease of the worker that publishes; return its number, None if another one has it."""

    def release_lease(self) -> None:
        """End the lease, if this worker has it."""


@dataclass(frozen=True, slots=True)
class WorkerGroup:
    """A group of workers, and one of them."""

    name: str  # of the shared subscription
    worker: str
    store: LeasedStore

    def shared(self, topic_filter: str) -> str:
        """Return the filter by which each message goes to one worker."""
        return f"$share/{self.name}/{topic_filter}"


async def drain(session: SharedSession, topic_filter: str, receive: Coroutine[None, None, NoReturn]) -> None:
    """Leave the shared subscription, so that the others get what comes, and count what is on its way for a while.

    Else the broker would go on to give this worker its share, which would wait until it is back.
    """
    loop = asyncio.get_running_loop()
    began = loop.time()
    session.leave(topic_filter)
    receiving = asyncio.create_task(receive, name="hush-drain")
    try:
        async with asyncio.timeout(_DRAIN_S):
            while not receiving.done() and (session.current_until < began or session.waiting):  # noqa: ASYNC110
                await asyncio.sleep(_ASK_S / 25)
    except TimeoutError:
        _LOG.warning(
            "reports wait on the broker for this worker: start it again before it goes for good",
            extra=fields("left_behind"),
        )
    finally:
        receiving.cancel()
        await asyncio.wait({receiving})


def boot_time() -> float:
    """Seconds since the machine started, those in which it slept among them, where the system can tell."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)


class LeaseKeeper:
    """Takes the lease, and does what only its holder may do.

    Args:
        group: with the store.
        in_worker: the store's thread.
        clock: in seconds; it goes on while the process is stopped.
    """

    def __init__(
        self,
        group: WorkerGroup,
        in_worker: Callable[[Callable[[], int | None]], Awaitable[int | None]],
        clock: Callable[[], float] = boot_time,
    ) -> None:
        self._group = group
        self._in_worker = in_worker
        self._clock = clock
        self._number = 0
        self._until = 0.0

    @property
    def number(self) -> int | None:
        """The number of the lease, None while this worker does not hold it for certain."""
        return self._number if self._clock() < self._until else None

    async def run(self, publish: Callable[[], Coroutine[None, None, NoReturn]]) -> NoReturn:
        """Publish whenever this worker holds the lease, until cancelled; then end it, so that another takes it at once.

        Raises:
            StoreError: the store failed.
        """
        try:
            while True:
                while not await self._renew():  # noqa: ASYNC110 - the database tells nobody
                    await asyncio.sleep(_ASK_S)
                _LOG.info("this worker publishes, under lease %d", self._number, extra=fields("lease"))
                work = asyncio.create_task(publish(), name="hush-publish")
                try:
                    await self._keep(work)
                finally:
                    work.cancel()
                    await asyncio.wait({work})
                _LOG.warning("this worker publishes no more: its lease has ended", extra=fields("lease_lost"))
        finally:
            self._until = 0.0
            with suppress(Exception):  # it ends by itself
                await self._in_worker(self._group.store.release_lease)

    async def _keep(self, work: "asyncio.Task[NoReturn]") -> None:
        """Renew the lease until another worker has it, or it has ended; raise what the work raises."""
        number = self._number
        while not work.done():
            await asyncio.wait({work}, timeout=_RENEW_S)
            if not work.done() and (not await self._renew() or self._number != number):
                return
        work.result()

    async def _renew(self) -> bool:
        asked = self._clock()
        number = await self._in_worker(lambda: self._group.store.take_lease(LEASE_S))
        if number is None:
            self._until = 0.0
            return False
        self._number, self._until = number, asked + LEASE_S - _MARGIN_S
        return self.number is not None

    def guard(self, session: BrokerSession) -> "LeasedSession":
        """Return a session over which nothing is published without the lease."""
        return LeasedSession(session, self)


class LeasedSession:
    """A `BrokerSession` that publishes while the lease holds."""

    def __init__(self, session: BrokerSession, lease: LeaseKeeper) -> None:
        self._session = session
        self._lease = lease

    async def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        if self._lease.number is None:
            raise BrokerError("lease", "has ended, so this worker publishes nothing")
        await self._session.publish(topic, payload, retain=retain)

    def __getattr__(self, name: str) -> object:
        return getattr(self._session, name)
