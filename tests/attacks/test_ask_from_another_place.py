"""A page of another place, open in somebody's browser, wants to read or write a service on that machine.

It can make the browser ask, under a name of its own that points to 127.0.0.1 from one moment to the next, or from where
it is. Without the token it is one of many; with it, it would be the operator.
"""

import base64
from itertools import product
from pathlib import Path

import httpx
import pytest
from http_world import BEARER, DRAFT, TOKEN, asked, make_store, writable

from hush_aggregator import SqliteReader
from hush_aggregator.web.app import create_app
from hush_aggregator.web.service import LOOPBACK, Service, Token

HERE = {"Host": "localhost:8080"}
READS = ["/v1/tasks", "/v1/tasks/way/rounds/latest", "/v1/refusals", "/metrics", "/", "/v1/openapi.json", "/readyz"]
SINGLE = ["/v1/tasks/way/reports.csv", "/v1/tasks/way/reports.parquet"]
WRITES = ["/v1/tasks", "/v1/tasks/way/withdraw", "/v1/tasks/way/close", "/v1/tasks/way/rounds/0/close"]
FOREIGN = ["evil.example", "evil.example:8080", "localhost.evil.example", "127.0.0.1.evil.example", "127.0.0.2", ""]
FOREIGN += ["localhost@evil.example", "[::2]", "localhost.", "127.0.0.1:x", "localhost, evil.example"]
ORIGINS = [
    "http://evil.example",
    "https://evil.example",
    "http://localhost:3000",
    "http://localhost",
    "null",
    "file://",
]
ORIGINS += ["http://localhost:8080.evil.example", "http://localhost:8080@evil.example", "http://[::1]:8080", ""]
ASKED = [("no-cors", "image", 403), ("no-cors", "script", 403), ("cors", "empty", 403), ("navigate", "iframe", 403)]
ASKED += [("navigate", "embed", 403), ("navigate", "document", 200)]
NEW = {"id": "new", "epsilon": "1", "domain": {"kind": "bit"}}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return make_store(tmp_path / "hush.sqlite3")


def told(answer: httpx.Response) -> int:
    """The status of an answer that says nothing but what was wrong."""
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    assert {"type", "title", "status", "detail"} == answer.json().keys()
    assert not [name for name in answer.headers if name.startswith("access-control-")]
    assert "way" not in answer.text
    return answer.status_code


def state(path: Path) -> list[object]:
    with SqliteReader(path) as store:
        return [store.task_rows(), store.marks()]


@pytest.mark.medium
async def test_under_another_name_it_gets_nothing(path: Path) -> None:
    async with asked(Service(path)) as client:
        for host in FOREIGN:
            for place in READS:
                assert told(await client.get(place, headers={"Host": host})) == 421


async def test_under_two_names_it_gets_nothing(path: Path) -> None:
    async with asked(Service(path)) as client:
        answer = await client.get("/v1/tasks", headers=[("Host", "localhost"), ("Host", "evil.example")])
        assert told(answer) == 421


async def test_under_its_own_names_it_is_answered(path: Path) -> None:
    async with asked(Service(path)) as client:
        for host in ("localhost", "LOCALHOST:8080", "127.0.0.1:8080", "[::1]:8080"):
            assert (await client.get("/v1/tasks", headers={"Host": host})).status_code == 200


async def test_on_all_interfaces_any_address_is_a_name_and_no_other_is(path: Path) -> None:
    service = Service(path, hosts=LOOPBACK | {"hush.example"}, any_address=True)
    async with asked(service) as client:
        for host, status in {
            "192.0.2.7:80": 200,
            "[2001:db8::7]": 200,
            "hush.example": 200,
            "evil.example": 421,
        }.items():
            assert (await client.get("/v1/tasks", headers={"Host": host})).status_code == status


@pytest.mark.medium
async def test_from_another_page_it_reads_and_writes_nothing(path: Path) -> None:
    before = state(path)
    async with asked(writable(path)) as client:
        for origin in ORIGINS:
            headers = {**HERE, **BEARER, "Origin": origin}
            for place in READS + SINGLE:
                assert told(await client.get(place, headers=headers)) == 403
            for place in WRITES:
                assert told(await client.post(place, json=NEW, headers=headers)) == 403
            assert told(await client.options("/v1/tasks", headers=headers)) == 403
    assert state(path) == before


async def test_a_page_of_its_own_may_ask(path: Path) -> None:
    async with asked(Service(path)) as client:
        for origin in ("http://localhost:8080", "https://localhost:8080"):  # a proxy in front may speak TLS
            assert (await client.get("/v1/tasks", headers={**HERE, "Origin": origin})).status_code == 200


