"""Several aggregators that count into one store: a shared subscription, and a lease that one of them publishes under.

Each worker counts what the broker gives to it. Tasks, estimates and recalls are published by the worker that holds the
lease, a row of the store. It is taken for `LEASE_S` seconds and renewed every second. A worker whose lease may have
ended, by its own clock since it asked for it, sends nothing more; if it was stopped, that holds when it goes on. The
next holder reads the store first: what it knows from an earlier lease is out of date. Then it publishes everything
again with a higher number, and so replaces what was still on its way.
"""

import asyncio
import logging
import re
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import NoReturn, Protocol

from hush_aggregator.delivery.session import BrokerSession
from hush_aggregator.logs import fields
from hush_aggregator.store.base import Worker
from hush_common.aio import cancellable, run_together
from hush_common.errors import HushError, StoreError

LEASE_S = 6.0
"""Seconds for which a lease holds. A server that answers later is none that one may publish for."""
_RENEW_S, _ASK_S = 1.0, 0.5
_ASK_AGAIN = 4  # after these, another worker that runs has asked for a lease that has ended
_DRAIN_S = 4.0
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

    def lease(self) -> tuple[str, int]:
        """The worker that has the lease, or '' if there is none now, and the number of the last lease."""


def boot_time() -> float:
    """Seconds since the machine started, those in which it slept among them, where the system can tell."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)


@dataclass(frozen=True, slots=True)
class WorkerGroup:
    """A group of workers, and one of them."""

    name: str  # of the shared subscription
    worker: str
    store: LeasedStore
    clock: Callable[[], float] = boot_time  # in seconds; it goes on while the process is stopped

    def shared(self, topic_filter: str) -> str:
        """Return the filter by which each message goes to one worker."""
        return f"$share/{self.name}/{topic_filter}"


async def drain(
    session: SharedSession,
    topic_filter: str,
    receive: Coroutine[None, None, NoReturn],
    *,
    is_followed: Callable[[], Awaitable[bool]],
) -> None:
    """Leave the shared subscription, so that the others get what comes, and count what is on its way for a while.

    Else the broker would go on to give this worker its share, which would wait until it is back. The last worker stays
    subscribed: what comes while no worker runs has to wait for one.
    """
    loop = asyncio.get_running_loop()
    receiving = asyncio.create_task(receive, name="hush-drain")
    receiving.add_done_callback(_ignore_error)
    try:
        async with asyncio.timeout(_DRAIN_S):
            if not await is_followed():
                _LOG.info("no other worker publishes: this one stays subscribed; what comes waits for its next start")
                return
            began = loop.time()
            session.leave(topic_filter)
            while not receiving.done() and (session.current_until < began or session.waiting):  # noqa: ASYNC110
                await asyncio.sleep(_ASK_S / 25)
    except StoreError:
        _LOG.info("this worker stays subscribed: the store does not say whether another one publishes")
    except TimeoutError:
        _LOG.warning(
            "reports wait on the broker for this worker: start it again before it goes for good",
            extra=fields("left_behind"),
        )
    finally:
        receiving.cancel()
        await asyncio.wait({receiving})


def _ignore_error(receiving: "asyncio.Task[NoReturn]") -> None:
    """Ignore what ended the receiving: nothing of the last batch was acknowledged, so it comes again."""
    if not receiving.cancelled():
        receiving.exception()


class LeaseLostError(HushError):
    """This worker may publish nothing: its lease has ended, or may have."""


class LeaseKeeper:
    """Takes the lease, and does what only its holder may do.

    Args:
        group: with the store.
        in_worker: the store's thread.
        taken: called in the store's thread with each new lease, before anything else is done under it.
    """

    def __init__(
        self,
        group: WorkerGroup,
        in_worker: Worker,
        taken: Callable[[], object] = int,
    ) -> None:
        self._group = group
        self._in_worker = in_worker
        self._taken = taken
        self._clock = group.clock
        self._number = 0
        self._until = 0.0
        self._released = asyncio.Event()

    @property
    def number(self) -> int | None:
        """The number of the lease, None while this worker does not hold it for certain."""
        return self._number if self._clock() < self._until else None

    def current(self) -> int:
        """Return the number of the lease; raise LeaseLostError while this worker does not hold it for certain."""
        if (number := self.number) is None:
            raise LeaseLostError("the lease has ended, or may have, so this worker publishes nothing")
        return number

    async def run(self, publish: Callable[[], Coroutine[None, None, NoReturn]]) -> NoReturn:
        """Publish whenever this worker holds the lease, until cancelled; then end it, so that another takes it at once.

        Raises:
            StoreError: the store failed.
        """
        try:
            while True:
                while not await self._renew():  # noqa: ASYNC110 - the database tells nobody
                    await asyncio.sleep(_ASK_S)
                number = self._number
                _LOG.info("this worker publishes, under lease %d", number, extra=fields("lease"))
                works = {"publish": publish(), "renew": self._keep(number)}
                try:
                    await cancellable(run_together(works, least=LeaseLostError), LeaseLostError)
                except LeaseLostError:
                    _LOG.warning(
                        "this worker stops publishing: it did not renew lease %d in time; another worker may publish "
                        "now",
                        number,
                        extra=fields("lease_lost"),
                    )
        finally:
            self._until = 0.0
            with suppress(Exception):  # it ends by itself
                await self._in_worker(self._group.store.release_lease)
            self._released.set()

    async def is_followed(self) -> bool:
        """Return whether another worker has the lease, which waits a moment for one to take it from this one.

        The holder of the lease never leaves the subscription before another has it, and no worker that stops takes it.
        So of workers that stop together, one stays subscribed.

        Raises:
            StoreError: the store failed.
        """
        await self._released.wait()
        for _ in range(_ASK_AGAIN):
            holder, _ = await self._in_worker(self._group.store.lease)
            if holder not in ("", self._group.worker):
                return True
            await asyncio.sleep(_ASK_S)
        return False

    async def _keep(self, number: int) -> NoReturn:
        """Renew a lease until cancelled; raise LeaseLostError once it has ended or another worker has it."""
        while True:
            await asyncio.sleep(_RENEW_S)
            if not await self._renew() or self._number != number:
                raise LeaseLostError(f"lease {number} was not renewed in time")

    async def _renew(self) -> bool:
        asked = self._clock()
        number = await self._in_worker(self._take)
        if number is None:
            self._until = 0.0
            return False
        self._number, self._until = number, asked + LEASE_S - _MARGIN_S
        return self.number is not None

    def _take(self) -> int | None:
        """In the store's thread."""
        number = self._group.store.take_lease(LEASE_S)
        if number not in (None, self._number):
            self._taken()
        return number

    def guard(self, session: BrokerSession) -> "LeasedSession":
        """Return a session over which nothing is published without the lease that this worker holds now."""
        return LeasedSession(session, self)


class LeasedSession:
    """A `BrokerSession` that publishes while one lease holds."""

    def __init__(self, session: BrokerSession, lease: LeaseKeeper) -> None:
        self._session = session
        self._lease = lease
        self._number = lease.number

    @property
    def is_leased(self) -> bool:
        """Whether that lease still holds."""
        return self._number is not None and self._lease.number == self._number

    async def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        if not self.is_leased:
            raise LeaseLostError(f"the lease under which {topic} was to be published has ended, or may have")
        await self._session.publish(topic, payload, retain=retain)

    def __getattr__(self, name: str) -> object:
        return getattr(self._session, name)
