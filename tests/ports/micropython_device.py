"""A device program in MicroPython for tests, by the contract of docs/conform.md: micropython_device.mjs does MQTT."""

import binascii
import json
import sys

sys.path.insert(0, sys.argv[1])

import hush_device
import hush_micropython as hush
import machine_files as files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


class NodeDisk(hush_device.Disk):
    """The files of the machine, which node writes: those of MicroPython are in its memory."""

    def read(self, path: str) -> bytes | None:
        found = files.read(path)
        return None if found is None else binascii.unhexlify(found)

    def write(self, path: str, data: bytes) -> None:
        files.write(path, binascii.hexlify(data).decode())

    def rename(self, path: str, new: str) -> None:
        files.rename(path, new)

    def remove(self, path: str) -> None:
        files.remove(path)

    def names(self, directory: str) -> list[str]:
        names: list[str] = json.loads(files.names(directory))
        return names

    def lock(self, path: str) -> "Callable[[], None]":  # noqa: ARG002 - one program for each state, in tests
        return lambda: None


SETTINGS = json.loads(files.settings())
POLICY = hush_device.Policy()
POLICY.max_epsilon = POLICY.lifetime = SETTINGS["max_epsilon"]
POLICY.spread, POLICY.sticky = SETTINGS["spread"], True


def clock() -> int:
    return int(files.now())


DEVICE = hush_device.Device(
    hush_device.Files(SETTINGS["state"], NodeDisk()), SETTINGS["sender"], clock, POLICY, SETTINGS["broker"]
)


def value() -> str | None:
    text = files.value()
    return text or None


def receive(topic: str, payload: str) -> None:
    DEVICE.receive(topic, binascii.unhexlify(payload))


def answer() -> str:
    """Answer the open round of each task; return why some were not, but for those that are answered."""
    refused = []
    for task in SETTINGS["task"].split(","):
        try:
            DEVICE.answer(task, value)
        except hush.HushError as refusal:
            if refusal.status != "answered":
                refused.append(task + ": " + str(refusal))
    return "\n".join(refused)


def due() -> str:
    """The reports to send, as JSON."""
    return json.dumps(
        [[json.dumps(key), topic, binascii.hexlify(frame).decode()] for key, topic, frame in DEVICE.due()]
    )


def acknowledged(key: str) -> None:
    task, round_ = json.loads(key)
    DEVICE.acknowledged((task, round_))


def recall_topics() -> str:
    return json.dumps(DEVICE.recall_topics())


def tidy() -> None:
    DEVICE.tidy()
