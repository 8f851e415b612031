"""Reports that come all the time."""

import asyncio
import secrets
import threading
from typing import Self

import aiomqtt

from hush import Task
from hush_common.wire import Report, encode_frame

__all__ = ["Load"]


class Load:
    """Reports that are published all the time, in a thread."""

    def __init__(self, port: int, task: Task) -> None:
        self._port, self._task = port, task
        self._stop = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._publish()))
        self.made = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Publish no more; all that was made is on the broker."""
        self._stop.set()
        self._thread.join()

    async def _publish(self) -> None:
        async with aiomqtt.Client("127.0.0.1", self._port, identifier="load") as client:
            while not self._stop.is_set():
                for _ in range(20):
                    frame = encode_frame([Report(self._task.report_digest, 0, secrets.token_bytes(16), (1,))])
                    await client.publish(f"hush/v1/reports/{self._task.id}/device", frame, qos=1)
                    self.made += 1
                await asyncio.sleep(0.02)
