"""A device in C for tests, by the contract of docs/conform.md: this program does MQTT, `hush_line` everything else.

line_device.py HUSH_LINE
"""

import os
import subprocess
import sys
import time
from pathlib import Path
from queue import Empty, Queue
from secrets import token_hex
from urllib.parse import urlsplit

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion

ENDS = ("wait", "ok", "refused", "decided", "answered", "spent")


class Line:
    """`hush_line`, one order at a time."""

    def __init__(self, program: str) -> None:
        sender, broker = os.environ["HUSH_SENDER"], os.environ["HUSH_BROKER"]
        spread = str(round(1000 * float(os.environ["HUSH_SPREAD"])))
        command = [program, os.environ["HUSH_STATE"], sender, broker, spread]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, *words: str) -> list[list[str]]:
        """The lines of the outcome, each as words."""
        stdin, stdout = self.process.stdin, self.process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(" ".join(words) + "\n")
        stdin.flush()
        lines = [stdout.readline().split()]
        while lines[-1] and lines[-1][0] not in ENDS:
            lines.append(stdout.readline().split())
        if not lines[-1]:
            sys.exit("hush_line has ended")
        return lines


def value() -> str:
    text = Path(os.environ["HUSH_VALUE_FILE"]).read_text(encoding="utf-8").removesuffix("\n")
    return text.encode().hex() or "none"


def main() -> None:
    task, limit = os.environ["HUSH_TASK"], os.environ["HUSH_MAX_EPSILON"]
    line, inbox = Line(sys.argv[1]), Queue[tuple[str, str, bytes]]()
    line.ask("limits", limit, limit, "yes")
    address = urlsplit(os.environ["HUSH_BROKER"])
    name = f"{os.environ['HUSH_SENDER']}-{token_hex(6)}"
    client = mqtt.Client(CallbackAPIVersion.VERSION2, client_id=name)

    def connected(*_: object) -> None:
        client.subscribe([(f"hush/v1/tasks/{task}", 1), (f"hush/v1/recalls/{task}", 1)])

    client.on_connect = connected
    client.on_disconnect = lambda *_: inbox.put(("lost", "", b""))
    client.on_message = lambda _, __, message: inbox.put(("message", message.topic, bytes(message.payload)))
    client.on_publish = lambda _, __, number, *___: inbox.put(("acknowledged", str(number), b""))
    client.connect_async(address.hostname or "127.0.0.1", address.port or 1883)
    client.loop_start()
    payload, flying = b"", dict[str, str]()
    while True:
        payload = handle(line, inbox, flying, payload)
        if payload and line.ask("task", payload.hex())[0][0] == "decided":
            line.ask("value", value())
        for words in line.ask("send")[:-1]:
            _, ticket, topic, frame = words
            flying[str(client.publish(topic, bytes.fromhex(frame), qos=1).mid)] = ticket


def handle(line: Line, inbox: "Queue[tuple[str, str, bytes]]", flying: dict[str, str], task: bytes) -> bytes:
    """Pass on what came from the broker within a tenth of a second; return the task that is published now."""
    end = time.monotonic() + 0.1
    while (left := end - time.monotonic()) > 0:
        try:
            what, about, payload = inbox.get(timeout=left)
        except Empty:
            break
        if what == "lost":
            flying.clear()
            line.ask("lost")
        elif what == "acknowledged":
            if about in flying:
                line.ask("ack", flying.pop(about), "0")
        elif "/recalls/" in about:
            line.ask("recall", about.rpartition("/")[2], payload.hex() or "-")
        else:
            task = payload
    return task


main()
