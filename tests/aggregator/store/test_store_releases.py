"""The contract of a store for releases and for dropped reports, of each kind."""

import secrets
from collections.abc import Iterator

import numpy as np
import pytest
from stores import StorePlace

from hush import Task
from hush_aggregator.store import Accepted, TaskState
from hush_aggregator.store.base import WHOLE_TASK, Release, ServedStore
from hush_common.task import make_task
from hush_common.wire import Refusal

ROUNDS = {"rounds": 3, "round_every": "1d", "opens": "2026-01-01T00:00:00Z"}
DRAFT = {"epsilon": "1", "domain": {"kind": "bit"}} | ROUNDS
PLAIN = make_task(DRAFT | {"id": "plain"})
FROM = make_task(DRAFT | {"id": "from", "release_from": 3})
HOURLY = make_task(DRAFT | {"id": "hourly", "release_every": "1h"})
BOTH = make_task(DRAFT | {"id": "both", "release_from": 3, "release_every": "1h"})
ALL = [PLAIN, FROM, HOURLY, BOTH]
HOUR = 3600


@pytest.fixture
def store(place: StorePlace) -> Iterator[ServedStore]:
    with place.open() as store:
        store.add_tasks(ALL)
        yield store


def reports(task: Task, round_: int, ids: bytes) -> Accepted:
    count = len(ids) // 16
    return Accepted(task, round_, np.frombuffer(ids, dtype="V16"), np.arange(count, dtype=np.int64)[:, None] % 2)


def count(store: ServedStore, n: int, *tasks: Task, round_: int = 0) -> None:
    """Count n new reports, and one refused one, of each of these tasks."""
    accepted = [reports(task, round_, secrets.token_bytes(16 * n)) for task in tasks]
    store.commit(accepted, {(task.id, Refusal.WRONG_DIGEST): 1 for task in tasks})


def seen(store: ServedStore) -> dict[str, int]:
    """What the counts, the tallies and sums say of each task: they agree."""
    counts = {one.id: one.counted for one in store.counts()}
    for task in ALL:
        n = sum(store.tally(task.digest, round_).n for round_ in range(3))
        assert n == counts[task.id] == store.counted_since(task.digest, 0)
        latest = store.latest_round(task.digest)
        (one,) = [one for one in store.counts() if one.id == task.id]
        assert (one.round, one.latest) == (latest, store.tally(task.digest, latest).n)
        assert one.refused == store.refusals(task.id)
    total = sum((sum(store.refusals(task.id).values()) for task in ALL), 0)
    assert sum(store.refused().values()) == total
    return counts


def release(store: ServedStore, at: int) -> set[str]:
    return {*store.release([task.digest for task in ALL], at)}


def test_only_what_is_released_can_be_seen(store: ServedStore) -> None:
    count(store, 2, *ALL)
    assert seen(store) == {"plain": 2, "from": 0, "hourly": 0, "both": 0}
    assert store.refused() == {Refusal.WRONG_DIGEST: 1}
    assert release(store, HOUR) == {"hourly", "both"}
    assert seen(store) == {"plain": 2, "from": 0, "hourly": 2, "both": 0}
    assert store.refused() == {Refusal.WRONG_DIGEST: 2}
    assert store.release_of(BOTH.digest) == Release(HOUR)
    assert (store.release_of(PLAIN.digest), store.release_of(FROM.digest)) == (None, None)
    count(store, 1, *ALL)
    assert seen(store) == {"plain": 3, "from": 0, "hourly": 2, "both": 0}
    assert release(store, HOUR) == {"from"}  # the others were released for that time
    assert release(store, HOUR - 1) == set()
    assert release(store, 2 * HOUR) == {"hourly", "both"}
    assert seen(store) == {"plain": 3, "from": 3, "hourly": 3, "both": 3}
    assert [one.n for one in store.stored_rounds()] == [3, 3, 3, 3]
    assert store.tally(FROM.digest, 0).moments == store.tally(PLAIN.digest, 0).moments


def test_a_round_below_release_from_hides_neither_others_nor_itself(store: ServedStore) -> None:
    count(store, 3, FROM, round_=1)
    release(store, HOUR)
    count(store, 1, FROM, round_=2)
    assert release(store, HOUR) == set()
    assert (store.latest_round(FROM.digest), store.refusals("from")) == (1, {Refusal.WRONG_DIGEST: 1})
    count(store, 4, FROM, round_=0)
    assert release(store, HOUR) == {"from"}
    assert [store.tally(FROM.digest, round_).n for round_ in range(3)] == [4, 3, 0]
    assert store.latest_round(FROM.digest) == 1


