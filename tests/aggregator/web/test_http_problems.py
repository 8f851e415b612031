"""Kinds of problems: a program tells them apart by `type`, and every one is documented and met."""

import re
from collections.abc import Mapping
from pathlib import Path

import httpx
import pytest
from http_world import BEARER, DRAFT, asked, make_store, writable

import hush_aggregator.http
from hush_aggregator.http.service import PROBLEMS_PATH, ConcurrencyLimit, ProblemError, ProblemType, Service

DOCUMENT = (Path(__file__).parents[3] / "docs" / "http.md").read_text(encoding="utf-8")
WRONG = {"Authorization": f"Bearer {'x' * 40}"}
JSON = {**BEARER, "Content-Type": "application/json"}
ASKED: Mapping[ProblemType, tuple[str, str, dict[str, str], bytes]] = {
    ProblemType.TOKEN_MISSING: ("GET", "/v1/tasks/way/reports.csv", {}, b""),
    ProblemType.TOKEN_WRONG: ("GET", "/v1/tasks/way/reports.csv", WRONG, b""),
    ProblemType.OTHER_ORIGIN: ("GET", "/v1/tasks", {"Origin": "http://evil.example"}, b""),
    ProblemType.UNKNOWN_PATH: ("GET", "/nothing", {}, b""),
    ProblemType.UNKNOWN_TASK: ("GET", "/v1/tasks/nothing", {}, b""),
    ProblemType.UNKNOWN_ROUND: ("GET", "/v1/tasks/heights/rounds/3", {}, b""),
    ProblemType.WRONG_METHOD: ("DELETE", "/v1/tasks", {}, b""),
    ProblemType.TASK_EXISTS: ("POST", "/v1/tasks", JSON, b'{"id": "way", "epsilon": "1", "domain": {"kind": "bit"}}'),
    ProblemType.TASK_CLOSED: ("POST", "/v1/tasks/way/withdraw", BEARER, b""),
    ProblemType.BODY_TOO_LONG: ("POST", "/v1/tasks", JSON, b" " * 200_000),
    ProblemType.WRONG_MEDIA_TYPE: ("POST", "/v1/tasks", {**BEARER, "Content-Type": "text/plain"}, b"{}"),
    ProblemType.UNKNOWN_HOST: ("GET", "/v1/tasks", {"Host": "evil.example"}, b""),
    ProblemType.INVALID_TASK: ("POST", "/v1/tasks", JSON, b"{}"),
    ProblemType.INVALID_PARAMETER: ("GET", "/v1/tasks/heights/rounds/all?limit=0", {}, b""),
    ProblemType.HEAD_TOO_LARGE: ("GET", "/v1/tasks", {f"X-{number}": "" for number in range(65)}, b""),
}
"""What to send for each kind that a request alone can meet. The others need another service, or several requests."""


def kind_of(answer: httpx.Response) -> ProblemType:
    document = answer.json()
    found = next(kind for kind in ProblemType if kind.type == document["type"])
    assert (answer.status_code, document["status"], document["title"]) == (found.status, found.status, found.title)
    return found


async def test_each_request_meets_its_kind(tmp_path: Path) -> None:
    async with asked(writable(make_store(tmp_path / "store"))) as client:
        assert (await client.post("/v1/tasks/way/close", headers=BEARER)).status_code == 200
        for kind, (method, place, headers, body) in ASKED.items():
            assert kind_of(await client.request(method, place, headers=headers, content=body)) is kind


async def test_each_service_meets_its_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with asked(Service(tmp_path / "nothing")) as client:
        assert kind_of(await client.get("/v1/tasks")) is ProblemType.STORE_UNAVAILABLE
        assert kind_of(await client.get("/readyz")) is ProblemType.STORE_UNAVAILABLE
    path = make_store(tmp_path / "store")
    async with asked(Service(path)) as client:
        assert kind_of(await client.get("/v1/tasks/way/reports.csv")) is ProblemType.NO_TOKEN_SET
        assert kind_of(await client.post("/v1/tasks", json=DRAFT)) is ProblemType.READ_ONLY
        monkeypatch.setattr("hush_aggregator.http.api.facts_of", lambda *_: 1 // 0)
        assert kind_of(await client.get("/v1/tasks")) is ProblemType.INTERNAL
        monkeypatch.setattr("hush_aggregator.http.security.REQUEST_S", -1)
        assert kind_of(await client.get("/v1/refusals")) is ProblemType.TOO_SLOW


def test_a_share_is_another_kind_than_all_places() -> None:
    limit = ConcurrencyLimit(3, ProblemType.TOO_MANY_STREAMS, "full", share=2, what="streams")
    limit.acquire("a")
    limit.acquire("a")
    with pytest.raises(ProblemError, match="2 streams of this address are under way") as caught:
        limit.acquire("a")
    assert caught.value.kind is ProblemType.OVER_SHARE
    limit.acquire("b")
    with pytest.raises(ProblemError, match="full") as caught:
        limit.acquire("c")
    assert caught.value.kind is ProblemType.TOO_MANY_STREAMS
    limit.release("a")
    limit.acquire("c")
    with pytest.raises(ProblemError, match="full"):
        limit.acquire("a")


def test_no_two_kinds_have_one_type_and_each_is_used_and_documented() -> None:
    assert len({kind.type for kind in ProblemType}) == len(ProblemType)
    assert len({kind.title for kind in ProblemType}) == len(ProblemType)
    source = "".join(file.read_text(encoding="utf-8") for file in Path(hush_aggregator.http.__path__[0]).rglob("*.py"))
    rows = dict(re.findall(r"^\| `([a-z-]+)` \| (\d{3}) \|", DOCUMENT, re.MULTILINE))
    assert rows == {kind.slug: str(kind.status) for kind in ProblemType}
    for kind in ProblemType:
        assert re.search(rf"\bProblemType\.{kind.name}\b", source), kind


async def test_a_service_explains_the_types_to_everybody(tmp_path: Path) -> None:
    async with asked(Service(make_store(tmp_path / "store"), guarded=True)) as client:
        listed = (await client.get(PROBLEMS_PATH)).json()["problems"]
    for kind in ProblemType:
        place, _, name = kind.type.partition("#")
        assert place == PROBLEMS_PATH
        assert listed[name] == {"status": kind.status, "title": kind.title}
