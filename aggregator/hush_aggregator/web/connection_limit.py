"""A limit of connections: of all, and of one address.

At the limit, of all connections or of one address, a new connection replaces the oldest without a complete request. So
a client that sends its request at once is answered, however many others send nothing.
"""

import sys
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from hush_aggregator.web.client_address import share_of


def open_file_limit() -> int | None:
    """Return the limit of open files of this process; None without one."""
    if sys.platform == "win32":
        return None
    import resource  # noqa: PLC0415 - not on Windows

    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if files == resource.RLIM_INFINITY else files


class Abortable(Protocol):
    """A connection that can be closed at once."""

    def abort(self) -> None:
        """Close it at once, and discard it from its limit."""


_C = TypeVar("_C", bound=Abortable)


class ConnectionLimit(Generic[_C]):
    """The connections of a server: how many each address has, and which wait for a complete request.

    Args:
        most: returns the limit of all connections.
        share: returns the limit of an address, from the address and the limit of all.
    """

    def __init__(self, most: Callable[[], int], share: Callable[[str | None, int], int]) -> None:
        self._most, self._share = most, share
        self._all: dict[_C, str] = {}
        self._of: Counter[str] = Counter()
        self._waiting: OrderedDict[_C, None] = OrderedDict()  # the oldest first
        self._waiting_of: defaultdict[str, OrderedDict[_C, None]] = defaultdict(OrderedDict)

    def add(self, connection: _C, peer: str | None) -> None:
        """Add a connection. If there are too many, close the oldest without a complete request."""
        who = share_of(peer)
        self._all[connection] = who
        self._of[who] += 1
        self.note(connection, is_waiting=True)
        most = self._most()
        if self._of[who] > self._share(peer, most):
            next(iter(self._waiting_of[who])).abort()
        elif len(self._all) > most:
            next(iter(self._waiting)).abort()

    def note(self, connection: _C, *, is_waiting: bool) -> None:
        """Record whether a connection waits for a complete request, and since when."""
        who = self._all.get(connection)
        if who is None or is_waiting == (connection in self._waiting):
            return
        if is_waiting:
            self._waiting[connection] = self._waiting_of[who][connection] = None
        else:
            del self._waiting[connection], self._waiting_of[who][connection]

    def discard(self, connection: _C) -> None:
        """Remove a closed connection."""
        self.note(connection, is_waiting=False)
        who = self._all.pop(connection, None)
        if who is not None:
            self._of[who] -= 1
            if not self._of[who]:
                del self._of[who], self._waiting_of[who]

    def abort_all(self) -> None:
        """Close every connection at once."""
        for connection in list(self._all):
            connection.abort()
