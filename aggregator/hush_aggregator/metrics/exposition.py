"""Exposition: the metrics in the text format of Prometheus, by its own client and in a registry of our own.

Every family is made anew from `Figures` when it is asked for. So nothing of prometheus-client is in the way of a
report, a task that is forgotten leaves no label behind, and there are no `_created` samples, which would say to the
microsecond when the first report of a task was counted.
"""

import time
from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.registry import Collector

from hush_aggregator.metrics.figures import Figures, Histogram
from hush_common.wire import Refusal

__all__ = ["CONTENT_TYPE", "EVERY_S", "Exposition", "families"]

CONTENT_TYPE: str = CONTENT_TYPE_PLAIN_0_0_4

EVERY_S = 1.0
"""Seconds between two texts: whoever asks more often gets the same one. As often as estimates are released, so that
the metrics tell no more about the moment of a report than those do, and so that asking costs little."""


class Exposition:
    """The text of the metrics, made at most once in `EVERY_S`.

    Args:
        figures: what they say now.
        version: of hush.
        clock: seconds by a clock that nobody sets.
    """

    def __init__(
        self, figures: Callable[[], Figures], version: str, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(_OfFigures(figures, version))
        self._clock = clock
        self._made: tuple[float, bytes] | None = None

    def text(self) -> bytes:
        """The metrics, as `CONTENT_TYPE` says."""
        now = self._clock()
        if self._made is None or now - self._made[0] >= EVERY_S:
            self._made = now, generate_latest(self._registry)
        return self._made[1]


class _OfFigures(Collector):
    def __init__(self, figures: Callable[[], Figures], version: str) -> None:
        self._figures = figures
        self._version = version

    def collect(self) -> Iterator[Metric]:
        return families(self._figures(), self._version)


def families(figures: Figures, version: str) -> Iterator[Metric]:
    """Each metric with its help and samples. Those of an intake are left out where there is none in this process."""
    info = GaugeMetricFamily("hush_build_info", "Always 1; its label says which hush this is.", labels=["version"])
    info.add_metric([version], 1)
    yield info
    accepted = CounterMetricFamily("hush_reports_accepted", "Reports counted, by task.", labels=["task"])
    for task_id, count in figures.accepted.items():
        accepted.add_metric([task_id], count)
    yield accepted
    refused = CounterMetricFamily("hush_reports_refused", "Reports refused, by reason.", labels=["reason"])
    for reason in Refusal:  # from the start: of what appears later the first increase is not seen
        refused.add_metric([reason.value], figures.refused.get(reason, 0))
    yield refused
    if figures.batches is not None:
        batches = figures.batches
        yield _histogram("hush_batch_reports", "Reports in a batch, refused ones included.", batches.reports)
        what = "Seconds that the transaction of a batch took."
        yield _histogram("hush_commit_duration_seconds", what, batches.commit_s)
        what = "Seconds from when a batch was taken from the connection until all of it was acknowledged."
        yield _histogram("hush_acknowledge_lag_seconds", what, batches.acknowledged_s)
    if figures.intake is not None:
        intake = figures.intake
        what = "Reports of tasks that are published on the broker, and are not for this store; they are not refused."
        yield CounterMetricFamily("hush_foreign_reports", what, value=figures.foreign)
        what = "Tasks that are published and not counted, because there was no room for one more."
        yield GaugeMetricFamily("hush_tasks_without_room", what, value=intake.without_room)
        what = "Messages that have come from the broker, and are in no batch yet."
        yield GaugeMetricFamily("hush_inbox_messages", what, value=intake.waiting)
        what = "1 while there is a connection to the broker, else 0."
        yield GaugeMetricFamily("hush_broker_connected", what, value=int(intake.connected))
        if intake.dropped is not None:
            what = "Messages that the broker says it has dropped since it started; missing where it does not say."
            yield CounterMetricFamily("hush_broker_dropped_messages", what, value=intake.dropped)
        if intake.stored is not None:
            what = "Messages that the broker holds for somebody, about; missing where it does not say."
            yield GaugeMetricFamily("hush_broker_stored_messages", what, value=intake.stored)
        what = "1 while reports are counted that have waited on the broker, else 0."
        yield GaugeMetricFamily("hush_backlog_draining", what, value=int(intake.backlog is not None))
        what = (
            "Connections to the broker since the start, by what they are for; each after the first is a reconnection."
        )
        connections = CounterMetricFamily("hush_broker_connections", what, labels=["connection"])
        for name, count in intake.connections.items():
            connections.add_metric([name], count)
        yield connections
        what = "Messages that came with a packet id that was in flight already."
        yield CounterMetricFamily("hush_packet_ids_repeated", what, value=intake.repeated)


def _histogram(name: str, what: str, of: Histogram) -> Metric:
    buckets = [("+Inf" if bound == float("inf") else f"{bound:.15g}", count) for bound, count in of.cumulative()]
    return HistogramMetricFamily(name, what, buckets=buckets, sum_value=of.sum)
