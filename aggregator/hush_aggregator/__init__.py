"""The aggregator: reports in over MQTT, each counted exactly once, estimates with error bars out.

Names are loaded when they are first used: `hush task check` must not wait for numpy.
"""

from typing import TYPE_CHECKING

from hush_common.lazy import lazy_names

if TYPE_CHECKING:
    from hush_aggregator.aggregator import Aggregator
    from hush_aggregator.delivery.mqtt import MqttBroker
    from hush_aggregator.estimate import Estimate, PartEstimate
    from hush_aggregator.estimate.process import ProcessEstimator
    from hush_aggregator.estimate.result import Result
    from hush_aggregator.publish.results import ResultReader
    from hush_aggregator.store import SqliteReader, SqliteStore

__all__ = [
    "Aggregator",
    "Estimate",
    "MqttBroker",
    "PartEstimate",
    "ProcessEstimator",
    "Result",
    "ResultReader",
    "SqliteReader",
    "SqliteStore",
]

_HOMES = {
    "Aggregator": "hush_aggregator.aggregator",
    "Estimate": "hush_aggregator.estimate",
    "ProcessEstimator": "hush_aggregator.estimate.process",
    "MqttBroker": "hush_aggregator.delivery.mqtt",
    "PartEstimate": "hush_aggregator.estimate",
    "Result": "hush_aggregator.estimate.result",
    "ResultReader": "hush_aggregator.publish.results",
    "SqliteReader": "hush_aggregator.store",
    "SqliteStore": "hush_aggregator.store",
}

if not TYPE_CHECKING:  # a type checker would take any name for one of this module
    __getattr__, __dir__ = lazy_names(globals(), _HOMES)
