"""Checks of a broker: its certificate, who may do what, its queue, its sessions, its version and its aggregators."""

# Nothing that is tested disturbs what runs: the messages are under ids that no task has, and empty but for one estimate
# that says that it is a test, and is cleared. A running aggregator refuses those among them that look like reports.
#
# The test of rights needs a user of its own. Some brokers tie the session to the user, and a connection of doctor would
# then end that of the aggregator, with what waits in it. So the first connection only looks whether there is a session,
# in a way that ends none.

import asyncio
import json
import re
import secrets
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from hush_aggregator.delivery.certificate import certificate_end
from hush_aggregator.delivery.recalls import natural_number
from hush_aggregator.ops.doctor.check_result import CheckResult, failed, failure, ok, size, warning
from hush_aggregator.ops.mosquitto import Role
from hush_common.broker_url import BrokerUrl, is_loopback
from hush_common.errors import BrokerError, SubscriptionRefusedError, printable
from hush_common.formatting import significant, whole
from hush_common.mqtt.connection import MqttConnection, Options, accepts_connection, connect, find_missing_feature
from hush_common.topics import (
    BROKER_DROPPED,
    BROKER_RETAINED,
    BROKER_STORED,
    BROKER_UPTIME,
    BROKER_VERSION,
    estimate_topic,
    is_sender,
    recall_topic,
    report_topic,
    status_topic,
    task_topic,
)

BROKER_IDLE_SESSIONS = "$SYS/broker/clients/disconnected"
"""The number of sessions without a connection, as mosquitto publishes it."""

_SAYS = (
    BROKER_VERSION,
    BROKER_UPTIME,
    BROKER_DROPPED,
    BROKER_STORED,
    BROKER_RETAINED,
    BROKER_IDLE_SESSIONS,
)
_PATIENCE_S = 10.0
_ECHO_S, _SILENCE_S = 3.0, 0.7  # for what has to come, and for what must not
_RETAINED_S = 3.0  # for a retained message after a subscription
_SOON, _NOW = timedelta(days=30), timedelta(days=7)
_OWN_SESSIONS = 2  # of an aggregator that is stopped
_MANY = 100_000
_FIXED = (2, 0, 13)
_RETAIN = "enable retained messages on the broker, and let this user publish them"
_GIVE = "give it the rights of: hush broker add NAME --role aggregator"
_PAYLOAD = 64 * 1024
_LONGEST_FRAME = 2_200_000  # bytes of a packet with a gateway's longest frame of single numbers


@dataclass(slots=True)
class _Heard:
    """The payloads that came, by topic."""

    payloads: dict[str, bytes] = field(default_factory=dict)

    def note(self, topic: str, payload: bytes) -> None:
        self.payloads[topic] = payload

    async def wait(self, wanted: Iterable[str], seconds: float) -> None:
        """Return once all of these have come, or after so many seconds."""
        missing = set(wanted)
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not missing <= self.payloads.keys():  # noqa: ASYNC110 - a few looks at a test
                    await asyncio.sleep(0.02)


def _options(identifier: str, *, persistent: bool = False, five: bool = False) -> Options:
    return Options(
        identifier=identifier,
        version="5" if five else "3.1.1",
        persistent=persistent,
        payload_limit=_PAYLOAD,
        inbox_messages=1000,
        inbox_bytes=16 * _PAYLOAD,
        window=20,
        patience=_PATIENCE_S,
        ping_every=1.0,
        silence=_PATIENCE_S,
    )


async def check_broker(
    url: BrokerUrl, now: datetime, *, device: BrokerUrl | None = None, running: bool | None = None
) -> list[CheckResult]:
    """Return the findings about a broker.

    Args:
        url: with a user of the role `aggregator` that no aggregator uses.
        now: the aware time.
        device: with the login of a device, whose rights are tested too; None leaves them out.
        running: whether an aggregator of this store is connected; None if that is not known.
    """
    return [finding async for finding in _findings(url, now, device, running=running)]


