"""HTTP of a store: the documents of the commands, changes with the token, and problems."""

import asyncio
import csv
import io
import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from http_world import (
    BEARER,
    DRAFT,
    HEIGHTS,
    TOKEN,
    WAY,
    Client,
    Service,
    Token,
    asked,
    bearer,
    count_bodies,
    kind_of,
    make_store,
    writable,
)
from typer.testing import CliRunner

from hush import Task
from hush_aggregator import Estimate, SqliteReader, SqliteStore
from hush_aggregator.commands import results
from hush_aggregator.commands.task import app as task_app
from hush_aggregator.count.intake import Backlog, IntakeStatus
from hush_aggregator.estimate.process import Failure, ThreadEstimator
from hush_aggregator.estimate.tally import Tally
from hush_aggregator.ops.metrics import MetricValues
from hush_aggregator.store import Origin, TaskState
from hush_aggregator.store.base import PublishedStep, Step
from hush_common.task import make_task

pytestmark = pytest.mark.virtual_time

JSON = {**BEARER, "Content-Type": "application/json"}
TOML = b'id = "new"\nepsilon = "1"\n[domain]\nkind = "bit"\n'


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return make_store(tmp_path / "hush.sqlite3")


def printed(app: Any, *words: str) -> Any:  # noqa: ANN401 - of typer, JSON
    with ThreadPoolExecutor(1) as aside:  # the command has an event loop of its own
        return json.loads(aside.submit(CliRunner().invoke, app, [*words, "--json"]).result().stdout)


def rows(path: Path) -> dict[str, tuple[TaskState, Origin]]:
    with SqliteReader(path) as store:
        return {row.id: (row.state, row.origin) for row in store.task_rows()}


def timeless(documents: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**one, "updated_at": ""} for one in documents]


# What is read


@pytest.mark.medium
async def test_results_are_the_documents_of_the_command(path: Path) -> None:
    async with asked(Service(path)) as client:
        for task in ("heights", "way"):
            for round_ in ("latest", "0", "all"):
                chosen = [] if round_ == "latest" else ["--round", round_]
                shown = printed(results.app, task, "--store", str(path), *chosen)["results"]
                there = await client.document(f"/v1/tasks/{task}/rounds/{round_}")
                assert timeless(there["results"] if round_ == "all" else [there]) == timeless(shown)


@pytest.mark.medium
async def test_all_rounds_come_in_portions(path: Path) -> None:
    async with asked(Service(path)) as client:
        first = await client.document("/v1/tasks/heights/rounds/all?limit=2")
        rest = await client.document(f"/v1/tasks/heights/rounds/all?start={first['next']}")
    assert [one["round"] for one in first["results"] + rest["results"]] == [0, 1, 2]
    assert "next" not in rest


async def csv_of(client: Client, task: str) -> list[dict[str, str]]:
    answer = await client.get(f"/v1/tasks/{task}/rounds/all.csv")
    assert f'"{task}.csv"' in answer.headers["content-disposition"]
    return list(csv.DictReader(io.StringIO(answer.text, newline="")))


@pytest.mark.medium
async def test_the_table_has_every_estimate_and_interval_of_the_documents(path: Path) -> None:
    async with asked(Service(path)) as client:
        documents = (await client.document("/v1/tasks/heights/rounds/all"))["results"]
        lines = await csv_of(client, "heights")
    found = {(int(one["round"]), one["about"]): [float(one["low"]), float(one["high"])] for one in lines if one["low"]}
    assert found == {
        (one["round"], about): ends for one in documents for about, ends in one.get("intervals", {}).items()
    }
    for one in lines:
        document = documents[int(one["round"])]
        assert (one["task"], int(one["reports"])) == ("heights", document["n"])
        assert one["estimate"] == (repr(document["mean"]) if document["n"] else "")
        assert (one["confidence"], one["final"]) == ("0.95", "no")


