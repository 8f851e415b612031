"""Device: a task as Home Assistant is told of it, one device with sensors for means, bounds and counts.

The keys are those of MQTT discovery by device, as Home Assistant 2024.11 and later read it. Texts of a task are names
of the device and of its sensors, which Home Assistant shows as text, and nothing else: identifiers and topics are made
of the id of the task, which has a-z, 0-9 and - in it, and templates of numbers.

A sensor is looked at again and again. So the bounds that are there from the start are those that hold at every look;
those that are for one look at the end are there too, and not enabled.
"""

import math
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from typing import TypeAlias

from hush_aggregator.estimate.estimates import ANYTIME, ANYTIME_POPULATION, ENROLLED, POPULATION, REPORTERS
from hush_aggregator.home_assistant.templates import attributes, bound, figure, part, part_bound, refused
from hush_aggregator.presentation import interval_name
from hush_common.domain import Domain, DomainPart
from hush_common.epsilon import decimal_text
from hush_common.task import Task
from hush_common.topics import estimate_topic

__all__ = ["MOST_PARTS", "announcement"]

MOST_PARTS = 20
"""Categories or coordinates that have sensors: the first of the task. Home Assistant keeps a row for each."""

_LONGEST_NAME = 80
_STEPS = 1000  # of the range of a value that its digits tell apart: estimates are rarely better
_MOST_DIGITS = 12
_ENDS = ("lower", "upper")
_PERCENT_DIGITS = 1

Sensor: TypeAlias = dict[str, str | bool | int]


def announcement(task: Task, status: str, page: str = "") -> Mapping[str, object]:
    """The document that announces a task.

    Args:
        task: which.
        status: the topic that says whether its aggregator is connected, `online` or `offline`.
        page: the address of the page with all tasks, without a slash at its end; empty where there is none.
    """
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
    yield from _parts(task.domain) if task.domain.parts_field else _single(task)
    reports = _sensor("Reports", figure("n"), "", 0)
    yield (
        "reports",
        {
            **reports,
            "entity_category": "diagnostic",
            "json_attributes_topic": estimate_topic(task.id),
            "json_attributes_template": attributes(),
        },
    )
    yield "refused", {**_sensor("Refused", refused(), "", 0), "entity_category": "diagnostic"}


def _single(task: Task) -> Iterator[tuple[str, Sensor]]:
    percent = task.domain.is_share
    unit, digits = "%" if percent else task.unit, _digits(task.domain, task.domain.parts[0])
    yield "mean", _sensor("Share of yes" if percent else "Mean", figure("mean", percent=percent), unit, digits)
    targets = [ANYTIME, ANYTIME_POPULATION, REPORTERS, POPULATION, *([ENROLLED] if task.enrolled is not None else [])]
    for target in targets:
        for place, end in enumerate(_ENDS):
            words = f"{end.capitalize()} ({interval_name(target)})"
            template = bound(target, place, percent=percent)
            yield f"{target}_{end}", _sensor(words, template, unit, digits, shown=target == ANYTIME)


def _parts(domain: Domain) -> Iterator[tuple[str, Sensor]]:
    """The shares of labels, with simultaneous intervals, or the means of coordinates, with individual ones."""
    percent, field = domain.is_share, domain.parts_field
    key, value = ("share", "frequency") if percent else ("mean", "mean")
    intervals, of_all = ("joint_intervals", ", all") if percent else ("intervals", "")
    for number, one in enumerate(domain.parts[:MOST_PARTS]):
        unit, digits = "%" if percent else one.unit, _digits(domain, one)
        yield f"{key}_{number}", _sensor(one.name, part(field, number, value, percent=percent), unit, digits)
        for place, end in enumerate(_ENDS):
            template = part_bound(field, number, intervals, ANYTIME, place, percent=percent)
            name = f"{_short(one.name)}, {end} ({interval_name(ANYTIME)}{of_all})"
            yield f"{key}_{number}_{end}", _sensor(name, template, unit, digits, shown=False)


def _sensor(name: str, template: str, unit: str, digits: int, *, shown: bool = True) -> Sensor:
    sensor: Sensor = {"name": _short(name), "value_template": template, "state_class": "measurement"}
    sensor["suggested_display_precision"] = digits
    if unit:
        sensor["unit_of_measurement"] = unit
    return sensor if shown else sensor | {"enabled_by_default": False}


def _digits(domain: Domain, part: DomainPart) -> int:
    """Digits after the point that tell a thousandth of the range apart; Home Assistant keeps the others."""
    if domain.is_share:
        return _PERCENT_DIGITS
    step = max((part.upper / 2 - part.lower / 2) / (_STEPS / 2), 10**-_MOST_DIGITS)
    return max(0, math.ceil(-math.log10(step)))


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST_NAME else f"{text[: _LONGEST_NAME - 1]}…"