async def _findings(
    url: BrokerUrl, now: datetime, device: BrokerUrl | None, *, running: bool | None
) -> AsyncIterator[CheckResult]:
    identifier = f"hush-doctor-{secrets.token_hex(8)}"
    try:
        finding = await _certificate(url, now)
        if await _has_session(url, identifier):
            yield failure(
                "login",
                f"{url}: this user has a session on the broker, so an aggregator or another program uses it",
                "give doctor a user of its own: hush broker add doctor --role aggregator",
            )
            return
    except BrokerError as error:
        yield failed("broker", error)
        return
    yield ok("broker", f"{url} accepts the login")
    yield finding
    yield await _login(url)
    if (missing := await find_missing_feature(url)) is not None:
        yield failure("features", *missing.message.split("; ", 1))
        return
    try:
        async with AsyncExitStack() as stack:
            tested = await stack.enter_async_context(_Tested.connected(url, identifier))
            async for finding in _rights(tested, device, stack):
                yield finding
            async for finding in _state(tested, running):
                yield finding
            if "estimates" not in tested.missing:
                yield await _retained(tested)  # last: the broker may hang up
        yield await _limits(url, identifier)
    except BrokerError as error:
        yield failure(
            "rights",
            f"the broker ended the connection during the test ({error.message})",
            f"it may do that when a message is forbidden, or if it has no QoS 1: {_GIVE}",
        )


async def _certificate(url: BrokerUrl, now: datetime) -> CheckResult:
    until = await certificate_end(url)
    if until is None:
        if is_loopback(url.host):
            return ok("certificate", "without TLS, on this machine")
        why = "without TLS anyone on the way reads reports with their senders, and the password"
        return failure("certificate", why, "use mqtts://; hush broker config writes such a broker")
    left = until - now
    days = left / timedelta(days=1)
    what = f"the broker's certificate is valid for {significant(days)} days more, until {until:%Y-%m-%d}"
    if left < _SOON:
        remedy = 'sign the next one: docs/device.md, "Certificates of your own"'
        return (failure if left < _NOW else warning)("certificate", what, remedy, days=round(days, 2))
    return ok("certificate", what, days=round(days, 2))


async def _has_session(url: BrokerUrl, identifier: str) -> bool:
    """Whether the broker has a session for this user, whatever the client id; leave none behind.

    Raises:
        BrokerError: it cannot be reached, or refuses the login.
    """
    async with connect(url, _options(identifier, persistent=True)) as connection:
        if connection.resumed:
            return True
    async with connect(url, _options(identifier)):  # ends the session that the first connection has made
        return False


async def _login(url: BrokerUrl) -> CheckResult:
    if (url.user, url.cert) != (None, None):
        stranger = replace(url, user=None, password=None, cert=None, key=None)
        if not await accepts_connection(stranger):
            return ok("login", "a login is required")
    what = (
        "the broker accepts clients without a login: anyone who reaches it can take over an estimate with one message"
    )
    return failure("login", what, "for a broker with logins and rules, run hush broker config")


class _Tested:
    """A connection whose rights are tested, and what came over it."""

    def __init__(self, connection: MqttConnection, user: str) -> None:
        self._connection = connection
        self.user = user
        self.heard = _Heard()
        self.missing: list[str] = []  # what this user may not write and read
        connection.set_aside("#", self.heard.note)
        connection.set_aside("$SYS/#", self.heard.note)

    @classmethod
    @asynccontextmanager
    async def connected(cls, url: BrokerUrl, identifier: str) -> AsyncIterator["_Tested"]:
        async with connect(url, _options(identifier)) as connection:
            user = url.user or ""
            yield cls(connection, user if is_sender(user) else identifier)

    async def listen(self, topics: Iterable[str]) -> None:
        """Subscribe to each; what the broker refuses is not heard."""
        for topic in topics:
            with suppress(SubscriptionRefusedError):
                await self._connection.subscribe(topic, qos=1)

    async def send(self, topics: Iterable[str], payload: bytes = b"", *, retain: bool = False) -> None:
        """Publish a message on each."""
        for topic in topics:
            await self._connection.publish(topic, payload, retain=retain)


def _new_id() -> str:
    """An id that no task has."""
    return f"doctor-{secrets.token_hex(8)}"


def _public(task: str) -> dict[str, str]:
    """The topics that everybody reads, by what is on them."""
    return {"tasks": task_topic(task), "recalls": recall_topic(task), "estimates": estimate_topic(task)}


def _needed(task: str) -> dict[str, str]:
    """The topics that an aggregator writes, by what is on them."""
    return {**_public(task), "status": status_topic(task)}


