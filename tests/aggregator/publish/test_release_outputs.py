"""No output of a store tells of a report before it is released: two stores that differ by reports look the same."""

import asyncio
import json
import re
import secrets
import sqlite3
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
import typer
from http_world import asked
from typer.testing import CliRunner

from hush import Task
from hush_aggregator import ResultReader, SqliteReader, SqliteStore
from hush_aggregator.commands import results
from hush_aggregator.commands.task import app as task_app
from hush_aggregator.publish.explain import warnings
from hush_aggregator.store import Accepted
from hush_aggregator.store.base import PublishedStep, Step
from hush_aggregator.web import service
from hush_aggregator.web.feed import ChangeFeed
from hush_aggregator.web.page import pages
from hush_aggregator.web.service import Service, StoreService
from hush_common.errors import TaskError
from hush_common.task import make_task
from hush_common.wire import Refusal

ROUNDS = {"rounds": 2, "round_every": "1d", "opens": "2026-01-01T00:00:00Z"}
DRAFT = {"id": "slow", "epsilon": "2", "domain": {"kind": "bit"}, "enrolled": 400} | ROUNDS
RULES: dict[str, dict[str, object]] = {
    "from": {"release_from": 100},
    "every": {"release_every": "1h"},
    "both": {"release_from": 100, "release_every": "1h"},
}
PLAIN = make_task(DRAFT)
HOUR = 3600
NOW = datetime(2026, 1, 5, tzinfo=UTC)
PATHS = [
    *("/", "/tasks/slow", "/tasks/slow?round=1", "/v1/tasks", "/v1/tasks/slow", "/v1/tasks/slow/document"),
    *("/v1/tasks/slow/refusals", "/v1/refusals", "/v1/tasks/slow/rounds/latest", "/v1/tasks/slow/rounds/all"),
    *("/v1/tasks/slow/rounds/0", "/v1/tasks/slow/rounds/1", "/v1/tasks/slow/rounds/all.csv", "/readyz", "/metrics"),
    *("/v1/tasks/slow/rounds/0/steps", "/v1/tasks/slow/rounds/1/steps"),
]


def count(store: SqliteStore, task: Task, round_: int, reports: int) -> None:
    ids = np.frombuffer(secrets.token_bytes(16 * reports), dtype="V16")
    bodies = np.arange(reports, dtype=np.int64)[:, None] % 2
    accepted = Accepted(task, round_, ids, bodies)
    store.commit([accepted], {(task.id, Refusal.WRONG_DIGEST): 2})
    store.commit([accepted], {})  # all of them are duplicates


def fill(path: Path, task: Task, before: int, after: int) -> Path:
    """Make a store that counts reports before a release and after it; always under the same name."""
    with SqliteStore(path) as store:
        store.add_task(task)
        if before:
            count(store, task, 0, before)
        store.release([task.digest], 400_000 * HOUR)
        for number in range(after):
            count(store, task, number % 2, 1)
        if task.release_every is None:
            store.release([task.digest], 400_000 * HOUR)
        for round_ in range(2):  # as the aggregator that publishes what it reads
            step = Step(400_000 * HOUR, store.tally(task.digest, round_).n, 0.5, (0.25, 0.75))
            store.put_steps([PublishedStep(task.digest, round_, step)])
    with closing(sqlite3.connect(path)) as raw:
        raw.execute("UPDATE identity SET store = ?", ("0" * 32,))
        raw.commit()
    return path


def told(app: typer.Typer, *words: object) -> str:
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == 0, result.output
    return re.sub(r"\d{4}-\d\d-\d\dT[0-9:]+Z", "TIME", result.stdout)


async def events(path: Path) -> list[str]:
    reading = StoreService(path)
    feed = ChangeFeed(reading)
    running = asyncio.create_task(feed.run())
    found: list[str] = []
    try:
        with feed.followed():
            changes = feed.follow(None)
            while not found or not found[-1].endswith("."):
                change = await anext(changes)
                assert change is not None
                found.append(f"{change.task} {change.document} {change.cursor}{'.' if change.cursor else ''}")
            await changes.aclose()  # type: ignore[attr-defined]  # a generator
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        await reading.close()
    return found


