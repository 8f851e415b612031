"""The metrics say what was counted, by task and by reason, and nothing about when or by whom."""

import re
from collections.abc import Mapping
from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from hush_aggregator.intake import Backlog, IntakeStatus
from hush_aggregator.metrics import EVERY_S, Exposition, Histogram, IntakeFigures, MetricValues, StoreFigures
from hush_aggregator.store import CommitOutcome, TaskCount
from hush_common.wire import Refusal

NAMES = {
    "hush_reports_accepted_total",
    "hush_reports_refused_total",
    "hush_batch_reports",
    "hush_commit_duration_seconds",
    "hush_acknowledge_lag_seconds",
    "hush_inbox_messages",
    "hush_broker_connected",
    "hush_broker_dropped_messages_total",
    "hush_broker_stored_messages",
    "hush_backlog_draining",
    "hush_broker_connections_total",
    "hush_packet_ids_repeated_total",
    "hush_build_info",
    "hush_foreign_reports_total",
    "hush_tasks_without_room",
}


def text(figures: MetricValues) -> str:
    return Exposition(lambda: figures, "1.2.3").text().decode()


def samples(shown: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    found = {}
    for family in text_string_to_metric_families(shown):
        for sample in family.samples:
            found[sample.name, frozenset(sample.labels.items())] = sample.value
    return found


def at(shown: str, name: str, **labels: str) -> float | None:
    return samples(shown).get((name, frozenset(labels.items())))


def outcome(counted: Mapping[str, int], refused: Mapping[Refusal, int] | None = None) -> CommitOutcome:
    return CommitOutcome(
        sum(counted.values()), refused or {}, frozenset(counted), counted=counted, commit_s=0.02, acknowledged_s=0.3
    )


def intake(*tasks: str) -> IntakeStatus:
    backlog, connections = Backlog(5000, 400.0), {"intake": 1, "control": 3}
    return IntakeStatus(
        tasks, connected=True, waiting=7, dropped=2, backlog=backlog, stored=800, connections=connections, repeated=9
    )


def test_the_metrics_of_an_intake_have_these_names_and_no_other() -> None:
    shown = text(IntakeFigures({}, {}).figures(intake("a")))
    names = set(re.findall(r"^# TYPE (\S+)", shown, re.MULTILINE))
    assert names == NAMES
    assert {name for name, _ in samples(shown)} == {name for name in NAMES if "_bucket" not in name} - {
        "hush_batch_reports",
        "hush_commit_duration_seconds",
        "hush_acknowledge_lag_seconds",
    } | {
        f"{name}_{end}"
        for name in ("hush_batch_reports", "hush_commit_duration_seconds", "hush_acknowledge_lag_seconds")
        for end in ("bucket", "sum", "count")
    }


def test_counts_go_on_from_those_of_the_store() -> None:
    counting = IntakeFigures({"a": 10, "b": 0}, {Refusal.DUPLICATE: 5})
    counting.add(outcome({"a": 2}, {Refusal.DUPLICATE: 1, Refusal.QUOTA: 4}))
    shown = text(counting.figures(intake("a", "b")))
    assert at(shown, "hush_reports_accepted_total", task="a") == 12
    assert at(shown, "hush_reports_accepted_total", task="b") == 0
    assert at(shown, "hush_reports_refused_total", reason="duplicate") == 6
    assert at(shown, "hush_reports_refused_total", reason="quota") == 4
    assert at(shown, "hush_reports_refused_total", reason="closed") == 0
    assert at(shown, "hush_batch_reports_sum") == 7
    assert at(shown, "hush_commit_duration_seconds_bucket", le="0.05") == 1
    assert at(shown, "hush_commit_duration_seconds_bucket", le="0.01") == 0
    assert at(shown, "hush_acknowledge_lag_seconds_sum") == 0.3
    assert at(shown, "hush_inbox_messages") == 7
    assert at(shown, "hush_broker_connected") == 1
    assert at(shown, "hush_broker_dropped_messages_total") == 2
    assert at(shown, "hush_broker_stored_messages") == 800
    assert at(shown, "hush_backlog_draining") == 1
    assert at(shown, "hush_broker_connections_total", connection="control") == 3
    assert at(shown, "hush_packet_ids_repeated_total") == 9
    assert at(shown, "hush_build_info", version="1.2.3") == 1


def test_a_task_that_the_store_does_not_keep_is_no_label() -> None:
    counting = IntakeFigures({"a": 10, "gone": 3}, {})
    counting.add(outcome({f"made-up-{number}": 1 for number in range(1000)} | {"a": 1}))
    shown = text(counting.figures(intake("a")))
    assert re.findall(r'task="([^"]*)"', shown) == ["a"]
    assert "gone" not in shown
    assert len(counting._accepted) == 1  # nor is it remembered


def test_no_sample_says_when_something_was_first_counted() -> None:
    counting = IntakeFigures({}, {})
    counting.add(outcome({"a": 1}))
    shown = text(counting.figures(intake("a")))
    assert "_created" not in shown
    assert max(samples(shown).values()) < 1e6  # no time since 1970 either
    assert all(len(line.split(" ")) == 2 for line in shown.splitlines() if not line.startswith("#"))  # no time stamp


def test_who_asks_more_often_than_once_a_second_learns_no_more() -> None:
    counting, now = IntakeFigures({}, {}), [100.0]
    exposition = Exposition(lambda: counting.figures(intake("a")), "1", clock=lambda: now[0])
    before = exposition.text()
    counting.add(outcome({"a": 1}))
    now[0] += EVERY_S * 0.99
    assert exposition.text() == before
    now[0] += EVERY_S * 0.02
    assert at(exposition.text().decode(), "hush_reports_accepted_total", task="a") == 1


def test_reports_for_other_stores_are_no_refusals() -> None:
    counting = IntakeFigures({}, {})
    counting.add(replace(outcome({}), foreign=5))
    shown = text(counting.figures(replace(intake("a"), without_room=3)))
    assert at(shown, "hush_foreign_reports_total") == 5
    assert at(shown, "hush_tasks_without_room") == 3
    assert {value for (name, _), value in samples(shown).items() if name == "hush_reports_refused_total"} == {0}


def test_a_store_alone_says_its_counts_and_nothing_of_an_intake() -> None:
    alone = StoreFigures()
    alone.look_at([TaskCount("a", b"", counted=12), TaskCount("b", b"")], {Refusal.CLOSED: 5})
    shown = text(alone.figures())
    assert at(shown, "hush_reports_accepted_total", task="a") == 12
    assert at(shown, "hush_reports_refused_total", reason="closed") == 5
    assert at(shown, "hush_broker_connected") is None
    assert "hush_batch_reports" not in shown


def test_refusals_do_not_fall_when_a_task_is_forgotten() -> None:
    alone = StoreFigures()
    for refused in (5, 2, 4):  # to Prometheus, a counter that falls has begun anew, and counts once more
        alone.look_at([], {Refusal.CLOSED: refused})
    assert alone.figures().refused[Refusal.CLOSED] == 7


@pytest.mark.parametrize(("value", "bound"), [(0.5, 1.0), (1.0, 1.0), (1.5, 2.0), (3.0, float("inf"))])
def test_a_bound_is_part_of_its_bucket(value: float, bound: float) -> None:
    histogram = Histogram((1.0, 2.0))
    histogram.add(value)
    assert next(at_most for at_most, count in histogram.cumulative() if count) == bound
