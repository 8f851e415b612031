"""What a store says of its counts and its version, by which others see what has changed."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from stores import StorePlace

from hush_aggregator import SqliteReader, SqliteStore
from hush_aggregator.store import UNKNOWN, Accepted, TaskState
from hush_aggregator.store.base import ServedStore
from hush_aggregator.store.sqlite import back_up, put_back
from hush_common.task import make_task
from hush_common.wire import Refusal

DAILY = make_task(
    {"id": "daily", "epsilon": "1", "domain": {"kind": "bit"}, "rounds": 5, "round_every": "1d"}
    | {"opens": "2020-01-01T00:00:00Z"}
)
ONCE = make_task({"id": "once", "epsilon": "1", "domain": {"kind": "bit"}})


@pytest.fixture
def store(place: StorePlace) -> Iterator[ServedStore]:
    with place.open() as store:
        store.add_task(DAILY)
        store.add_task(ONCE)
        yield store


def some(count: int, round_: int, begin: int = 0) -> Accepted:
    ids = np.frombuffer(b"".join((begin + number).to_bytes(16, "big") for number in range(count)), dtype="V16")
    return Accepted(DAILY, round_, ids, np.ones((count, 1), dtype=np.int64))


def test_counts_are_those_of_all_rounds_and_of_the_latest(store: ServedStore) -> None:
    outcome = store.commit([some(3, 0), some(2, 3)], {("daily", Refusal.CLOSED): 4, (UNKNOWN, Refusal.MALFORMED): 1})
    assert outcome.counted == {"daily": 5}
    store.close_task("daily", 0)
    daily, once = store.counts()
    assert (daily.id, daily.digest, daily.round, daily.latest, daily.counted) == ("daily", DAILY.digest, 3, 2, 5)
    assert (daily.refused, daily.closed, daily.state) == ({Refusal.CLOSED: 4}, 1, TaskState.OPEN)
    assert (once.round, once.latest, once.counted, once.refused, once.closed) == (0, 0, 0, {}, 0)
    assert store.refused() == {Refusal.CLOSED: 4, Refusal.MALFORMED: 1}
    store.close_task("daily")
    assert store.counts()[0].state is TaskState.CLOSED
    assert store.commit([some(3, 3)], {}).counted == {}


def test_a_forgotten_task_has_no_counts(store: ServedStore, place: StorePlace) -> None:
    store.commit([some(3, 0)], {})
    with place.edit() as editor:
        editor.forget("daily")
    assert [count.id for count in store.counts()] == ["once"]


def test_the_version_rises_with_each_transaction_of_anybody_and_lasts(place: StorePlace, store: ServedStore) -> None:
    before = store.version()
    store.commit([some(1, 0)], {})
    store.commit([], {(UNKNOWN, Refusal.MALFORMED): 1})
    assert store.version() == before + 2
    with place.edit() as editor, place.read() as reader:
        editor.close_task("daily")
        assert reader.version() == store.version() == before + 3
    store.close()
    with place.open() as again:
        assert again.version() == before + 3


def test_what_failed_is_no_version(store: ServedStore) -> None:
    before = store.version()
    with pytest.raises(ValueError, match="size"):
        store.commit([Accepted(DAILY, 0, some(2, 0).ids, np.ones((2, 0), dtype=np.int64))], {})
    assert store.version() == before


def test_a_store_that_was_put_back_goes_on_above_every_version_that_it_had(tmp_path: Path) -> None:
    path = tmp_path / "hush.sqlite"
    store = SqliteStore(path)
    store.add_task(DAILY)
    back_up(path, path.with_name("backup"))
    for number in range(5):
        store.commit([some(1, 0, begin=number)], {})
    last = store.version()
    store.close()
    put_back(path.with_name("backup"), path, replace=True)
    with SqliteReader(path) as reader:
        assert reader.version() > last
