"""The form for a task: every error next to its field, a label before anything is stored, and nobody without a token."""

import html
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from http_world import BEARER, HEIGHTS, TOKEN, Client, Service, Token, asked, bearer, make_store, writable

from hush_aggregator.publish.explain import expected_words
from hush_aggregator.store import SqliteEditor
from hush_aggregator.web.audit import AuditLog
from hush_aggregator.web.page.draft import FIELDS, check_draft, read_form
from hush_common.errors import TaskError
from hush_common.task import make_task

virtual = pytest.mark.virtual_time
NUMBER = {"kind": "number", "id": "weights", "lower": "30", "upper": "250", "unit": "kg", "epsilon": "1"}


def test_what_is_typed_is_the_task_of_a_file() -> None:
    typed = {
        **NUMBER,
        "title": " Weight of adults ",
        "purpose": "Lifts",
        "rounds": "12",
        "round_every": "1d",
        "opens": "2026-01-01T00:00",
        "closes": "2027-01-01T06:30",
        "mechanism": "auto",
        "enrolled": "1 000",
        "release_from": "50",
        "release_every": "1d",
        "retention": "30d",
    }
    task = check_draft(dict.fromkeys(FIELDS, "") | typed).task
    document = {
        "id": "weights",
        "title": "Weight of adults",
        "purpose": "Lifts",
        "epsilon": "1",
        "domain": {"kind": "number", "lower": 30, "upper": 250, "unit": "kg"},
        "mechanism": "auto",
        "rounds": 12,
        "round_every": "1d",
        "opens": "2026-01-01T00:00:00Z",
        "closes": "2027-01-01T06:30:00Z",
        "enrolled": 1000,
        "release_from": 50,
        "release_every": "1d",
        "retention": "30d",
    }
    assert task is not None
    assert task.payload == make_task(document).payload


@pytest.mark.parametrize(
    ("typed", "domain"),
    [
        ({"kind": "bit"}, {"kind": "bit"}),
        (
            {"kind": "category", "labels": "On foot\n\n  By bus \r\nother", "other": "other"},
            {"kind": "category", "labels": ["On foot", "By bus", "other"], "other": "other"},
        ),
        (
            {"kind": "vector", "coordinates": "Warmth, -10, 30.5, °C\nDamp,0,1e2"},
            {
                "kind": "vector",
                "coordinates": [
                    {"name": "Warmth", "lower": -10, "upper": 30.5, "unit": "°C"},
                    {"name": "Damp", "lower": 0, "upper": 100},
                ],
            },
        ),
    ],
    ids=["bit", "category", "vector"],
)
def test_only_the_fields_of_the_chosen_kind_count(typed: Mapping[str, str], domain: Mapping[str, object]) -> None:
    others = {"id": "a", "epsilon": "2", "lower": "not a number", "upper": "1,5", "unit": "kg"}
    task = check_draft(others | {"labels": "one", "coordinates": "?"} | dict(typed)).task
    assert task is not None
    assert task.payload == make_task({"id": "a", "epsilon": "2", "domain": domain}).payload


