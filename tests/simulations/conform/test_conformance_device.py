"""A device under test: its exit code, its output, and the limits of its broker."""

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from hush_common.mqtt.codec import OLD, write_packet, write_publish
from hush_conform.broker import DeviceBroker
from hush_conform.device import Setup
from hush_conform.program import Output, Program

pytestmark = pytest.mark.medium

ENDED = 7


@pytest.mark.parametrize("turns", [0, 1, 5])
async def test_a_program_has_ended_only_when_its_exit_code_is_known(
    turns: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many turns of the loop lie between the end of the process and the waiter that reads its code."""
    ended = Program.ended

    async def late(self: Program) -> int:
        code = await ended(self)
        for _ in range(turns):
            await asyncio.sleep(0)
        return code

    monkeypatch.setattr(Program, "ended", late)
    setup = Setup((sys.executable, "-I", "-c", f"raise SystemExit({ENDED})"), tmp_path)
    async with setup.device("heights") as device:
        await device.start()
        while device.is_running:
            assert device.codes == []
            await asyncio.sleep(0)
        assert device.codes == [ENDED]


def printed(parts: Sequence[bytes], *search: bytes) -> Output:
    output = Output()
    output.search = search
    output.begin()
    for part in parts:
        output.add(part)
    return output


@pytest.mark.parametrize("cut", range(1, 9))
def test_a_text_is_found_across_two_reads_of_the_output(cut: int) -> None:
    text = b"173.62951"
    output = printed([b"x" * 70_000 + text[:cut], text[cut:] + b"y" * 70_000], text, b"absent")
    assert output.found == {text}


def test_the_last_line_is_kept_and_no_text_spans_two_runs() -> None:
    output = printed([b"x" * 70_000, b"\nthe last line\n", b"173."], b"173.62951")
    output.begin()
    output.add(b"62951\n")
    assert (output.found, output.last_line()) == (set(), "62951")


def connect(name: str = "flood") -> bytes:
    text = len(name).to_bytes(2, "big") + name.encode()
    return write_packet(0x10, b"\0\4MQTT" + bytes((OLD, 2)) + b"\0\x3c" + text)


def publish(payload: bytes) -> bytes:
    return write_publish(OLD, b"hush/v1/reports/a/b", payload, qos=0, number=0, retained=False)


FLOODS = {
    "small messages": [publish(b"x")] * 10_000,
    "large messages": [publish(bytes(900_000))] * 100,
    "subscriptions": [write_packet(0x82, b"\0\1" + b"\0\1a\1" * 50_000)],
}


@pytest.mark.parametrize("flood", FLOODS)
async def test_a_device_that_sends_without_end_is_cut_off(flood: str) -> None:
    broker = DeviceBroker()
    async with broker.running():
        for _ in range(2):  # a second connection gets no further
            reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
            writer.write(connect())
            for packet in FLOODS[flood]:
                writer.write(packet)
            with_end = asyncio.create_task(reader.read())
            await asyncio.wait([with_end], timeout=60)
            assert with_end.done()
            writer.close()
            with_end.exception()  # it was cut off while it sent, or before
    assert len(broker.publications) + len(broker.subscribed) <= 4096
    assert sum(len(one.payload) for one in broker.publications) <= 64 << 20
    assert ["more than" in fault for fault in broker.faults] == [True]
