"""A process that dies before any of its statements to PostgreSQL, and a disk without room: each report counts once."""

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import psycopg
import pytest
from servers import Postgres
from stores import StorePlace, in_postgres
from waiting import PATIENCE_S

from hush_aggregator.store import Accepted, Limits
from hush_aggregator.store.postgres import PostgresStore
from hush_aggregator.store.postgres_url import PostgresUrl
from hush_common.errors import StoreError
from hush_common.task import make_task
from hush_common.wire import Refusal

pytestmark = pytest.mark.large

NUMBER = {"kind": "number", "lower": 0.0, "upper": 1.0}
KEPT, OTHER = (make_task({"id": name, "epsilon": "1", "domain": NUMBER}) for name in ("kept", "other"))
HELD = make_task({"id": "held", "epsilon": "1", "domain": NUMBER, "release_from": 10})
TASKS = (KEPT, OTHER, HELD)
_LARGE = 10_000


class Killed(BaseException):
    """The process is gone."""


class Fuse:
    """Ends the connection before the n-th command to the server, and lets nothing run after it."""

    def __init__(self, n: int, patch: pytest.MonkeyPatch) -> None:
        self._left, self.burnt = n, False
        wait = psycopg.Connection.wait

        def guarded(connection: Any, *arguments: Any, **options: Any) -> object:  # noqa: ANN401 - psycopg's
            self._left -= 1
            if self._left < 0:
                self.burnt = True
                connection.pgconn.finish()
                raise Killed
            return wait(connection, *arguments, **options)

        patch.setattr(psycopg.Connection, "wait", guarded)


def opened(place: StorePlace) -> PostgresStore:
    assert isinstance(place.address, PostgresUrl)
    deadline = time.monotonic() + PATIENCE_S
    while True:  # until the server has noticed that the former process is gone
        try:
            return PostgresStore(place.address, Limits(10**6))
        except StoreError as error:
            assert "runs" in str(error) or "use" in str(error), error  # noqa: PT017 - another cause is a defect
            assert time.monotonic() < deadline, error  # noqa: PT017 - the name of the worker was never free again


def batches() -> list[list[Accepted]]:
    rng = np.random.default_rng(20_261_123)

    def of(task: int, count: int) -> Accepted:
        ids = np.frombuffer(rng.bytes(16 * count), dtype="V16")
        bodies = rng.integers(-1000, 1000, (count, 1))
        return Accepted(TASKS[task], 0, ids, bodies, senders=[f"s{k % 3}" for k in range(count)])

    return [[of(task, 12) for task in range(3)] for _ in range(3)]


ALL = batches()


def count(store: PostgresStore, done: list[int]) -> None:
    store.add_tasks(TASKS)
    for some in ALL:
        store.commit(some, {(KEPT.id, Refusal.OUT_OF_RANGE): 1})
        store.release([HELD.digest], 1_800_000_000)
        done.append(1)


def close_and_drop(store: PostgresStore, _done: list[int]) -> None:
    store.close_task(OTHER.id)
    while store.drop_reports(OTHER.digest, 0):
        pass


def forget(store: PostgresStore, _done: list[int]) -> None:
    store.forget(OTHER.id)


def what_is_wrong(store: PostgresStore, batches_done: set[int]) -> str:
    """Compare tallies with reports, and these with whole batches."""
    for task in (KEPT, HELD):
        reports = list(store.reports(task.digest, 0))
        tally = store.counted_tally(task.digest, 0)
        if len({one.id for one in reports}) != len(reports):
            return "a report is there twice"
        bodies = [one.body[0] for one in reports]
        if (tally.n, *(tally.moments[:2] or (0, 0))) != (len(bodies), sum(bodies), sum(one * one for one in bodies)):
            return f"{len(bodies)} reports, {tally.n} counted"
        if len(bodies) not in {12 * number for number in batches_done}:
            return f"{len(bodies)} reports, of part of a batch"
    return ""


WORKS = {"count": count, "drop": close_and_drop, "forget": forget}


