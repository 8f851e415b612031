"""Several workers that share the reports of a broker and count into one PostgreSQL: processes, killed and stopped."""

import getpass
import random
import secrets
import signal
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import paho.mqtt.client as paho
import pytest
from group_processes import HEIGHTS, Watcher, Worker, by_worker, freeze, holder, two_workers
from hardened import HOST, Hardened
from hardened import hush as run_hush
from paho.mqtt.enums import CallbackAPIVersion
from servers import Mosquitto, Postgres
from stores import StorePlace, in_postgres
from waiting import wait_until

from hush_common.wire import Report, encode_frame

pytestmark = pytest.mark.medium


@pytest.mark.large
def test_workers_share_the_reports_and_one_publishes_what_all_have_counted(
    mosquitto: Mosquitto, postgres: StorePlace, tmp_path: Path
) -> None:
    watcher, ids = Watcher(mosquitto), list[bytes]()
    with two_workers(mosquitto, postgres, tmp_path) as workers:
        wait_until(lambda: holder(postgres)[0])
        watcher.send(400, ids)
        wait_until(lambda: watcher.seen and watcher.seen[-1][1]["n"] == 400)
        assert set(by_worker(postgres)) == {"1", "2"}
        assert {document.get("lease") for _, document in watcher.seen} == {holder(postgres)[1]}
        assert sorted(postgres.ids()) == sorted(ids)
        wait_until(lambda: watcher.states == {"1": "online", "2": "online"})  # also the one that publishes nothing
        first, number = holder(postgres)
        assert workers[int(first) - 1].end() == 0
        assert holder(postgres)[0] != first  # it has ended its lease, and the other one need not wait until it expires
        wait_until(lambda: holder(postgres)[0] not in ("", first))
        watcher.send(300, ids)
        wait_until(lambda: watcher.seen[-1][1]["n"] == 700)
        assert sorted(postgres.ids()) == sorted(ids)
        wait_until(lambda: watcher.states[first] == "offline")
        workers[int(first) - 1].start()
        wait_until(lambda: watcher.states[first] == "online")
        for late in range(3):  # what the former holder had on its way, from before
            watcher.publish_estimate({**watcher.seen[-1][1], "n": 400 + late, "lease": number})
        wait_until(lambda: any(document["n"] == 402 for _, document in watcher.seen))
        wait_until(lambda: watcher.seen[-1][1]["n"] == 700)
        assert watcher.seen[-1][1]["lease"] == holder(postgres)[1] > number
    watcher.close()


@pytest.mark.large
def test_what_comes_while_a_worker_is_stopped_in_order_is_counted_by_the_other(
    mosquitto: Mosquitto, postgres: StorePlace, tmp_path: Path
) -> None:
    """It leaves the shared subscription first: else the broker would keep its share for it."""
    watcher, ids = Watcher(mosquitto), list[bytes]()
    with two_workers(mosquitto, postgres, tmp_path) as workers:
        sending = threading.Thread(target=watcher.send, args=(3000, ids))
        sending.start()
        time.sleep(0.3)
        assert workers[0].end() == 0
        sending.join()
        wait_until(lambda: len(postgres.ids()) == 3000)
        assert sorted(postgres.ids()) == sorted(ids)
    watcher.close()


@pytest.mark.large
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
            login = *broker.login(f"worker-{number}"), "--control-user", f"worker-{number}-control"
            worker = Worker(number, login, postgres, tmp_path)
            worker.start()
            inside.callback(worker.end, signal.SIGKILL)
            wait_until(worker.is_connected)
        wait_until(lambda: holder(postgres)[0])
        for k in range(4):
            state = ("--state", str(tmp_path / f"state-{k}"), "--spread", "0")
            sent = run_hush("report", "heights", "0.5", *broker.login("kitchen"), *state)
            assert sent.returncode == 0, sent.stderr
        wait_until(lambda: len(postgres.ids()) == 4)
        for number in "12":
            assert "refuse" not in (tmp_path / f"{number}.log").read_text()


