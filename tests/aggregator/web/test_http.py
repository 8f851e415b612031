"""HTTP of a store: the same documents as the commands, and problems that say what to do."""

import asyncio
import csv
import io
import json
import os
from dataclasses import replace
from pathlib import Path

import httpx
import page_tasks
import pytest
from http_world import BEARER, DRAFT, HEIGHTS, WAY, asked, make_store, writable
from pydantic import TypeAdapter
from typer.testing import CliRunner

from hush_aggregator import SqliteReader, SqliteStore
from hush_aggregator.commands import results
from hush_aggregator.commands.task import app as task_app
from hush_aggregator.http.schemas import StepsDocument
from hush_aggregator.http.service import Service
from hush_aggregator.intake import Backlog, IntakeStatus
from hush_aggregator.metrics import MetricValues
from hush_aggregator.store import Origin, TaskState
from hush_aggregator.store.base import PublishedStep, Step
from hush_aggregator.store.reading import _VERSION
from hush_common.task import make_task

OTHER = {**DRAFT, "epsilon": "2"}
TOML = b'id = "new"\nepsilon = "1"\n[domain]\nkind = "bit"\n'


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return make_store(tmp_path / "hush.sqlite3")


def is_problem(answer: httpx.Response, status: int, words: str) -> bool:
    document = answer.json()
    assert answer.status_code == status, document
    assert answer.headers["content-type"] == "application/problem+json"
    assert document["status"] == status
    return words in document["detail"]


def rows(path: Path) -> dict[str, tuple[TaskState, Origin]]:
    with SqliteReader(path) as store:
        return {row.id: (row.state, row.origin) for row in store.task_rows()}


@pytest.mark.parametrize("task", ["heights", "way"])
@pytest.mark.parametrize("round_", ["latest", "0", "all"])
async def test_results_are_the_documents_of_the_command(path: Path, task: str, round_: str) -> None:
    words = [task, "--store", str(path), "--json", *([] if round_ == "latest" else ["--round", round_])]
    shown = json.loads((await asyncio.to_thread(CliRunner().invoke, results.app, words)).stdout)
    async with asked(Service(path)) as client:
        there = (await client.get(f"/v1/tasks/{task}/rounds/{round_}")).json()
    found = there["results"] if round_ == "all" else [there]
    assert [{**one, "updated_at": ""} for one in found] == [{**one, "updated_at": ""} for one in shown["results"]]


async def test_all_rounds_come_in_portions(path: Path) -> None:
    async with asked(Service(path)) as client:
        first = (await client.get("/v1/tasks/heights/rounds/all?limit=2")).json()
        rest = (await client.get(f"/v1/tasks/heights/rounds/all?start={first['next']}")).json()
    assert [one["round"] for one in first["results"] + rest["results"]] == [0, 1, 2]
    assert "next" not in rest


async def csv_of(path: Path, task: str) -> list[dict[str, str]]:
    async with asked(Service(path)) as client:
        answer = await client.get(f"/v1/tasks/{task}/rounds/all.csv")
    assert answer.headers["content-disposition"] == f'attachment; filename="{task}.csv"'
    return list(csv.DictReader(io.StringIO(answer.text, newline="")))


async def test_the_table_of_estimates_has_every_interval_of_the_documents(path: Path) -> None:
    async with asked(Service(path)) as client:
        documents = (await client.get("/v1/tasks/heights/rounds/all")).json()["results"]
    lines = await csv_of(path, "heights")
    found = {
        (int(one["round"]), one["about"]): [float(one["low"]), float(one["high"])] for one in lines if one["about"]
    }
    assert found == {
        (one["round"], about): ends for one in documents for about, ends in one.get("intervals", {}).items()
    }
    for one in lines:
        document = documents[int(one["round"])]
        assert (one["task"], int(one["reports"])) == ("heights", document["n"])
        assert one["estimate"] == (repr(document["mean"]) if document["n"] else "")
        assert (one["confidence"], one["final"]) == ("0.95", "yes" if document.get("final") else "no")