def killed(server: Postgres, name: str, stride: int) -> tuple[int, list[str]]:
    """Work, dying before every `stride`-th statement in turn; how often it died, and what was wrong afterwards."""
    work, before, deaths, wrong = WORKS[name], 0, 0, list[str]()
    while True:
        with in_postgres(server) as place, pytest.MonkeyPatch.context() as patch:
            if name != "count":
                with opened(place) as first:
                    count(first, [])
            store, done = opened(place), list[int]()
            fuse = Fuse(before, patch)
            with suppress(Killed):
                work(store, done)
            patch.undo()
            store.close()
            with opened(place) as after:
                might = {len(done), len(done) + 1} if name == "count" else {len(ALL)}
                problem = what_is_wrong(after, might)
                work(after, [])  # again, as after a start: everything is sent again
                problem = problem or what_is_wrong(after, {len(ALL)})
                if name == "count":
                    outcome = after.commit([one for some in ALL for one in some], {})
                    problem = problem or ("" if outcome.refused == {Refusal.DUPLICATE: 108} else str(outcome))
                elif list(after.reports(OTHER.digest, 0)):
                    problem = problem or "reports are left"
                wrong += [f"before command {before}: {problem}"] if problem else []
        if not fuse.burnt:
            return deaths, wrong
        deaths += 1
        before += stride


@pytest.mark.parametrize(("name", "stride", "least"), [("count", 29, 4), ("drop", 7, 3), ("forget", 5, 3)])
def test_killed_before_some_commands_each_report_counts_once(
    postgres_server: Postgres, name: str, stride: int, least: int
) -> None:
    deaths, wrong = killed(postgres_server, name, stride)
    assert wrong == []
    assert deaths >= least


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", WORKS)
def test_killed_before_any_command_each_report_counts_once(postgres_server: Postgres, name: str) -> None:
    assert killed(postgres_server, name, 1)[1] == []


def test_planted_a_batch_in_two_transactions_is_wrong_after_a_kill(
    postgres_server: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reports of a batch are committed before its tally."""
    execute = psycopg.Cursor.execute

    def wrong(cursor: Any, query: Any, *arguments: Any, **options: Any) -> object:  # noqa: ANN401 - psycopg's
        if "INSERT INTO tally" in str(query):
            execute(cursor, "COMMIT")
            execute(cursor, "BEGIN")
        return execute(cursor, query, *arguments, **options)

    monkeypatch.setattr(psycopg.Cursor, "execute", wrong)
    assert killed(postgres_server, "count", 7)[1]


def until_refused(store: PostgresStore, batch: Callable[[], Accepted]) -> tuple[int, Accepted, str]:
    """Count until the store refuses; return how many it counted, the batch that it did not, and why."""
    counted = 0
    while True:
        last = batch()
        try:
            counted += store.commit([last], {}).accepted
        except StoreError as error:
            return counted, last, str(error)


def test_a_disk_without_room_refuses_a_batch_and_keeps_every_other(own_postgres_server: Postgres) -> None:
    """No file of the server may grow beyond 18 MiB: a table is full before its log, whose files have 16."""
    server, rng = own_postgres_server, np.random.default_rng(5)

    def batch() -> Accepted:
        ids = np.frombuffer(rng.bytes(16 * _LARGE), dtype="V16")
        return Accepted(KEPT, 0, ids, rng.integers(-1000, 1000, (_LARGE, 1)))

    server.stop()
    server.start(largest_file=18 << 10)
    with in_postgres(server) as place:
        assert isinstance(place.address, PostgresUrl)
        with PostgresStore(place.address) as store:
            store.add_tasks([KEPT])
            counted, last, why = until_refused(store, batch)
            assert "could not extend" in why
            assert counted >= 5 * _LARGE
            assert sum(1 for _ in store.reports(KEPT.digest, 0)) == counted
            assert store.counted_tally(KEPT.digest, 0).n == counted
        server.stop()
        server.start()
        with PostgresStore(place.address) as store:
            assert store.commit([last], {}).accepted == _LARGE
            assert sum(1 for _ in store.reports(KEPT.digest, 0)) == counted + _LARGE
            assert store.counted_tally(KEPT.digest, 0).n == counted + _LARGE