def test_a_release_knows_what_was_closed_by_then(store: ServedStore) -> None:
    count(store, 3, *ALL)
    release(store, HOUR)
    for task in (FROM, HOURLY):
        store.close_task(task.id, 1)
        store.close_task(task.id)
    assert release(store, HOUR) == {"from"}  # for it alone there is no other time
    release(store, 2 * HOUR)
    for task in (FROM, HOURLY):
        found = store.release_of(task.digest)
        assert found is not None
        assert found.closed == {1, WHOLE_TASK}
    assert store.release_of(BOTH.digest) == Release(2 * HOUR, refused={Refusal.WRONG_DIGEST: 1})


def test_releases_outlive_the_process(place: StorePlace) -> None:
    with place.open() as store:
        store.add_tasks(ALL)
        count(store, 3, *ALL)
        release(store, HOUR)
        count(store, 3, *ALL)
        before = seen(store)
    with place.open() as store:
        assert seen(store) == before
        assert release(store, HOUR) == {"from"}


def test_releases_that_a_wrong_clock_made_are_set_back(store: ServedStore) -> None:
    release(store, 900 * HOUR)
    count(store, 3, HOURLY)
    assert release(store, 2 * HOUR) == set()
    store.set_back_releases(HOUR + 1)
    assert release(store, 2 * HOUR) == {"hourly", "both"}


def test_a_forgotten_task_has_no_release(place: StorePlace) -> None:
    with place.open() as store:
        store.add_tasks(ALL)
        count(store, 3, *ALL)
        release(store, HOUR)
        with place.edit() as editor:
            editor.forget("both")
        assert release(store, 2 * HOUR) == {"hourly"}
        assert store.release_of(BOTH.digest) is None
        assert store.tally(BOTH.digest, 0).n == 0
        assert store.refusals("both") == {}


def test_reports_are_dropped_in_steps_and_count_no_more(place: StorePlace) -> None:
    ids = {(task, round_): secrets.token_bytes(16 * 300) for task in (PLAIN, BOTH) for round_ in range(2)}
    batch = [reports(task, round_, some) for (task, round_), some in ids.items()]
    with place.open() as store:
        store.add_tasks(ALL)
        assert store.commit(batch, {}).accepted == 1200
    is_to_go_on, steps = True, 0
    while is_to_go_on:  # each step in a process of its own, as after a kill
        with place.open() as store:
            is_to_go_on = store.drop_reports(PLAIN.digest, 0)
            steps += 1
            (first,) = [one for one in store.stored_rounds(PLAIN.digest) if one.round == 0]
            assert (first.n, first.dropped, first.dropping) == (300, True, is_to_go_on)
            assert first.closed_at is not None
            assert store.is_closed(PLAIN.digest, 0)
            assert not store.is_closed(PLAIN.digest, 1)
            outcome = store.commit(batch, {})
            assert (outcome.accepted, outcome.refused) == (0, {Refusal.CLOSED: 300, Refusal.DUPLICATE: 900})
            assert [*store.reports(PLAIN.digest, 0)] == []
            assert store.tally(PLAIN.digest, 0).n == 300
    assert steps > 1
    assert sorted(place.ids()) == sorted(
        some[k : k + 16] for key, some in ids.items() if key != (PLAIN, 0) for k in range(0, len(some), 16)
    )
    with place.open() as store:
        assert not store.drop_reports(PLAIN.digest, 0)
        assert not store.drop_reports(PLAIN.digest, 2)  # nobody answered
        assert {row.state for row in store.task_rows()} == {TaskState.OPEN}


def test_the_first_mark_of_a_round_has_its_time(store: ServedStore) -> None:
    count(store, 1, PLAIN)
    (before,) = store.stored_rounds(PLAIN.digest)
    store.close_task("plain")
    (closed,) = store.stored_rounds(PLAIN.digest)
    store.close_task("plain")
    assert before.closed_at is None
    assert closed.closed_at is not None
    assert store.stored_rounds(PLAIN.digest) == [closed]
