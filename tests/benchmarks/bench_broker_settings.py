"""What the settings of the broker cost that docs/operations.md advises, against those that mosquitto has by itself.

A real mosquitto, a real publisher of one report a message, a real aggregator in this process.
`python tests/benchmarks/bench_broker_settings.py [REPORTS]`, by default 10 000 of them at a time, at least 3000.
"""

import asyncio
import hashlib
import os
import secrets
import statistics
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion

sys.path.insert(0, str(Path(__file__).parents[1]))
from counting import aggregating
from servers import Mosquitto

from hush_aggregator.ops.mosquitto import GIVEN_ITERATIONS, MADE_ITERATIONS
from hush_aggregator.store import CommitOutcome
from hush_common.task import make_task
from hush_common.topics import report_topic
from hush_common.wire import Report, encode_frame

TASK = make_task({"id": "heights", "epsilon": "1", "domain": {"kind": "number", "lower": 120.0, "upper": 220.0}})
TOPIC = report_topic("heights", "device")
PAIRS = 3
PUBLISHING_S = 3.0
ROUND_TRIP_S = 0.02


def payload() -> bytes:
    return encode_frame([Report(TASK.report_digest, 0, secrets.token_bytes(16), (1,))])


def publisher(broker: Mosquitto) -> paho.Client:
    client = paho.Client(CallbackAPIVersion.VERSION2, client_id=f"p-{secrets.token_hex(4)}")
    client.max_inflight_messages_set(500)
    client.connect("127.0.0.1", broker.port)
    client.loop_start()
    return client


def publish(broker: Mosquitto, count: int) -> None:
    """Reports, each acknowledged."""
    client = publisher(broker)
    for sent in [client.publish(TOPIC, payload(), qos=1) for _ in range(count)]:
        sent.wait_for_publish(60)
    client.disconnect()
    client.loop_stop()


def resident(broker: Mosquitto) -> int:
    """Bytes in memory."""
    assert broker.process is not None
    lines = Path(f"/proc/{broker.process.pid}/status").read_text(encoding="ascii").splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))


async def away(broker: Mosquitto, store: Path) -> None:
    """Let an aggregator subscribe, and leave."""
    async with aggregating(broker, store, tasks=(TASK,)):
        pass


async def drained(broker: Mosquitto, store: Path, count: int, *, far: bool) -> float:
    """Reports counted in a second, from what waits on the broker."""
    done = asyncio.Event()
    moments: list[tuple[float, int]] = []

    def note(outcome: CommitOutcome) -> None:
        moments.append((time.perf_counter(), outcome.accepted))
        if sum(accepted for _, accepted in moments) == count:
            done.set()

    async with (
        afar(broker) if far else nullcontext(broker) as place,
        aggregating(place, store, tasks=(TASK,), on_commit=note),
        asyncio.timeout(60),
    ):
        await done.wait()
    return sum(accepted for _, accepted in moments[1:]) / (moments[-1][0] - moments[0][0])


@asynccontextmanager
async def afar(broker: Mosquitto) -> AsyncIterator[Mosquitto]:
    """The same broker, `ROUND_TRIP_S` away."""

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while chunk := await reader.read(65_536):
            asyncio.get_running_loop().call_later(ROUND_TRIP_S / 2, writer.write, chunk)
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", broker.port)
        with suppress(asyncio.CancelledError):  # at the end, of which asyncio would print a traceback
            await asyncio.gather(pump(reader, back), pump(there, writer), return_exceptions=True)

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield replace(broker, port=server.sockets[0].getsockname()[1])


def intake(directory: Path, inflight: int, count: int, *, far: bool) -> tuple[float, float]:
    """Reports counted in a second, and bytes that the broker takes for one that waits."""
    broker = Mosquitto(directory, settings=f"max_queued_messages 0\nmax_inflight_messages {inflight}")
    broker.start()
    try:
        asyncio.run(away(broker, directory / "store"))
        before = resident(broker)
        publish(broker, count)
        each = (resident(broker) - before) / count
        return asyncio.run(drained(broker, directory / "store", count, far=far)), each
    finally:
        broker.stop()


def processor(broker: Mosquitto) -> float:
    """Seconds that the broker has worked."""
    assert broker.process is not None
    fields = Path(f"/proc/{broker.process.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def acknowledged(directory: Path, autosave: int) -> tuple[float, float]:
    """Reports that wait for an aggregator: acknowledged in a second, and µs of the broker's processor for one."""
    broker = Mosquitto(
        directory, settings=f"max_queued_messages 0\nmax_inflight_messages 1000\nautosave_interval {autosave}"
    )
    broker.start()
    try:
        asyncio.run(away(broker, directory / "store"))
        client = publisher(broker)
        worked, began, count = processor(broker), time.perf_counter(), 0
        while time.perf_counter() - began < PUBLISHING_S:
            for sent in [client.publish(TOPIC, payload(), qos=1) for _ in range(1000)]:
                sent.wait_for_publish(60)
            count += 1000
        rate = count / (time.perf_counter() - began)
        each = (processor(broker) - worked) / count
        client.disconnect()
        client.loop_stop()
        return rate, each * 1e6
    finally:
        broker.stop()


def check(iterations: int) -> float:
    """Milliseconds of one check of a password."""
    took = []
    for _ in range(20):
        began = time.perf_counter()
        hashlib.pbkdf2_hmac("sha512", b"x" * 32, b"y" * 12, iterations)
        took.append(time.perf_counter() - began)
    return statistics.median(took) * 1000


def main() -> None:
    say, median = sys.stdout.write, statistics.median
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    for far in (False, True):
        rates: dict[int, list[float]] = {1000: [], 20: []}
        for _ in range(PAIRS):
            for inflight, found in rates.items():
                with TemporaryDirectory() as directory:
                    rate, each = intake(Path(directory), inflight, count, far=far)
                found.append(rate)
                where = f"{1000 * ROUND_TRIP_S * far:.0f} ms away, max_inflight_messages {inflight:4}"
                say(f"{where}: {rate:6.0f} reports/s; {each:.0f} bytes for one that waits\n")
        say(f"ratio of medians: {median(rates[1000]) / median(rates[20]):.2f}\n")
    worked: dict[int, list[float]] = {60: [], 1: []}
    for _ in range(PAIRS):
        for autosave, found in worked.items():
            with TemporaryDirectory() as directory:
                rate, each = acknowledged(Path(directory), autosave)
            found.append(each)
            say(f"autosave_interval {autosave:2}: {rate:6.0f} acknowledged/s, {each:.1f} µs of processor for each\n")
    say(f"ratio of medians of processor time: {median(worked[1]) / median(worked[60]):.2f}\n")
    for iterations in (MADE_ITERATIONS, GIVEN_ITERATIONS):
        say(f"PBKDF2 with {iterations} iterations: {check(iterations):.2f} ms\n")


if __name__ == "__main__":
    main()