@pytest.mark.medium
async def test_names_in_the_table_are_no_formulas_and_keep_their_quotes(tmp_path: Path) -> None:
    labels = ["=1+1", "@x", 'a "b", c', "plain"]
    task = make_task({"id": "way", "epsilon": "4", "domain": {"kind": "category", "labels": labels}})
    with SqliteStore(tmp_path / "store") as store:
        store.add_task(task)
        count_bodies(store, task, [1, 2, 4, 8] * 50)
    async with asked(Service(tmp_path / "store")) as client:
        document = await client.document("/v1/tasks/way/rounds/latest")
        lines = await csv_of(client, "way")
    assert list(dict.fromkeys(one["part"] for one in lines)) == ["'=1+1", "'@x", 'a "b", c', "plain"]
    for label, category in zip(labels, document["categories"], strict=True):
        mine = [one for one in lines if one["part"].removeprefix("'") == label]
        assert {one["estimate"] for one in mine} == {repr(category["frequency"])}
        for kind, field in (("individual", "intervals"), ("simultaneous", "joint_intervals")):
            ends = {one["about"]: [float(one["low"]), float(one["high"])] for one in mine if one["intervals"] == kind}
            assert ends == category[field]


@pytest.mark.medium
async def test_steps_have_counts_estimates_and_whole_hours(path: Path) -> None:
    steps = [Step(1_800_000_000, 10, 0.25, (0.125, 0.5), 0.9), Step(1_800_003_600, 40)]
    with SqliteStore(path) as store:
        store.put_steps([PublishedStep(HEIGHTS.digest, 0, one) for one in steps])
    async with asked(Service(path)) as client:
        first = await client.document("/v1/tasks/heights/rounds/0/steps")
        second = await client.document("/v1/tasks/heights/rounds/1/steps")
        assert kind_of(await client.get("/v1/tasks/heights/rounds/3/steps")) == "unknown-round"
    facts = {"v": 1, "task": "heights", "digest": HEIGHTS.digest.hex()}
    assert first == facts | {
        "round": 0,
        "steps": [
            {"until": "2027-01-15T08:00:00Z", "n": 10, "mean": 0.25, "interval": [0.125, 0.5], "confidence": 0.9},
            {"until": "2027-01-15T09:00:00Z", "n": 40},
        ],
    }
    assert second == facts | {"round": 1, "steps": []}


@pytest.mark.medium
async def test_the_list_of_tasks_is_that_of_the_command(path: Path) -> None:
    shown = printed(task_app, "list", "--store", str(path))
    async with asked(Service(path)) as client:
        assert await client.document("/v1/tasks") == shown
        assert await client.document("/v1/tasks/way") == {"v": 1, **shown["tasks"][1]}
        assert (await client.get("/v1/tasks/way/document")).content == WAY.payload


@pytest.mark.medium
async def test_refusals_are_counted_by_reason_with_their_meanings(path: Path) -> None:
    async with asked(Service(path)) as client:
        assert (await client.document("/v1/tasks/heights/refusals"))["refused"] == {"closed": 2}
        every = await client.document("/v1/refusals")
    assert every["tasks"] == {"heights": {"closed": 2}, "way": {"closed": 1}}
    assert every["unknown_tasks"] == {"unknown_task": 4}
    assert {"closed", "unknown_task"} <= every["meanings"].keys()


# What is written


@pytest.mark.medium
async def test_a_task_is_stored_once_and_its_id_stays_taken(path: Path) -> None:
    other = {**DRAFT, "epsilon": "2"}
    async with asked(writable(path)) as client:
        made = await client.post("/v1/tasks", content=TOML, headers={**BEARER, "Content-Type": "application/toml"})
        assert (made.status_code, made.headers["location"]) == (201, "/v1/tasks/new")
        again = await client.post("/v1/tasks", json=DRAFT, headers=BEARER)
        assert (again.status_code, again.json()["status"]) == (200, "already_in_the_store")
        conflict = await client.post("/v1/tasks", json=other, headers=BEARER)
    assert kind_of(conflict) == "task-exists"
    assert conflict.json()["there"] == HEIGHTS.digest.hex()
    assert conflict.json()["digest"] == make_task(other).digest.hex()
    assert rows(path)["new"] == (TaskState.OPEN, Origin.HTTP)
    with SqliteReader(path) as store:
        assert store.task("heights") == HEIGHTS.payload


