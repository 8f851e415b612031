"""Client: one device with its own connection and state."""
# ruff: noqa: ASYNC109 - a timeout here ends in a receipt or a message, not in TimeoutError

from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Self

from hush_client.limits import CAPACITY, DEVICE_BYTES, LONGEST_KEEP, check_type, not_a_sender
from hush_common.broker_url import BrokerUrl
from hush_common.errors import BrokerError
from hush_common.topics import is_sender

if TYPE_CHECKING:
    from collections.abc import Callable
    from fractions import Fraction
    from ssl import SSLContext

    from hush_client.gateway import OnMissing, ReceiptCallback, Source
    from hush_client.policy import Policy
    from hush_client.receipt import Receipt
    from hush_client.sending.sender import SyncResult
    from hush_client.sending.transport import Transport
    from hush_client.statement import Statement
    from hush_common.task import Task


class Client:
    """Answers tasks for one device.

        async with Client("mqtt://localhost", device="d1", state="/var/lib/d1") as client:
            receipt = await client.report("heights", 172.0)

    Args:
        url: the broker: `mqtt://`, `mqtts://`, `ws://` or `wss://`, with user, password and TLS files as in
            `BrokerUrl`. Its user, if any, is the sender in the topics of the reports, else the device is.
        device: name of the device: letters, digits and `. _ @ : -`.
        state: directory of the durable state. Do not delete it: it records what the device has spent.
        policy: the limits of the device.
        spread: most seconds of the random delay before a report is sent; see `Gateway`.
        capacity: most reports that may wait for the broker; see `Gateway`.
        keep: seconds for which a report is kept after the broker's acknowledgement, at most a week; see `Gateway`.
        tls: used for TLS instead of the files in `url`; see `MqttTransport`.
        client_id: the whole MQTT client id, for brokers that need a known one; see `MqttTransport`.
        on_delivery: called with each receipt when the broker has the report, or reports not to; see `Gateway`.
        transport: used instead of MQTT at `url`, `tls` and `client_id`.

    Raises:
        BrokerError: `url` is not an address of a broker, or its user cannot be part of a topic.
        TypeError: an argument has the wrong type; the message names it.
        OptionError: `device` cannot be part of a topic, `spread`, `capacity` or `keep` is out of range, or `tls` or
            `client_id` cannot be used.
        StateError: (on entering) the state cannot be opened or trusted.
    """

    def __init__(
        self,
        url: str | BrokerUrl,
        *,
        device: str,
        state: Path | str,
        policy: "Policy | None" = None,
        spread: float = 1.0,
        capacity: int = CAPACITY,
        keep: float = LONGEST_KEEP,
        tls: "SSLContext | None" = None,
        client_id: str = "",
        on_delivery: "ReceiptCallback | None" = None,
        transport: "Transport | None" = None,
    ) -> None:
        check_type("url", url, (str, BrokerUrl), 'an address such as "mqtt://localhost", or a BrokerUrl')
        check_type("device", device, str, 'text such as "sensor-17"')
        check_type("state", state, (str, PathLike), "the path of a directory")
        address = BrokerUrl.parse(url) if isinstance(url, str) else url
        if address.user is not None and not is_sender(address.user):
            raise BrokerError(str(address), "this user cannot be part of a topic; use letters, digits and . _ @ : -")
        if address.user is None and not is_sender(device):
            raise not_a_sender("device", device)
        from hush_client.gateway import Gateway  # noqa: PLC0415 - most of the start, for programs that make a client

        self._device = device
        self._gateway = Gateway(
            transport or _mqtt(address, device, tls, client_id),
            name=address.user or device,
            state=Path(state),
            policy=policy,
            spread=spread,
            capacity=capacity,
            keep=keep,
            kept_bytes=DEVICE_BYTES,
            on_delivery=on_delivery,
        )

    async def __aenter__(self) -> Self:
        await self._gateway.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._gateway.__aexit__(*error)

    async def report(
        self, task_id: str, value: object, *, timeout: float | None = 30.0, epsilon: "Fraction | None" = None
    ) -> "Receipt":
        """Answer the current round of a task, at most once; see `Gateway.report`."""
        return await self._gateway.report(self._device, task_id, value, timeout=timeout, epsilon=epsilon)

    def answer(
        self,
        task_id: str,
        source: "Source",
        *,
        source_timeout: float = 10.0,
        absent: "OnMissing" = "answer",
        on_receipt: "ReceiptCallback | None" = None,
    ) -> None:
        """Answer a task from a source of values, once in each round that is open; see `Gateway.answer`."""
        self._gateway.answer(
            self._device, task_id, source, source_timeout=source_timeout, absent=absent, on_receipt=on_receipt
        )

    @property
    def trouble(self) -> str:
        """Why there is no connection; see `Gateway.trouble`."""
        return self._gateway.trouble

    def on_task(self, callback: "Callable[[Task], object]") -> None:
        """Call `callback` with every task that is new or changed; see `Gateway.on_task`."""
        self._gateway.on_task(callback)

    def tasks(self) -> "dict[str, Task]":
        """Return the tasks known now, by id; see `Gateway.tasks`."""
        return self._gateway.tasks()

    async def task(self, task_id: str, *, timeout: float | None = 30.0) -> "Task":
        """Return the task published under an id; see `Gateway.task`."""
        return await self._gateway.task(task_id, timeout=timeout)

    async def flush(self, *, timeout: float | None = 30.0) -> bool:
        """Wait until everything stored is sent; see `Gateway.flush`."""
        return await self._gateway.flush(timeout=timeout)

    async def sync(self, *, timeout: float | None = 30.0) -> "SyncResult":
        """Send what is due, and what an aggregator recalls; see `Gateway.sync`."""
        return await self._gateway.sync(timeout=timeout)

    async def ledger(self) -> "Statement":
        """Return what this device has spent, and the highest certainty an observer can reach; see `Gateway.ledger`."""
        return await self._gateway.ledger(self._device)


def _mqtt(address: BrokerUrl, device: str, tls: "SSLContext | None", client_id: str) -> "Transport":
    from hush_client.sending.mqtt import MqttTransport  # noqa: PLC0415 - a third of the start, for those who need it

    return MqttTransport(address, device, tls=tls, client_id=client_id)