async def test_names_in_the_table_are_no_formulas_and_keep_their_quotes(tmp_path: Path) -> None:
    labels = ["=1+1", "@x", 'a "b", c', "plain"]
    task = make_task({"id": "way", "epsilon": "4", "domain": {"kind": "category", "labels": labels}})
    with SqliteStore(tmp_path / "store") as store:
        store.add_task(task)
        page_tasks.count(store, task, labels * 50)
    async with asked(Service(tmp_path / "store")) as client:
        document = (await client.get("/v1/tasks/way/rounds/latest")).json()
    lines = await csv_of(tmp_path / "store", "way")
    assert list(dict.fromkeys(one["part"] for one in lines)) == ["'=1+1", "'@x", 'a "b", c', "plain"]
    for number, category in enumerate(document["categories"]):
        mine = [one for one in lines if one["part"].removeprefix("'") == labels[number]]
        assert {one["estimate"] for one in mine} == {repr(category["frequency"])}
        for kind, field in (("individual", "intervals"), ("simultaneous", "joint_intervals")):
            ends = {one["about"]: [float(one["low"]), float(one["high"])] for one in mine if one["intervals"] == kind}
            assert ends == category[field]


async def test_steps_have_counts_estimates_and_whole_hours(path: Path) -> None:
    steps = [Step(1_800_000_000, 10, 0.25, (0.125, 0.5), 0.9), Step(1_800_003_600, 40)]
    with SqliteStore(path) as store:
        store.put_steps([PublishedStep(HEIGHTS.digest, 0, one) for one in steps])
    async with asked(Service(path)) as client:
        first = (await client.get("/v1/tasks/heights/rounds/0/steps")).json()
        second = (await client.get("/v1/tasks/heights/rounds/1/steps")).json()
        assert is_problem(await client.get("/v1/tasks/heights/rounds/3/steps"), 404, "not one of the 3 rounds")
        assert is_problem(await client.get("/v1/tasks/nothing/rounds/0/steps"), 404, "GET /v1/tasks")
    TypeAdapter(StepsDocument).validate_python(first, strict=True)
    facts = {"v": 1, "task": "heights", "digest": HEIGHTS.digest.hex()}
    assert first == facts | {
        "round": 0,
        "steps": [
            {"until": "2027-01-15T08:00:00Z", "n": 10, "mean": 0.25, "interval": [0.125, 0.5], "confidence": 0.9},
            {"until": "2027-01-15T09:00:00Z", "n": 40},
        ],
    }
    assert second == facts | {"round": 1, "steps": []}


async def test_the_list_is_that_of_the_command(path: Path) -> None:
    shown = await asyncio.to_thread(CliRunner().invoke, task_app, ["list", "--store", str(path), "--json"])
    async with asked(Service(path)) as client:
        assert (await client.get("/v1/tasks")).json() == json.loads(shown.stdout)
        one = (await client.get("/v1/tasks/way")).json()
        assert one == {"v": 1, **json.loads(shown.stdout)["tasks"][1]}
        assert (await client.get("/v1/tasks/way/document")).content == WAY.payload


async def test_refusals_are_told_by_reason_and_explained(path: Path) -> None:
    async with asked(Service(path)) as client:
        assert (await client.get("/v1/tasks/heights/refusals")).json()["refused"] == {"closed": 2}
        every = (await client.get("/v1/refusals")).json()
    assert (every["tasks"], every["unknown_tasks"]) == (
        {"heights": {"closed": 2}, "way": {"closed": 1}},
        {"unknown_task": 4},
    )
    assert every["meanings"]["closed"] == "the task is closed"


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("/v1/tasks/nothing", "GET /v1/tasks"),
        ("/v1/tasks/nothing/rounds/0", "GET /v1/tasks"),
        ("/v1/tasks/heights/rounds/3", "not one of the 3 rounds"),
        ("/nothing", "openapi.json"),
    ],
)
async def test_what_is_not_there_is_a_problem(path: Path, place: str, words: str) -> None:
    async with asked(Service(path)) as client:
        assert is_problem(await client.get(place), 404, words)


async def test_a_wrong_method_names_those_that_are_right(path: Path) -> None:
    async with asked(Service(path)) as client:
        answer = await client.delete("/v1/tasks")
    assert is_problem(answer, 405, "Allow")
    assert answer.headers["allow"] == "GET, HEAD, POST"


async def test_a_task_is_given_once_and_another_one_under_its_id_is_a_conflict(path: Path) -> None:
    async with asked(writable(path)) as client:
        made = await client.post("/v1/tasks", content=TOML, headers={**BEARER, "Content-Type": "application/toml"})
        assert (made.status_code, made.headers["location"]) == (201, "/v1/tasks/new")
        again = await client.post("/v1/tasks", json=DRAFT, headers=BEARER)
        assert (again.status_code, again.json()["status"]) == (200, "already_in_the_store")
        conflict = await client.post("/v1/tasks", json=OTHER, headers=BEARER)
    assert is_problem(conflict, 409, "choose another id")
    assert conflict.json()["there"] == HEIGHTS.digest.hex()
    assert conflict.json()["digest"] in conflict.json()["detail"]
    assert rows(path)["new"] == (TaskState.OPEN, Origin.HTTP)
    with SqliteReader(path) as store:
        assert store.task("heights") == HEIGHTS.payload