async def outputs(path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """All that a service and commands say of a store, except for what the process and the rest of the disk use."""
    for module in (service, pages):
        monkeypatch.setattr(module, "utc_now", lambda: NOW)
    found: dict[str, object] = {"events": await events(path)}
    async with asked(Service(path)) as client:
        for place in PATHS:
            answer = await client.get(place)
            assert answer.status_code == 200, place
            lines = [
                line for line in answer.text.splitlines() if not re.match(r"process_|hush_http_|hush_store_free_", line)
            ]
            found[place] = re.sub(r"nonce[-=]\S+", "", "\n".join(lines))
            if place != "/metrics" and not place.startswith(("/tasks", "/v1/tasks/slow/rounds")) and place != "/":
                found[f"{place} tag"] = answer.headers["etag"]
    found["list"] = await asyncio.to_thread(told, task_app, "list", "--store", path)
    for option in ("--json", "--csv"):
        words = ("slow", "--store", path, "--round", "all", option)
        found[option] = await asyncio.to_thread(told, results.app, *words)
    return found


@pytest.mark.large
@pytest.mark.parametrize("rule", RULES)
async def test_reports_that_are_not_released_change_nothing(
    tmp_path: Path, rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = make_task(DRAFT | RULES[rule])
    for before in (0, 150):
        if rule == "from" and before:
            continue  # it is released with each report from then on
        silent = await outputs(fill(tmp_path / f"silent-{before}", task, before, 0), monkeypatch)
        for after in (1, 20):
            seen = await outputs(fill(tmp_path / f"{before}-{after}", task, before, after), monkeypatch)
            assert seen == silent
        with SqliteReader(tmp_path / f"{before}-{after}") as store:
            assert sum(one.n for one in store.stored_rounds()) == before + after


@pytest.mark.medium
async def test_planted_without_a_rule_each_output_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    silent = await outputs(fill(tmp_path / "silent", PLAIN, 0, 0), monkeypatch)
    seen = await outputs(fill(tmp_path / "seen", PLAIN, 0, 20), monkeypatch)
    same = {name.removesuffix(" tag") for name in silent if silent[name] == seen[name]}
    assert same == {"/v1/tasks/slow/document", "/readyz"}


async def test_what_is_released_is_what_was_counted_until_then(tmp_path: Path) -> None:
    task = make_task(DRAFT | RULES["both"])
    with SqliteReader(fill(tmp_path / "a", task, 150, 9)) as released:
        document = (await ResultReader(released).result("slow")).to_document()
        await_rounds = await ResultReader(released).all_rounds("slow")
    with SqliteReader(fill(tmp_path / "b", PLAIN, 150, 0)) as plain:
        same = (await ResultReader(plain).result("slow")).to_document()
    assert await_rounds is None  # there is one released round
    assert (document.pop("release_from"), document.pop("release_every")) == (100, "1h")
    assert document.pop("updated_at") == datetime.fromtimestamp(400_000 * HOUR, UTC).isoformat().replace("+00:00", "Z")
    for one in (document, same):
        one.pop("digest")
        one.pop("updated_at", None)
    assert document == same


def test_an_export_has_everything(tmp_path: Path) -> None:
    path = fill(tmp_path / "s", make_task(DRAFT | RULES["both"]), 0, 9)
    assert "9 reports" in told(results.export_app, "slow", "--store", path, "--out", tmp_path / "all.csv")


def test_a_task_explains_its_rules(tmp_path: Path) -> None:
    draft = tmp_path / "slow.json"
    draft.write_text(json.dumps(DRAFT | RULES["both"] | {"retention": "30d"}))
    text = " ".join(told(task_app, "check", draft).split())
    assert all(words in text for words in ("100", "once an hour", "30 days"))
    (warning,) = warnings(make_task(DRAFT | {"release_from": 401}), NOW)
    assert "401" in warning  # of 400 that are enrolled


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *[("release_from", value) for value in (0, -1, 1 << 53, "100", 1.5)],
        *[("release_every", value) for value in ("0s", "1y", "3651d", "1", 60, "", "1.5h")],
        *[("retention", value) for value in ("0s", "3651d", 60)],
    ],
)
def test_a_rule_that_is_no_rule_is_refused(field: str, value: object) -> None:
    with pytest.raises(TaskError, match=field):
        make_task(DRAFT | {field: value})


def test_rules_are_part_of_the_task_and_change_no_other_digest() -> None:
    task = make_task(DRAFT | {"release_from": 100, "release_every": "24h", "retention": "720h"})
    document = json.loads(task.payload)
    assert (document["release_from"], document["release_every"], document["retention"]) == (100, "1d", "30d")
    assert task.release_every == timedelta(days=1)
    assert not {"release_from", "release_every", "retention"} & json.loads(PLAIN.payload).keys()