WRONG: list[tuple[Mapping[str, str], Mapping[str, str]]] = [
    ({}, {"id": "missing", "kind": "choose", "epsilon": "missing"}),
    ({"kind": "number"}, {"id": "missing", "lower": "missing", "upper": "missing", "epsilon": "missing"}),
    (NUMBER | {"lower": "1,5"}, {"lower": "12.5"}),
    (NUMBER | {"lower": "300"}, {"lower": "not below"}),
    (NUMBER | {"lower": "nan", "upper": "1" * 50}, {"lower": "number", "upper": "number"}),
    (NUMBER | {"upper": "1e309"}, {"upper": "finite"}),
    (NUMBER | {"unit": "k" * 50}, {"unit": "single line"}),
    (NUMBER | {"id": "A", "title": "t" * 501}, {"id": "a-z", "title": "500"}),
    (NUMBER | {"epsilon": "0", "rounds": "0"}, {"epsilon": "outside", "rounds": "outside"}),
    (NUMBER | {"rounds": "3"}, {"rounds": "round_every"}),
    (NUMBER | {"rounds": "3", "round_every": "day", "opens": "soon"}, {"round_every": "1d", "opens": "not a time"}),
    (NUMBER | {"opens": "2026-01-02T00:00", "closes": "2026-01-01T00:00"}, {"closes": "not after"}),
    (NUMBER | {"mechanism": "randomized_response"}, {"mechanism": "does not fit"}),
    (NUMBER | {"mechanism": "laplace", "repeat": "sticky", "rounds": "9"}, {"repeat": "sticky", "rounds": "need"}),
    (NUMBER | {"enrolled": "many", "release_from": "-1"}, {"enrolled": "whole", "release_from": "whole"}),
    (NUMBER | {"release_every": "1y", "retention": "9999d"}, {"release_every": "1d", "retention": "3650"}),
    ({"kind": "category", "id": "a", "epsilon": "1", "labels": "x\ny\nx"}, {"labels": "twice"}),
    ({"kind": "category", "id": "a", "epsilon": "1", "labels": "x"}, {"labels": "2 to 1024"}),
    ({"kind": "category", "id": "a", "epsilon": "1", "labels": "x\ny", "other": "z"}, {"other": "not one"}),
    ({"kind": "vector", "id": "a", "epsilon": "1", "coordinates": "x, 0, 1\ny, 2"}, {"coordinates": "line 2"}),
    ({"kind": "vector", "id": "a", "epsilon": "1", "coordinates": "x, 0, a"}, {"coordinates": "line 1: 'a'"}),
    ({"kind": "vector", "id": "a", "epsilon": "1", "coordinates": "x, 0, 1\nx, 0, 2"}, {"coordinates": "twice"}),
    ({"kind": "vector", "id": "a", "epsilon": "1", "coordinates": "x, 3, 2"}, {"coordinates": "not below"}),
    ({"kind": "category", "id": "a", "epsilon": "1", "labels": "\n".join(map(str, range(1025)))}, {"labels": "1025"}),
    (
        {"kind": "category", "id": "a", "epsilon": "1", "labels": "\n".join("é" * 90 + str(n) for n in range(1024))},
        {"": "too long"},
    ),
]


def test_all_errors_are_found_at_once_each_next_to_its_field() -> None:
    order = ["", *FIELDS]
    for typed, wanted in WRONG:
        checked = check_draft(typed)
        assert checked.task is None
        found = {name: wanted.get(name, "-") in text for name, text in checked.errors.items()}
        assert found == dict.fromkeys(wanted, True), (typed, checked.errors)
        assert sorted(checked.errors, key=order.index) == list(checked.errors)


@pytest.mark.parametrize("body", [b"[]", b"{", b'{"token": "x"}', b'{"id": 1}', b"\xff", b'{"id":"a","id":"b"}'])
def test_a_body_that_is_not_the_form_is_refused(body: bytes) -> None:
    with pytest.raises(TaskError):
        read_form(body)


async def preview(client: Client, typed: Mapping[str, str], headers: Mapping[str, str] = BEARER) -> httpx.Response:
    body = json.dumps(dict.fromkeys(FIELDS, "") | dict(typed))
    return await client.post("/new", content=body, headers={"Content-Type": "application/json", **headers})


def document(page: str) -> bytes:
    found = str(re.findall(r'name="document" value="([^"]*)"', page)[0])
    return found.replace("&#34;", '"').encode()


@virtual
async def test_a_preview_has_the_label_and_bytes_and_stores_nothing(tmp_path: Path) -> None:
    path = make_store(tmp_path / "store")
    log = tmp_path / "audit"
    async with asked(replace(writable(path), audit=AuditLog(log))) as client:
        answer = await preview(client, NUMBER)
        assert answer.status_code == 200
        task = make_task(
            {"id": "weights", "epsilon": "1", "domain": {"kind": "number", "lower": 30, "upper": 250, "unit": "kg"}}
        )
        assert document(answer.text) == task.payload
        before = label_of(answer.text)
        assert "73.2 %" in before
        assert (await client.get("/v1/tasks/weights")).status_code == 404
        assert not log.exists()
        given = await client.post(
            "/v1/tasks", content=document(answer.text), headers={"Content-Type": "application/json", **BEARER}
        )
        assert given.status_code == 201
        assert given.json()["digest"] == task.digest.hex()
        assert label_of((await client.get("/tasks/weights")).text) == before
        assert [json.loads(line)["status"] for line in log.read_text().splitlines()] == ["asked", "ok"]


