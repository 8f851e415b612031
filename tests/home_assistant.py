"""What Home Assistant takes, from its own source: keys of an announcement, and how it renders templates.

Keys are those of `components/mqtt/schemas.py` (`DEVICE_DISCOVERY_SCHEMA`, `MQTT_ENTITY_DEVICE_INFO_SCHEMA`,
`MQTT_ORIGIN_INFO_SCHEMA`, `MQTT_ENTITY_COMMON_SCHEMA`), `components/mqtt/config.py` (`MQTT_RO_SCHEMA`) and
`components/mqtt/sensor.py` (`_PLATFORM_SCHEMA_BASE`) of release 2026.2.3, and the pattern of topics that of
`components/mqtt/discovery.py`; `default_entity_id` is in `components/mqtt/const.py` since commit
0190dc16a64230594e56302364924337e306ee14 at the latest. A key that is none is dropped without a word for sensors, and
the whole announcement with a warning for device and origin.

Its own validator needs Python 3.13.2 and some hundred packages, which is why it is not part of the tests. Run once by
hand, with 2026.2.3 on Python 3.13 (`DEVICE_DISCOVERY_SCHEMA` for each announcement of the tests, `DISCOVERY_SCHEMA` of
sensors for each of 148), it took all of them; its `MqttValueTemplate` rendered the templates before they rounded.
"""

import json
import logging
import re
from collections.abc import Mapping
from contextlib import suppress
from functools import cache

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

__all__ = ["CATEGORIES", "DEVICE", "ENTITY_ID", "ORIGIN", "SENSOR", "TOP", "TOPIC", "rendered", "sensors"]

_AVAILABILITY = {
    *("availability", "availability_mode", "availability_template", "availability_topic"),
    *("payload_available", "payload_not_available"),
}
TOP = _AVAILABILITY | {"device", "components", "origin", "state_topic", "command_topic", "qos", "encoding"}
DEVICE = {
    *("identifiers", "connections", "manufacturer", "model", "model_id", "name", "hw_version", "serial_number"),
    *("sw_version", "via_device", "suggested_area", "configuration_url"),
}
ORIGIN = {"name", "sw_version", "support_url"}
SENSOR = _AVAILABILITY | {
    *("qos", "encoding", "group", "state_topic", "value_template"),
    *("device_class", "expire_after", "force_update", "last_reset_value_template", "name", "options"),
    *("suggested_display_precision", "state_class", "unit_of_measurement"),
    *("device", "entity_picture", "origin", "enabled_by_default", "entity_category", "icon"),
    *("json_attributes_topic", "json_attributes_template", "default_entity_id", "unique_id"),
    "platform",
}
CATEGORIES = {"config", "diagnostic"}
TOPIC = re.compile(r"(?P<component>\w+)/(?:(?P<node_id>[a-zA-Z0-9_-]+)/)?(?P<object_id>[a-zA-Z0-9_-]+)/config")
ENTITY_ID = re.compile(r"sensor\.(?!_)[\da-z_]+(?<!_)")


_TOLD: list[str] = []


class _Ear(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        _TOLD.append(record.getMessage())


_LOG = logging.getLogger("tests.home-assistant")
_LOG.addHandler(_Ear())
_LOG.propagate = False
_ENVIRONMENTS = tuple(
    ImmutableSandboxedEnvironment(undefined=undefined)
    for undefined in (jinja2.make_logging_undefined(_LOG), jinja2.StrictUndefined)
)


@cache
def _compiled(environment: jinja2.Environment, template: str) -> jinja2.Template:
    return environment.from_string(template)


def rendered(template: str, payload: bytes) -> str:
    """The state that a message leads to; `"None"` is shown as *unknown*.

    Home Assistant renders in a sandbox, with an `Undefined` that logs where it is printed, iterated or asked for truth;
    one that is asked for an attribute raises, which is an error in its log. Here each line of that log is an error, and
    so is whatever differs where every use of what is missing raises.
    """
    values: dict[str, object] = {"value": payload.decode()}
    with suppress(ValueError):
        values["value_json"] = json.loads(payload)
    _TOLD.clear()
    shown, strict = (_compiled(environment, template).render(values).strip() for environment in _ENVIRONMENTS)
    assert _TOLD == []
    assert shown == strict
    return shown


def sensors(document: Mapping[str, object]) -> Mapping[str, Mapping[str, object]]:
    """The sensors of an announcement, with what they inherit from it."""
    components = document["components"]
    assert isinstance(components, dict)
    shared = {name: document[name] for name in (*_AVAILABILITY, "state_topic", "qos") if name in document}
    return {key: {**shared, **sensor} for key, sensor in components.items()}