@pytest.mark.medium
async def test_a_task_is_withdrawn_opened_again_and_closed_for_good(path: Path) -> None:
    async with asked(writable(path)) as client:
        withdrawn = (await client.post("/v1/tasks/heights/withdraw", headers=BEARER)).json()
        assert withdrawn == {"v": 1, "status": "withdrawn", "task": "heights", "digest": HEIGHTS.digest.hex()}
        assert rows(path)["heights"][0] is TaskState.WITHDRAWN
        assert (await client.post("/v1/tasks", json=DRAFT, headers=BEARER)).json()["status"] == "opened_again"
        closed = (await client.post("/v1/tasks/heights/rounds/1/close", headers=BEARER)).json()
        assert (closed["status"], closed["round"]) == ("closed", 1)
        assert (await client.document("/v1/tasks/heights/rounds/1"))["final"]
        assert "final" not in await client.document("/v1/tasks/heights/rounds/0")
        await client.post("/v1/tasks/heights/close", headers=BEARER)
        assert (await client.document("/v1/tasks/heights/rounds/0"))["final"]
        assert kind_of(await client.post("/v1/tasks/heights/withdraw", headers=BEARER)) == "task-closed"
        assert kind_of(await client.post("/v1/tasks", json=DRAFT, headers=BEARER)) == "task-closed"


INVALID = [
    (b'{"id": "x"', "json", "invalid-task", ""),
    (b'{"id": "x", "id": "y"}', "json", "invalid-task", ""),
    (b"[" * 50_000, "json", "invalid-task", "JSON"),
    (b'{"a":' * 20_000, "json", "invalid-task", ""),
    (b"\xff{}", "json", "invalid-task", "UTF-8"),
    (b"a" + b".b" * 60_000 + b"=1", "toml", "invalid-task", "8"),
    (b'{"id": "x"}', "toml", "invalid-task", "TOML"),
    (b'{"id": "x"}', "plain", "wrong-media-type", "Content-Type"),
    (b'{"id": "x", "epsilon": "0.1.2", "domain": {"kind": "bit"}}', "json", "invalid-task", "epsilon"),
    (b'{"id": "x", "epsilon": "1", "domain": {"kind": "bit"}, "y": 1}', "json", "invalid-task", "y"),
    (b" " * 200_000, "json", "body-too-long", "131072"),
]


@pytest.mark.medium
async def test_a_body_that_is_no_task_is_refused_and_nothing_is_stored(path: Path) -> None:
    before = rows(path)
    async with asked(writable(path)) as client:
        for content, kind, problem, word in INVALID:
            type_ = f"{'text' if kind == 'plain' else 'application'}/{kind}"
            answer = await client.post("/v1/tasks", content=content, headers={**BEARER, "Content-Type": type_})
            assert (kind_of(answer), word in answer.json()["detail"]) == (problem, True), (content[:40], answer.text)
    assert rows(path) == before


# Single reports


@pytest.mark.medium
async def test_reports_are_exported_as_they_are_stored(path: Path) -> None:
    with SqliteReader(path) as store:
        reports = [one for number in range(3) for one in store.reports(HEIGHTS.digest, number)]
    async with asked(writable(path)) as client:
        text = (await client.get("/v1/tasks/heights/reports.csv", headers=BEARER)).text
        raw = (await client.get("/v1/tasks/heights/reports.parquet?round=2", headers=BEARER)).content
        assert kind_of(await client.get("/v1/tasks/heights/reports.csv?round=3", headers=BEARER)) == "unknown-round"
    lines = list(csv.reader(io.StringIO(text)))
    assert lines[0] == ["round", "id", "body_0"]
    assert lines[1:] == [[str(one.round), one.id.hex(), str(one.body[0])] for one in reports]
    table = pytest.importorskip("pyarrow.parquet").read_table(io.BytesIO(raw))
    assert table["id"].to_pylist() == [one.id for one in reports if one.round == 2]


@pytest.mark.medium
async def test_an_export_names_the_rounds_whose_reports_were_dropped(path: Path) -> None:
    with SqliteStore(path) as store:
        while store.drop_reports(HEIGHTS.digest, 2):
            pass
    async with asked(writable(path)) as client:
        answer = await client.get("/v1/tasks/heights/reports.csv", headers=BEARER)
        whole = await client.get("/v1/tasks/way/reports.csv", headers=BEARER)
    assert answer.headers["hush-dropped-rounds"] == "2"
    assert {line.split(",")[0] for line in answer.text.splitlines()[1:]} == {"0"}
    assert "hush-dropped-rounds" not in whole.headers


