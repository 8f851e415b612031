"""The aggregator: reports in over MQTT, each counted exactly once, estimates with error bars out.

Names are loaded when they are first used: `hush task check` must not wait for numpy.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hush_aggregator.estimate import CategoryEstimate, CoordinateEstimate, Estimate
    from hush_aggregator.mqtt import MqttBus
    from hush_aggregator.pipeline import Aggregator
    from hush_aggregator.processes import InProcesses
    from hush_aggregator.result import Result
    from hush_aggregator.result_reader import ResultReader
    from hush_aggregator.store import SqliteReader, SqliteStore

__all__ = [
    "Aggregator",
    "CategoryEstimate",
    "CoordinateEstimate",
    "Estimate",
    "InProcesses",
    "MqttBus",
    "Result",
    "ResultReader",
    "SqliteReader",
    "SqliteStore",
]

_HOMES = {
    "Aggregator": "pipeline",
    "CategoryEstimate": "estimate",
    "CoordinateEstimate": "estimate",
    "Estimate": "estimate",
    "InProcesses": "processes",
    "MqttBus": "mqtt",
    "Result": "result",
    "ResultReader": "result_reader",
    "SqliteReader": "store",
    "SqliteStore": "store",
}

if not TYPE_CHECKING:  # a type checker would take any name for one of this module

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
        globals()[name] = found  # the next look-up does not come here
        return found

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
