"""The blocking client: the same promises, from a program without an event loop."""

import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import CancelledError, ThreadPoolExecutor
from pathlib import Path

import pytest
from device_state import FILE_NAME
from heights import make_heights
from scripted_broker import Fate, ScriptedBroker

from hush import Task
from hush_client import SyncClient
from hush_common.errors import BrokerError, StateError
from hush_common.topics import task_topic


def client(broker: ScriptedBroker, state: Path) -> SyncClient:
    return SyncClient("mqtt://h", device="d", state=state, spread=0, transport=broker)


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "hush-client"]


def test_a_report_is_sent_and_everything_else_can_be_asked(tmp_path: Path) -> None:
    broker = ScriptedBroker()
    with client(broker, tmp_path) as c:
        assert c.task("heights").epsilon == 1
        receipt = c.report("heights", 172.0)
        assert receipt.status == "sent"
        assert receipt.spent == 1
        assert c.flush()
        assert list(c.tasks()) == ["heights"]
        assert c.ledger().spent == 1
    assert len(broker.arrived) == 1
    assert threads() == []


def test_a_source_and_callbacks_work_and_cannot_wait_for_themselves(tmp_path: Path) -> None:
    def ask(task: Task) -> None:
        try:
            c.report(task.id, 172.0)
        except RuntimeError as error:
            caught.append(str(error))
        if len(caught) == 2:
            told.set()

    def read() -> float:
        asked.set()
        return 172.0

    caught, told, asked = list[str](), threading.Event(), threading.Event()
    broker = ScriptedBroker(retained={task_topic(name): make_heights(id=name) for name in ("a", "b")})
    with client(broker, tmp_path) as c:
        c.on_task(ask)
        assert told.wait(60)
        assert sorted(c.tasks()) == ["a", "b"]
        c.answer("a", read, source_timeout=0.1)
        assert asked.wait(60)
    assert all("thread" in text for text in caught)


def test_errors_come_through_and_leave_no_thread_behind(tmp_path: Path) -> None:
    with client(ScriptedBroker(), tmp_path / "good") as c:
        assert c.task("heights").id == "heights"  # it is connected
        with pytest.raises(BrokerError, match="'nope'"):
            c.report("nope", 1, timeout=0.05)
        assert c.report("heights", 172.0).status == "sent"
    (tmp_path / FILE_NAME).write_bytes(b"no database" * 100)
    with pytest.raises(StateError, match="damaged"):
        client(ScriptedBroker(), tmp_path).__enter__()
    assert threads() == []


def test_many_threads_make_one_answer(tmp_path: Path) -> None:
    with client(ScriptedBroker(), tmp_path) as c, ThreadPoolExecutor(8) as pool:
        receipts = list(pool.map(lambda _: c.report("heights", 172.0), range(8)))
    assert sorted(receipt.status for receipt in receipts) == ["already_answered"] * 7 + ["sent"]


def test_a_closed_one_says_so_and_can_be_opened_again(tmp_path: Path) -> None:
    broker = ScriptedBroker()
    c = client(broker, tmp_path)
    with pytest.raises(RuntimeError, match="inside `with`"):
        c.report("heights", 172.0)
    for status in ("sent", "already_answered"):
        with c:
            assert c.tasks() == {}  # what was learned before may have been withdrawn
            assert c.report("heights", 172.0).status == status
            with pytest.raises(RuntimeError, match="already open"):
                c.__enter__()


def test_a_call_of_another_thread_ends_when_the_client_is_closed(tmp_path: Path) -> None:
    broker = ScriptedBroker()
    broker.faults.append(Fate.NEVER)
    waiting, published = ThreadPoolExecutor(2), threading.Event()
    broker.on_publish = published.set
    with client(broker, tmp_path) as c:
        report = waiting.submit(c.report, "heights", 172.0, timeout=None)
        task = waiting.submit(c.task, "never", timeout=None)
        assert published.wait(60)
    assert report.result(60).status == "queued"
    with pytest.raises(CancelledError):
        task.result(60)
    waiting.shutdown()


INTERRUPTED = """
import sys
from scripted_broker import Fate, ScriptedBroker
from hush_client import SyncClient

broker = ScriptedBroker(on_publish=lambda: print("published", flush=True))
broker.faults.append(Fate.NEVER)
with SyncClient("mqtt://h", device="d", state=sys.argv[1], spread=0, transport=broker) as client:
    try:
        client.report("heights", 172.0, timeout=None)
    except KeyboardInterrupt:
        print(client.report("heights", 172.0, timeout=0).status, flush=True)
"""


@pytest.mark.medium
@pytest.mark.face
def test_ctrl_c_ends_the_wait_and_loses_nothing(tmp_path: Path) -> None:
    path = os.pathsep.join((str(Path(__file__).parents[1]), *sys.path))
    environment = {**os.environ, "PYTHONPATH": path}
    command = [sys.executable, "-c", INTERRUPTED, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == b"published\n"
        program.send_signal(signal.SIGINT)
        assert program.communicate(timeout=60)[0] == b"already_answered\n"
    broker = ScriptedBroker()
    with client(broker, tmp_path) as c:
        assert c.flush()
    assert len(broker.arrived) == 1
