"""The address that HTTP is served on, and a socket there before anything else starts."""

import socket
from dataclasses import dataclass

from hush_common.errors import OptionError

__all__ = ["BACKLOG", "Address", "bind"]

BACKLOG = 128
"""Connections that wait to be taken."""
_PORTS = 65_536
_LONGEST = len(str(_PORTS))


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen.

    Args:
        host: a name or an address, without brackets.
        port: 0 for one that the system chooses.
    """

    host: str
    port: int

    @classmethod
    def parse(cls, option: str, text: str) -> "Address":
        """`HOST:PORT`, with an address of IPv6 in brackets.

        Raises:
            OptionError: it is none.
        """
        host, _, port = text.rpartition(":")
        bracketed = host.startswith("[") and host.endswith("]")
        bare = host[1:-1] if bracketed else host
        number = int(port) if port.isascii() and port.isdecimal() and len(port) <= _LONGEST else _PORTS
        if not bare or number >= _PORTS or bracketed != (":" in bare):
            raise OptionError(option, f"{text[:80]!r} is no address; write HOST:PORT, as in 127.0.0.1:8080")
        return cls(bare, number)

    @property
    def name(self) -> str:
        """The host as a request names it."""
        return f"[{self.host}]" if ":" in self.host else self.host.lower()

    def __str__(self) -> str:
        return f"{self.name}:{self.port}"


def bind(option: str, address: Address) -> socket.socket:
    """A socket that listens there.

    Raises:
        OptionError: the name is not known here, or the port is taken or not allowed.
    """
    try:
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, where = found[0]
        listener = socket.socket(family, kind, protocol)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no name"
        raise OptionError(option, f"{address} is not known here ({reason}); name an address of this machine") from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(where)
        listener.listen(BACKLOG)  # at once: two programs may bind the same port, and only one listens
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise OptionError(
            option, f"cannot listen on {address} ({error.strerror}); name another port, or end what listens there"
        ) from error
    return listener
