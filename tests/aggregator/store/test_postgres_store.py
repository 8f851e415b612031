"""What a store in PostgreSQL promises beyond every other: several workers, a lease, a server that fails."""

import os
import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial

import numpy as np
import psycopg
import pytest
from servers import Postgres
from stores import StorePlace, in_postgres
from waiting import PATIENCE_S, wait_until

from hush_aggregator.doctor.check_result import CheckResult, Verdict
from hush_aggregator.doctor.store import check_store
from hush_aggregator.store import Accepted, BrokerMemory, Limits, postgres
from hush_aggregator.store.postgres import PostgresStore
from hush_aggregator.store.postgres_url import PostgresUrl
from hush_common.errors import StoreError, StoreUnavailableError
from hush_common.task import make_task
from hush_common.wire import Refusal

NUMBER = {"kind": "number", "lower": 0.0, "upper": 1.0}
TASKS = [make_task({"id": f"task-{k}", "epsilon": "1", "domain": NUMBER}) for k in range(5)]
HEIGHTS = TASKS[0]


def batch(ids: list[bytes], task: int = 0, senders: list[str] | None = None) -> Accepted:
    bodies = np.array([[int.from_bytes(one[:2], "big") - 30_000] for one in ids], dtype=np.int64)
    return Accepted(TASKS[task], 0, np.frombuffer(b"".join(ids), dtype="V16"), bodies, senders=senders)


def some_ids(rng: np.random.Generator, count: int) -> list[bytes]:
    return [rng.bytes(16) for _ in range(count)]


def store_of(place: StorePlace, worker: str = "1", limits: Limits | None = None) -> PostgresStore:
    assert isinstance(place.address, PostgresUrl)
    return PostgresStore(place.address, limits, worker)


def recount(store: PostgresStore) -> None:
    """See that each tally is that of the reports that are there."""
    for task in TASKS:
        bodies = [report.body[0] for report in store.reports(task.digest, 0)]
        tally = store.tally(task.digest, 0)
        assert (tally.n, *(tally.moments[:2] or (0, 0))) == (len(bodies), sum(bodies), sum(one * one for one in bodies))


@pytest.mark.large
@pytest.mark.parametrize("limits", [None, Limits(10**6)], ids=["without quotas", "with quotas"])
def test_four_workers_with_overlapping_redeliveries_never_block_each_other(
    postgres: StorePlace, limits: Limits | None
) -> None:
    rng = np.random.default_rng(20_261_123)
    ids = [some_ids(rng, 1500) for _ in TASKS]
    with ExitStack() as inside:
        stores = [inside.enter_context(store_of(postgres, str(k), limits)) for k in range(4)]
        counted = [0] * 4

        def work(k: int) -> None:
            mine = np.random.default_rng(k)
            for _ in range(15):
                accepted = []
                for task in mine.permutation(len(TASKS)).tolist():
                    chosen = mine.choice(1500, 300, replace=False).tolist()
                    senders = [f"device-{place % 50}" for place in chosen] if limits else None
                    accepted.append(batch([ids[task][place] for place in chosen], task, senders))
                counted[k] += stores[k].commit(accepted, {("task-1", Refusal.MALFORMED): 1}).accepted

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(work, range(4)))
        assert sum(counted) == sum(stores[0].tally(task.digest, 0).n for task in TASKS) == len(set(postgres.ids()))
        assert stores[0].refusals("task-1")[Refusal.MALFORMED] == 60
        recount(stores[0])


def test_a_planted_tally_that_all_workers_share_is_found(postgres: StorePlace, monkeypatch: pytest.MonkeyPatch) -> None:
    """Had workers one row of a tally together, one would overwrite what another has added."""
    rng = np.random.default_rng(7)
    monkeypatch.setattr(PostgresStore, "_add_to_tallies", _add_to_one_row(PostgresStore._add_to_tallies))
    with store_of(postgres, "1") as one, store_of(postgres, "2") as two:
        one.commit([batch(some_ids(rng, 5))], {})
        two.commit([batch(some_ids(rng, 5))], {})
        with pytest.raises(AssertionError):
            recount(one)


