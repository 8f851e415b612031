"""Twenty changes of the worker that publishes, under load, on a real broker and a real database.

Nothing is recalled, no reader sees fewer reports under a later lease, each report counts once, and each line of the log
is one of those that are expected, and true.
"""

import random
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path

import psycopg
import pytest
from group_processes import HEIGHTS, Watcher, Worker, by_worker, freeze, holder
from servers import Mosquitto, Postgres
from stores import StorePlace, in_postgres
from waiting import wait_until

from hush_aggregator.store.postgres_url import PostgresUrl
from hush_common.errors import StoreError

pytestmark = pytest.mark.medium

HAND_OVERS = {
    "killed": 4,
    "ended": 4,
    "stopped for 15 s": 3,
    "stopped for 60 s": 3,
    "database away for 60 s": 2,
    "database away for all for 60 s": 1,
    "database down for 60 s": 1,
    "stopped, and database away, for 60 s": 2,
}
ALWAYS = {
    "publishes": r"INFO this worker publishes, under lease (?P<lease>\d+)",
    "connected": r"INFO aggregator(, control)?: connected to mqtt://[0-9.:]+",
    "accepted": r"INFO (accepted|draining a backlog:|drained a backlog:) (?P<count>\d+).*",
    "again": r"INFO [\w, ]+: (?P<count>\d+) reports came again, and count once",
    "open": r"WARNING mqtt://[0-9.:]+ accepts clients without a login: .+",
    "late": r"INFO task heights: an estimate of lease (?P<earlier>\d+) came late and replaced that of lease "
    r"(?P<lease>\d+); republished",
}
ENDED = {"ended": r"INFO stopped"}
AWAY = {
    "stops": r"WARNING this worker stops publishing: it did not renew lease (?P<lease>\d+) in time; .+",
    "lost": r"WARNING mqtt://[0-9.:]+: .*(lost|closed|did not answer).*; retrying until it works",
    "reconnected": r"INFO aggregator(, control)?: connected to mqtt://[0-9.:]+ again after \d+ s, connection \d+ since "
    r"the start",
    "unavailable": r"WARNING postgresql://hush@127.0.0.1:\d+/postgres\?schema=\w+: .+; trying again for \d+ s",
    "available": r"INFO the store is available again after [\d.]+ s",
    "steps": r"ERROR (the last )?steps of estimates (cannot be|are not) kept \(postgresql://.+\).*",
    "slow": r"WARNING task heights, round 0: its estimate takes longer than 2 s: .+",  # where it was stopped meanwhile
    "failed": r"hush: postgresql://hush@127.0.0.1:\d+/postgres\?schema=\w+: .+",
}
"""Lines of the log; what PostgreSQL ends within a transaction stops a worker with an error, and it is started again."""


def expected(how: str) -> dict[str, str]:
    """The lines that a hand-over of this kind may write."""
    if how in ("killed", "ended"):
        return ALWAYS if how == "killed" else ALWAYS | ENDED
    return ALWAYS | {kind: line for kind, line in AWAY.items() if kind != "available" or "down" not in how}


_DATE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d ")


class Leases:
    """Every lease that was in the store, with its holder, and how many reports were counted when it was first seen."""

    def __init__(self, place: StorePlace) -> None:
        self.held: dict[int, str] = {}
        self._place = place

    def watch(self, stop: threading.Event) -> None:
        assert isinstance(self._place.address, PostgresUrl)
        while not stop.wait(0.05):
            with suppress(StoreError, psycopg.Error), self._place.address.connect() as there:
                while not stop.wait(0.05):
                    row = there.execute("SELECT holder, number FROM lease").fetchone()
                    if row is not None and row[0]:
                        self.held[int(row[1])] = str(row[0])


@contextmanager
def beside(*works: Callable[[threading.Event], object]) -> Iterator[None]:
    """Let these run in threads until the block ends."""
    stop = threading.Event()
    threads = [threading.Thread(target=work, args=(stop,)) for work in works]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def hand_over(how: str, old: Worker, place: StorePlace, name: str, server: Postgres) -> None:
    """Let the worker that publishes fail in a way, until another one may have taken over, or the time is over."""
    seconds = float(match[1]) if (match := re.search(r"for (\d+) s", how)) else 0
    with ExitStack() as inside:
        if how == "killed":
            old.end(signal.SIGKILL)
        elif how == "ended":
            assert old.end(signal.SIGINT) == 0
        if "stopped" in how:
            old.send_signal(signal.SIGSTOP)
            inside.callback(old.send_signal, signal.SIGCONT)
        if "down" in how:
            server.stop()
            inside.callback(server.start)
        elif "database" in how:
            for worker in "12" if "for all" in how else name:
                freeze(place, worker, signal.SIGSTOP)
                inside.callback(freeze, place, worker, signal.SIGCONT)
        time.sleep(seconds)
        if "for all" not in how and "down" not in how:
            wait_until(lambda: holder(place)[0] not in ("", name))