async def test_a_task_is_withdrawn_opened_again_and_closed_for_good(path: Path) -> None:
    async with asked(writable(path)) as client:
        withdrawn = (await client.post("/v1/tasks/heights/withdraw", headers=BEARER)).json()
        assert withdrawn == {"v": 1, "status": "withdrawn", "task": "heights", "digest": HEIGHTS.digest.hex()}
        assert rows(path)["heights"][0] is TaskState.WITHDRAWN
        again = (await client.post("/v1/tasks", json=DRAFT, headers=BEARER)).json()
        assert again["status"] == "opened_again"
        closed = (await client.post("/v1/tasks/heights/rounds/1/close", headers=BEARER)).json()
        assert (closed["status"], closed["round"]) == ("closed", 1)
        assert (await client.get("/v1/tasks/heights/rounds/1")).json()["final"] is True
        await client.post("/v1/tasks/heights/close", headers=BEARER)
        assert (await client.get("/v1/tasks/heights/rounds/0")).json()["final"] is True
        assert is_problem(await client.post("/v1/tasks/heights/withdraw", headers=BEARER), 409, "closed")
        assert is_problem(await client.post("/v1/tasks", json=DRAFT, headers=BEARER), 409, "permanently closed")


@pytest.mark.parametrize(
    ("content", "kind", "status", "words"),
    [
        (b'{"id": "x"', "application/json", 422, "cannot be parsed"),
        (b'{"id": "x", "id": "y"}', "application/json", 422, "cannot be parsed"),
        (b"[" * 50_000, "application/json", 422, "JSON object"),
        (b'{"a":' * 20_000, "application/json", 422, "cannot be parsed"),
        (b"\xff{}", "application/json", 422, "UTF-8"),
        (b"a" + b".b" * 60_000 + b"=1", "application/toml", 422, "a key of more than 8 parts"),
        (b'{"id": "x"}', "application/toml", 422, "TOML"),
        (b'{"id": "x"}', "text/plain", 415, "Content-Type"),
        (b'{"id": "x", "epsilon": "0.1.2", "domain": {"kind": "bit"}}', "application/json", 422, "epsilon"),
        (b'{"id": "x", "epsilon": "1", "domain": {"kind": "bit"}, "x": 1}', "application/json", 422, "unknown field"),
        (b" " * 200_000, "application/json", 413, "131072"),
    ],
)
async def test_what_is_no_task_is_named_and_nothing_is_kept(
    path: Path, content: bytes, kind: str, status: int, words: str
) -> None:
    before = rows(path)
    async with asked(writable(path)) as client:
        answer = await client.post("/v1/tasks", content=content, headers={**BEARER, "Content-Type": kind})
    assert is_problem(answer, status, words)
    assert rows(path) == before


async def test_reports_are_exported_as_the_command_writes_them(path: Path) -> None:
    with SqliteReader(path) as store:
        reports = [one for number in range(3) for one in store.reports(HEIGHTS.digest, number)]
    async with asked(writable(path)) as client:
        text = (await client.get("/v1/tasks/heights/reports.csv", headers=BEARER)).text
        raw = (await client.get("/v1/tasks/heights/reports.parquet?round=2", headers=BEARER)).content
        assert is_problem(await client.get("/v1/tasks/heights/reports.csv?round=3", headers=BEARER), 404, "3 rounds")
    lines = list(csv.reader(io.StringIO(text)))
    assert lines[0] == ["round", "id", "body_0"]
    assert lines[1:] == [[str(one.round), one.id.hex(), str(one.body[0])] for one in reports]
    table = pytest.importorskip("pyarrow.parquet").read_table(io.BytesIO(raw))
    assert table["id"].to_pylist() == [one.id for one in reports if one.round == 2]


async def test_an_export_names_the_rounds_whose_reports_were_dropped(path: Path) -> None:
    with SqliteStore(path) as store:
        while store.drop_reports(HEIGHTS.digest, 2):
            pass
    async with asked(writable(path)) as client:
        answer = await client.get("/v1/tasks/heights/reports.csv", headers=BEARER)
        assert answer.headers["hush-dropped-rounds"] == "2"
        assert {line.split(",")[0] for line in answer.text.splitlines()[1:]} == {"0"}
        whole = await client.get("/v1/tasks/way/reports.csv", headers=BEARER)
        assert "hush-dropped-rounds" not in whole.headers


