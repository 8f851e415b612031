"""Reconnect loop. Logs each connection after the first, and each outage once; gives up a login refused for long."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import NoReturn

from hush_aggregator.log_fields import fields
from hush_aggregator.standing import shown
from hush_common.aio import Backoff, cancellable
from hush_common.errors import BrokerError, LoginRefusedError

__all__ = ["Staying"]

_LOG = logging.getLogger("hush.aggregator")
_STEADY_S = 5.0  # a connection that lasted this long was no failed attempt


class Staying:
    """Connects, and connects again.

    Args:
        name: what the connection is called in the log.
        connect: serves one connection until it is lost, and calls `connected` once it is there.
        login_s: seconds after which a login that is refused all the time is an error; None for never.
        open_ends: topics of messages that did not come back on the last connection: perhaps the broker hung up on them.
    """

    def __init__(
        self,
        name: str,
        connect: Callable[[], Awaitable[None]],
        *,
        login_s: float | None,
        open_ends: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        self._name = name
        self._connect = connect
        self._login_s = login_s
        self._open_ends = open_ends
        self._told = ""
        self._refused_since: float | None = None
        self._there = False
        self._lost_at: float | None = None
        self.connections: int = 0
        """How many there were since the start."""

    @property
    def there(self) -> bool:
        """Whether there is a connection."""
        return self._there

    def connected(self, where: str) -> None:
        """Note that there is a connection to `where`."""
        self._there = True
        self._refused_since = None
        self.connections += 1
        said = fields("connected", count=self.connections)
        if self._lost_at is None:
            _LOG.info("%s: connected to %s", self._name, where, extra=said)
        else:
            away = asyncio.get_running_loop().time() - self._lost_at
            what = "%s: connected to %s again after %.0f s, connection %d since the start"
            _LOG.info(what, self._name, where, away, self.connections, extra=said)

    async def run(self) -> NoReturn:
        """Until cancelled.

        Raises:
            LoginRefusedError: the broker has refused the login for that long.
        """
        backoff, loop = Backoff(), asyncio.get_running_loop()
        while True:
            began, self._there = loop.time(), False
            try:
                await cancellable(self._connect(), BrokerError)
            except BrokerError as error:
                steady = loop.time() - began > _STEADY_S
                if steady:
                    backoff.reset()
                if self._there:
                    self._lost_at = loop.time()
                    self._told = ""  # the loss of each connection is logged
                self._look_at_login(error, loop.time())
                self._warn(error, again=backoff.longest, hint="" if steady else self._hint())
            self._there = False
            await asyncio.sleep(backoff.next())

    def _look_at_login(self, error: BrokerError, now: float) -> None:
        if not isinstance(error, LoginRefusedError) or self._login_s is None:
            return
        if self._refused_since is None:
            self._refused_since = now
        if now - self._refused_since >= self._login_s:
            raise LoginRefusedError(
                error.url,
                f"{error.message}; refused for {self._login_s:g} s, and given up (--login-timeout 0 goes on for ever)",
                reason=error.reason,
            )

    def _hint(self) -> str:
        """Some brokers hang up on whoever publishes what their rules forbid, and do not say why."""
        topics = ", ".join(sorted({shown(topic) for topic in self._open_ends()}))
        return f" (lost after messages to {topics}: may this user write and read there?)" if topics else ""

    def _warn(self, error: BrokerError, *, again: bool, hint: str) -> None:
        """One line for an outage, and one for each attempt once those are rare."""
        told = f"{error}{hint if self._there else ''}"
        if again or told != self._told:
            _LOG.warning("%s; trying again until it works", told, extra=fields("disconnected"))
        self._told = told
