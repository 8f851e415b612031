"""`hush serve --notify` with a real mosquitto and a real receiver."""

import asyncio
import base64
import hmac
import http.server
import json
import secrets
import signal
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from certificates import Authority
from servers import Mosquitto, free_port, need
from serving import estimate

from hush_aggregator.notify import NotifyEvent, Webhook
from hush_common.task import make_task
from hush_common.wire import Report, encode_json

TASK = """\
id = "smoke"
epsilon = "4"
[domain]
kind = "bit"
"""
SMOKE = make_task({"id": "smoke", "epsilon": "4", "domain": {"kind": "bit"}})
KEY = b"k" * 32
PATIENT = "from hush_aggregator import notify; notify._PATIENCE_S = 600.0; from hush.cli import main; main()"
"""`hush`, which waits longer for a receiver than any test does."""


@dataclass
class Receiver:
    """A receiver on the loopback.

    Attributes:
        status: of its answers; 0 for none, ever.
        received: headers and body of each request.
    """

    status: int = 204
    received: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    url: str = ""

    @contextmanager
    def running(self, tls: ssl.SSLContext | None = None) -> Iterator[None]:
        receiver, over = self, threading.Event()

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.received.append(({name.lower(): value for name, value in self.headers.items()}, body))
                if not receiver.status:
                    over.wait(60)
                    return
                self.send_response(receiver.status)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", free_port()), Handler)
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        self.url = f"http{'s' if tls else ''}://127.0.0.1:{server.server_port}/hush?token=x"
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield
        finally:
            over.set()
            server.shutdown()
            thread.join()
            server.server_close()

    def wait(self, count: int) -> None:
        until = time.monotonic() + 60
        while len(self.received) < count:
            assert time.monotonic() < until, self.received
            time.sleep(0.02)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    found = Receiver()
    with found.running():
        yield found


def secret(directory: Path) -> Path:
    file = directory / "webhook"
    file.write_bytes(b"whsec_" + base64.b64encode(KEY) + b"\n")
    return file


@contextmanager
def serving(mosquitto: Mosquitto, receiver: Receiver, directory: Path) -> Iterator["subprocess.Popen[bytes]"]:
    (directory / "task.toml").write_text(TASK, encoding="utf-8")
    command = [sys.executable, "-c", PATIENT, "serve", "--broker", mosquitto.url, "--store", str(directory / "store")]
    command += ["--task", str(directory / "task.toml"), "--notify", receiver.url, "--notify-precision", "smoke=30%"]
    command += ["--notify-secret-file", str(secret(directory))]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        try:
            estimate(mosquitto.port, 0, "smoke")  # published after the subscription
            yield process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                assert process.wait(60) == 0


def report(mosquitto: Mosquitto, count: int) -> None:
    lines = "".join(
        encode_json("smoke", Report(SMOKE.report_digest, 0, secrets.token_bytes(16), (k % 2,))).decode() + "\n"
        for k in range(count)
    )
    command = [need("mosquitto_pub"), "-p", str(mosquitto.port), "-t", "hush/v1/reports/smoke/device", "-q", "1", "-l"]
    subprocess.run(command, input=lines.encode(), check=True, timeout=60)


@pytest.mark.large
def test_a_precise_estimate_is_reported_once_and_signed_and_not_after_a_kill(
    mosquitto: Mosquitto, receiver: Receiver, tmp_path: Path
) -> None:
    with serving(mosquitto, receiver, tmp_path) as process:
        report(mosquitto, 4)
        first = estimate(mosquitto.port, 4, "smoke")
        assert receiver.received == []
        report(mosquitto, 200)
        receiver.wait(1)
        done = json.loads((tmp_path / "store.notify").read_bytes())
        while not done["done"]:
            done = json.loads((tmp_path / "store.notify").read_bytes())
        process.kill()
        process.wait()
    with serving(mosquitto, receiver, tmp_path):
        report(mosquitto, 50)
        last = estimate(mosquitto.port, 254, "smoke")
        time.sleep(1.5)  # it would have been sent by now
    assert len(receiver.received) == 1
    headers, body = receiver.received[0]
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    assert headers["webhook-signature"] == "v1," + base64.b64encode(hmac.digest(KEY, signed, "sha256")).decode()
    assert abs(time.time() - int(headers["webhook-timestamp"])) < 600
    event = json.loads(body)
    low, high = event["data"]["interval"]
    assert (high - low) / 2 <= 0.3
    assert 4 < event["data"]["n"] <= 204
    assert _half_width(first) > 0.3 >= _half_width(last)
    assert done == {"v": 1, "done": [headers["webhook-id"]], "waiting": []}


def _half_width(document: dict[str, object]) -> float:
    intervals = document["intervals"]
    assert isinstance(intervals, dict)
    low, high = intervals["anytime"]
    return float(high - low) / 2


def test_a_receiver_that_never_answers_delays_neither_the_estimates_nor_the_end(
    mosquitto: Mosquitto, receiver: Receiver, tmp_path: Path
) -> None:
    receiver.status = 0
    with serving(mosquitto, receiver, tmp_path) as process:
        report(mosquitto, 200)
        receiver.wait(1)
        report(mosquitto, 100)
        assert estimate(mosquitto.port, 300, "smoke")["n"] == 300
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        assert time.monotonic() - began < 60  # a post that has no answer is given up after 600, here


async def test_the_certificate_of_a_receiver_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.issue("receiver", host="127.0.0.1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    receiver, event = Receiver(), NotifyEvent("msg_1", "smoke", 0, b"{}")
    with receiver.running(context):
        hook = Webhook(receiver.url, secret(tmp_path))
        with pytest.raises(ssl.SSLCertVerificationError):
            await asyncio.to_thread(hook.post, event)
        assert receiver.received == []
        monkeypatch.setenv("SSL_CERT_FILE", str(authority.pem))
        assert await asyncio.to_thread(hook.post, event) == 204
    assert len(receiver.received) == 1