def _add_to_one_row(add: object) -> object:
    def planted(store: PostgresStore, run: object, folded: object) -> None:
        own, store._worker = store._worker, "all"
        try:
            before, postgres._read_tallies = postgres._read_tallies, lambda *_: {}
            add(store, run, folded)  # type: ignore[operator]
        finally:
            store._worker, postgres._read_tallies = own, before

    return planted


def test_a_mark_waits_for_what_is_being_counted_and_what_follows_sees_it(postgres: StorePlace) -> None:
    rng = np.random.default_rng(3)
    ids = some_ids(rng, 20)
    with store_of(postgres) as store, store_of(postgres, "2") as other, postgres.edit() as command:
        store.add_task(HEIGHTS)
        store.commit([batch(ids[:5])], {})
        assert isinstance(postgres.address, PostgresUrl)
        with postgres.address.connect() as slow, slow.transaction():  # a batch that is being counted
            slow.execute("LOCK TABLE closed IN SHARE MODE")
            closing = threading.Thread(target=command.close_task, args=("task-0",))
            closing.start()
            wait_until(partial(_somebody_waits, slow))
            assert not other.is_closed(HEIGHTS.digest)
        closing.join(60)
        outcome = other.commit([batch(ids)], {})
        assert (outcome.accepted, outcome.refused) == (0, {Refusal.DUPLICATE: 5, Refusal.CLOSED: 15})


def test_a_worker_that_stops_within_a_transaction_holds_up_the_others_for_some_seconds_only(
    postgres: StorePlace,
) -> None:
    """A mark that waits for its lock keeps every later batch waiting, and with it the thread that renews the lease."""
    ids = some_ids(np.random.default_rng(4), 20)
    with store_of(postgres) as stopped, store_of(postgres, "2") as other, postgres.edit() as command:
        stopped.add_task(HEIGHTS)
        stopped.add_task(TASKS[1])
        ends = pytest.raises(StoreUnavailableError, match="idle-in-transaction")
        with ends, stopped._transaction() as run:
            run.execute("LOCK TABLE closed IN SHARE MODE")
            closing = threading.Thread(target=command.close_task, args=("task-0",), daemon=True)
            closing.start()
            wait_until(partial(_somebody_waits, run))
            began = time.monotonic()
            counting = threading.Thread(target=other.commit, args=([batch(ids, 1)], {}), daemon=True)
            counting.start()
            counting.join(PATIENCE_S)
            assert not counting.is_alive()
            assert time.monotonic() - began > 0.5, "it waited for nothing"
        closing.join(60)
        assert stopped.is_closed(HEIGHTS.digest)  # over a new connection
        assert stopped.commit([batch(ids, 1)], {}).refused == {Refusal.DUPLICATE: 20}


def _somebody_waits(run: psycopg.Connection) -> bool:
    """Whether another connection waits for the lock that this one has."""
    query = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'closed'::regclass"
    return run.execute(query).fetchone() == (1,)


