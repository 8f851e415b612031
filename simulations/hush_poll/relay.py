"""The relay between a phone and the broker: it passes on what a device sends, at the pace of a device.

The broker behind it trusts its clients: it buffers a packet of any length, logs each invalid one, and keeps retained
messages. So the relay follows the packets of a phone. It ends the connection at one that no device sends, and it waits
while a phone sends too fast.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeAlias

from websockets.asyncio.server import ServerConnection
from websockets.exceptions import ConnectionClosed

Streams: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]

LONGEST_PACKET = 65_536
"""Bytes; a report has some hundred."""

_CONNECT, _PUBLISH = 1, 3
_FROM_DEVICES = frozenset({_CONNECT, _PUBLISH, 4, 5, 6, 7, 8, 10, 12, 14})  # acknowledgements, (un)subscribe, ping, end
_RETAIN = 1
_LENGTH_BYTES = 4
_PACKETS_AT_ONCE, _PACKETS_PER_S = 256, 16
_BYTES_AT_ONCE, _BYTES_PER_S = 4 * LONGEST_PACKET, LONGEST_PACKET // 2
PHONES_OF_ADDRESS = 8
"""An address may send as much as so many phones that send all the time: phones may share one."""

_READ_S = 30.0  # in which a phone reads what is sent to it
_FLUSH_S = 1.0


class ForbiddenPacketError(Exception):
    """No device sends this packet."""


class PacketFollower:
    """Follows the packets in the bytes that a phone sends, in pieces of any length."""

    def __init__(self) -> None:
        self._head = bytearray()  # of a packet whose length is not complete
        self._rest = 0  # bytes of the current packet that are still to come
        self.complete: int = 0
        """Complete packets so far."""

    def follow(self, data: bytes) -> None:
        """Read the next bytes.

        Raises:
            ForbiddenPacketError: a packet is too long, is not one of a client, is retained, or is not CONNECT at first.
        """
        at = 0
        while at < len(data):
            if not self._rest:
                self._head.append(data[at])
                at += 1
                self._begin()
            else:
                step = min(self._rest, len(data) - at)
                at += step
                self._rest -= step
                self.complete += not self._rest

    def _begin(self) -> None:
        kind, flags = divmod(self._head[0], 16)
        if kind not in _FROM_DEVICES or (kind == _PUBLISH and flags & _RETAIN):
            raise ForbiddenPacketError
        if len(self._head) == 1 or (self._head[-1] & 128 and len(self._head) <= _LENGTH_BYTES):
            return
        self._rest = sum((byte & 127) << 7 * place for place, byte in enumerate(self._head[1:]))
        is_first = not self.complete
        if self._head[-1] & 128 or self._rest > LONGEST_PACKET or is_first != (kind == _CONNECT):
            raise ForbiddenPacketError
        self._head.clear()
        self.complete += not self._rest


class Allowance:
    """How much may be used at once, and how much comes back in a second."""

    def __init__(self, at_once: float, per_s: float) -> None:
        self._clock = asyncio.get_running_loop().time
        self._most, self._per_s = at_once, per_s
        self._left, self._since = at_once, self._clock()

    def use(self, amount: float) -> float:
        """Return the seconds to wait after using this amount."""
        now = self._clock()
        self._left = min(self._most, self._left + (now - self._since) * self._per_s) - amount
        self._since = now
        return max(0.0, -self._left / self._per_s)


class RateLimit:
    """Packets and bytes of a number of phones that send all the time."""

    def __init__(self, phones: int = 1) -> None:
        self._packets = Allowance(phones * _PACKETS_AT_ONCE, phones * _PACKETS_PER_S)
        self._bytes = Allowance(phones * _BYTES_AT_ONCE, phones * _BYTES_PER_S)

    def send(self, packets: int, length: int) -> float:
        """Return the seconds to wait after sending these."""
        return max(self._packets.use(packets), self._bytes.use(length))


async def relay(
    phone: ServerConnection,
    open_broker: Callable[[], Awaitable[Streams]],
    address: RateLimit,
    on_connect: Callable[[], object],
) -> None:
    """Pass bytes in both directions until one side ends; `on_connect` is called after the first complete packet.

    `address` limits all phones with its address together.
    """
    try:
        reader, writer = await open_broker()
    except OSError:
        return
    tasks = [
        asyncio.create_task(work, name=f"hush-poll-{name}")
        for name, work in (
            ("to-broker", _to_broker(phone, writer, address, on_connect)),
            ("to-phone", _to_phone(reader, phone)),
            ("closed", phone.wait_closed()),
        )
    ]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        writer.close()
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(_FLUSH_S):
                await asyncio.gather(*tasks, return_exceptions=True)
                await writer.wait_closed()
        writer.transport.abort()
        if phone.transport.get_write_buffer_size():
            phone.transport.abort()  # it does not read, so that closing it regularly would wait for it


async def _to_broker(
    phone: ServerConnection, writer: asyncio.StreamWriter, address: RateLimit, on_connect: Callable[[], object]
) -> None:
    packets, own = PacketFollower(), RateLimit()
    with suppress(ConnectionClosed, ConnectionError):
        async for message in phone:
            if isinstance(message, str):
                return  # MQTT is binary
            before = packets.complete
            try:
                packets.follow(message)
            except ForbiddenPacketError:
                phone.transport.abort()
                return
            if packets.complete and not before:
                on_connect()
            writer.write(message)
            await writer.drain()
            await asyncio.sleep(max(limit.send(packets.complete - before, len(message)) for limit in (own, address)))


async def _to_phone(reader: asyncio.StreamReader, phone: ServerConnection) -> None:
    with suppress(ConnectionClosed, ConnectionError, TimeoutError):
        while data := await reader.read(LONGEST_PACKET):
            async with asyncio.timeout(_READ_S):
                await phone.send(data)
