"""Tasks of before, under which the silence of a device told its value: nobody answers them, what is there counts."""

import asyncio
import json
import logging
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from fake_bus import FakeBus
from typer.testing import CliRunner

from hush_aggregator.commands.task import app
from hush_aggregator.pipeline import Aggregator
from hush_aggregator.store import SqliteStore
from hush_common.errors import TaskError
from hush_common.task import Task, decode_task, make_task, read_task
from hush_common.wire import Report, encode_frame

DOCUMENT = {"id": "old", "epsilon": "1", "domain": {"kind": "number", "lower": 0.0, "upper": 1.0, "outside": "refuse"}}
OLD = make_task(DOCUMENT, legacy=True)
ESTIMATE = "hush/v1/estimates/old"


@asynccontextmanager
async def running(bus: FakeBus, path: Path, *tasks: Task, any_task: bool = False) -> AsyncIterator[Aggregator]:
    with SqliteStore(path) as store:
        aggregator = Aggregator(bus, store, tasks=tasks, settle_s=0.1, any_task=any_task)
        task = asyncio.create_task(aggregator.run(), name="aggregator")
        try:
            yield aggregator
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


def keep(path: Path) -> None:
    with SqliteStore(path) as store:
        store.add_task(OLD)


def frame() -> bytes:
    return encode_frame([Report(OLD.report_digest, 0, secrets.token_bytes(16), (1 << 19,))])


@pytest.mark.parametrize("own", [(), (OLD,)])
async def test_a_stored_task_goes_on_counting_is_told_and_not_published_again(
    tmp_path: Path, own: tuple[Task, ...], caplog: pytest.LogCaptureFixture
) -> None:
    keep(tmp_path / "store")
    bus = FakeBus()
    bus.retain("old", OLD.payload)
    with caplog.at_level(logging.WARNING, "hush_aggregator"):
        async with running(bus, tmp_path / "store", *own):
            bus.send("hush/v1/reports/old/device", frame(), frame())
            await bus.emptied()
    assert json.loads(bus.retained[ESTIMATE])["n"] == 2
    assert [topic for topic, _ in bus.published if "/tasks/" in topic] == []
    assert "old: counted as before, but no device answers 'refuse' any more; ask under a new id" in caplog.text


async def test_one_that_was_never_counted_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    bus = FakeBus()
    bus.retain("old", OLD.payload)
    with caplog.at_level(logging.WARNING, "hush_aggregator"):
        async with running(bus, tmp_path / "store", any_task=True):
            bus.send("hush/v1/reports/old/device", frame())
            await bus.emptied()
    assert ESTIMATE not in bus.retained
    assert "refused the task published as 'old': domain.outside: 'refuse' is no longer supported" in caplog.text
    with pytest.raises(TaskError, match="old was never counted here"):
        async with running(FakeBus(), tmp_path / "other", OLD) as aggregator:
            await aggregator.run()


@pytest.mark.parametrize("command", [["check"], ["publish", "--broker", "mqtt://127.0.0.1:1"]])
def test_a_file_of_one_is_neither_checked_nor_published(tmp_path: Path, command: list[str]) -> None:
    file = tmp_path / "old.json"
    file.write_text(json.dumps(DOCUMENT), encoding="utf-8")
    result = CliRunner().invoke(app, [command[0], str(file), *command[1:]])
    assert isinstance(result.exception, TaskError)
    assert "reveals which it has; drop it" in str(result.exception)
    assert read_task(file, legacy=True) == OLD == decode_task(OLD.payload, legacy=True)
