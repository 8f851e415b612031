"""Several workers that share the reports of a broker and count into one PostgreSQL: processes, killed and stopped."""

import getpass
import json
import random
import secrets
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import paho.mqtt.client as paho
import pytest
from hardened import HOST, Hardened
from hardened import hush as run_hush
from paho.mqtt.enums import CallbackAPIVersion
from processes import HEIGHTS, Serve
from servers import Mosquitto, Postgres
from stores import StorePlace, in_postgres
from waiting import wait_until

from hush_aggregator.store.postgres_url import PostgresUrl
from hush_common.topics import estimate_topic
from hush_common.wire import Report, encode_frame

pytestmark = [pytest.mark.large, pytest.mark.face]

ESTIMATE = estimate_topic("heights")


def worker(url: str, name: str, place: StorePlace, directory: Path, *options: str) -> Serve:
    assert isinstance(place.address, PostgresUrl)
    port = place.address.options["port"]
    database = f"postgresql://hush@127.0.0.1:{port}/postgres?schema={place.address.schema}"
    words = ("--group", "g", "--worker", name, *options)
    return Serve(url, directory, None, options=words, name=f"worker-{name}", database=database)


@contextmanager
def two_workers(url: str, place: StorePlace, directory: Path) -> Iterator[dict[str, Serve]]:
    workers = {name: worker(url, name, place, directory).start() for name in "12"}
    try:
        for one in workers.values():
            one.until_connected()
        wait_until(lambda: holder(place)[0])
        yield workers
    finally:
        for one in workers.values():
            one.send_signal(signal.SIGKILL)


def holder(place: StorePlace) -> tuple[str, int]:
    """The worker that publishes, and the number of its lease."""
    with place.read() as reader:
        found: tuple[str, int] = reader.lease()  # type: ignore[attr-defined]  # of PostgreSQL
        return found


def counted(place: StorePlace) -> list[bytes]:
    """The ids of all reports, of which the tally has as many."""
    with place.read() as reader:
        n = reader.tally(HEIGHTS.digest, 0).n
    ids = sorted(place.ids())
    assert len(ids) >= n  # some may have come since
    return ids


class Watcher:
    """A reader of estimates, states of workers and recalls, who also sends reports."""

    def __init__(self, broker: Mosquitto) -> None:
        self.seen: list[dict[str, Any]] = []
        self.states: dict[str, str] = {}
        self.recalls: list[bytes] = []
        self.ids: list[bytes] = []
        self._client = paho.Client(CallbackAPIVersion.VERSION2, client_id=secrets.token_hex(4))
        topics = [(topic, 1) for topic in (ESTIMATE, "hush/v1/status/+", "hush/v1/recalls/+")]
        self._client.on_connect = lambda client, *_: client.subscribe(topics)
        self._client.on_message = self._take
        self._client.reconnect_delay_set(1, 1)
        self._client.connect("127.0.0.1", broker.port)
        self._client.loop_start()

    def _take(self, _client: object, _data: object, message: paho.MQTTMessage) -> None:
        if message.topic.startswith("hush/v1/status/"):
            self.states[message.topic.rpartition("-")[2]] = message.payload.decode()
        elif message.topic.startswith("hush/v1/recalls/"):
            self.recalls.append(bytes(message.payload))
        elif message.payload:
            self.seen.append(json.loads(message.payload))

    @property
    def n(self) -> int:
        return self.seen[-1]["n"] if self.seen else -1

    def send(self, count: int, ids: Sequence[bytes] = ()) -> bool:
        """Publish these reports, or so many new ones; return whether the broker has acknowledged all."""
        made = [*ids] or [secrets.token_bytes(16) for _ in range(count)]
        if not ids:
            self.ids += made
        with suppress(RuntimeError, ValueError):
            sent = [
                self._client.publish(
                    f"hush/v1/reports/heights/device-{secrets.randbelow(50)}",
                    encode_frame([Report(HEIGHTS.report_digest, 0, one, (1,))]),
                    qos=1,
                )
                for one in made
            ]
            for info in sent:
                info.wait_for_publish(60)
            return all(info.is_published() for info in sent)
        return False

    def send_all(self) -> None:
        """Send everything once more, as devices do after a recall."""
        for start in range(0, len(self.ids), 500):
            while not self.send(0, self.ids[start : start + 500]):
                time.sleep(1)

    def publish_estimate(self, document: dict[str, Any]) -> None:
        self._client.publish(ESTIMATE, json.dumps(document), qos=1, retain=True)

    def assert_no_step_back(self) -> None:
        """Of the estimates under the latest lease so far, none has fewer reports than one before."""
        latest, n = 0, 0
        for one in self.seen:
            if one["lease"] >= latest:
                assert one["n"] >= n, (one["lease"], one["n"], n)
                latest, n = one["lease"], one["n"]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.disconnect()
        self._client.loop_stop()


def test_workers_share_the_reports_and_one_publishes(
    mosquitto: Mosquitto, postgres: StorePlace, tmp_path: Path
) -> None:
    with Watcher(mosquitto) as watcher, two_workers(mosquitto.url, postgres, tmp_path) as workers:
        watcher.send(400)
        wait_until(lambda: watcher.n == 400)
        assert {one["lease"] for one in watcher.seen} == {holder(postgres)[1]}
        wait_until(lambda: watcher.states == {"1": "online", "2": "online"})  # also the one that publishes nothing
        first, number = holder(postgres)
        sending = threading.Thread(target=watcher.send, args=(3000,))
        sending.start()
        wait_until(lambda: len(postgres.ids()) > 500)
        assert workers[first].end() == 0  # it leaves the shared subscription first, and ends its lease
        sending.join()
        wait_until(lambda: watcher.n == 3400)
        wait_until(lambda: watcher.states[first] == "offline")
        assert counted(postgres) == sorted(watcher.ids)
        for late in range(3):  # what the former holder had on its way, from before
            watcher.publish_estimate({**watcher.seen[-1], "n": 400 + late, "lease": number})
        wait_until(lambda: any(one["n"] == 402 for one in watcher.seen) and watcher.n == 3400)
        assert watcher.seen[-1]["lease"] == holder(postgres)[1] > number