async def _rights(tested: _Tested, device: BrokerUrl | None, stack: AsyncExitStack) -> AsyncIterator[CheckResult]:
    """Publish what the user must be able to publish, and what it must not; what comes back tells."""
    task = _new_id()
    needed = _needed(task)
    own, other = report_topic(task, tested.user), report_topic(task, f"{task}-other")
    await tested.listen([*needed.values(), report_topic_filter(task)])
    await tested.send([*needed.values(), own, other])
    await tested.heard.wait([*needed.values(), own], _ECHO_S)
    await tested.heard.wait([other], _SILENCE_S)
    came = tested.heard.payloads
    missing = tested.missing = [name for name, topic in needed.items() if topic not in came]
    if missing:
        what = f"{tested.user} may not write and read: {', '.join(missing)}"
        yield failure("rights", what, _GIVE, missing=", ".join(missing))
    else:
        yield ok("rights", f"{tested.user} writes and reads {', '.join(needed)}")
    if own in came or other in came:
        yield ok("reports", f"{tested.user} reads reports")
    else:
        what = f"{tested.user} reads no reports, or may not write the one that would show it"
        yield warning("reports", what, f"send a report with a device and check that it is counted; if not, {_GIVE}")
    senders = [tested.user] if other in came else []
    if device is not None:
        found = await _device_rights(tested, device, stack)
        senders += [found.user] if found.reports_as_others else []
        yield found.finding
    if senders:
        what = f"{' and '.join(senders)} may report under the name of another sender"
        yield failure(
            "senders", what, "allow each user only hush/v1/reports/+/USER; hush broker config writes that rule"
        )
    else:
        yield ok("senders", "no tested user may report under the name of another sender")


async def _retained(tested: _Tested) -> CheckResult:
    """Publish retained messages, as an aggregator does. One has to come with a subscription; it is cleared then."""
    task = f"probe-{secrets.token_hex(8)}"
    topic = estimate_topic(task)
    probe = json.dumps({"v": 1, "task": task, "probe": True}).encode()
    others = [topic for name, topic in _needed(task).items() if name not in ("estimates", *tested.missing)]
    try:
        await tested.send([topic], probe, retain=True)
        await tested.listen([topic])
        await tested.heard.wait([topic], _RETAINED_S)
        is_retained = topic in tested.heard.payloads
        await tested.send([topic, *others], retain=True)
    except BrokerError as error:
        what = f"the broker ended the connection at a retained message ({error.message})"
        return failure("retained", what, _RETAIN)
    if not is_retained:
        return failure("retained", "the broker does not retain messages, or not those of this user", _RETAIN)
    return ok("retained", "the broker retains messages")


def report_topic_filter(task: str) -> str:
    """Return the filter of the reports of a task."""
    return report_topic(task, "x")[:-1] + "+"


@dataclass(frozen=True, slots=True)
class _DeviceRights:
    user: str
    reports_as_others: bool
    finding: CheckResult


async def _device_rights(tested: _Tested, url: BrokerUrl, stack: AsyncExitStack) -> _DeviceRights:
    """Test what a device must be able to do, and what it must not."""
    by_device, by_us = _new_id(), _new_id()
    device = await stack.enter_async_context(_Tested.connected(url, f"hush-doctor-{secrets.token_hex(8)}"))
    forbidden = _needed(by_device)
    own, other = report_topic(by_device, device.user), report_topic(by_device, f"{by_device}-other")
    await tested.listen([*forbidden.values(), report_topic_filter(by_device)])
    readable, secret = _public(by_us), report_topic(by_us, tested.user)
    await tested.listen(readable.values())  # what it cannot write itself shows nothing of the device
    await device.listen([*readable.values(), report_topic_filter(by_us)])
    await device.send([*forbidden.values(), own, other])
    await tested.send([*readable.values(), secret])
    await tested.heard.wait([own], _ECHO_S)
    await device.heard.wait(readable.values(), _ECHO_S)
    await asyncio.sleep(_SILENCE_S)
    may_write = [name for name, topic in forbidden.items() if topic in tested.heard.payloads]
    may_not = [
        f"read {name}"
        for name, topic in readable.items()
        if topic in tested.heard.payloads and topic not in device.heard.payloads
    ]
    may_not += [] if own in tested.heard.payloads else ["report"]
    reads_reports = secret in device.heard.payloads
    too_much = [f"write {name}" for name in may_write] + (["read the reports of others"] if reads_reports else [])
    if too_much:
        remedy = "take that right from it; hush broker config writes rules that do"
        finding = failure("devices", f"{device.user}, a device, may {', '.join(too_much)}", remedy)
    elif may_not:
        remedy = f"give it the rights of: hush broker add NAME --role {Role.DEVICE}"
        finding = failure("devices", f"{device.user}, a device, may not {', '.join(may_not)}", remedy)
    else:
        finding = ok("devices", f"{device.user}, a device, reports and reads, and may do nothing else")
    return _DeviceRights(device.user, other in tested.heard.payloads, finding)