@pytest.mark.soak
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("seed", range(3))
def test_whatever_is_killed_under_load_each_report_counts_once(
    own_postgres_server: Postgres, tmp_path: Path, seed: int
) -> None:
    """PostgreSQL, both workers and mosquitto, each killed ten times at random moments, while reports are sent again."""
    chosen = random.Random(seed)  # noqa: S311 - a reproducible order
    server = own_postgres_server
    (tmp_path / "broker").mkdir()
    broker = Mosquitto(
        tmp_path / "broker",
        settings="max_queued_messages 0\nmax_inflight_messages 1000\nautosave_interval 1\nautosave_on_changes true",
    )
    broker.start()
    made, stop = list[bytes](), threading.Event()
    with ExitStack() as inside, in_postgres(server) as place:
        inside.callback(broker.stop)
        login = "--broker", broker.url
        workers = Worker("1", login, place, tmp_path), Worker("2", login, place, tmp_path)
        for one in workers:
            one.start()
            inside.callback(one.end, signal.SIGKILL)
        sending = threading.Thread(target=_send_until, args=(broker, made, stop))
        sending.start()
        kills = [what for what in ("postgres", "broker", "1", "2") for _ in range(10)]
        chosen.shuffle(kills)
        for what in kills:
            time.sleep(chosen.uniform(0.2, 2.5))
            if what == "postgres":
                server.stop("immediate")
                server.start()
            elif what == "broker":
                broker.kill()
                broker.start()
            else:
                workers[int(what) - 1].end(signal.SIGKILL)
            for one in workers:  # as the unit does
                assert one.process is not None
                if one.process.poll() is not None:
                    one.start()
        time.sleep(2)
        stop.set()
        sending.join(60)
        for one in workers:
            assert one.process is not None
            if one.process.poll() is not None:
                one.start()
        _send_all(broker, made)  # as devices do after a recall: what was lost with the broker comes again
        wait_until(lambda: len(place.ids()) >= len(made), 120)
        time.sleep(3)
        assert sorted(place.ids()) == sorted(made)
        with place.read() as reader:
            assert reader.tally(HEIGHTS.digest, 0).n == len(made)


def _send_until(broker: Mosquitto, made: list[bytes], stop: threading.Event) -> None:
    """Make reports, and send each of them once or more, over a connection that comes and goes."""
    chosen = random.Random(99)  # noqa: S311 - as above
    while not stop.is_set():
        fresh = [secrets.token_bytes(16) for _ in range(100)]
        made += fresh
        _publish(broker, fresh + chosen.sample(made, min(50, len(made))))
        time.sleep(0.05)


def _send_all(broker: Mosquitto, ids: list[bytes]) -> None:
    for start in range(0, len(ids), 500):
        while not _publish(broker, ids[start : start + 500]):
            time.sleep(0.2)


def _publish(broker: Mosquitto, ids: Sequence[bytes]) -> bool:
    client = paho.Client(CallbackAPIVersion.VERSION2, client_id=secrets.token_hex(4))
    try:
        client.connect("127.0.0.1", broker.port)
        client.loop_start()
        topic = f"hush/v1/reports/heights/device-{secrets.randbelow(50)}"
        sent = [
            client.publish(topic, encode_frame([Report(HEIGHTS.report_digest, 0, one, (1,))]), qos=1) for one in ids
        ]
        for info in sent:
            info.wait_for_publish(5)
        return all(info.is_published() for info in sent)
    except (OSError, RuntimeError, ValueError):
        return False
    finally:
        client.loop_stop()
        client.disconnect()


@pytest.mark.large
@pytest.mark.parametrize("how", ["killed", "stopped", "cut off"])
def test_another_worker_publishes_when_the_holder_fails_and_the_holder_then_publishes_nothing(
    mosquitto: Mosquitto, tmp_path: Path, how: str, request: pytest.FixtureRequest
) -> None:
    server: Postgres = request.getfixturevalue("postgres_server")
    watcher, ids = Watcher(mosquitto), list[bytes]()
    with in_postgres(server) as place, two_workers(mosquitto, place, tmp_path) as workers:
        wait_until(lambda: holder(place)[0])
        watcher.send(50, ids)
        wait_until(lambda: watcher.seen and watcher.seen[-1][1]["n"] == 50)
        name, number = holder(place)
        old, other = workers[int(name) - 1], workers[2 - int(name)]
        if how == "killed":
            old.end(signal.SIGKILL)
        elif how == "stopped":
            old.send_signal(signal.SIGSTOP)
        else:
            freeze(place, name, signal.SIGSTOP)
        wait_until(lambda: any(document["lease"] > number for _, document in watcher.seen))  # type: ignore[operator]
        watcher.send(20, ids)
        if how == "killed":
            old.start()
        elif how == "stopped":
            old.send_signal(signal.SIGCONT)
        else:
            freeze(place, name, signal.SIGCONT)
        resumed = time.monotonic()
        wait_until(lambda: len(place.ids()) == 70)
        watcher.send(30, ids)
        wait_until(lambda: watcher.seen[-1][1]["n"] == 100)
        time.sleep(2)
        late = [document for at, document in watcher.seen if at > resumed + 10 and document.get("lease") == number]
        assert late == []
        assert (watcher.seen[-1][1]["n"], watcher.seen[-1][1]["lease"]) == (100, holder(place)[1])
        assert holder(place)[1] > number
        assert sorted(place.ids()) == sorted(ids)
        assert other.process is not None
    watcher.close()