@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_another_worker_publishes_when_the_holder_fails(
    mosquitto: Mosquitto, postgres: StorePlace, tmp_path: Path, how: str
) -> None:
    with Watcher(mosquitto) as watcher, two_workers(mosquitto.url, postgres, tmp_path) as workers:
        watcher.send(50)
        wait_until(lambda: watcher.n == 50)
        name, number = holder(postgres)
        old = workers[name]
        if how == "killed":
            old.end(signal.SIGKILL)
        else:
            old.send_signal(signal.SIGSTOP)
        wait_until(lambda: watcher.seen[-1]["lease"] > number)
        watcher.send(20)
        if how == "killed":
            old.start()
        else:
            old.send_signal(signal.SIGCONT)
        wait_until(lambda: len(postgres.ids()) == 70)
        watcher.send(30)
        wait_until(lambda: watcher.n == 100)
        assert watcher.seen[-1]["lease"] == holder(postgres)[1] > number
        assert counted(postgres) == sorted(watcher.ids)
        watcher.assert_no_step_back()


def test_workers_have_the_rights_that_the_configuration_gives_them(postgres: StorePlace, tmp_path: Path) -> None:
    broker = Hardened(home := tmp_path / "broker", {})
    options = ("--host", HOST, "--listen", HOST, "--port", str(broker.port), "--websockets", str(broker.websockets))
    made = run_hush("broker", "config", str(home), *options, "--run-as", getpass.getuser(), "--workers", "2")
    assert made.returncode == 0, made.stderr
    assert "--group NAME --worker 1" in made.stdout
    assert run_hush("broker", "add", "kitchen", "--config", str(home)).returncode == 0
    broker.start()
    with ExitStack() as inside:
        inside.callback(broker.stop)
        for number in "12":
            _, url, *login = broker.login(f"worker-{number}")
            one = worker(url, number, postgres, tmp_path, *login, "--control-user", f"worker-{number}-control")
            one.start()
            inside.callback(one.send_signal, signal.SIGKILL)
            one.until_connected()
        wait_until(lambda: holder(postgres)[0])
        for k in range(4):
            state = ("--state", str(tmp_path / f"state-{k}"), "--spread", "0")
            sent = run_hush("report", "heights", "0.5", *broker.login("kitchen"), *state)
            assert sent.returncode == 0, sent.stderr
        wait_until(lambda: len(postgres.ids()) == 4)
        for number in "12":
            assert "refuse" not in (tmp_path / f"worker-{number}.log").read_text()


def fail(one: Serve, how: str) -> None:
    """Let a worker fail, and go on if it is only stopped."""
    if how == "killed":
        one.end(signal.SIGKILL)
    elif how == "ended":
        one.end(signal.SIGINT)
    else:
        one.send_signal(signal.SIGSTOP)
        time.sleep(float(how.split()[2]))
        one.send_signal(signal.SIGCONT)


HOW = ("killed", "ended", "stopped for 15 s", "stopped for 60 s", "database killed", "broker killed")


@pytest.mark.soak
@pytest.mark.timeout(2400)
@pytest.mark.parametrize("seed", range(3))
def test_whatever_fails_forty_times_under_load_each_report_counts_once(
    own_postgres_server: Postgres, tmp_path: Path, seed: int
) -> None:
    """Reports are sent once or more all the time. Without a kill of the broker, which loses some, no recall is made."""
    chosen, server, stop = random.Random(seed), own_postgres_server, threading.Event()  # noqa: S311 - a fixed order
    (tmp_path / "broker").mkdir()
    settings = "max_queued_messages 0\nmax_inflight_messages 1000\nautosave_interval 1\nautosave_on_changes true"
    broker = Mosquitto(tmp_path / "broker", settings=settings)
    broker.start()
    kinds = HOW if seed else HOW[:-1]
    with in_postgres(server) as place, Watcher(broker) as watcher, two_workers(broker.url, place, tmp_path) as workers:

        def send() -> None:
            while not stop.wait(0.1):
                watcher.send(50)
                watcher.send(0, chosen.sample(watcher.ids, 20))

        sending = threading.Thread(target=send)
        sending.start()
        for _ in range(40):
            how = chosen.choice(kinds)
            if how == "broker killed":
                broker.kill()
                broker.start()
            elif how == "database killed":
                server.stop("immediate")
                server.start()
            else:
                fail(workers[holder(place)[0] or "1"], how)
            time.sleep(chosen.uniform(0.2, 8))
            for one in workers.values():  # as the unit does
                if not one.is_running:
                    one.start()
        stop.set()
        sending.join(120)
        watcher.send_all()
        wait_until(lambda: counted(place) == sorted(watcher.ids), 180)
        wait_until(lambda: watcher.n == len(watcher.ids), 120)
        if "broker killed" not in kinds:
            watcher.assert_no_step_back()
            assert watcher.recalls == []
    broker.stop()
