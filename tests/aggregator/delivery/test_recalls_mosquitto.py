"""Recalls between a real `hush serve`, a real mosquitto and real gateways: what each death costs, which is nothing."""

import asyncio
import shutil
import signal
import sys
from asyncio.subprocess import DEVNULL
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from chaos import Serve, spent
from counting import shell
from servers import Mosquitto

from hush_aggregator.recalls import RecallReason
from hush_client import Gateway, MqttTransport
from hush_common.topics import estimate_topic

pytestmark = pytest.mark.medium

DEVICES = 400


@asynccontextmanager
async def gateway(bare: Mosquitto, directory: Path) -> AsyncIterator[Gateway]:
    """With a second between the recalls that it obeys."""
    transport = MqttTransport(bare.url, "g")
    async with Gateway(transport, name="g", state=directory / "g", spread=0, recall_every=1.0) as there:
        yield there


async def answer(there: Gateway, devices: range) -> None:
    receipts = await there.report_many("heights", {f"d{n}": 0.5 for n in devices}, timeout=120)
    assert {receipt.status for receipt in receipts.values()} == {"sent"}


async def count(serve: Serve, reports: int, within_s: float = 150) -> None:
    async with asyncio.timeout(within_s):
        while serve.counted()[0] < reports:  # noqa: ASYNC110 - another process's file has no event
            await asyncio.sleep(0.05)


async def lose_what_waits(bare: Mosquitto, serve: Serve, there: Gateway) -> None:
    """Half of the devices answer while nobody counts; then the broker, which took it all, is killed."""
    await answer(there, range(DEVICES // 2))
    await count(serve, DEVICES // 2)
    serve.end(signal.SIGKILL)
    await answer(there, range(DEVICES // 2, DEVICES))
    bare.kill()
    bare.start()
    serve.start()


@pytest.mark.large
async def test_what_waited_at_a_broker_that_was_killed_is_counted_all_the_same(
    bare: Mosquitto, memory_path: Path
) -> None:
    serve = Serve(bare.url, memory_path)
    serve.start()
    async with gateway(bare, memory_path) as there:
        await lose_what_waits(bare, serve, there)
        await count(serve, DEVICES)
    assert serve.end(signal.SIGTERM) == 0
    assert serve.counted() == (DEVICES, DEVICES)
    assert spent(memory_path / "g") == (DEVICES, DEVICES)
    assert serve.told()[RecallReason.SESSION] == 1


@pytest.mark.large
async def test_without_a_recall_it_is_lost(bare: Mosquitto, memory_path: Path) -> None:
    serve = Serve(bare.url, memory_path, over=0)
    serve.start()
    async with gateway(bare, memory_path) as there:
        await lose_what_waits(bare, serve, there)
        await serve.connected(2)
        with pytest.raises(TimeoutError):
            await count(serve, DEVICES, within_s=5)
    serve.end(signal.SIGTERM)
    assert serve.counted() == (DEVICES // 2, DEVICES // 2)


@pytest.mark.large
async def test_a_broker_put_back_from_an_older_snapshot_still_has_the_session_and_is_found_out(
    bare: Mosquitto, memory_path: Path
) -> None:
    memory, snapshot = bare.directory / "mosquitto.db", memory_path / "snapshot"
    serve = Serve(bare.url, memory_path)
    serve.start()
    async with gateway(bare, memory_path) as there:
        await answer(there, range(DEVICES // 2))
        await count(serve, DEVICES // 2)
        serve.end(signal.SIGKILL)
        bare.stop()  # which writes its memory, the session too
        shutil.copy(memory, snapshot)
        bare.start()
        await answer(there, range(DEVICES // 2, DEVICES))
        bare.kill()
        shutil.copy(snapshot, memory)
        bare.start()
        serve.start()
        await count(serve, DEVICES)
    assert serve.end(signal.SIGTERM) == 0
    assert (serve.told()[RecallReason.SESSION], serve.told()[RecallReason.RESTART]) == (0, 1)


@pytest.mark.large
async def test_a_part_that_stands_still_for_a_while_loses_nothing_and_is_no_reason_to_recall(
    bare: Mosquitto, memory_path: Path
) -> None:
    serve = Serve(bare.url, memory_path)
    serve.start()
    async with gateway(bare, memory_path) as there:
        await answer(there, range(DEVICES // 4))
        assert serve.process is not None
        assert bare.process is not None
        for part, process in enumerate((serve.process, bare.process), 1):
            process.send_signal(signal.SIGSTOP)
            devices = range(part * DEVICES // 4, (part + 1) * DEVICES // 4)
            answering = asyncio.create_task(answer(there, devices))
            await asyncio.sleep(1.5)
            process.send_signal(signal.SIGCONT)
            await answering
        await answer(there, range(3 * DEVICES // 4, DEVICES))
        await count(serve, DEVICES)
    assert serve.end(signal.SIGTERM) == 0
    assert serve.counted() == (DEVICES, DEVICES)
    assert set(serve.told().values()) == {0}


@pytest.mark.large
async def test_a_backup_put_back_by_the_command_asks_for_what_came_since(bare: Mosquitto, memory_path: Path) -> None:
    serve, backup = Serve(bare.url, memory_path), memory_path / "backup"
    serve.start()
    async with gateway(bare, memory_path) as there:
        await answer(there, range(DEVICES // 2))
        await count(serve, DEVICES // 2)
        await hush_store("backup", backup, serve.store)  # while it runs
        await answer(there, range(DEVICES // 2, DEVICES))
        await count(serve, DEVICES)
        serve.end(signal.SIGTERM)
        shell("mosquitto_pub", bare.port, "-t", estimate_topic("heights"), "-r", "-n")  # no other sign is left
        await hush_store("restore", backup, serve.store, "--replace")
        assert serve.counted() == (DEVICES // 2, DEVICES // 2)
        serve.start()
        await count(serve, DEVICES)
    assert serve.end(signal.SIGTERM) == 0
    assert serve.counted() == (DEVICES, DEVICES)
    assert {cause for cause, times in serve.told().items() if times} == {RecallReason.RESTORED}


async def hush_store(command: str, backup: Path, store: Path, *options: str) -> None:
    words = ["-m", "hush", "store", command, str(backup), "--store", str(store), *options]
    done = await asyncio.create_subprocess_exec(sys.executable, *words, stdout=DEVNULL)
    assert await done.wait() == 0


@pytest.mark.large
async def test_a_device_that_stands_still_while_it_answers_is_counted(bare: Mosquitto, memory_path: Path) -> None:
    serve = Serve(bare.url, memory_path)
    serve.start()
    await serve.connected()
    words = [*("report", "heights", "0.5", "--broker", bare.url, "--spread", "1"), "--state", str(memory_path / "d")]
    device = await asyncio.create_subprocess_exec(sys.executable, "-m", "hush", *words, stdout=DEVNULL, stderr=DEVNULL)
    with suppress(ProcessLookupError):  # it is done
        while True:
            for number in (signal.SIGSTOP, signal.SIGCONT):
                await asyncio.sleep(0.4)
                device.send_signal(number)
    assert await device.wait() == 0
    await count(serve, 1)
    assert serve.end(signal.SIGTERM) == 0
    assert spent(memory_path / "d") == (1, 1)
