"""A PostgreSQL that restarts, and roles and databases with defaults of their own: each report counts once."""

import contextlib
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest
from servers import Mosquitto, Postgres
from steady_load import Load
from stores import StorePlace
from waiting import PATIENCE_S, wait_until

from hush_aggregator.store import Accepted
from hush_aggregator.store.location import open_editor, open_reader, open_store
from hush_aggregator.store.postgres import PostgresStore
from hush_aggregator.store.postgres_url import PostgresUrl
from hush_common.errors import StoreError, StoreUnavailableError, UnknownCommitError
from hush_common.task import make_task
from hush_common.wire import Refusal

pytestmark = pytest.mark.medium

NUMBER = {"kind": "number", "lower": 0.0, "upper": 1.0}
TASK = make_task({"id": "heights", "title": "Größe, 身長", "epsilon": "1", "domain": NUMBER})
TASK_TOML = """
id = "heights"
title = "Größe, 身長"
epsilon = 1
[domain]
kind = "number"
lower = 0
upper = 1
"""
RESTART_S = 3.0  # of the five that are promised: a busy machine delays the service, too


def batch(count: int = 12) -> Accepted:
    ids = np.frombuffer(secrets.token_bytes(16 * count), dtype="V16")
    return Accepted(TASK, 0, ids, np.ones((count, 1), dtype=np.int64))


def execute(server: Postgres, *statements: str, database: str = "postgres") -> list[tuple[Any, ...]]:
    with psycopg.connect(f"{server.url.rpartition('/')[0]}/{database}", autocommit=True) as connection:
        found: list[tuple[Any, ...]] = []
        for statement in statements:
            cursor = connection.execute(statement)
            found += cursor.fetchall() if cursor.description else []
        return found


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


@pytest.mark.parametrize("encoding", ["UTF8", "LATIN1", "EUC_JP"])
def test_the_defaults_of_a_role_and_of_a_database_change_nothing(postgres_server: Postgres, encoding: str) -> None:
    name = f"d{secrets.token_hex(4)}"
    execute(
        postgres_server,
        f"CREATE ROLE {name} LOGIN",
        *(f"ALTER ROLE {name} SET {setting} = {value}" for setting, value in DEFAULTS.items()),
        f"CREATE DATABASE {name} OWNER {name} TEMPLATE template0 ENCODING '{encoding}' LC_COLLATE 'C' LC_CTYPE 'C'",
    )
    url = PostgresUrl.parse(f"postgresql://{name}@127.0.0.1:{postgres_server.port}/{name}?client_encoding=SQL_ASCII")
    with PostgresStore(url) as store, PostgresStore(url, worker="2") as other:
        store.add_tasks([TASK])
        assert store.commit([batch()], {("heights", Refusal.CLOSED): 3}).accepted == 12
        assert overlapping(store, other) == 0
        assert store.counted_tally(TASK.digest, 0).n == 24
    with url.connect() as connection:
        limits = [name for name in DEFAULTS if name.endswith("_timeout")]
        query = "SELECT name FROM pg_settings WHERE name = ANY(%s) AND setting <> '0'"
        assert connection.execute(query, (limits,)).fetchall() == []
    with open_reader(url) as reader:
        assert reader.tasks() == [TASK.payload]
        assert reader.refusals("heights") == {Refusal.CLOSED: 3}
        assert sum(1 for _ in reader.reports(TASK.digest, 0)) == 24


def overlapping(store: PostgresStore, other: PostgresStore) -> int:
    """Let two workers count the same reports, the second in a transaction that began first; how many are new."""
    same = batch()
    series = other._series_of([same])
    with other._transaction() as run:
        assert run.execute("SELECT count(*) FROM report").fetchone() == (12,)
        assert store.commit([same], {}).accepted == 12
        (found,) = other._count(run, series, None, [same])
    return found.new


def test_a_database_without_an_encoding_is_refused_with_one_line_and_stays_empty(postgres_server: Postgres) -> None:
    name = f"d{secrets.token_hex(4)}"
    execute(
        postgres_server, f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C'"
    )
    url = PostgresUrl.parse(f"postgresql://hush@127.0.0.1:{postgres_server.port}/{name}")
    for attempt in (partial(open_store, url), partial(open_reader, url), partial(PostgresStore.unfinished, url)):
        with pytest.raises(StoreError, match=r"SQL_ASCII.*ENCODING 'UTF8'") as raised:
            attempt()
        assert not isinstance(raised.value, StoreUnavailableError)
    assert execute(postgres_server, "SELECT nspname FROM pg_namespace WHERE nspname ~ 'hush'", database=name) == []