def untrue(how: str, worker: str, lines: Sequence[str], leases: Leases, place: StorePlace) -> Iterator[str]:
    """Yield the lines that are not expected, or not what the store says."""
    counted = by_worker(place).get(worker, 0)
    for line in lines:
        found = [match for one in expected(how).values() if (match := re.fullmatch(one, _DATE.sub("", line)))]
        values = {name: int(value) for match in found for name, value in match.groupdict().items()}
        lease = values.get("lease")
        is_true = bool(found) and (lease is None or leases.held.get(lease) == worker)
        is_true = is_true and values.get("count", 0) <= counted and values.get("earlier", -1) < (lease or 0)
        if not is_true:
            yield f"{how}: worker {worker}: {line}"


def check_readers(watcher: Watcher, reports: int) -> str:
    """See that readers saw no step back, and no recall; return how much they saw."""
    assert watcher.recalls == []
    seen = [(int(str(document["lease"])), int(str(document["n"]))) for _, document in watcher.seen]
    current = [one for k, one in enumerate(seen) if one[0] >= max(seen[: k + 1])[0]]
    assert [n for _, n in current] == sorted(n for _, n in current)
    assert current[-1][1] == reports
    leases = len({lease for lease, _ in seen})
    return f"{reports} reports, {len(seen)} estimates under {leases} leases, {len(seen) - len(current)} came late"


@pytest.mark.soak
@pytest.mark.timeout(2400)
def test_twenty_hand_overs_recall_nothing_and_no_reader_sees_a_step_back(
    own_postgres_server: Postgres, mosquitto: Mosquitto, tmp_path: Path
) -> None:
    order = [how for how, times in HAND_OVERS.items() for _ in range(times)]
    random.Random(0).shuffle(order)  # noqa: S311 - a reproducible order
    watcher, sender, ids, said = Watcher(mosquitto), Watcher(mosquitto), list[bytes](), list[str]()
    wrong = list[str]()
    with ExitStack() as inside, in_postgres(own_postgres_server) as place:
        inside.callback(lambda: (tmp_path / "figures").write_text("\n".join([*said, *wrong])))
        inside.callback(watcher.close)
        inside.callback(sender.close)
        login = "--broker", mosquitto.url
        workers = {name: Worker(name, login, place, tmp_path) for name in "12"}

        def all_run() -> bool:
            """Start those that ended, as the unit does; return whether all are connected."""
            for one in workers.values():
                if one.process is None or one.process.poll() is not None:
                    one.start()
            return all(one.is_connected() for one in workers.values())

        def send(stop: threading.Event) -> None:
            while not stop.wait(0.2):
                sender.send(10, ids)

        for one in workers.values():
            one.start()
            inside.callback(one.end, signal.SIGKILL)
            inside.callback(one.send_signal, signal.SIGCONT)
        wait_until(all_run)
        leases, marks = Leases(place), dict.fromkeys(workers, 0)
        with beside(send, leases.watch):
            for how in order:
                wait_until(lambda: holder(place)[0] and watcher.has_seen(lease=1, n=1))
                (name, number), began = holder(place), time.monotonic()
                hand_over(how, workers[name], place, name, own_postgres_server)
                is_over = partial(watcher.has_seen, lease=number + 1, n=len(ids))
                wait_until(lambda: all_run() and is_over())  # noqa: B023 - used at once
                time.sleep(3)  # what a worker does late
                wait_until(all_run)
                said.append(f"{how}: lease {number} of {name}, then {holder(place)}, {time.monotonic() - began:.0f} s")
                for worker, one in workers.items():
                    lines = one.said.splitlines()
                    wrong += untrue(how, worker, lines[marks[worker] :], leases, place)
                    marks[worker] = len(lines)
        wait_until(lambda: all_run() and watcher.has_seen(lease=1, n=len(ids)))
        for one in workers.values():
            assert one.end(signal.SIGINT) == 0
        assert sorted(place.ids()) == sorted(ids)
        assert sum(by_worker(place).values()) == len(ids)
        with place.read() as reader:
            assert reader.tally(HEIGHTS.digest, 0).n == len(ids)
            assert reader.recalls() == []
        said.append(check_readers(watcher, len(ids)))
    assert wrong == []
