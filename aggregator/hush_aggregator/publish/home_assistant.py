"""Home Assistant: each task as a device, announced by MQTT discovery; its sensors read the retained estimate.

A task is announced while this store publishes it and it is open. Then its message is cleared, and Home Assistant
removes the device. Tasks of other stores are neither announced nor cleared. Home Assistant publishes when it starts;
hush then announces again after a random delay, so that many programs do not answer at once.

The keys are those of MQTT discovery by device (Home Assistant 2024.11 and later). Texts of a task become only names of
the device and of its sensors, which Home Assistant shows as text. Identifiers and topics contain the id of the task
(a-z, 0-9 and -), and templates contain numbers only.

Automations read a sensor continuously. So the enabled bounds are anytime-valid; those for one look at the end are
disabled until somebody enables them.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from importlib.metadata import version
from typing import NoReturn, TypeAlias

from hush_aggregator.count.tasks import KnownTasks
from hush_aggregator.delivery.session import BrokerSession
from hush_aggregator.estimate.estimates import ANYTIME, ENROLLED
from hush_aggregator.estimate.result import encode
from hush_aggregator.publish.presentation import (
    DIGITS,
    INTERVALS,
    LARGEST_DIGITS,
    LARGEST_PLAIN,
    MOST_DECIMALS,
    interval_name,
)
from hush_aggregator.store.base import TaskState
from hush_common.epsilon import decimal_text
from hush_common.rng import SystemRng
from hush_common.task import Task
from hush_common.topics import estimate_topic

PREFIX = "homeassistant"
"""The discovery prefix that Home Assistant has by default."""

MOST_PARTS = 20
"""Categories or coordinates that have sensors: the first of the task. Home Assistant stores a row for each."""

Sensor: TypeAlias = dict[str, str | bool]

_BORN = b"online"
_LOOK_EVERY_S = 1.0
_SPREAD_MS = 10_000
_LONGEST_NAME = 80
_DETAILS = ("round", "final", "refused", "flags", "monitor", "updated_at")
_DIAGNOSTIC: Sensor = {"entity_category": "diagnostic"}
_DOCUMENT = "{% set d = value_json if value_json is mapping else {} %}"
_REFUSED = "{% set r = d.refused if d.refused is mapping else {} %}{{ (r.values() | sum) if d.n is number else None }}"


class Announcing:
    """Announces tasks over the connection of their aggregator.

    Args:
        prefix: the discovery prefix, one level of a topic.
        status: the topic of the availability of the aggregator.
        store: public identity of the store.
        page: the address of the page with all tasks, without a slash at its end; empty without a page.
    """

    def __init__(self, prefix: str, status: str, store: str, page: str = "") -> None:
        self._prefix = prefix
        self._status = status
        self._store = store
        self._page = page
        self._made: dict[bytes, bytes] = {}  # by digest: a task never changes
        self._sent: dict[str, bytes] = {}
        self._born = asyncio.Event()

    async def serve(self, session: BrokerSession, tasks: KnownTasks, owns: Callable[[str], bool]) -> NoReturn:
        """Announce the tasks that this store owns, until cancelled or the connection is lost."""
        self._sent.clear()
        self._born.clear()
        await session.hear(f"{self._prefix}/status", self._on_status)
        while True:
            for task_id, payload in self._wanted(tasks, owns).items():
                if self._sent.get(task_id) != payload:
                    self._sent[task_id] = payload
                    await session.publish(f"{self._prefix}/device/hush_{task_id}/config", payload, retain=True)
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_EVERY_S):
                    await self._born.wait()
            if self._born.is_set():
                await asyncio.sleep(SystemRng().randbelow(_SPREAD_MS) / 1000)
                self._born.clear()
                # It does not know the cleared ones, and would warn of each that is cleared again.
                self._sent = {task_id: payload for task_id, payload in self._sent.items() if not payload}

    def _on_status(self, _: str, payload: bytes) -> None:
        if payload == _BORN:
            self._born.set()

    def _wanted(self, tasks: KnownTasks, owns: Callable[[str], bool]) -> dict[str, bytes]:
        """Return the messages that should be retained, by task. Tasks that are not of this store are left out."""
        wanted = {}
        for row in tasks.rows.values():
            task = tasks.get(row.id)
            if task is not None and owns(row.id):
                if row.digest not in self._made:
                    self._made[row.digest] = encode(announcement(task, self._status, self._page))
                wanted[row.id] = self._made[row.digest] if row.state is TaskState.OPEN else b""
            elif task is None and row.owner == self._store:  # forgotten, and was this store's
                wanted[row.id] = b""
        return wanted


def announcement(task: Task, status: str, page: str = "") -> Mapping[str, object]:
    """Return the document that announces a task; `status` and `page` as in `Announcing`."""
    name = f"hush_{task.id}"
    sensors = dict(_sensors(task))
    for key, sensor in sensors.items():
        entity = f"sensor.{name}_{key}".replace("-", "_")
        sensor |= {"platform": "sensor", "unique_id": f"{name}_{key}", "default_entity_id": entity}
    device = {
        "identifiers": [name],
        "name": _short(task.title or task.id),
        "manufacturer": "hush",
        "model": f"{task.mechanism}, epsilon {decimal_text(task.epsilon)}",
        "sw_version": version("hush-ldp"),
    }
    if page:
        device["configuration_url"] = f"{page}/tasks/{task.id}"
    return {
        "device": device,
        "origin": {"name": "hush", "sw_version": version("hush-ldp")},
        "components": sensors,
        "state_topic": estimate_topic(task.id),
        "availability_topic": status,
    }


def _sensors(task: Task) -> Iterator[tuple[str, Sensor]]:
    """Yield the sensors with their keys.

    A number or a bit has bounds for each interval. A category or a coordinate has the anytime bounds only, simultaneous
    for categories, because people compare them.
    """
    domain = task.domain
    field, is_share = domain.parts_field, domain.is_share
    if not field:
        read = _Reader("", 0, percent=is_share)
        unit = "%" if is_share else task.unit
        yield "mean", _sensor("Share of yes" if is_share else "Mean", read.figure("mean"), unit)
        for target in INTERVALS:
            if target != ENROLLED or task.enrolled is not None:
                for place, end in enumerate(("lower", "upper")):
                    name = f"{end.capitalize()} ({interval_name(target)})"
                    bound = _sensor(name, read.bound("intervals", target, place), unit, shown=target == ANYTIME)
                    yield f"{target}_{end}", bound
    joint = "joint_" if is_share else ""
    for number, part in enumerate(domain.parts[:MOST_PARTS] if field else ()):
        read = _Reader(field, number, percent=is_share)
        key, unit = f"{'share' if is_share else 'mean'}_{number}", "%" if is_share else part.unit
        yield key, _sensor(part.name, read.figure("frequency" if is_share else "mean"), unit)
        for place, end in enumerate(("lower", "upper")):
            name = f"{_short(part.name)}, {end} ({interval_name(ANYTIME)}{', simultaneous' if joint else ''})"
            yield f"{key}_{end}", _sensor(name, read.bound(f"{joint}intervals", ANYTIME, place), unit, shown=False)
    fields = ", ".join(f"'{name}': d.get('{name}')" for name in _DETAILS)
    details: Sensor = {
        "json_attributes_topic": estimate_topic(task.id),
        "json_attributes_template": f"{_DOCUMENT}{{{{ {{{fields}}} | tojson }}}}",
    }
    yield "reports", _sensor("Reports", f"{_DOCUMENT}{{{{ d.n if d.n is number else None }}}}") | _DIAGNOSTIC | details
    yield "refused", _sensor("Refused", _DOCUMENT + _REFUSED) | _DIAGNOSTIC


def _sensor(name: str, template: str, unit: str = "", *, shown: bool = True) -> Sensor:
    sensor: Sensor = {"name": _short(name), "value_template": template, "state_class": "measurement"}
    if unit:
        sensor["unit_of_measurement"] = unit
    return sensor if shown else sensor | {"enabled_by_default": False}


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST_NAME else f"{text[: _LONGEST_NAME - 1]}…"


class _Reader:
    """Templates that read one part of a result.

    A missing figure gives `None`, which Home Assistant shows as *unknown*: no report yet, an estimate that failed, a
    cleared topic. No template reads an attribute of something undefined, which would be a warning in its log at every
    message. Numbers have the digits of `NumberFormat`: Home Assistant shows those of the state, and keeps its zeros.
    """

    def __init__(self, field: str, number: int, *, percent: bool) -> None:
        is_there = f"d.{field} is sequence and d.{field} | length > {number} and d.{field}[{number}] is mapping"
        part = f"d.{field}[{number}] if {is_there} else {{}}" if field else "d"
        self._part = f"{_DOCUMENT}{{% set p = {part} %}}"
        self._percent = percent

    def figure(self, name: str) -> str:
        return self._rounded(f"{{% set v = p.{name} %}}")

    def bound(self, intervals: str, target: str, end: int) -> str:
        """Return the template of one end of an interval: 0 is the lower, 1 the upper."""
        return self._rounded(
            f"{{% set i = p.{intervals}.{target} if p.{intervals} is mapping else none %}}"
            f"{{% set v = i[{end}] if i is sequence and i | length == 2 else none %}}"
        )

    def _rounded(self, value: str) -> str:
        """Return the template that writes `v` as `NumberFormat` does; %.16e gives the power of ten of the error."""
        times, more = (" * 100", 2) if self._percent else ("", 0)
        fixed = "w * 100" if self._percent else "v"  # 100 v may be halfway between two texts where v is not
        return (
            f"{self._part}{value}"
            "{% set s = p.stderr.values() | select('number') | list if p.stderr is mapping else [] %}"
            f"{{% set e = (s | max){times} if s else 1 %}}"
            f"{{% set k = {DIGITS - 1} - ('%.16e' | format(e)).split('e')[1] | int if 0 < e < 1e9 else 0 %}}"
            f"{{% set k = [[k, 0] | max, {MOST_DECIMALS}] | min if e > 0 else {DIGITS - 1} %}}"
            f"{{% set w = v | round(k + {more}) if v is number else 0 %}}"
            f"{{{{ None if v is not number else '%.{LARGEST_DIGITS}g' | format(v{times}) "
            f"if (v{times}) | abs >= {LARGEST_PLAIN:.0f} else '%.*f' | format(k, {fixed} if w else 0) }}}}"
        )
