"""What a store in PostgreSQL promises beyond every other: several workers, a lease, a server that fails."""

import os
import secrets
import signal
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import psycopg
import pytest
from psycopg.pq import TransactionStatus
from servers import Postgres
from stores import StorePlace
from waiting import PATIENCE_S, wait_until

from hush_aggregator.ops.doctor.check_result import Verdict
from hush_aggregator.ops.doctor.store import check_store
from hush_aggregator.store import Accepted, BrokerMemory, Limits
from hush_aggregator.store import postgres as postgres_module
from hush_aggregator.store.postgres import PostgresStore
from hush_aggregator.store.postgres_url import PostgresUrl
from hush_common.errors import StoreError, StoreUnavailableError, UnknownCommitError
from hush_common.task import make_task
from hush_common.wire import Refusal

pytestmark = pytest.mark.large

NUMBER = {"kind": "number", "lower": 0.0, "upper": 1.0}
TASKS = [make_task({"id": f"task-{k}", "title": "Größe, 身長", "epsilon": "1", "domain": NUMBER}) for k in range(5)]
HEIGHTS = TASKS[0]


def batch(ids: list[bytes], task: int = 0, senders: list[str] | None = None) -> Accepted:
    bodies = np.array([[int.from_bytes(one[:2], "big") - 30_000] for one in ids], dtype=np.int64)
    return Accepted(TASKS[task], 0, np.frombuffer(b"".join(ids), dtype="V16"), bodies, senders=senders)


def some_ids(count: int, seed: int = 1) -> list[bytes]:
    rng = np.random.default_rng(seed)
    return [rng.bytes(16) for _ in range(count)]


def url_of(place: StorePlace) -> PostgresUrl:
    assert isinstance(place.address, PostgresUrl)
    return place.address


def store_of(place: StorePlace, worker: str = "1", limits: Limits | None = None) -> PostgresStore:
    return PostgresStore(url_of(place), limits, worker)


def check_tallies(store: PostgresStore) -> None:
    """Each tally is that of the reports that are there."""
    for task in TASKS:
        bodies = [report.body[0] for report in store.reports(task.digest, 0)]
        tally = store.tally(task.digest, 0)
        assert (tally.n, *(tally.moments[:2] or (0, 0))) == (len(bodies), sum(bodies), sum(one * one for one in bodies))


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> list[psycopg.Connection[Any]]:
    """The connections that stores make from now on."""
    found, connect = list[psycopg.Connection[Any]](), PostgresUrl.connect

    def connected(url: PostgresUrl) -> psycopg.Connection[Any]:
        found.append(connect(url))
        return found[-1]

    monkeypatch.setattr(PostgresUrl, "connect", connected)
    return found


# Several workers


@pytest.mark.parametrize("limits", [None, Limits(10**6)], ids=["without quotas", "with quotas"])
def test_four_workers_count_what_is_redelivered_to_all_of_them_once(
    postgres: StorePlace, limits: Limits | None
) -> None:
    ids = [some_ids(1500, task) for task in range(len(TASKS))]
    with ExitStack() as inside:
        stores = [inside.enter_context(store_of(postgres, str(k), limits)) for k in range(4)]

        def work(k: int) -> int:
            mine, counted = np.random.default_rng(k), 0
            for _ in range(12):
                accepted = []
                for task in mine.permutation(len(TASKS)).tolist():
                    chosen = mine.choice(1500, 300, replace=False).tolist()
                    senders = [f"device-{place % 50}" for place in chosen] if limits else None
                    accepted.append(batch([ids[task][place] for place in chosen], task, senders))
                counted += stores[k].commit(accepted, {("task-1", Refusal.MALFORMED): 1}).accepted
            return counted

        with ThreadPoolExecutor(4) as pool:
            counted = sum(pool.map(work, range(4)))
        assert counted == sum(stores[0].tally(task.digest, 0).n for task in TASKS) == len(set(postgres.ids()))
        assert stores[0].refusals("task-1")[Refusal.MALFORMED] == 48
        check_tallies(stores[0])


