"""A WebSocket in front of a broker: whatever the broker sends goes out in one frame, which never ends."""

import asyncio
import base64
import hashlib
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

__all__ = ["websocket_front"]

_ENDLESS = struct.pack(">BBQ", 0x82, 127, 1 << 40)
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455, 1.3


@asynccontextmanager
async def websocket_front(url: str) -> AsyncIterator[str]:
    """The address of a WebSocket by which the broker at `url` is reached."""
    port = urlsplit(url).port

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await reader.readuntil(b"\r\n\r\n")
        (key,) = (line.split(b": ")[1] for line in request.split(b"\r\n") if line.startswith(b"Sec-WebSocket-Key"))
        accept = base64.b64encode(hashlib.sha1(key + _GUID, usedforsecurity=False).digest())
        writer.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n")
        writer.write(b"Sec-WebSocket-Accept: " + accept + b"\r\n\r\n" + _ENDLESS)
        from_broker, to_broker = await asyncio.open_connection("127.0.0.1", port)
        outwards = asyncio.create_task(_pump(from_broker, writer), name="front")
        try:
            while True:
                to_broker.write(await _read_frame(reader))
        except (asyncio.IncompleteReadError, ConnectionError):
            to_broker.close()
            await outwards

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/mqtt"


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        pass
    finally:
        writer.close()


async def _read_frame(reader: asyncio.StreamReader) -> bytes:
    """What a client sent in one short frame."""
    _, second = await reader.readexactly(2)
    length = second & 0x7F
    if length == 126:
        (length,) = struct.unpack(">H", await reader.readexactly(2))
    mask = await reader.readexactly(4)
    data = await reader.readexactly(length)
    return bytes(byte ^ mask[place % 4] for place, byte in enumerate(data))
