"""`hush serve` beside other stores, with wrong rights and wrong passwords, on a real mosquitto."""

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from counting import shell
from servers import Mosquitto

from hush_aggregator import SqliteReader
from hush_common.task import make_task

HUSH = [sys.executable, "-m", "hush"]
DOCUMENT = {"id": "heights", "epsilon": "1", "domain": {"kind": "number", "lower": 120.0, "upper": 220.0}}
HEIGHTS = make_task(DOCUMENT)
KINDS = ("tasks", "estimates")
TASK, ESTIMATE = "hush/v1/tasks/heights", "hush/v1/estimates/heights"


@contextmanager
def serving(url: str, store: Path, *arguments: str) -> Iterator[Path]:
    """`hush serve` until the block ends; gives the file of its log."""
    log = store.with_suffix(".log")
    with (
        log.open("w") as file,
        subprocess.Popen([*HUSH, "serve", "--broker", url, "--store", str(store), *arguments], stderr=file) as server,
    ):
        try:
            yield log
        finally:
            server.send_signal(signal.SIGTERM)
            assert server.wait(60) == 0


def says(log: Path, words: str, within_s: float = 60) -> str:
    deadline = time.monotonic() + within_s
    while True:
        for line in log.read_text(encoding="utf-8").splitlines():
            if words in line:
                return line
        assert time.monotonic() < deadline, (words, log.read_text(encoding="utf-8"))
        time.sleep(0.05)


def retained(mosquitto: Mosquitto, topic: str, *login: str) -> bytes:
    return (
        shell("mosquitto_sub", mosquitto.port, "-t", topic, "-C", "1", "-W", "60", "-F", "%p", *login).strip().encode()
    )


def draft(directory: Path, **other: object) -> str:
    file = directory / f"{len(other)}.json"
    file.write_text(json.dumps(DOCUMENT | other), encoding="utf-8")
    return str(file)


def report(mosquitto: Mosquitto, number: int) -> None:
    text = {
        "v": 2,
        "task": "heights",
        "digest": HEIGHTS.report_digest.hex(),
        "round": 0,
        "id": f"{number:032x}",
        "body": [7],
    }
    shell("mosquitto_pub", mosquitto.port, "-t", "hush/v1/reports/heights/d", "-q", "1", "-m", json.dumps(text))


def counted(mosquitto: Mosquitto, reports: int) -> bytes:
    for _ in range(600):
        document = retained(mosquitto, ESTIMATE)
        if json.loads(document).get("n") == reports:
            return document
        time.sleep(0.1)
    pytest.fail(f"{document!r}")


@pytest.mark.large
def test_the_bytes_of_the_owner_stay_whatever_is_started_beside_it(mosquitto: Mosquitto, tmp_path: Path) -> None:
    """An empty store, a changed task file, a mistyped store; while the owner runs, and when it does not."""
    owner, other = tmp_path / "owner.sqlite3", tmp_path / "other.sqlite3"
    with serving(mosquitto.url, owner, "--task", draft(tmp_path)) as log:
        says(log, "connected")
        retained(mosquitto, ESTIMATE)
        report(mosquitto, 1)
        before = counted(mosquitto, 1)
        with serving(mosquitto.url, other, "--task", draft(tmp_path), "--name", "two") as beside:
            told = says(beside, "but not published: the published estimate is from another store")
            assert "hush task take-over heights --store" in told
        assert retained(mosquitto, ESTIMATE) == before
    with serving(mosquitto.url, other) as log:
        says(log, "the published estimate is from another store")
    with serving(mosquitto.url, tmp_path / "mistyped.sqlite3", "--task", draft(tmp_path, epsilon="2")) as log:
        says(log, "the published estimate is from another store")
    assert (retained(mosquitto, TASK), retained(mosquitto, ESTIMATE)) == (HEIGHTS.payload, before)
    with serving(mosquitto.url, owner) as log:
        report(mosquitto, 2)
        counted(mosquitto, 2)
        shell("mosquitto_pub", mosquitto.port, "-t", ESTIMATE, "-r", "-m", "{}")
        says(log, "overwrote its messages")
        counted(mosquitto, 2)
        # A command takes it over while both run: the owner yields, for good.
        with serving(mosquitto.url, other, "--name", "two") as beside:
            says(beside, "the published estimate is from another store")
            subprocess.run([*HUSH, "task", "take-over", "heights", "--store", str(other)], check=True, timeout=60)
            says(log, "the published estimate is from another store")
    with SqliteReader(other) as reader:
        assert json.loads(retained(mosquitto, ESTIMATE))["store"] == reader.public_identity
    assert retained(mosquitto, TASK) == HEIGHTS.payload


