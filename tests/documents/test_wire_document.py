"""Small clients as docs/wire.md, docs/ports.md and README.md show them: drawn once, and counted once."""

import asyncio
import itertools
import re
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import aiomqtt
import pytest
from port_programs import PORTS, micropython
from servers import Mosquitto, need
from serving import estimate, serving

from hush_client import Client
from hush_common.wire import Frame, decode

pytestmark = [pytest.mark.medium, pytest.mark.face]

ROOT = Path(__file__).parents[2]
HEIGHTS = """
id = "heights"
title = "Mean height of adults"
purpose = "Sizing of workplaces"
epsilon = "1"
[domain]
kind = "number"
lower = 120.0
upper = 220.0
unit = "cm"
"""
RUN_TWICE = """
import os
import sys

sys.path.insert(0, "{ports}")
{block}

os.mkdir("state")

def publish(topic, frame):
    print("publish", topic, "".join("%02x" % byte for byte in frame))
    if sent.pop():
        raise OSError  # the connection is lost before the acknowledgement

with open("heights.json", "rb") as file:
    message = "hush/v1/tasks/heights", file.read()
sent, now = [False, True], [0]

def clock():
    now[0] += 2000  # a report is sent within a second
    return now[0]

for run in range(2):
    try:
        run_device("state", "sensor-17", clock, [message], [("heights", lambda: "172.0")], publish)
    except OSError:
        pass
"""


def block(document: str, language: str, containing: str = "") -> str:
    text = (ROOT / document).read_text(encoding="utf-8")
    (found,) = [
        one for one in re.findall(rf"^```{language}\n(.*?)\n```", text, re.DOTALL | re.MULTILINE) if containing in one
    ]
    return str(found)


def body_of(frame: bytes) -> int:
    decoded = decode(frame)
    assert isinstance(decoded, Frame)
    return decoded.reports[0].body[0]


def by_shell(port: int, folder: Path) -> int:
    recipe = block("docs/wire.md", "sh").replace("gcc ", need("gcc") + " ")
    for program in ("mosquitto_pub", "mosquitto_sub"):
        recipe = recipe.replace(f"{program} -h broker.local", f"{need(program)} -p {port}")
    shutil.copytree(PORTS, folder / "client" / "ports", dirs_exist_ok=True)
    subprocess.run(["sh", "-c", recipe], cwd=folder, check=True)
    state = folder / "hush-state"
    assert (state / "heights.json").read_text("utf-8") == block("docs/wire.md", "json", '"domain"')
    assert "epsilon 1\n" in (state / "heights.charge").read_text(encoding="utf-8")
    return body_of((state / "heights.frame").read_bytes())


def by_one_command(port: int, folder: Path) -> int:
    (publish,) = [one for one in block("README.md", "sh", "mosquitto_pub").splitlines() if "mosquitto_pub -p" in one]
    command = publish.replace("mosquitto_pub -p 1883", f"{need('mosquitto_pub')} -p {port}")
    subprocess.run(["sh", "-c", command], cwd=folder, check=True)
    return int(re.findall(r'"body":\[(\d+)\]', publish)[0])


def by_python(port: int, folder: Path, run: Callable[[Path], list[str]]) -> int:
    """Run the program once, which sends twice; publish what it sends."""
    frame = folder / "frame"
    if not frame.exists():
        (folder / "heights.json").write_text(block("docs/wire.md", "json", '"domain"'), encoding="utf-8")
        program = folder / "run.py"
        device = block("docs/ports.md", "python")
        program.write_text(RUN_TWICE.format(ports=PORTS / "micropython", block=device), encoding="utf-8")
        done = subprocess.run(run(program), cwd=folder, check=True, capture_output=True, text=True)
        sent, again = (line for line in done.stdout.splitlines() if line.startswith("publish"))
        assert sent == again
        frame.write_bytes(bytes.fromhex(sent.split()[2]))
    topic = "hush/v1/reports/heights/sensor-17"
    subprocess.run([need("mosquitto_pub"), "-p", str(port), "-q", "1", "-t", topic, "-f", str(frame)], check=True)
    return body_of(frame.read_bytes())


def by_cpython(port: int, folder: Path) -> int:
    return by_python(port, folder, lambda program: [sys.executable, "-I", str(program)])


def by_micropython(port: int, folder: Path) -> int:
    return by_python(port, folder, lambda program: micropython(program, folder, PORTS))


@pytest.mark.large
@pytest.mark.parametrize(
    "send",
    [
        by_one_command,
        by_cpython,
        by_micropython,
        by_shell,
    ],
)
def test_the_report_of_a_recipe_is_counted_once_however_often_it_is_sent(
    mosquitto: Mosquitto, tmp_path: Path, send: Callable[[int, Path], int]
) -> None:
    with serving(mosquitto.url, tmp_path, HEIGHTS):
        assert estimate(mosquitto.port, 0)["n"] == 0
        for number, refused in ((1, {}), (2, {"duplicate": 1})):
            body = send(mosquitto.port, tmp_path)
            found = estimate(mosquitto.port, number)
            assert (found["n"], found["refused"]) == (1, refused)
            assert found["mean"] == pytest.approx(120 + 100 * body / 2**20)


async def recorded(broker: int, directory: Path) -> bytes:
    """What a client sends to a broker while it answers a task."""
    sent = bytearray()

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, note: bytearray) -> None:
        while data := await reader.read(4096):
            note += data
            writer.write(data)
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_broker, to_broker = await asyncio.open_connection("127.0.0.1", broker)
        await asyncio.gather(forward(reader, to_broker, sent), forward(from_broker, writer, bytearray()))

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        url = f"mqtt://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with aiomqtt.Client("127.0.0.1", broker) as listener:
            await listener.subscribe("hush/v1/reports/+/+", 1)
            async with Client(url, device="dev", state=directory, spread=0) as client:
                assert (await client.report("heights", 172.0)).status == "sent"
    return bytes(sent)


def packets(sent: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Type, flags and body of each MQTT packet shorter than 128 bytes."""
    while sent:
        assert sent[1] < 128
        yield sent[0] >> 4, sent[0] & 15, sent[2 : 2 + sent[1]]
        sent = sent[2 + sent[1] :]


async def test_the_client_connects_and_sends_as_the_protocol_says(mosquitto: Mosquitto, tmp_path: Path) -> None:
    task = block("docs/wire.md", "json", '"domain"').encode()
    async with aiomqtt.Client("127.0.0.1", mosquitto.port) as administrator:
        await administrator.publish("hush/v1/tasks/heights", task, qos=1, retain=True)
    sent = await recorded(mosquitto.port, tmp_path)
    connect, subscribe, _acknowledgement, report = itertools.islice(packets(sent), 4)
    level, flags, seconds = struct.unpack_from(">BBH", connect[2], 6)
    assert (connect[:2], connect[2][:6], level, flags, seconds) == ((1, 0), b"\0\4MQTT", 5, 0b10, 60), "a clean start"
    after = 11 + connect[2][10]  # properties, after their length
    assert 17 not in connect[2][11:after], "no session expiry"
    assert re.fullmatch(rb"dev-[0-9a-f]{12}", connect[2][after + 2 :])
    assert subscribe == (8, 2, subscribe[2][:2] + b"\0\0\x15hush/v1/tasks/heights\1"), "at QoS 1, no properties"
    assert report[:2] == (3, 0b0010), "at QoS 1, not retained"