def somebody_waits(run: psycopg.Connection[Any]) -> bool:
    """Whether another connection waits for the lock of marks."""
    query = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'closed'::regclass"
    return run.execute(query).fetchone() == (1,)


def test_a_mark_waits_for_what_is_counted_and_later_batches_see_it(postgres: StorePlace) -> None:
    ids = some_ids(20)
    with store_of(postgres) as store, store_of(postgres, "2") as other, postgres.edit() as command:
        store.add_task(HEIGHTS)
        store.commit([batch(ids[:5])], {})
        with url_of(postgres).connect() as slow, slow.transaction():  # a batch that is being counted
            slow.execute("LOCK TABLE closed IN SHARE MODE")
            closing = threading.Thread(target=command.close_task, args=("task-0",))
            closing.start()
            wait_until(partial(somebody_waits, slow))
            assert not other.is_closed(HEIGHTS.digest)
        closing.join(PATIENCE_S)
        outcome = other.commit([batch(ids)], {})
        assert (outcome.accepted, outcome.refused) == (0, {Refusal.DUPLICATE: 5, Refusal.CLOSED: 15})


def test_a_worker_that_stops_within_a_transaction_does_not_block_others(
    postgres: StorePlace, connections: list[psycopg.Connection[Any]]
) -> None:
    """A mark that waits for its lock keeps every later batch waiting, and with it the thread that renews the lease."""
    ids = some_ids(20)
    with store_of(postgres) as stopped, store_of(postgres, "2") as other, postgres.edit() as command:
        stopped.add_tasks(TASKS[:2])
        held = connections[0]
        held.execute("BEGIN")
        held.execute("LOCK TABLE closed IN SHARE MODE")
        closing = threading.Thread(target=command.close_task, args=("task-0",), daemon=True)
        closing.start()
        with url_of(postgres).connect() as looking:
            wait_until(partial(somebody_waits, looking))
        counting = threading.Thread(target=other.commit, args=([batch(ids, 1)], {}), daemon=True)
        counting.start()
        for thread in (counting, closing):
            thread.join(PATIENCE_S)
            assert not thread.is_alive()
        with suppress(StoreUnavailableError):  # the server has ended its connection
            stopped.is_closed(HEIGHTS.digest)
        assert stopped.is_closed(HEIGHTS.digest)  # over a new connection
        assert stopped.commit([batch(ids, 1)], {}).refused == {Refusal.DUPLICATE: 20}


def test_series_beyond_the_partitions_count_and_can_be_forgotten(postgres: StorePlace) -> None:
    ids = [some_ids(10, task) for task in range(len(TASKS))]
    with store_of(postgres) as store, postgres.edit() as command:
        postgres.execute("ALTER TABLE series ALTER COLUMN series RESTART WITH 998")
        store.add_tasks(TASKS)
        for _ in range(2):
            store.commit([batch(ids[k], k) for k in range(5)], {})
        check_tallies(store)
        assert len(postgres.ids()) == 50
        for name, left in (("task-0", 40), ("task-4", 30)):
            command.forget(name)
            assert len(postgres.ids()) == left
        outcome = store.commit([batch(ids[k], k) for k in range(5)], {})
        assert (outcome.accepted, outcome.refused) == (0, {Refusal.DUPLICATE: 30, Refusal.CLOSED: 20})