def test_series_beyond_the_partitions_count_as_well_and_can_be_forgotten(
    postgres: StorePlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hush_aggregator.store import postgres as module  # noqa: PLC0415 - the fixture has its name

    monkeypatch.setattr(module, "_PARTITIONS", 3)
    monkeypatch.setattr(module, "_DELETED", 4)
    rng = np.random.default_rng(5)
    ids = [some_ids(rng, 10) for _ in TASKS]
    with store_of(postgres) as store, postgres.edit() as command:
        store.add_tasks(TASKS)
        for _ in range(2):
            store.commit([batch(ids[k], k) for k in range(5)], {})
        recount(store)
        assert len(postgres.ids()) == 50
        for name, left in (("task-0", 40), ("task-4", 30)):
            command.forget(name)
            assert len(postgres.ids()) == left
        outcome = store.commit([batch(ids[k], k) for k in range(5)], {})
        assert (outcome.accepted, outcome.refused) == (0, {Refusal.DUPLICATE: 30, Refusal.CLOSED: 20})


def test_the_lease_has_one_holder_and_its_number_rises_with_each_new_one(postgres: StorePlace) -> None:
    before = int(time.time())
    with store_of(postgres, "a") as one, store_of(postgres, "b") as two:
        assert one.lease() == ("", 0)
        first = one.take_lease(30)
        assert first is not None
        assert first >= before
        assert (two.take_lease(30), one.take_lease(30)) == (None, first)
        assert two.lease() == ("a", first)
        two.release_lease()  # not its own
        assert one.lease() == ("a", first)
        one.release_lease()
        second = two.take_lease(0.05)
        assert second is not None
        assert (second > first, two.lease()[1]) == (True, second)
        time.sleep(0.1)
        assert two.lease() == ("", second)
        third = two.take_lease(0.05)  # it had ended: what was published under it may have been replaced
        time.sleep(0.1)
        fourth = one.take_lease(30)
        assert third is not None
        assert fourth is not None
        assert second < third < fourth


@pytest.mark.parametrize("ahead", [0, 10**6])
def test_the_number_of_a_lease_rises_after_the_database_was_put_back(postgres: StorePlace, ahead: int) -> None:
    """A schema that is restored has an earlier number; a clock that is set back gives one more than the last."""
    with store_of(postgres, "a") as store:
        published = store.take_lease(0)
        assert published is not None
        assert isinstance(postgres.address, PostgresUrl)
        with postgres.address.connect() as there:
            there.execute("UPDATE lease SET number = %s", (published + ahead if ahead else 3,))
        wait_until(lambda: (store.take_lease(0) or 0) > published + ahead)


def test_what_one_worker_hears_of_the_broker_every_worker_knows(postgres: StorePlace) -> None:
    """Its session is its own; a clock that was ahead when it listened is not the latest word."""
    now = int(time.time())
    with store_of(postgres, "a") as one, store_of(postgres, "b") as two, store_of(postgres, "c") as third:
        assert one.broker() == BrokerMemory()
        two.recall([], BrokerMemory(session=True, started=now - 9000, alive=now - 500, dropped=2))
        one.recall([], BrokerMemory(session=True, started=now - 400, alive=now - 5, dropped=7))
        third.recall([], BrokerMemory(session=False, started=now + 8000, alive=now + 9000, dropped=1))
        assert one.broker() == two.broker() == BrokerMemory(session=True, started=now - 400, alive=now - 5, dropped=7)
        assert third.broker() == BrokerMemory(session=False, started=now - 400, alive=now - 5, dropped=7)
        one.recall([], BrokerMemory(session=True))  # a broker that made a new session: nothing is known of it yet
        assert two.broker().started == now - 9000


@pytest.mark.large
def test_a_server_that_dies_at_any_moment_loses_nothing_that_was_acknowledged(own_postgres_server: Postgres) -> None:
    """Also where it died while it committed, so that nobody knows whether the batch was counted."""
    rng = np.random.default_rng(11)
    with in_postgres(own_postgres_server) as place, store_of(place) as store:
        acknowledged: list[bytes] = []
        refused = 0
        for k in range(6):
            stop = threading.Timer(0.05 + 0.03 * k, own_postgres_server.stop, ["immediate"])
            stop.start()
            pending: list[bytes] = []
            try:
                while True:
                    pending = some_ids(rng, 50)
                    store.commit([batch(pending)], {})
                    acknowledged += pending
            except StoreError as error:
                assert "delivered again" in str(error)  # noqa: PT017 - it ends the loop
                refused += 1
            stop.join()
            own_postgres_server.start()
            there = set(place.ids())
            assert set(acknowledged) <= there <= {*acknowledged, *pending}
            outcome = store.commit([batch(pending)], {})
            assert outcome.accepted + outcome.refused.get(Refusal.DUPLICATE, 0) == 50
            acknowledged += pending
        assert refused == 6
        assert sorted(place.ids()) == sorted(acknowledged)
        recount(store)


def test_a_batch_whose_commit_got_no_answer_counts_once(postgres: StorePlace, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server has committed, and the connection breaks before it can say so."""
    rng = np.random.default_rng(13)
    ids = some_ids(rng, 30)
    with store_of(postgres) as store:
        store.commit([batch(ids[:3])], {})
        leave = psycopg.Transaction._commit_gen

        def breaking(transaction: psycopg.Transaction) -> object:
            yield from leave(transaction)
            with socket.fromfd(transaction.connection.pgconn.socket, socket.AF_INET, socket.SOCK_STREAM) as broken:
                broken.shutdown(socket.SHUT_RDWR)
            raise psycopg.OperationalError("server closed the connection unexpectedly")

        monkeypatch.setattr(psycopg.Transaction, "_commit_gen", breaking)
        with pytest.raises(StoreError, match="delivered again"):
            store.commit([batch(ids)], {})
        monkeypatch.undo()
        for _ in range(1000):  # until the server has noticed that its client is gone
            try:
                outcome = store.commit([batch(ids)], {})
                break
            except StoreError:
                time.sleep(0.05)
        assert (outcome.accepted, outcome.refused) == (0, {Refusal.DUPLICATE: 30})
        recount(store)


def test_after_a_restore_or_a_fail_over_the_store_says_so_and_its_version_rises(postgres: StorePlace) -> None:
    with store_of(postgres) as store:
        before = store.version()
        assert not store.restored
    assert isinstance(postgres.address, PostgresUrl)
    with postgres.address.connect() as there:  # as it is in a copy that another cluster has
        there.execute("UPDATE meta SET place = 'elsewhere'")
    with store_of(postgres) as store:
        assert store.restored
        assert store.version() > before + 2**31
        store.reacted_to_restoring()
    with store_of(postgres) as store:
        assert not store.restored


def test_a_store_opens_although_the_server_has_not_noticed_the_end_of_the_last_connection(
    postgres: StorePlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = store_of(postgres)
    pause = "hush_aggregator.store.postgres.time.sleep"
    monkeypatch.setattr(pause, lambda _: first.close())  # the server notices the end in the first pause
    store_of(postgres).close()


def test_no_password_is_printed(postgres_server: Postgres) -> None:
    port = postgres_server.port
    wrong = [
        f"postgresql://hush:s3cret@127.0.0.1:{port}/none",
        "postgresql://hush:s3cret@127.0.0.1:1/postgres",
        "postgresql://hush:s3cret@[::1/postgres",
        "postgresql://hush:s3cret@/postgres?nonsense=1",
        "postgresql://hush:s3cret@127.0.0.1",
        "postgresql://hush:s3cret@127.0.0.1/postgres?schema=a;b",
        "postgresql://hush:s3cr@et@127.0.0.1:port/postgres",
    ]
    for text in wrong:
        with pytest.raises(StoreError) as caught:
            PostgresStore(PostgresUrl.parse(text))
        assert "s3c" not in str(caught.value)
    assert "s3c" not in repr(PostgresUrl.parse(wrong[0])) + str(PostgresUrl.parse(wrong[0]))


def test_a_server_elsewhere_has_to_prove_its_name(postgres_server: Postgres) -> None:
    modes = {
        "postgresql://h@db.example/x": "verify-full",
        "postgresql://h@db.example/x?sslmode=require": "require",
        "postgresql://h@10.0.0.7/x": "verify-full",
        "postgresql://h@localhost/x": None,
        "postgresql://h@127.0.0.1/x": None,
        "postgresql:///x": None,
        "postgresql://h@%2Frun%2Fpostgresql/x": None,
        "postgresql://h@127.0.0.1,db.example/x": "verify-full",
    }
    assert {text: PostgresUrl.parse(text).options.get("sslmode") for text in modes} == modes
    with pytest.raises(StoreError, match="SSL"):
        PostgresStore(PostgresUrl.parse(f"{postgres_server.url}?sslmode=verify-full&sslrootcert=system"))


def test_tables_of_another_program_or_version_are_refused(postgres: StorePlace) -> None:
    assert isinstance(postgres.address, PostgresUrl)
    with postgres.address.connect() as other:
        other.execute(f"CREATE SCHEMA {postgres.address.schema}")
        other.execute("CREATE TABLE contacts (name text)")
    with pytest.raises(StoreError, match="has tables of another program; name another"):
        store_of(postgres)
    with pytest.raises(StoreError, match="has no store of hush"):
        postgres.read()
    with postgres.address.connect() as other:
        other.execute("DROP TABLE contacts")
    with store_of(postgres), postgres.address.connect() as later:
        later.execute("UPDATE meta SET schema_version = 2")
    with pytest.raises(StoreError, match="written by another hush"):
        store_of(postgres)


def test_a_worker_that_is_stopped_by_force_leaves_its_name_free(postgres: StorePlace) -> None:
    child = os.fork()
    if not child:
        store_of(postgres)
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    deadline = time.monotonic() + 60
    while True:
        try:
            store_of(postgres).close()
            break
        except StoreError:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_the_doctor_names_the_workers_that_run_and_those_that_do_not(postgres: StorePlace) -> None:
    def said() -> dict[str, CheckResult]:
        return {one.check: one for one in check_store(postgres.address, datetime.now(UTC))}

    with store_of(postgres, "b") as store:
        with store_of(postgres, "a"):
            store.take_lease(30)
            assert (said()["workers"].verdict, said()["service"].figures) == (Verdict.OK, {"running": True})
            assert "workers a, b running; b publishes, under lease" in said()["workers"].detail
        away = said()["workers"]
        assert (away.verdict, away.figures["away"]) == (Verdict.WARNING, 1)
        assert away.detail.endswith("not running: worker a")
    assert said()["service"].verdict is Verdict.WARNING
    assert "workers" not in said()


def test_no_time_and_no_sender_is_stored(postgres: StorePlace) -> None:
    with store_of(postgres), postgres.edit():
        pass
    assert isinstance(postgres.address, PostgresUrl)
    with postgres.address.connect() as there:
        query = "SELECT column_name FROM information_schema.columns WHERE table_schema = %s AND table_name LIKE %s"
        columns = {row[0] for row in there.execute(query, (postgres.address.schema, "report%")).fetchall()}
    assert columns == {"part", "series", "id", "body"}


def test_of_two_workers_one_makes_each_release(postgres: StorePlace) -> None:
    rng = np.random.default_rng(1)
    slow = make_task({"id": "slow", "epsilon": "1", "domain": NUMBER, "release_from": 5, "release_every": "1h"})

    def count(store: PostgresStore, n: int) -> None:
        ids = np.frombuffer(rng.bytes(16 * n), dtype="V16")
        store.commit([Accepted(slow, 0, ids, np.ones((n, 1), dtype=np.int64))], {})

    with store_of(postgres, "1") as one, store_of(postgres, "2") as two, ThreadPoolExecutor(2) as pool:
        one.add_task(slow)
        for hour in range(1, 6):
            count(one, 2)
            count(two, 1)
            done = [*pool.map(lambda store, at=hour * 3600: store.release([slow.digest], at), (one, two))]
            assert sorted(map(len, done)) == [0, 1]
            assert one.tally(slow.digest, 0).n == (3 * hour if hour > 1 else 0)


def test_a_round_is_dropped_while_two_workers_count(postgres: StorePlace) -> None:
    rng = np.random.default_rng(2)
    ids = some_ids(rng, 3000)
    with store_of(postgres, "1") as one, store_of(postgres, "2") as two:
        one.add_tasks(TASKS)
        stop, counted, late = threading.Event(), [0, 0], [0]

        def work(store: PostgresStore) -> None:
            mine = np.random.default_rng(int(store.identity[:8], 16))
            while not stop.is_set():
                some = [ids[k] for k in mine.choice(3000, 50, replace=False).tolist()]
                was_closed = store.is_closed(HEIGHTS.digest, 0)
                for task in range(2):
                    new = store.commit([batch(some, task)], {}).accepted
                    counted[task] += new
                    late[0] += new if was_closed and task == 0 else 0

        with ThreadPoolExecutor(2) as pool, store_of(postgres, "3") as third:
            running = [pool.submit(work, store) for store in (one, two)]
            time.sleep(0.5)
            while third.drop_reports(HEIGHTS.digest, 0):
                time.sleep(0.1)
            time.sleep(0.3)
            stop.set()
            for work_of in running:
                work_of.result()
        assert late == [0]
        assert counted == [one.tally(task.digest, 0).n for task in TASKS[:2]]
        assert not list(one.reports(HEIGHTS.digest, 0))
        assert len(list(one.reports(TASKS[1].digest, 0))) == counted[1]
        assert len(postgres.ids()) == counted[1]
