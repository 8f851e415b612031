"""Reading ahead: one call of the system for all that has come, where paho makes three for each packet."""

from typing import Any

__all__ = ["ReadAhead"]

_PIECE = 64 * 1024


class ReadAhead:
    """Reads for paho, in its stead, and keeps what it has not asked for yet.

    Not over a WebSocket, which keeps what it has read by itself.

    Args:
        paho: a client of paho that is not connected yet.
    """

    def __init__(self, paho: Any) -> None:  # noqa: ANN401 - paho's client, which the core lacks
        self._read = paho._sock_recv  # noqa: SLF001 - by which paho reads everything
        self._piece = 0 if paho._transport == "websockets" else _PIECE  # noqa: SLF001
        self.kept: bytes = b""
        self.at: int = 0
        paho._sock_recv = self  # noqa: SLF001

    @property
    def waits(self) -> bool:
        """Whether something has come that nobody has asked for."""
        return self.at < len(self.kept)

    def __call__(self, size: int) -> bytes:
        """The next bytes, at most `size`; none at the end of the connection.

        Raises:
            OSError: as the socket does, `BlockingIOError` where nothing has come.
        """
        if not self.waits:
            if size >= self._piece:
                return bytes(self._read(size))
            self.fill()
        data = self.kept[self.at : self.at + size]
        self.at += len(data)
        return data

    def fill(self) -> bool:
        """Read what has come, if all that was read before is used; whether there is anything now.

        Raises:
            OSError: as above.
        """
        if not self.waits and self._piece:
            self.kept, self.at = b"", 0
            self.kept = bytes(self._read(self._piece))
        return self.waits
