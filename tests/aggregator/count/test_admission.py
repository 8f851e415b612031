"""Admission: the reasons, their order, and the clock."""

from collections import Counter
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from hush import Task
from hush_aggregator.intake import Admitted, admit, decode, receive
from hush_aggregator.store.base import UNKNOWN
from hush_common.task import CLOCK_SKEW, make_task
from hush_common.topics import Delivery
from hush_common.wire import Refusal, Report, encode_frame, encode_json

OPENS = datetime(2026, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
NUMBER = {"kind": "number", "lower": 120.0, "upper": 220.0}
DAILY = make_task(
    {
        "id": "daily",
        "epsilon": "3",
        "domain": NUMBER,
        "rounds": 3,
        "round_every": "1d",
        "opens": "2026-01-01T00:00:00Z",
        "closes": "2026-01-05T00:00:00Z",
    }
)
SURVEY = make_task({"id": "survey", "epsilon": "1", "domain": {"kind": "bit"}})
TASKS = {task.id: task for task in (DAILY, SURVEY)}


def topic(task_id: str) -> str:
    return f"hush/v1/reports/{task_id}/device"


def report(task: Task, round_: int = 0, body: tuple[int, ...] = (1,), digest: bytes | None = None) -> Report:
    return Report(digest or task.report_digest, round_, bytes(16), body)


def judge(where: str, payload: bytes, now: datetime = OPENS + DAY) -> Admitted:
    return admit(decode(receive([Delivery(where, payload)]).reports), TASKS, now)


def refusals(where: str, payload: bytes, now: datetime = OPENS + DAY) -> dict[tuple[str, Refusal], int]:
    admitted = judge(where, payload, now)
    assert not admitted.accepted
    return dict(admitted.refused)


def closed(where: str, payload: bytes, now: datetime) -> bool:
    """Whether it goes to the store only to be looked up there, and its sender is known for the log."""
    admitted = judge(where, payload, now)
    (accepted,) = admitted.accepted
    return accepted.late and not admitted.refused and admitted.senders == {(accepted.task.id, Refusal.CLOSED): "device"}


def test_a_fitting_report_is_accepted() -> None:
    admitted = judge(topic("daily"), encode_frame([report(DAILY, 1, (7,))]))
    (accepted,) = admitted.accepted
    assert (accepted.task, accepted.round, accepted.bodies.tolist()) == (DAILY, 1, [[7]])
    assert not admitted.refused


@pytest.mark.parametrize("name", ["weights", "", "DAILY", "x" * 5000])
def test_a_task_that_nobody_published_is_counted_in_one_bucket(name: str) -> None:
    assert refusals(topic(name), encode_frame([report(DAILY)])) == {(UNKNOWN, Refusal.UNKNOWN_TASK): 1}
    assert refusals(topic(name), b"garbage") == {(UNKNOWN, Refusal.UNKNOWN_VERSION): 1}


def test_a_topic_that_is_none_of_ours_is_counted_too() -> None:
    assert refusals("elsewhere", encode_frame([report(DAILY)])) == {(UNKNOWN, Refusal.UNKNOWN_TASK): 1}


def test_every_report_of_a_refused_frame_is_counted() -> None:
    frame = encode_frame([report(DAILY, digest=b"another task's!!")] * 5)
    assert refusals(topic("daily"), frame) == {("daily", Refusal.WRONG_DIGEST): 5}


def test_a_report_that_names_another_task_than_its_topic_is_refused_before_its_digest_is_looked_at() -> None:
    assert refusals(topic("daily"), encode_json("survey", report(SURVEY))) == {("daily", Refusal.WRONG_TOPIC): 1}


def test_an_answer_to_another_version_of_the_task_is_refused() -> None:
    assert refusals(topic("daily"), encode_frame([report(SURVEY, 99)])) == {("daily", Refusal.WRONG_DIGEST): 1}


@pytest.mark.parametrize("round_", [3, 2**32 - 1])
def test_a_round_that_does_not_exist_is_refused(round_: int) -> None:
    assert refusals(topic("daily"), encode_frame([report(DAILY, round_)])) == {("daily", Refusal.UNKNOWN_ROUND): 1}


@pytest.mark.parametrize("round_", [0, 1, 2])
def test_a_round_opens_with_the_tolerance_of_the_clocks(round_: int) -> None:
    frame = encode_frame([report(DAILY, round_)])
    earliest = OPENS + round_ * DAY - CLOCK_SKEW
    assert judge(topic("daily"), frame, earliest).accepted
    early = refusals(topic("daily"), frame, earliest - timedelta(microseconds=1))
    assert early == {("daily", Refusal.NOT_OPEN): 1}


def test_a_task_closes_with_the_tolerance_of_the_clocks_and_earlier_rounds_are_welcome_until_then() -> None:
    frame = encode_frame([report(DAILY, 0)])
    latest = OPENS + 4 * DAY + CLOCK_SKEW
    assert judge(topic("daily"), frame, latest).accepted
    assert closed(topic("daily"), frame, latest + timedelta(microseconds=1))


def test_reports_of_an_open_recall_are_welcome_for_longer() -> None:
    decoded = decode(receive([Delivery(topic("daily"), encode_frame([report(DAILY, 0)]))]).reports)
    grace = {"daily": timedelta(hours=1)}
    for late, now in ((False, OPENS + 4 * DAY + grace["daily"]), (True, OPENS + 4 * DAY + timedelta(seconds=3601))):
        (accepted,) = admit(decoded, TASKS, now, grace).accepted
        assert accepted.late == late


def test_a_task_that_closes_at_the_end_of_time_is_no_overflow() -> None:
    task = make_task({"id": "long", "epsilon": "1", "domain": NUMBER, "closes": "9999-12-31T23:59:59Z"})
    decoded = decode(receive([Delivery(topic("long"), encode_frame([report(task)]))]).reports)
    assert admit(decoded, {"long": task}, datetime.max.replace(tzinfo=UTC)).accepted
    assert admit(decoded, {"long": task}, datetime.min.replace(tzinfo=UTC)).accepted


def test_a_closed_task_refuses_an_impossible_body_as_closed() -> None:
    frame = encode_frame([report(DAILY, 0, (2**63 - 1,))])
    assert closed(topic("daily"), frame, OPENS + 9 * DAY)


@pytest.mark.parametrize("body", [(2,), (-1,), (2**63 - 1,), (-(2**63),), (0, 1)])
def test_a_bit_that_is_none_is_out_of_range(body: tuple[int, ...]) -> None:
    frame = encode_frame([report(SURVEY, 0, body)])
    assert refusals(topic("survey"), frame) == {("survey", Refusal.OUT_OF_RANGE): 1}


def test_a_frame_keeps_its_possible_reports_when_others_are_impossible() -> None:
    mechanism = DAILY.randomizer
    ends = [body[0] for body in ((-40 * 2**20,), (41 * 2**20,))]  # epsilon 1 a round: the window is 40 grids wide
    assert mechanism.admits((ends[0],))
    assert not mechanism.admits((ends[0] - 1,))
    bodies = [ends[0], ends[0] - 1, ends[1], ends[1] + 1, 5]
    frame = encode_frame([report(DAILY, 0, (k,)) for k in bodies])
    admitted = judge(topic("daily"), frame)
    assert np.concatenate([a.bodies[:, 0] for a in admitted.accepted]).tolist() == [ends[0], ends[1], 5]
    assert admitted.refused == {("daily", Refusal.OUT_OF_RANGE): 2}


def test_nothing_gives_nothing() -> None:
    assert admit(decode([]), TASKS, OPENS) == Admitted([], Counter())