def test_a_round_is_dropped_while_two_workers_count(postgres: StorePlace) -> None:
    ids, stop = some_ids(3000), threading.Event()
    with store_of(postgres, "1") as one, store_of(postgres, "2") as two, store_of(postgres, "3") as third:
        one.add_tasks(TASKS)
        counted, late, rounds = Counts(), Counts(), Counts()

        def work(store: PostgresStore, seed: int) -> None:
            mine = np.random.default_rng(seed)
            while not stop.is_set():
                some = [ids[k] for k in mine.choice(3000, 50, replace=False).tolist()]
                was_closed = store.is_closed(HEIGHTS.digest, 0)
                for task in range(2):
                    new = store.commit([batch(some, task)], {}).accepted
                    counted.add(task, new)
                    late.add(task, new if was_closed else 0)
                rounds.add(0, 1)

        def go_on() -> None:
            before = rounds[0]
            wait_until(lambda: rounds[0] > before + 4)

        with ThreadPoolExecutor(2) as pool:
            running = [pool.submit(work, store, seed) for seed, store in enumerate((one, two))]
            try:
                go_on()
                while third.drop_reports(HEIGHTS.digest, 0):
                    go_on()
                go_on()
            finally:
                stop.set()
            for done in running:
                done.result()
        assert late[0] == 0
        assert [counted[0], counted[1]] == [one.tally(task.digest, 0).n for task in TASKS[:2]]
        assert not list(one.reports(HEIGHTS.digest, 0))
        assert len(list(one.reports(TASKS[1].digest, 0))) == len(postgres.ids()) == counted[1]


class Counts(dict[int, int]):
    """Numbers to which several threads add."""

    def __init__(self) -> None:
        super().__init__({0: 0, 1: 0})
        self._turn = threading.Lock()

    def add(self, key: int, more: int) -> None:
        with self._turn:
            self[key] += more


def test_of_two_workers_one_makes_each_release(postgres: StorePlace) -> None:
    slow = make_task({"id": "slow", "epsilon": "1", "domain": NUMBER, "release_from": 5, "release_every": "1h"})

    def count(store: PostgresStore, n: int) -> None:
        ids = np.frombuffer(secrets.token_bytes(16 * n), dtype="V16")
        store.commit([Accepted(slow, 0, ids, np.ones((n, 1), dtype=np.int64))], {})

    with store_of(postgres, "1") as one, store_of(postgres, "2") as two, ThreadPoolExecutor(2) as pool:
        one.add_task(slow)
        for hour in range(1, 6):
            count(one, 2)
            count(two, 1)
            done = [*pool.map(lambda store, at=hour * 3600: store.release([slow.digest], at), (one, two))]
            assert sorted(map(len, done)) == [0, 1]
            assert one.tally(slow.digest, 0).n == (3 * hour if hour > 1 else 0)


# The lease


def test_the_lease_has_one_holder_and_its_number_rises(postgres: StorePlace) -> None:
    with store_of(postgres, "a") as one, store_of(postgres, "b") as two:
        assert one.lease() == ("", 0)
        first = one.take_lease(600) or 0
        assert (two.take_lease(600), one.take_lease(600)) == (None, first)
        assert two.lease() == ("a", first)
        two.release_lease()  # not its own
        assert one.lease() == ("a", first)
        one.release_lease()
        numbers = [first]
        for taker in (two, two, one):  # the same worker, too: what was published under it may have been replaced
            numbers.append(taker.take_lease(0.05) or 0)
            wait_until(lambda: one.lease()[0] == "")
            assert two.lease() == ("", numbers[-1])
        assert 0 < numbers[0] < numbers[1] < numbers[2] < numbers[3]


@pytest.mark.parametrize("ahead", [0, 10**6])
def test_a_lease_number_rises_after_the_database_was_put_back(postgres: StorePlace, ahead: int) -> None:
    """A schema that is restored has an earlier number; a clock that is set back gives one more than the last."""
    with store_of(postgres, "a") as store:
        published = store.take_lease(0) or 0
        postgres.execute(f"UPDATE lease SET number = {published + ahead if ahead else 3}")  # noqa: S608 - a number
        wait_until(lambda: (store.take_lease(0) or 0) > published + ahead)