async def _state(tested: _Tested, running: bool | None) -> AsyncIterator[CheckResult]:
    """Read what the broker says of itself, and what aggregators say on their status topics."""
    await tested.listen([status_topic("+"), *_SAYS])
    await tested.heard.wait(_SAYS, _ECHO_S)
    came = tested.heard.payloads
    yield _aggregators(came)
    if BROKER_UPTIME not in came:
        what = "the broker publishes nothing under $SYS, or this user may not read it"
        remedy = "allow `read $SYS/broker/#`; without it hush recalls after each reconnection, once an hour at most"
        yield warning("queue", what, remedy)
        return
    yield _version(printable(came.get(BROKER_VERSION, b"").decode(errors="replace")[:80]))
    yield _queue(came)
    idle = natural_number(came.get(BROKER_IDLE_SESSIONS, b""))
    if idle is not None:
        yield _sessions(idle, running)


def _aggregators(came: dict[str, bytes]) -> CheckResult:
    prefix = status_topic("")
    states = {
        printable(topic.removeprefix(prefix)[:128]): payload
        for topic, payload in sorted(came.items())
        if topic.startswith(prefix) and payload
    }
    online = [name for name, state in states.items() if state == b"online"]
    offline = [name for name in states if name not in online]
    what = ", ".join([*(f"{name} is online" for name in online), *(f"{name} is offline" for name in offline)])
    figures = {"online": len(online), "offline": len(offline)}
    if not states:
        return warning("aggregators", "no aggregator is online", "start hush serve", **figures)
    if offline:
        remedy = "start it; of one that you have given up clear the status: mosquitto_pub -r -n -t hush/v1/status/NAME"
        return warning("aggregators", what, remedy, **figures)
    return ok("aggregators", what, **figures)


def _version(text: str) -> CheckResult:
    found = re.search(r"mosquitto version (\d+)\.(\d+)\.(\d+)", text)
    if found is not None and tuple(map(int, found.groups())) < _FIXED:
        what = f"{text} repeats packet ids and floods a slow reader behind a backlog; hush works around both"
        return warning("version", what, "update it to 2.0.13 or later", broker=text)
    return ok("version", text or "the broker does not report its version", broker=text)


def _queue(came: dict[str, bytes]) -> CheckResult:
    dropped = natural_number(came.get(BROKER_DROPPED, b"")) or 0
    stored, retained = (natural_number(came.get(topic, b"")) for topic in (BROKER_STORED, BROKER_RETAINED))
    waiting = None if stored is None or retained is None else max(0, stored - retained)
    figures = {"dropped": dropped} | ({} if waiting is None else {"waiting": waiting})
    what = "" if waiting is None else f"about {whole(waiting)} messages wait on the broker"
    what += ("" if not what else ", and ") + f"{whole(dropped)} were dropped since the broker started"
    if dropped:
        remedy = "raise max_queued_messages and max_queued_bytes; hush recalls what was dropped"
        return warning("queue", what, remedy, **figures)
    if waiting is not None and waiting > _MANY:
        return warning("queue", what, "is hush serve running, and does it keep up?", **figures)
    return ok("queue", what, **figures)


def _sessions(idle: int, running: bool | None) -> CheckResult:
    stopped = 0 if running is not False else _OWN_SESSIONS
    what = f"{idle} sessions have no connection" if idle != 1 else "1 session has no connection"
    if idle > stopped:
        remedy = 'if they are not of devices or aggregators that come back: docs/operations.md, "Abandoned sessions"'
        return warning("sessions", what, remedy, idle=idle)
    return ok("sessions", what + (", which the stopped aggregator has left" if idle else ""), idle=idle)


async def _limits(url: BrokerUrl, identifier: str) -> CheckResult:
    """Ask for the limits that only MQTT 5 has; an older broker tells none."""
    try:
        async with connect(url, _options(identifier, five=True)) as connection:
            largest = connection.largest_packet
    except BrokerError:
        return ok("packets", "the broker has no MQTT 5, so it reports no limit for the length of a packet")
    if largest is None:
        return ok("packets", "the broker reports no limit for the length of a packet")
    what = f"the broker accepts packets of {size(largest)} at most"
    if largest < _LONGEST_FRAME:
        remedy = f"raise max_packet_size above {_LONGEST_FRAME}: a gateway's longest frame has 2.1 MB"
        return warning("packets", what, remedy, largest_packet=largest)
    return ok("packets", what, largest_packet=largest)