@virtual
async def test_a_preview_has_the_error_to_expect_for_each_kind(tmp_path: Path) -> None:
    number = {**NUMBER, "unit": "<kg>", "enrolled": "2500"}
    rounds = {"rounds": "2", "round_every": "1d", "opens": "2026-01-01T00:00"}
    share = {"kind": "bit", "id": "yes", "epsilon": "1", **rounds}
    vector = {"kind": "vector", "id": "air", "epsilon": "1", "coordinates": "x, 0, 1\ny, 0, 5"}
    async with asked(writable(make_store(tmp_path / "store"))) as client:
        texts = [expected_of((await preview(client, one)).text) for one in (number, share, vector)]
    task = check_draft(number).task
    assert task is not None
    for people, shown in ((100, "100"), (1000, "1 000"), (2500, "2 500"), (10_000, "10 000")):
        assert shown in texts[0]
        assert expected_words(task, people)[0] in texts[0]
    for word, text in zip(("<kg>", "points", "range of each"), texts, strict=True):
        assert word in text
    assert "each round" in texts[1]


def expected_of(page: str) -> str:
    start = page.index('<div class="card" id="expected">')
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", page[start : page.index("</div>", start)])).split())


def label_of(page: str) -> str:
    return page[page.index('<section class="label"') : page.index("</section>", page.index('<section class="label"'))]


@virtual
async def test_an_id_that_is_taken_closed_or_forgotten_is_an_error(tmp_path: Path) -> None:
    path = make_store(tmp_path / "store")
    same = {"kind": "category", "id": "way", "epsilon": "1", "labels": "bus\ncar"}
    async with asked(writable(path)) as client:
        assert "changes nothing" in (await preview(client, same)).text
        other = await preview(client, {**same, "epsilon": "2"})
        assert ("another id" in other.text, "<section" in other.text) == (True, False)
        await client.post("/v1/tasks/way/withdraw", headers=BEARER)
        assert "opens it again" in (await preview(client, same)).text
        await client.post("/v1/tasks/way/close", headers=BEARER)
        assert "closed permanently" in (await preview(client, same)).text
        with SqliteEditor(path) as opened:
            opened.forget(HEIGHTS.id)
        assert "another id" in (await preview(client, {**NUMBER, "id": HEIGHTS.id})).text


@pytest.mark.medium
@virtual
async def test_only_an_administrator_checks_a_draft(tmp_path: Path) -> None:
    path, anna = make_store(tmp_path / "store"), "0a1b2c3d4e5f60718293a4b5c6d7e8f90a1b2c3d"
    async with asked(writable(path)) as client:
        for headers, status in (({}, 401), (bearer("wrong" * 9), 401), (BEARER, 200)):
            assert (await preview(client, NUMBER, headers)).status_code == status
    async with asked(replace(writable(path), administrators=(("anna", Token(anna)),))) as client:
        assert (await preview(client, NUMBER)).status_code == 401  # the token of readers
        assert (await preview(client, NUMBER, bearer(anna))).status_code == 200


@pytest.mark.medium
@virtual
async def test_a_service_that_only_reads_says_how_to_allow_it_and_shows_no_form(tmp_path: Path) -> None:
    path = make_store(tmp_path / "store")
    async with asked(Service(path, token=Token(TOKEN))) as client:
        page = (await client.get("/new")).text
        assert "--http-write" in page
        assert "<form" not in page
        assert (await preview(client, NUMBER)).status_code == 403
        assert 'href="/new"' not in (await client.get("/")).text
    async with asked(replace(writable(path), root_path="/hush")) as client:
        assert 'href="/hush/new"' in (await client.get("/")).text
        page = (await client.get("/new")).text
        assert 'action="/hush/new"' in page
        assert 'data-tasks="/hush/v1/tasks"' in page


@virtual
async def test_no_other_page_has_the_form_in_a_frame(tmp_path: Path) -> None:
    service = replace(writable(make_store(tmp_path / "store")), frame_ancestors=("https://example.org",))
    async with asked(service) as client:
        for answer in (await client.get("/new"), await preview(client, NUMBER)):
            assert answer.headers["x-frame-options"] == "DENY"
            assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
            assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert "frame-ancestors https://example.org" in (await client.get("/")).headers["content-security-policy"]


@pytest.mark.medium
@virtual
async def test_what_somebody_types_stays_text(tmp_path: Path) -> None:
    async with asked(writable(make_store(tmp_path / "store"))) as client:
        for name in [name for name in FIELDS if name != "kind"]:
            text = (await preview(client, {**NUMBER, name: '"><script>alert(1)</script>'})).text
            assert text.count("<script") == 1
            assert "alert(1)" in text