@pytest.mark.large
def test_stores_that_were_crossed_change_nothing_of_what_is_published(mosquitto: Mosquitto, tmp_path: Path) -> None:
    """Two services, a task each; started with the store of the other one, then with their own again."""
    stores = [tmp_path / name for name in ("one.sqlite3", "two.sqlite3")]
    tasks = [draft(tmp_path), draft(tmp_path, id="weights")]
    topics = [topic for task in ("heights", "weights") for topic in (f"hush/v1/{kind}/{task}" for kind in KINDS)]
    for number, store in enumerate(stores):
        with serving(mosquitto.url, store, "--task", tasks[number], "--name", f"n{number}") as log:
            says(log, "connected")
            retained(mosquitto, topics[2 * number + 1])
    report(mosquitto, 1)  # waits for the first store under its own name
    before = {topic: retained(mosquitto, topic) for topic in topics}
    with (
        serving(mosquitto.url, stores[1], "--task", tasks[0], "--name", "n0") as one,
        serving(mosquitto.url, stores[0], "--task", tasks[1], "--name", "n1") as two,
    ):
        for log, task in ((one, "heights"), (two, "weights")):
            told = says(log, "but not published: the published estimate is from another store")
            assert f"task {task}: " in told
        says(one, "no longer has the session")  # a store has a session for each name
    names = [json.loads(retained(mosquitto, topic))["store"] for topic in topics[1::2]]
    assert names == [json.loads(before[topic])["store"] for topic in topics[1::2]]
    assert [retained(mosquitto, topic) for topic in topics[::2]] == [before[topic] for topic in topics[::2]]
    with serving(mosquitto.url, stores[0], "--task", tasks[0], "--name", "n0"):
        report(mosquitto, 2)
        assert json.loads(counted(mosquitto, 2))["store"] == names[0]


def test_a_wrong_password_ends_the_service_after_the_stated_time(guarded_mosquitto: Mosquitto, tmp_path: Path) -> None:
    url = f"mqtt://alice:wrong@127.0.0.1:{guarded_mosquitto.port}"
    command = [*HUSH, "serve", "--broker", url, "--store", str(tmp_path / "store"), "--login-timeout", "0.5"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert re.search(
        r"\nhush: mqtt://\S+: the broker refuses the login .* refused for 0\.5 s, so hush stops", done.stderr
    )


@pytest.mark.large
@pytest.mark.parametrize(
    ("rules", "missing"),
    [
        ("topic read hush/v1/#\ntopic write hush/v1/status/+\ntopic write hush/v1/tasks/+\n", "hush/v1/estimates/+"),
        ("topic readwrite hush/v1/estimates/+\ntopic write hush/v1/status/+\ntopic read hush/v1/#\n", TASK),
        ("topic write hush/v1/#\ntopic read hush/v1/reports/#\ntopic read hush/v1/tasks/+\n", "hush/v1/estimates/+"),
    ],
    ids=["writes no estimate", "writes no task", "reads no estimate"],
)
def test_a_right_that_is_missing_is_named(mosquitto: Mosquitto, tmp_path: Path, rules: str, missing: str) -> None:
    (mosquitto.directory / "rules").write_text(rules)
    mosquitto.stop()
    mosquitto.access += f"\nacl_file {mosquitto.directory / 'rules'}"
    mosquitto.start()
    with serving(mosquitto.url, tmp_path / "store.sqlite3", "--task", draft(tmp_path)) as log:
        line = says(log, missing)
    assert "write and read there" in line or "to write and to read" in line