@pytest.mark.medium
async def test_two_exports_run_at_once_and_each_gives_its_place_back(path: Path) -> None:
    async with asked(writable(path)) as client:
        exports = client.app.state.reading.exports
        for _ in range(2):
            exports.acquire()
        answer = await client.get("/v1/tasks/way/reports.csv", headers=BEARER)
        assert (kind_of(answer), answer.headers["retry-after"]) == ("too-many-exports", "5")
        exports.release()
        for _ in range(3):
            assert (await client.get("/v1/tasks/way/reports.csv", headers=BEARER)).status_code == 200


# Problems

REFUSED = {
    "token-missing": ("GET", "/v1/tasks/way/reports.csv", {}, b""),
    "token-wrong": ("GET", "/v1/tasks/way/reports.csv", bearer("x" * 40), b""),
    "other-origin": ("GET", "/v1/tasks", {"Origin": "http://evil.example"}, b""),
    "unknown-path": ("GET", "/nothing", {}, b""),
    "unknown-task": ("GET", "/v1/tasks/nothing/rounds/0", {}, b""),
    "unknown-round": ("GET", "/v1/tasks/heights/rounds/3", {}, b""),
    "task-exists": ("POST", "/v1/tasks", JSON, b'{"id": "way", "epsilon": "1", "domain": {"kind": "bit"}}'),
    "task-closed": ("POST", "/v1/tasks/way/withdraw", BEARER, b""),
    "unknown-host": ("GET", "/v1/tasks", {"Host": "evil.example"}, b""),
    "invalid-task": ("POST", "/v1/tasks", JSON, b"{}"),
    "invalid-parameter": ("GET", "/v1/tasks/heights/rounds/all?limit=0", {}, b""),
    "head-too-large": ("GET", "/v1/tasks", {f"X-{number}": "" for number in range(65)}, b""),
}


@pytest.mark.medium
async def test_each_refused_request_has_its_problem(path: Path) -> None:
    async with asked(writable(path)) as client:
        assert (await client.post("/v1/tasks/way/close", headers=BEARER)).status_code == 200
        listed = (await client.document("/v1/problems"))["problems"]
        for kind, (method, place, headers, body) in REFUSED.items():
            answer = await client.request(method, place, headers=headers, content=body)
            assert kind_of(answer) == kind
            assert listed[kind] == {"status": answer.status_code, "title": answer.json()["title"]}
        wrong = await client.delete("/v1/tasks")
    assert (kind_of(wrong), wrong.headers["allow"]) == ("wrong-method", "GET, HEAD, POST")


@pytest.mark.medium
async def test_a_service_without_a_token_or_writing_says_so(path: Path) -> None:
    async with asked(Service(path)) as client:
        assert kind_of(await client.get("/v1/tasks/way/reports.csv")) == "no-token-set"
        only = await client.post("/v1/tasks", json=DRAFT)
    assert (kind_of(only), "--http-write" in only.json()["detail"]) == ("read-only", True)


@pytest.mark.medium
async def test_a_service_that_guards_reading_still_explains_problems(path: Path) -> None:
    async with asked(Service(path, token=Token(TOKEN), guarded=True)) as client:
        assert kind_of(await client.get("/v1/tasks")) == "token-missing"
        assert "token-missing" in (await client.document("/v1/problems"))["problems"]
        for place in ("/healthz", "/readyz"):
            assert (await client.get(place)).status_code == 200


async def test_without_pyarrow_parquet_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    async with asked(writable(path)) as client:
        assert kind_of(await client.get("/v1/tasks/way/reports.parquet", headers=BEARER)) == "no-parquet"


class Held(ThreadEstimator):
    """Makes no estimate before it is released."""

    def __init__(self) -> None:
        self.released = asyncio.Event()

    async def __call__(self, task: Task, tally: Tally, confidence: float) -> Estimate | Failure:
        await self.released.wait()
        return await super().__call__(task, tally, confidence)


@pytest.mark.medium
async def test_an_answer_that_takes_30_s_is_given_up(path: Path) -> None:
    async with asked(Service(path, estimator=Held())) as client:
        begun = asyncio.get_running_loop().time()
        assert kind_of(await client.get("/v1/tasks/way/rounds/0")) == "too-slow"
        assert asyncio.get_running_loop().time() - begun == pytest.approx(30, abs=0.1)


