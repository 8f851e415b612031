"""Metrics for operators, in the text format of Prometheus, counted once a batch."""

# They start from the store, so that `hush serve` and `hush http` agree, and no counter falls while the process runs: a
# counter that falls looks like a new one. They contain no times of reports or batches.
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.registry import Collector

from hush_aggregator.count.intake import IntakeStatus
from hush_aggregator.ops.service_metrics import ProcessFigures, ServiceValues, http_families, service_families
from hush_aggregator.store.base import CommitOutcome, TaskCount
from hush_common.wire import Refusal

REPORTS = (1.0, 10.0, 100.0, 1000.0, 10_000.0, 100_000.0)
SECONDS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Histogram:
    """Counts values up to each bound."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(bounds) + 1)
        self.sum: float = 0.0

    def add(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self.sum += value

    def cumulative(self) -> list[tuple[float, int]]:
        """Return each bound, infinity last, with the number of values up to it."""
        total, found = 0, []
        for bound, count in zip((*self._bounds, float("inf")), self._counts, strict=True):
            total += count
            found.append((bound, total))
        return found


@dataclass(frozen=True, slots=True)
class BatchFigures:
    """The batches of an intake."""

    reports: Histogram = field(default_factory=lambda: Histogram(REPORTS))  # in each, refused ones included
    commit_s: Histogram = field(default_factory=lambda: Histogram(SECONDS))  # seconds of each transaction
    # seconds from when each was taken from the connection to its last acknowledgement
    acknowledged_s: Histogram = field(default_factory=lambda: Histogram(SECONDS))


@dataclass(frozen=True, slots=True)
class MetricValues:
    """All metrics at one moment."""

    accepted: Mapping[str, int]  # reports counted, by the id of their task; only of tasks in the store
    refused: Mapping[Refusal, int]  # reports refused, by reason
    batches: BatchFigures | None = None  # None without an intake in this process
    intake: IntakeStatus | None = None  # None without an intake in this process
    foreign: int = 0  # reports of tasks that are published for other stores
    service: ServiceValues | None = None  # the state of the service; None if nobody has read it
    # seconds until requests were answered, by the class of the status; None without HTTP
    requests: Mapping[str, Histogram] | None = None
    http: ProcessFigures | None = None  # of the process of HTTP; None if the intake and HTTP are one process
    silent_s: float | None = None  # for how many seconds HTTP has not heard of the intake; None as above


class IntakeFigures:
    """Counts what an aggregator commits, in its event loop."""

    def __init__(self, accepted: Mapping[str, int], refused: Mapping[Refusal, int]) -> None:
        self._accepted = Counter(accepted)
        self._refused = Counter(refused)
        self._foreign = 0
        self._batches = BatchFigures()

    def add(self, outcome: CommitOutcome) -> None:
        """A batch was committed and acknowledged."""
        self._accepted.update(outcome.counted)
        self._refused.update(outcome.refused)
        self._foreign += outcome.foreign
        if not outcome.is_batch:
            return
        self._batches.reports.add(outcome.accepted + sum(outcome.refused.values()))
        self._batches.commit_s.add(outcome.commit_s)
        self._batches.acknowledged_s.add(outcome.acknowledged_s)

    def figures(self, intake: IntakeStatus) -> MetricValues:
        """The metrics now, without forgotten tasks."""
        for task_id in self._accepted.keys() - intake.tasks:
            del self._accepted[task_id]
        return MetricValues(
            {task_id: self._accepted[task_id] for task_id in sorted(intake.tasks)},
            dict(self._refused),
            self._batches,
            intake,
            self._foreign,
        )


class StoreFigures:
    """Metrics of a store into which another process counts."""

    def __init__(self) -> None:
        self._accepted: dict[str, int] = {}
        self._refused: Counter[Refusal] = Counter()
        self._before: Mapping[Refusal, int] = {}

    def look_at(self, counts: Iterable[TaskCount], refused: Mapping[Refusal, int]) -> None:
        """Read the counts of a store. Refusals of a task stay counted when it is forgotten."""
        self._accepted = {count.id: count.counted for count in counts}
        for reason, count in refused.items():
            self._refused[reason] += max(0, count - self._before.get(reason, 0))
        self._before = dict(refused)

    def figures(self) -> MetricValues:
        return MetricValues(self._accepted, dict(self._refused))


CONTENT_TYPE: str = CONTENT_TYPE_PLAIN_0_0_4

EVERY_S = 1.0
"""Seconds between two texts; as for estimates, so that metrics say no more about the moment of a report."""


class Exposition:
    """The text of the metrics, made at most once in `EVERY_S`."""

    def __init__(
        self, figures: Callable[[], MetricValues], version: str, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(_OfFigures(figures, version))
        self._clock = clock
        self._made: tuple[float, bytes] | None = None

    def text(self) -> bytes:
        now = self._clock()
        if self._made is None or now - self._made[0] >= EVERY_S:
            self._made = now, generate_latest(self._registry)
        return self._made[1]


class _OfFigures(Collector):
    def __init__(self, figures: Callable[[], MetricValues], version: str) -> None:
        self._figures = figures
        self._version = version

    def collect(self) -> Iterator[Metric]:
        return families(self._figures(), self._version)


def families(figures: MetricValues, version: str) -> Iterator[Metric]:
    """Each metric with its help and samples. Metrics of an intake are left out without one in this process."""
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
    yield from _service_families(figures)


def _service_families(figures: MetricValues) -> Iterator[Metric]:
    if figures.service is not None:
        yield from service_families(figures.service)
    yield from http_families(figures.http, figures.silent_s)
    if figures.requests is not None:
        what = "Seconds from a request until its answer begins, by the class of the status."
        requests = HistogramMetricFamily("hush_http_request_duration_seconds", what, labels=["code"])
        for code, histogram in figures.requests.items():
            requests.add_metric([code], _buckets(histogram), histogram.sum)
        yield requests


def _histogram(name: str, what: str, of: Histogram) -> Metric:
    return HistogramMetricFamily(name, what, buckets=_buckets(of), sum_value=of.sum)


def _buckets(of: Histogram) -> list[tuple[str, float]]:
    return [("+Inf" if bound == float("inf") else f"{bound:.15g}", count) for bound, count in of.cumulative()]
