"""The end of `hush poll` where its result cannot be printed or written, or the poll is cancelled at any moment."""

import asyncio
import json
import shutil
import signal
import threading
from pathlib import Path

import pytest
from polls import TEA, Command, asking, polling, reports_of
from waiting import PATIENCE_S

from hush_aggregator.count.tasks import close
from hush_aggregator.store.base import StoreEditor
from hush_client import MqttTransport
from hush_common.task import decode_task
from hush_common.topics import ALL_TASKS, report_topic
from hush_poll import session
from hush_poll.session import Answered, run_poll

ASK = ("Tee oder 茶?", "--yes-no", "--bind", "127.0.0.1", "--port", "0")


async def answer(poll: Command) -> None:
    async with MqttTransport(poll.broker, "phone").connect() as link:
        await link.subscribe(ALL_TASKS)
        task = decode_task((await link.receive())[1])
        await link.publish(report_topic(task.id, "phone"), reports_of(task, 1))


async def end(poll: Command) -> tuple[int, str, str]:
    poll.process.send_signal(signal.SIGINT)
    out, err = await asyncio.to_thread(poll.process.communicate, timeout=PATIENCE_S)
    return poll.process.returncode, out, err


@pytest.mark.large
@pytest.mark.parametrize(
    ("start", "form", "expected"),
    [
        ('exec "$@" >&-', (), 0),
        ('exec "$@" >/dev/full', ("--json",), 1),
        ('PYTHONIOENCODING=latin-1 exec "$@"', (), 0),
    ],
    ids=["closed", "full", "latin-1"],
)
async def test_a_result_that_cannot_be_printed_is_written(
    start: str, form: tuple[str, ...], expected: int, tmp_path: Path
) -> None:
    with polling(*ASK, *form, "--out", str(tmp_path), start=start) as poll:
        await answer(poll)
        code, _, err = await end(poll)
    assert (code, "Traceback" in err) == (expected, False), err
    assert all((tmp_path / f"result.{kind}").stat().st_size for kind in ("json", "png", "svg"))
    assert json.loads((tmp_path / "result.json").read_text(encoding="utf-8"))["final"]


@pytest.mark.medium
async def test_a_result_that_cannot_be_written_is_printed(tmp_path: Path) -> None:
    place = tmp_path / "out"
    with polling(*ASK, "--json", "--out", str(place)) as poll:
        await answer(poll)
        shutil.rmtree(place)
        code, out, err = await end(poll)
    assert code == 2
    assert json.loads(out)["results"][0]["answers"] == 1
    assert f"--out: {place}" in err.splitlines()[-1]


@pytest.mark.medium
@pytest.mark.parametrize("is_stopped", [True, False], ids=["stopped", "open"])
async def test_a_poll_cancelled_while_its_result_is_made_reports_it(
    is_stopped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    making, cancelled, ends = asyncio.Event(), threading.Event(), list[Answered]()
    stop, opened, loop = asyncio.Event(), asyncio.Event(), asyncio.get_running_loop()

    def close_slowly(store: StoreEditor, task_id: str) -> None:
        loop.call_soon_threadsafe(making.set)
        assert cancelled.wait(PATIENCE_S)
        close(store, task_id)

    monkeypatch.setattr(session, "close", close_slowly)
    poll = asyncio.create_task(run_poll(asking(TEA), stop, asyncio.Event(), lambda _: opened.set(), ends.extend))
    async with asyncio.timeout(PATIENCE_S):
        await opened.wait()
        stop.set() if is_stopped else poll.cancel()
        await making.wait()
        poll.cancel()
        await asyncio.sleep(0)
        cancelled.set()
        with pytest.raises(asyncio.CancelledError):
            await poll
    assert [one.result.task.id for one in ends] == [TEA.id]
