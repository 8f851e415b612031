"""Watching over MQTT: what a broker retains of a task, then everything that is published of it."""

import asyncio
import secrets
from collections.abc import Callable
from typing import NoReturn

from hush_aggregator.broker.mqtt import MqttBus
from hush_aggregator.watch.watched import Heard, News
from hush_common.aio import Backoff, cancellable
from hush_common.broker_url import BrokerUrl
from hush_common.errors import BrokerError, LoginRefusedError
from hush_common.topics import estimate_topic, task_topic


async def watch_broker(where: BrokerUrl, task_id: str, heard: Callable[[Heard], object]) -> NoReturn:
    """Hand over what is heard, at once, through every loss of the connection.

    Args:
        where: the broker.
        task_id: which task.
        heard: called in the event loop.

    Raises:
        BrokerError: it could not be reached the first time, or lets this user in no more.
    """
    bus = MqttBus(where, identifier=f"hush-watch-{secrets.token_hex(6)}")
    topics = {task_topic(task_id): News.TASK, estimate_topic(task_id): News.ESTIMATE}
    backoff, reached = Backoff(), asyncio.Event()

    def listen(topic: str, payload: bytes) -> None:
        if topic in topics:
            heard(Heard(topics[topic], payload))

    async def connected() -> None:
        async with bus.connect(()) as session:
            await session.look([*topics], listen)
            reached.set()
            backoff.reset()
            heard(Heard(News.THERE))
            while True:
                await session.batch()  # the tasks once more; it ends with the connection

    while True:
        try:
            await cancellable(connected(), BrokerError)
        except LoginRefusedError:
            raise
        except BrokerError as error:
            if not reached.is_set():
                raise
            heard(Heard(News.LOST, f"{error}; trying again".encode()))
        await asyncio.sleep(backoff.next())