def test_what_one_worker_hears_of_the_broker_every_worker_knows(postgres: StorePlace) -> None:
    """Its session is its own; a clock that was ahead when it listened is not the latest word."""
    now = int(datetime.now(UTC).timestamp())
    with store_of(postgres, "a") as one, store_of(postgres, "b") as two, store_of(postgres, "c") as third:
        assert one.broker() == BrokerMemory()
        two.recall([], BrokerMemory(session=True, started=now - 9000, alive=now - 500, dropped=2))
        one.recall([], BrokerMemory(session=True, started=now - 400, alive=now - 5, dropped=7))
        third.recall([], BrokerMemory(session=False, started=now + 8000, alive=now + 9000, dropped=1))
        assert one.broker() == two.broker() == BrokerMemory(session=True, started=now - 400, alive=now - 5, dropped=7)
        assert third.broker() == BrokerMemory(session=False, started=now - 400, alive=now - 5, dropped=7)
        one.recall([], BrokerMemory(session=True))  # a broker that made a new session: nothing is known of it yet
        assert two.broker().started == now - 9000


# A server that fails


def test_a_server_that_dies_loses_nothing_that_was_acknowledged(own_postgres_server: Postgres) -> None:
    """Also where it died while it committed, so that nobody knows whether the batch was counted."""
    place = StorePlace(PostgresUrl.parse(own_postgres_server.url))
    with store_of(place) as store:
        acknowledged: list[bytes] = []
        for k in range(3):
            stop = threading.Timer(0.05 + 0.03 * k, own_postgres_server.stop, ["immediate"])
            stop.start()
            pending: list[bytes] = []
            with suppress(StoreError):
                while True:
                    pending = [secrets.token_bytes(16) for _ in range(50)]
                    store.commit([batch(pending)], {})
                    acknowledged += pending
            stop.join()
            own_postgres_server.start()
            assert set(acknowledged) <= set(place.ids()) <= {*acknowledged, *pending}
            outcome = store.commit([batch(pending)], {})
            assert outcome.accepted + outcome.refused.get(Refusal.DUPLICATE, 0) == 50
            acknowledged += pending
        assert sorted(place.ids()) == sorted(acknowledged)
        check_tallies(store)


