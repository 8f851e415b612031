"""Whoever wants honest reports to wait sends what takes long to refuse."""

import asyncio
import json
from collections.abc import Container
from contextlib import suppress
from pathlib import Path

import pytest
from scripted_broker import ScriptedBroker

from hush_aggregator import Aggregator, SqliteStore
from hush_aggregator.count.intake import PendingReports, ReportMessage
from hush_common.task import make_task
from hush_common.topics import task_topic
from hush_common.untrusted import ESTIMATE, read_json
from hush_common.wire import Refusal, Report, decode, encode_frame

HEIGHTS = make_task({"id": "heights", "epsilon": "1", "domain": {"kind": "number", "lower": 0.0, "upper": 1.0}})


@pytest.mark.medium
def test_a_key_that_stands_twice_among_a_hundred_thousand_is_found() -> None:
    """Each compared with each other one, they would keep a processor for minutes."""
    text = json.dumps({f"k{number}": 0 for number in range(100_000)})[:-1] + ',"k99999":0}'
    with pytest.raises(ValueError, match="k99999"):
        read_json(text, ESTIMATE)


def test_a_report_with_a_key_that_stands_twice_is_malformed() -> None:
    text = json.dumps({f"k{number}": 0 for number in range(10)})[:-1] + ',"k9":0}'
    assert decode(text.encode()) is Refusal.MALFORMED


@pytest.mark.virtual_time
async def test_junk_on_the_topics_of_tasks_makes_no_report_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    extended: list[bool] = []
    sift = PendingReports.sift

    def watched(
        hold: PendingReports, reports: list[ReportMessage], known: Container[str | None], *, extend: bool
    ) -> list[ReportMessage]:
        extended.append(extend)
        return sift(hold, reports, known, extend=extend)

    monkeypatch.setattr(PendingReports, "sift", watched)
    bus = ScriptedBroker(retained={})
    other = make_task({"id": "other", "epsilon": "1", "domain": {"kind": "bit"}})
    with SqliteStore(tmp_path / "hush.sqlite") as store:
        aggregator = asyncio.create_task(Aggregator(bus, store, tasks=(HEIGHTS,), settle_s=0.3, any_task=True).run())
        await bus.up.wait()
        bus.send("hush/v1/reports/unknown/device", encode_frame([Report(HEIGHTS.report_digest, 0, bytes(16), (1,))]))
        for payload in (b"{", b"", other.payload, HEIGHTS.payload):
            bus.retain(task_topic("heights"), payload)
            await asyncio.sleep(0.03)
        assert extended
        assert not any(extended)
        bus.retain(task_topic("other"), other.payload)
        await bus.emptied()
        aggregator.cancel()
        with suppress(asyncio.CancelledError):
            await aggregator
    assert extended.count(True) == 1  # for the one task that was new and legal