@pytest.mark.medium
async def test_an_address_has_half_of_the_64_requests_at_once(path: Path) -> None:
    held = Held()
    async with asked(Service(path, estimator=held)) as first, Client(first.app, "127.0.0.2") as second:
        requests = [
            asyncio.create_task(one.get("/v1/tasks/way/rounds/0")) for one in (first, second) for _ in range(32)
        ]
        await asyncio.sleep(1)
        assert not any(one.done() for one in requests)
        over = await first.get("/v1/tasks")
        assert (kind_of(over), over.headers["retry-after"]) == ("over-share", "5")
        async with Client(first.app, "127.0.0.3") as third:
            assert kind_of(await third.get("/v1/tasks")) == "too-many-requests"
            assert (await third.get("/healthz")).status_code == 200
            held.released.set()
            assert {one.status_code for one in await asyncio.gather(*requests)} == {200}
            assert (await third.get("/v1/tasks")).status_code == 200


async def test_an_error_of_hush_reveals_nothing(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Failing(ThreadEstimator):
        async def __call__(self, task: Task, tally: Tally, confidence: float) -> Estimate | Failure:  # noqa: ARG002
            raise ZeroDivisionError("a secret")

    async with asked(Service(path, estimator=Failing())) as client:
        answer = await client.get("/v1/tasks/way/rounds/0")
    assert kind_of(answer) == "internal"
    assert "secret" not in answer.text + caplog.text
    assert "ZeroDivisionError in test_http.py" in caplog.text


# The state of a service


async def test_a_store_may_come_later_and_be_replaced(path: Path, tmp_path: Path) -> None:
    async with asked(Service(tmp_path / "store")) as client:
        for place in ("/v1/tasks", "/readyz"):
            assert kind_of(await client.get(place)) == "store-unavailable"
        assert (await client.get("/healthz")).status_code == 200
        with SqliteStore(tmp_path / "store"):
            pass
        assert (await client.document("/v1/tasks"))["tasks"] == []
        os.rename(tmp_path / "store", tmp_path / "away")  # noqa: PTH104 - nothing else runs meanwhile
        os.rename(path, tmp_path / "store")  # noqa: PTH104 - as above
        assert len((await client.document("/v1/tasks"))["tasks"]) == 2


async def test_a_file_that_is_no_store_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no database" * 100, encoding="utf-8")
    for file in (tmp_path / "text", tmp_path):
        async with asked(Service(file)) as client:
            assert kind_of(await client.get("/readyz")) == "store-unavailable"


class Running:
    """An aggregator, as far as `/readyz` reads it."""

    def __init__(self, *, connected: bool = True, silent_s: float = 0.0, **state: Any) -> None:  # noqa: ANN401 - fields
        self.task_limit, self.silent_s = "", silent_s
        known = {"waiting": 0, "dropped": None, "backlog": None, "stored": None} | state
        self.intake = IntakeStatus((), connected=connected, **known)

    def figures(self) -> MetricValues:
        raise NotImplementedError


@pytest.mark.medium
async def test_an_aggregator_that_is_silent_or_without_its_broker_is_not_ready(path: Path) -> None:
    async with asked(Service(path, live=Running(connected=False))) as client:
        assert kind_of(await client.get("/readyz")) == "broker-unavailable"
        assert (await client.get("/healthz")).status_code == 200
    async with asked(Service(path, live=Running(silent_s=11.0))) as client:
        for place in ("/readyz", "/healthz"):
            assert kind_of(await client.get(place)) == "intake-silent"


@pytest.mark.medium
async def test_a_ready_service_reports_its_backlog_and_its_warnings(path: Path) -> None:
    live = Running(backlog=Backlog(412_000, 41_234.6), stored=588_000)
    async with asked(Service(path, live=live)) as client:
        document = {"counted": 412_000, "reports_per_second": 41_235, "waiting": 588_000}
        assert await client.document("/readyz") == {"status": "ok", "backlog": document}
        live.intake = replace(live.intake, backlog=None)
        assert await client.document("/readyz") == {"status": "ok"}
        live.task_limit = "5 tasks have no room"
        assert await client.document("/readyz") == {"status": "ok", "warnings": ["5 tasks have no room"]}
