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
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from certificates import Authority
from servers import Mosquitto, need
from serving import estimate
from waiting import PATIENCE_S, wait_until

from hush_aggregator.publish.webhook import NotifyEvent, Webhook
from hush_common.task import make_task
from hush_common.wire import Report, encode_json

pytestmark = [pytest.mark.medium, pytest.mark.face]

TASK = 'id = "smoke"\nepsilon = "4"\n[domain]\nkind = "bit"\n'
SMOKE = make_task({"id": "smoke", "epsilon": "4", "domain": {"kind": "bit"}})
KEY = b"k" * 32


@dataclass
class Receiver:
    """A receiver on the loopback, and headers and body of each request that it has accepted."""

    received: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    url: str = ""

    @contextmanager
    def running(self, tls: ssl.SSLContext | None = None) -> Iterator[None]:
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.received.append(({name.lower(): value for name, value in self.headers.items()}, body))
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        self.url = f"http{'s' if tls else ''}://127.0.0.1:{server.server_port}/hush?token=x"
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()
            server.server_close()

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(body)["data"] for _, body in self.received]


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
    command = [sys.executable, "-m", "hush", "serve", "--broker", mosquitto.url, "--store", str(directory / "store")]
    command += ["--task", str(directory / "task.toml"), "--notify", receiver.url]
    command += ["--notify-precision", "smoke=30%", "--notify-precision", "smoke=10%"]
    command += ["--notify-secret-file", str(secret(directory))]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        try:
            estimate(mosquitto.port, 0, "smoke")  # published after the subscription
            yield process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                assert process.wait(PATIENCE_S) == 0


def report(mosquitto: Mosquitto, count: int) -> None:
    lines = "".join(
        encode_json("smoke", Report(SMOKE.report_digest, 0, secrets.token_bytes(16), (k % 2,))).decode() + "\n"
        for k in range(count)
    )
    command = [need("mosquitto_pub"), "-p", str(mosquitto.port), "-t", "hush/v1/reports/smoke/device", "-q", "1", "-l"]
    subprocess.run(command, input=lines.encode(), check=True, timeout=60)


def test_a_precise_estimate_is_reported_once_even_after_a_kill(
    mosquitto: Mosquitto, receiver: Receiver, tmp_path: Path
) -> None:
    with serving(mosquitto, receiver, tmp_path) as process:
        report(mosquitto, 4)
        estimate(mosquitto.port, 4, "smoke")
        assert receiver.received == []
        report(mosquitto, 200)
        wait_until(lambda: receiver.received)
        wait_until(lambda: json.loads((tmp_path / "store.notify").read_bytes())["done"])
        process.kill()
        process.wait()
    with serving(mosquitto, receiver, tmp_path):
        report(mosquitto, 3000)  # events are sent in order: another one of the first goal would come before the second
        wait_until(lambda: any(event["precision"] == 0.1 for event in receiver.events))
        wait_until(lambda: not json.loads((tmp_path / "store.notify").read_bytes())["waiting"])
    assert [event["precision"] for event in receiver.events] == [0.3, 0.1]
    for (headers, body), event in zip(receiver.received, receiver.events, strict=True):
        signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
        assert headers["webhook-signature"] == "v1," + base64.b64encode(hmac.digest(KEY, signed, "sha256")).decode()
        low, high = event["interval"]
        assert (high - low) / 2 <= event["precision"]
    assert 4 < receiver.events[0]["n"] <= 204 < receiver.events[1]["n"]
    stored = json.loads((tmp_path / "store.notify").read_bytes())
    assert stored == {"v": 1, "done": [headers["webhook-id"] for headers, _ in receiver.received], "waiting": []}


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
