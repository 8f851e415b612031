"""`python line_device.py HUSH_LINE`: moves bytes between `hush_line`, the C device, and the broker of `hush conform`.

It has no part of hush: C decides everything about tasks, reports and recalls. docs/conform.md has the environment.
"""

import os
import secrets
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode, MQTTProtocolVersion

PAUSE = 0.02  # seconds between two looks at the clock
RECALL_TOPIC = "hush/v1/recalls/"


class Lines:
    """The C program. It may have to wait for the end of the one that was killed before."""

    def __init__(self, program: str) -> None:
        spread = str(int(1000 * float(os.environ.get("HUSH_SPREAD", "1"))))
        command = [program, os.environ["HUSH_STATE"], os.environ["HUSH_SENDER"], os.environ["HUSH_BROKER"], spread]
        for _ in range(100):
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            self._write(
                "limits", os.environ.get("HUSH_MAX_EPSILON", "4"), os.environ.get("HUSH_MAX_EPSILON", "4"), "yes"
            )
            if self._read() == "ok":
                return
            time.sleep(0.05)
        raise SystemExit("the state is in use")

    def ask(self, *words: str) -> str:
        self._write(*words)
        return self._read()

    def list(self, order: str, name: str) -> list[list[str]]:
        """The lines that begin with `name`, up to the first other one."""
        self._write(order)
        found = []
        while (line := self._read().split(" "))[0] == name:
            found.append(line[1:])
        return found

    def _write(self, *words: str) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(" ".join(words) + "\n")
            self._process.stdin.flush()
        except OSError:
            pass  # it has ended, as the next line shows

    def _read(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().rstrip("\n")


class Device:
    """One connection at a time, and again after it is lost."""

    def __init__(self, lines: Lines) -> None:
        self._lines = lines
        self._tasks: dict[str, bytes] = {}
        self._tickets: dict[int, str] = {}
        self._is_connected = False

    def run(self) -> None:
        address = urlsplit(os.environ["HUSH_BROKER"])
        assert address.hostname is not None
        assert address.port is not None
        version = MQTTProtocolVersion.MQTTv5
        while True:
            client = Client(CallbackAPIVersion.VERSION2, f"c-{secrets.token_hex(6)}", protocol=version)
            self._is_connected = False
            client.on_message = self._receive
            client.on_publish = self._acknowledge
            client.on_connect = self._subscribe
            try:
                client.connect(address.hostname, address.port)
                self._stay(client)
            except OSError:
                pass
            if not self._is_connected:  # perhaps it does not speak this version
                old = version == MQTTProtocolVersion.MQTTv311
                version = MQTTProtocolVersion.MQTTv5 if old else MQTTProtocolVersion.MQTTv311
            self._lines.ask("lost")
            self._tickets.clear()
            self._tasks.clear()
            time.sleep(0.1)

    def _stay(self, client: Client) -> None:
        while client.loop(PAUSE) == MQTTErrorCode.MQTT_ERR_SUCCESS:
            for task, payload in self._tasks.items():
                self._answer(task, payload)
            for ticket, topic, frame in self._lines.list("send", "publish"):
                sent = client.publish(topic, bytes.fromhex(frame), qos=1)
                self._tickets[sent.mid] = ticket

    def _answer(self, task: str, payload: bytes) -> None:
        if self._lines.ask("task", task, payload.hex() or "-").startswith("decided"):
            text = Path(os.environ["HUSH_VALUE_FILE"]).read_bytes().split(b"\n")[0]
            self._lines.ask("value", text.hex() or "none")

    def _subscribe(self, client: Client, _: object, __: object, reason: object, ___: object) -> None:
        if getattr(reason, "is_failure", True):
            return
        self._is_connected = True
        topics = {f"hush/v1/tasks/{task}" for task in os.environ["HUSH_TASK"].split(",")}
        topics |= {RECALL_TOPIC + task for task in os.environ["HUSH_TASK"].split(",")}
        topics |= {topic for (topic,) in self._lines.list("topics", "topic")}
        client.subscribe([(topic, 1) for topic in sorted(topics)])

    def _receive(self, _: Client, __: object, message: MQTTMessage) -> None:
        task = message.topic.rpartition("/")[2]
        if message.topic.startswith(RECALL_TOPIC):
            self._lines.ask("recall", task, message.payload.hex() or "-")
        else:
            self._tasks[task] = bytes(message.payload)

    def _acknowledge(self, _: Client, __: object, mid: int, reason: object, *___: object) -> None:
        ticket = self._tickets.pop(mid, None)
        if ticket is not None:
            self._lines.ask("ack", ticket, str(getattr(reason, "value", 0)))


if __name__ == "__main__":
    Device(Lines(sys.argv[1])).run()