@pytest.mark.medium
async def test_a_browser_says_that_another_page_asks(path: Path) -> None:
    async with asked(Service(path)) as client:
        for site, (mode, destination, status) in product(("cross-site", "same-site"), ASKED):
            said = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": mode, "Sec-Fetch-Dest": destination}
            assert (await client.get("/v1/tasks", headers={**HERE, **said})).status_code == status


WRONG: dict[str, dict[str, str]] = {
    "none": {},
    "empty": {"Authorization": "Bearer "},
    "another": {"Authorization": f"Bearer {TOKEN[::-1]}"},
    "the head of it": {"Authorization": f"Bearer {TOKEN[:-1]}"},
    "more than it": {"Authorization": f"Bearer {TOKEN}0"},
    "another scheme": {"Authorization": f"Token {TOKEN}"},
    "no scheme": {"Authorization": TOKEN},
    "a login": {"Authorization": "Basic " + base64.b64encode(f"me:{TOKEN}".encode()).decode()},
    "a login without end": {"Authorization": "Basic !"},
}


@pytest.mark.medium
async def test_without_the_token_nothing_changes_and_no_report_leaves(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before = state(path)
    async with asked(writable(path)) as client:
        for given in WRONG.values():
            for place in SINGLE:
                assert told(await client.get(place, headers=given)) == 401
            for place in WRITES:
                answer = await client.post(place, json=NEW, headers=given)
                assert told(answer) == 401
                assert answer.headers["www-authenticate"] == 'Bearer realm="hush"'
                assert TOKEN not in answer.text
    assert state(path) == before
    assert TOKEN not in caplog.text


async def test_two_tokens_are_none(path: Path) -> None:
    twice = [("Authorization", f"Bearer {TOKEN}"), ("Authorization", "Bearer x")]
    async with asked(writable(path)) as client:
        assert told(await client.post("/v1/tasks/way/close", headers=twice)) == 401


@pytest.mark.medium
async def test_where_writing_was_not_asked_for_the_token_writes_nothing(path: Path) -> None:
    before = state(path)
    async with asked(Service(path, token=Token(TOKEN))) as client:
        for place in WRITES:
            assert told(await client.post(place, json=DRAFT, headers=BEARER)) == 403
        assert (await client.get("/v1/tasks/way/reports.csv", headers=BEARER)).status_code == 200
    async with asked(Service(path)) as client:  # nor does any, where there is none
        assert told(await client.get("/v1/tasks/way/reports.csv", headers=BEARER)) == 403
    assert state(path) == before


@pytest.mark.medium
async def test_where_reading_needs_the_token_nothing_but_life_is_told_without(path: Path) -> None:
    async with asked(Service(path, token=Token(TOKEN), guarded=True)) as client:
        for place in [*READS[:-1], "/nothing"]:
            for given in (WRONG["none"], WRONG["another"], WRONG["a login without end"]):
                assert told(await client.get(place, headers=given)) == 401
            login = httpx.BasicAuth("anybody", TOKEN)  # a browser asks its user for one
            assert (await client.get(place, headers=BEARER)).status_code in (200, 404)
            assert (await client.get(place, auth=login)).status_code in (200, 404)
        assert (await client.get("/healthz")).json() == {"status": "ok"}
        assert (await client.get("/readyz")).json() == {"status": "ok"}


@pytest.mark.medium
async def test_no_answer_is_without_the_headers_that_bind_a_browser(path: Path) -> None:
    async with asked(Service(path)) as client:
        for place in ("/v1/tasks", "/healthz", "/nothing", "/", "/v1/openapi.json"):
            for host in ("localhost", "evil.example"):
                found = (await client.get(place, headers={"Host": host})).headers
                policy = found["content-security-policy"]
                assert {"default-src 'none'", "frame-ancestors 'none'"} <= set(policy.split("; "))
                assert not {"'unsafe-inline'", "'unsafe-eval'", "*", "data:"} & set(policy.split())
                assert found["x-content-type-options"] == "nosniff"
                assert found["referrer-policy"] == "no-referrer"
                assert found["cross-origin-resource-policy"] == "same-origin"


def test_no_request_is_told_to_a_collector_of_traces(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FASTAPI_OTEL_AUTO_CONFIGURE", "true")
    telemetry = vars(create_app(Service(path)))["_telemetry"]  # of fastapi
    assert not any(telemetry[name] for name in ("tracing", "metrics", "logs", "auto_configure"))
