"""An edge broker forwards to a central one, with the lines of docs/operations.md."""

import json
import re
import subprocess
from pathlib import Path

import pytest
from processes import Serve, fill, report_id
from servers import Mosquitto, need
from waiting import wait_until

from hush_common.task import make_task
from hush_common.topics import estimate_topic, task_topic

pytestmark = pytest.mark.large

TEXT = (Path(__file__).parents[3] / "docs/operations.md").read_text(encoding="utf-8")
NUMBER = make_task({"id": "number", "epsilon": "1", "domain": {"kind": "number", "lower": 0.0, "upper": 1.0}})


def bridge(port: int) -> str:
    """The lines of the document, to a port of the loopback without TLS and login, which tries again at once."""
    (block,) = re.findall(r"^```text\n(connection central\n.*?)^```", TEXT, flags=re.DOTALL | re.MULTILINE)
    block, secured = re.subn(r"^(bridge_cafile|remote_username|remote_password) .*\n", "", block, flags=re.MULTILINE)
    assert secured == 3
    return block.replace("central.example:8883", f"127.0.0.1:{port}\nrestart_timeout 1")


def first(port: int, topic: str) -> bytes:
    """The first message of a topic."""
    words = [need("mosquitto_sub"), "-h", "127.0.0.1", "-p", str(port), "-t", topic, "-C", "1", "-W", "60"]
    return subprocess.run(words, capture_output=True, check=True, timeout=90).stdout.rstrip(b"\n")


def test_tasks_come_to_the_edge_and_every_report_to_the_centre(tmp_path: Path) -> None:
    for name in ("central", "edge"):
        (tmp_path / name).mkdir()
    central = Mosquitto(tmp_path / "central")
    central.start()
    edge = Mosquitto(tmp_path / "edge", settings=f"max_queued_messages 0\n{bridge(central.port)}")
    edge.start()
    service = Serve(central.url, tmp_path, None, task=NUMBER).start()
    try:
        service.until_subscribed()
        assert first(edge.port, task_topic(NUMBER.id)) == NUMBER.payload
        fill(edge.port, NUMBER, range(500), senders=10)
        wait_until(lambda: service.n >= 500)
        central.stop()
        fill(edge.port, NUMBER, range(500, 1000), senders=10)  # waits on the edge
        central.start()
        wait_until(lambda: service.n >= 1000)
        assert sorted(service.ids()) == sorted(map(report_id, range(1000)))
        wait_until(lambda: json.loads(first(edge.port, estimate_topic(NUMBER.id)))["n"] == 1000)
    finally:
        service.end()
        edge.stop()
        central.stop()