async def test_two_exports_run_at_once_and_a_third_is_put_off(path: Path) -> None:
    async with asked(writable(path)) as client:
        app = client._transport.app  # type: ignore[attr-defined]  # of httpx
        app.state.reading.exports.acquire()
        app.state.reading.exports.acquire()
        answer = await client.get("/v1/tasks/way/reports.csv", headers=BEARER)
        assert is_problem(answer, 503, "later")
        app.state.reading.exports.release()
        for _ in range(3):  # each gives its place back
            assert (await client.get("/v1/tasks/way/reports.csv", headers=BEARER)).status_code == 200


async def test_a_store_may_come_later_go_and_be_put_back(path: Path, tmp_path: Path) -> None:
    async with asked(Service(tmp_path / "store")) as client:
        assert is_problem(await client.get("/v1/tasks"), 503, "there is no such file")
        assert is_problem(await client.get("/readyz"), 503, "there is no such file")
        assert (await client.get("/healthz")).status_code == 200
        with SqliteStore(tmp_path / "store"):
            pass
        assert (await client.get("/v1/tasks")).json()["tasks"] == []
        os.rename(tmp_path / "store", tmp_path / "away")  # noqa: PTH104 - nothing else runs meanwhile
        os.rename(path, tmp_path / "store")  # noqa: PTH104 - as above
        assert len((await client.get("/v1/tasks")).json()["tasks"]) == 2


async def test_a_store_of_a_later_version_or_of_another_program_is_named(path: Path, tmp_path: Path) -> None:
    with SqliteStore(path) as opened:
        opened._connection.execute(f"PRAGMA user_version = {_VERSION + 1}")
    (tmp_path / "text").write_text("no database" * 100, encoding="utf-8")
    for file, words in ((path, "later hush"), (tmp_path / "text", "name another file"), (tmp_path, "no such file")):
        async with asked(Service(file)) as client:
            assert is_problem(await client.get("/v1/tasks"), 503, words)
            assert is_problem(await client.get("/readyz"), 503, words)


class Running:
    """An aggregator, as far as `/readyz` reads it."""

    def __init__(self, *, connected: bool, backlog: Backlog | None = None, stored: int | None = None) -> None:
        self.task_limit, self.silent_s = "", 0.0
        self.state = IntakeStatus((), connected=connected, waiting=0, dropped=None, backlog=backlog, stored=stored)

    @property
    def intake(self) -> IntakeStatus:
        return self.state

    def figures(self) -> MetricValues:
        raise NotImplementedError


async def test_an_aggregator_without_its_broker_is_not_ready(path: Path) -> None:
    async with asked(Service(path, live=Running(connected=False))) as client:
        assert is_problem(await client.get("/readyz"), 503, "not connected")


@pytest.mark.parametrize("limit", ["", "5 published tasks are not counted: no more than 1000 tasks"])
async def test_an_aggregator_without_room_for_a_task_is_ready_and_says_so(path: Path, limit: str) -> None:
    live = Running(connected=True)
    live.task_limit = limit
    async with asked(Service(path, live=live)) as client:
        answered = await client.get("/readyz")
        assert answered.status_code == 200
        assert answered.json() == {"status": "ok"} | ({"warnings": [limit]} if limit else {})


async def test_a_service_that_drains_a_backlog_is_ready_and_reports_it(path: Path) -> None:
    live = Running(connected=True, backlog=Backlog(412_000, 41_234.6), stored=588_000)
    async with asked(Service(path, live=live)) as client:
        ready = await client.get("/readyz")
        document = {"counted": 412_000, "reports_per_second": 41_235, "waiting": 588_000}
        assert (ready.status_code, ready.json()) == (200, {"status": "ok", "backlog": document})
        live.state = replace(live.state, backlog=None)
        assert (await client.get("/readyz")).json() == {"status": "ok"}


async def test_an_error_of_hush_says_nothing_about_itself(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("a secret")

    monkeypatch.setattr("hush_aggregator.http.api.facts_of", fail)
    async with asked(Service(path)) as client:
        answer = await client.get("/v1/tasks")
    assert is_problem(answer, 500, "its log says where")
    assert "secret" not in answer.text + caplog.text
    assert "ZeroDivisionError in test_http.py" in caplog.text