@pytest.fixture(params=["before", "after"])
def lose(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Lose the connection before or after the server commits; call it to let the next commit do so."""
    wait, armed = psycopg.Connection.wait, [False]

    def wait_for(self: Any, generator: Any, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401 - psycopg's
        ends = "exit" in generator.__qualname__ and self.info.transaction_status is TransactionStatus.INTRANS
        if not (armed[0] and ends):
            return wait(self, generator, *arguments, **options)
        armed[0] = False
        if request.param == "after":
            wait(self, generator, *arguments, **options)
        self.pgconn.finish()
        raise psycopg.OperationalError("planted")

    monkeypatch.setattr(psycopg.Connection, "wait", wait_for)
    return lambda: armed.__setitem__(0, True)


def test_a_commit_whose_answer_is_lost_counts_once(postgres: StorePlace, lose: Callable[[], None]) -> None:
    some, refused = batch(some_ids(12)), {("task-0", Refusal.CLOSED): 3}
    with store_of(postgres) as store:
        store.add_tasks([HEIGHTS])
        store.commit([batch(some_ids(1, 2))], {})
        lose()
        outcome = None
        with suppress(StoreUnavailableError):  # nothing was committed
            outcome = store.commit([some], refused)
        outcome = outcome or store.commit([some], refused)
        assert (outcome.accepted, outcome.refused) == (12, {Refusal.CLOSED: 3})
        assert store.counted_tally(HEIGHTS.digest, 0).n == len(postgres.ids()) == 13
        assert store.refusals("task-0") == {Refusal.CLOSED: 3}
        check_tallies(store)


def test_a_command_whose_commit_has_no_answer_can_be_repeated(postgres: StorePlace, lose: Callable[[], None]) -> None:
    with store_of(postgres) as store:
        store.add_tasks([HEIGHTS])
    with postgres.edit() as editor:
        lose()
        with pytest.raises(UnknownCommitError, match="repeat"):
            editor.close_task("task-0")
        editor.close_task("task-0")
        assert editor.is_closed(HEIGHTS.digest)


def test_a_commit_to_a_server_that_stays_away_is_not_repeated(
    postgres: StorePlace, lose: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    passed = [0.0]
    clock = SimpleNamespace(monotonic=lambda: passed[0], sleep=lambda seconds: passed.append(passed.pop() + seconds))

    def unavailable(_: PostgresUrl) -> None:
        raise StoreUnavailableError("connection refused")

    with store_of(postgres) as store, monkeypatch.context() as patch:
        store.add_tasks([HEIGHTS])
        store.commit([batch(some_ids(1, 2))], {})
        lose()
        patch.setattr(postgres_module, "time", clock)
        patch.setattr(PostgresUrl, "connect", unavailable)
        with pytest.raises(UnknownCommitError, match="refused"):
            store.commit([batch(some_ids(12))], {})
    assert passed[0] > 5


def test_a_restore_or_a_fail_over_is_noticed_and_the_version_rises(postgres: StorePlace) -> None:
    with store_of(postgres) as store:
        before = store.version()
        assert not store.restored
    postgres.execute("UPDATE meta SET place = 'elsewhere'")  # as it is in a copy that another cluster has
    with store_of(postgres) as store:
        assert store.restored
        assert store.version() > before + 2**31
        store.reacted_to_restoring()
    with store_of(postgres) as store:
        assert not store.restored


def test_a_worker_that_was_killed_leaves_its_name_free(postgres: StorePlace) -> None:
    child = os.fork()
    if not child:
        store_of(postgres)
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)

    def opens() -> bool:
        with suppress(StoreError):
            store_of(postgres).close()
            return True
        return False

    wait_until(opens)


# Roles, databases and addresses

DEFAULTS = {
    "default_transaction_isolation": "'serializable'",
    "default_transaction_read_only": "on",
    "client_encoding": "'LATIN1'",
    "statement_timeout": "'1ms'",
    "lock_timeout": "'1ms'",
    "idle_session_timeout": "'10s'",
    "idle_in_transaction_session_timeout": "'10s'",
    "extra_float_digits": "-15",
    "bytea_output": "'escape'",
    "search_path": "'nowhere'",
    "standard_conforming_strings": "off",
    "synchronous_commit": "off",
    "datestyle": "'German'",
    "timezone": "'Asia/Kathmandu'",
}


@pytest.fixture
def database(postgres_server: Postgres) -> Callable[[str, Mapping[str, str]], PostgresUrl]:
    """Makes a database with an encoding, and a role with defaults that owns it."""

    def made(encoding: str, defaults: Mapping[str, str]) -> PostgresUrl:
        name = f"d{secrets.token_hex(4)}"
        with psycopg.connect(postgres_server.url, autocommit=True) as connection:
            for statement in (
                f"CREATE ROLE {name} LOGIN",
                *(f"ALTER ROLE {name} SET {setting} = {value}" for setting, value in defaults.items()),
                f"CREATE DATABASE {name} OWNER {name} TEMPLATE template0 ENCODING '{encoding}' LOCALE 'C'",
            ):
                connection.execute(statement.encode())
        server = f"127.0.0.1:{postgres_server.port}"
        return PostgresUrl.parse(f"postgresql://{name}@{server}/{name}?client_encoding=SQL_ASCII")

    return made


@pytest.mark.parametrize("encoding", ["UTF8", "LATIN1", "EUC_JP"])
def test_defaults_of_a_role_and_of_a_database_change_nothing(
    database: Callable[[str, Mapping[str, str]], PostgresUrl],
    encoding: str,
    connections: list[psycopg.Connection[Any]],
) -> None:
    place, ids = StorePlace(database(encoding, DEFAULTS)), some_ids(12)
    with store_of(place) as store, store_of(place, "2") as other:
        store.add_tasks([HEIGHTS])
        assert store.commit([batch(ids)], {("task-0", Refusal.CLOSED): 3}).accepted == 12
        assert other.commit([batch(ids)], {}).refused == {Refusal.DUPLICATE: 12}
        check_tallies(store)
        for name, value in (("default_transaction_isolation", "read committed"), ("synchronous_commit", "on")):
            assert connections[0].execute(f"SHOW {name}".encode()).fetchone() == (value,)
    with url_of(place).connect() as connection:
        limits = [name for name in DEFAULTS if name.endswith("_timeout")]
        query = "SELECT name FROM pg_settings WHERE name = ANY(%s) AND setting <> '0'"
        assert connection.execute(query, (limits,)).fetchall() == []
    with place.read() as reader:
        assert reader.tasks() == [HEIGHTS.payload]
        assert reader.refusals("task-0") == {Refusal.CLOSED: 3, Refusal.DUPLICATE: 12}


def test_a_database_without_an_encoding_is_refused_and_stays_empty(
    database: Callable[[str, Mapping[str, str]], PostgresUrl],
) -> None:
    place = StorePlace(database("SQL_ASCII", {}))
    for attempt in (place.open, place.read, partial(PostgresStore.unfinished, url_of(place))):
        with pytest.raises(StoreError, match=r"SQL_ASCII.*UTF8") as raised:
            attempt()
        assert not isinstance(raised.value, StoreUnavailableError)
    options = dict(url_of(place).options) | {"client_encoding": "UTF8"}
    with psycopg.connect(**options) as connection:  # type: ignore[arg-type]  # any options
        assert connection.execute("SELECT nspname FROM pg_namespace WHERE nspname ~ 'hush'").fetchall() == []


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
    with pytest.raises(StoreError, match="SSL"):
        PostgresStore(PostgresUrl.parse(f"{postgres_server.url}?sslmode=verify-full&sslrootcert=system"))


def test_tables_of_another_program_or_version_are_refused(postgres: StorePlace) -> None:
    with url_of(postgres).connect() as other:
        other.execute(f"CREATE SCHEMA {url_of(postgres).schema}".encode())
        other.execute("CREATE TABLE contacts (name text)")
    with pytest.raises(StoreError, match="another program"):
        store_of(postgres)
    with pytest.raises(StoreError, match="no store"):
        postgres.read()
    postgres.execute("DROP TABLE contacts")
    store_of(postgres).close()
    postgres.execute("UPDATE meta SET schema_version = 2")
    with pytest.raises(StoreError, match="another hush"):
        store_of(postgres)


def test_neither_sender_nor_time_of_a_report_is_stored(postgres: StorePlace) -> None:
    store_of(postgres).close()
    with url_of(postgres).connect() as there:
        query = "SELECT column_name FROM information_schema.columns WHERE table_schema = %s AND table_name LIKE %s"
        columns = {row[0] for row in there.execute(query, (url_of(postgres).schema, "report%")).fetchall()}
    assert columns == {"part", "series", "id", "body"}


def test_the_doctor_names_the_workers_that_run_and_that_do_not(postgres: StorePlace) -> None:
    def found() -> dict[str, Any]:
        return {one.check: one for one in check_store(postgres.address, datetime.now(UTC))}

    with store_of(postgres, "b") as store:
        with store_of(postgres, "a"):
            store.take_lease(600)
            assert (found()["workers"].verdict, found()["service"].figures) == (Verdict.OK, {"running": True})
            assert "b publishes" in found()["workers"].detail
        away = found()["workers"]
        assert (away.verdict, away.figures["away"]) == (Verdict.WARNING, 1)
        assert away.detail.endswith("worker a")
    assert found()["service"].verdict is Verdict.WARNING
    assert "workers" not in found()