@pytest.fixture(params=["before", "after"])
def lost(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Lose the connection before or after the server commits; call it to let the next commit do so."""
    run, armed = psycopg.Connection._exec_command, [False]

    def execute_command(self: Any, command: Any, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401 - psycopg's
        if not (armed[0] and b"COMMIT" in bytes(command)):
            return (yield from run(self, command, *arguments, **options))
        armed[0] = False
        if request.param == "after":
            yield from run(self, command, *arguments, **options)
        self.pgconn.finish()
        raise psycopg.OperationalError("the connection is lost")

    monkeypatch.setattr(psycopg.Connection, "_exec_command", execute_command)
    return lambda: armed.__setitem__(0, True)


def test_a_commit_whose_answer_is_lost_counts_once(postgres: StorePlace, lost: Callable[[], None]) -> None:
    some, refused = batch(), {("heights", Refusal.CLOSED): 3}
    with postgres.open() as store:
        store.add_tasks([TASK])
        store.commit([batch(1)], {})
        lost()
        outcome = None
        with contextlib.suppress(StoreUnavailableError):  # nothing was committed
            outcome = store.commit([some], refused)
        outcome = outcome or store.commit([some], refused)
        assert (outcome.accepted, outcome.refused) == (12, {Refusal.CLOSED: 3})
        assert store.counted_tally(TASK.digest, 0).n == sum(1 for _ in store.reports(TASK.digest, 0)) == 13
        assert store.refusals("heights") == {Refusal.CLOSED: 3}


def test_a_command_whose_commit_has_no_answer_says_so_and_may_be_repeated(
    postgres: StorePlace, lost: Callable[[], None]
) -> None:
    with postgres.open() as store:
        store.add_tasks([TASK])
    with open_editor(postgres.address) as editor:
        lost()
        with pytest.raises(UnknownCommitError, match=r"may have taken place.*repeat"):
            editor.close_task("heights")
        editor.close_task("heights")
        assert editor.is_closed(TASK.digest)


def test_a_commit_to_a_server_that_stays_away_is_not_repeated(postgres: StorePlace, lost: Callable[[], None]) -> None:
    with postgres.open() as store, pytest.MonkeyPatch.context() as patch:
        store.add_tasks([TASK])
        store.commit([batch(1)], {})
        lost()
        patch.setattr("hush_aggregator.store.postgres._ANSWER_S", 0.0)
        patch.setattr(PostgresUrl, "connect", unavailable)
        with pytest.raises(UnknownCommitError, match="no answer whether"):
            store.commit([batch()], {})


def unavailable(_: PostgresUrl) -> None:
    raise StoreUnavailableError("postgresql://…: connection refused")


class Service:
    """`hush serve` on a store in PostgreSQL."""

    def __init__(self, server: Postgres, broker: str, directory: Path) -> None:
        self._log = directory / "log"
        (directory / "task.toml").write_bytes(TASK_TOML.encode())
        options = ["--broker", broker, "--store", server.url, "--task", str(directory / "task.toml")]
        self._command = [sys.executable, "-m", "hush", "serve", *options]
        self.start()

    def start(self) -> None:
        with self._log.open("w") as log:
            self.process = subprocess.Popen(self._command, stderr=log)
        wait_until(lambda: "connected to" in self.log())

    def log(self) -> str:
        return self._log.read_text("utf-8")


@pytest.fixture
def service(own_postgres_server: Postgres, mosquitto: Mosquitto, tmp_path: Path) -> Iterator[Service]:
    service = Service(own_postgres_server, mosquitto.url, tmp_path)
    yield service
    service.process.kill()
    service.process.wait()


def counted(server: Postgres) -> int:
    return int(execute(server, "SELECT coalesce(sum(n), 0) FROM hush.tally")[0][0])


def counts_more(server: Postgres, reports: int) -> None:
    before = counted(server)
    wait_until(lambda: counted(server) >= before + reports)


def restart_often(server: Postgres, mosquitto: Mosquitto, service: Service, times: int) -> None:
    """Restart the server under load; the service goes on, and counts every report once."""
    with Load(mosquitto.port, TASK) as load:
        for k in range(times):
            counts_more(server, 50)
            began = time.monotonic()
            server.stop("fast" if k % 2 else "immediate")
            server.start()
            is_short = time.monotonic() - began < RESTART_S  # otherwise nothing is promised
            if not is_short and service.process.poll() is not None:
                service.start()
            counts_more(server, 1)
            assert service.process.poll() is None, service.log()
        load.end()
        wait_until(lambda: counted(server) == load.made)
    found = execute(server, "SELECT count(*), count(DISTINCT id) FROM hush.report")
    assert found == [(load.made, load.made)]
    assert execute(server, "SELECT reason FROM hush.refusal") == []
    service.process.send_signal(signal.SIGTERM)
    assert service.process.wait(60) == 0, service.log()


@pytest.mark.large
def test_a_restart_of_the_database_is_survived(
    own_postgres_server: Postgres, mosquitto: Mosquitto, service: Service
) -> None:
    restart_often(own_postgres_server, mosquitto, service, 2)


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_two_hundred_restarts_of_the_database_are_survived(
    own_postgres_server: Postgres, mosquitto: Mosquitto, service: Service
) -> None:
    restart_often(own_postgres_server, mosquitto, service, 200)


@pytest.mark.large
def test_a_database_that_stays_away_ends_the_service_with_one_line(
    own_postgres_server: Postgres, mosquitto: Mosquitto, service: Service
) -> None:
    with Load(mosquitto.port, TASK) as load:
        counts_more(own_postgres_server, 50)
        own_postgres_server.stop()
        assert service.process.wait(PATIENCE_S) == 1
        own_postgres_server.start()
        service.start()
        counts_more(own_postgres_server, 50)
        own_postgres_server.stop()
        service.process.send_signal(signal.SIGTERM)
        assert service.process.wait(PATIENCE_S) == 1
        last = service.log().splitlines()[-1]
        assert own_postgres_server.url in last
        assert "see that the server runs" in last
        own_postgres_server.start()
        service.start()
        load.end()
        wait_until(lambda: counted(own_postgres_server) == load.made)
