"""Readers and administrators have tokens of their own, and each action of an administrator is written down."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from http_world import DRAFT, TOKEN, asked, make_store

from hush_aggregator.http.audit import AuditLog
from hush_aggregator.http.listen import HttpListener, HttpOptions
from hush_aggregator.http.service import Service, Token, find_administrators
from hush_common.errors import OptionError

ANNA, BERT = "9d3c51f07ab84e6c2d19f5a8b7c6034e1f2a", "77e0c4b95a1d4f83a6b20e9c8d1f5a37642b"
NEW = {**DRAFT, "id": "weights"}


@pytest.fixture
def service(tmp_path: Path) -> Service:
    return Service(
        make_store(tmp_path / "store"),
        token=Token(TOKEN),
        administrators=(("anna", Token(ANNA)), ("bert", Token(BERT))),
        audit=AuditLog(tmp_path / "audit"),
        write=True,
        guarded=True,
    )


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def lines(service: Service) -> list[dict[str, Any]]:
    assert service.audit is not None
    path = service.audit.path
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


async def kind(answer: httpx.Response) -> str:
    return str(answer.json()["type"]).rpartition("#")[2]


async def test_who_reads_cannot_write_and_an_administrator_can_do_both(service: Service) -> None:
    async with asked(service) as client:
        for token, status in ((TOKEN, 200), (ANNA, 200), (BERT, 200), ("x" * 36, 401)):
            assert (await client.get("/v1/tasks", headers=bearer(token))).status_code == status
        for path in ("/v1/tasks/heights/reports.csv",):
            assert await kind(await client.get(path, headers=bearer(TOKEN))) == "token-wrong"
            assert (await client.get(path, headers=bearer(ANNA))).status_code == 200
        assert await kind(await client.post("/v1/tasks", json=NEW, headers=bearer(TOKEN))) == "token-wrong"
        assert (await client.post("/v1/tasks", json=NEW, headers=bearer(BERT))).status_code == 201


async def test_each_action_is_written_down_with_who_what_and_what_became_of_it(service: Service) -> None:
    async with asked(service) as client:
        await client.get("/v1/tasks", headers=bearer(ANNA))  # reading is no action
        await client.get("/v1/tasks/heights/reports.csv", headers=bearer(ANNA))
        await client.post("/v1/tasks", json=NEW, headers=bearer(BERT))
        await client.post("/v1/tasks", json={**NEW, "epsilon": "2"}, headers=bearer(BERT))
        await client.post("/v1/tasks/heights/rounds/1/close", headers=bearer(ANNA))
        await client.post("/v1/tasks/nowhere/withdraw", headers=bearer(ANNA))
        await client.post("/v1/tasks/way/close", headers=bearer(ANNA))
        await client.post("/v1/tasks/way/close", headers=bearer("y" * 36))
    found = lines(service)
    assert all(one["v"] == 1 and one["at"].endswith("Z") for one in found)
    assert [one["status"] for one in found[::2]] == ["asked"] * 6
    done = [(one["token"], one["action"], one["task"], one["status"]) for one in found[1::2]]
    assert done == [
        ("anna", "export", "heights", "ok"),
        ("bert", "publish", "weights", "ok"),
        ("bert", "publish", None, "TakenError"),
        ("anna", "close round", "heights", "ok"),
        ("anna", "withdraw", "nowhere", "UnknownError"),
        ("anna", "close", "way", "ok"),
    ]
    assert [one.get("round") for one in found[1::2]] == [None, None, None, 1, None, None]
    text = (service.audit.path if service.audit else Path()).read_text()
    assert not any(secret in text for secret in (ANNA, BERT, TOKEN))
    assert service.audit is not None
    assert service.audit.path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "given", ["4%0a", "%205", "%2B6", "0_7", "8.0", "9%09", "%0a10", "12e0", "%EF%BC%913", "-1", "0x3", "1" * 30]
)
async def test_a_round_in_another_writing_is_refused_and_recorded_as_no_task(service: Service, given: str) -> None:
    async with asked(service) as client:
        closed = await client.post(f"/v1/tasks/heights/rounds/{given}/close", headers=bearer(ANNA))
        exported = await client.get(f"/v1/tasks/heights/reports.csv?round={given}", headers=bearer(ANNA))
        state = (await client.get("/v1/tasks/heights", headers=bearer(ANNA))).json()
    assert {closed.status_code, exported.status_code} <= {404, 422}
    assert state["state"] == "open"
    assert {one["action"] for one in lines(service)} <= {"close round", "export"}
    assert "ok" not in {one["status"] for one in lines(service)}


async def test_the_round_of_an_action_is_recorded_as_it_was_used(service: Service) -> None:
    async with asked(service) as client:
        for number in ("0002", "1"):
            await client.post(f"/v1/tasks/heights/rounds/{number}/close?round=7", headers=bearer(ANNA))
        for query in ("", "?round=1", "?round=0&round=001"):
            await client.get(f"/v1/tasks/heights/reports.csv{query}", headers=bearer(ANNA))
        await client.post("/v1/tasks/way/close?round=7", headers=bearer(ANNA))
    done = [(one["action"], one.get("round"), one["status"]) for one in lines(service)[1::2]]
    assert done == [
        ("close round", 2, "ok"),
        ("close round", 1, "ok"),
        ("export", None, "ok"),
        ("export", 1, "ok"),
        ("export", 1, "ok"),
        ("close", None, "ok"),
    ]


FILLING = """
import resource, signal, sys
from pathlib import Path
from hush_aggregator.http.audit import AuditLog

log = AuditLog(Path(sys.argv[1]))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
written = 0
try:
    while True:
        log.write("anna", "close", f"task-{written}", "asked")
        written += 1
except OSError:
    print(written)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
log.write("anna", "close", "last", "ok")
"""


@pytest.mark.parametrize("room", [10, 300, 1001])
def test_a_line_for_which_there_is_no_room_leaves_nothing_and_is_an_error(tmp_path: Path, room: int) -> None:
    words = [sys.executable, "-c", FILLING, str(tmp_path / "audit"), str(room)]
    written = int(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    found = [json.loads(line)["task"] for line in (tmp_path / "audit").read_text().splitlines()]
    assert found == [*(f"task-{number}" for number in range(written)), "last"]


async def test_without_a_log_that_can_be_written_nothing_is_done(service: Service, tmp_path: Path) -> None:
    blocked = replace(service, audit=AuditLog(tmp_path / "missing" / "audit"))
    async with asked(blocked) as client:
        answer = await client.post("/v1/tasks/way/close", headers=bearer(ANNA))
        assert (answer.status_code, await kind(answer)) == (503, "no-audit")
        row = (await client.get("/v1/tasks/way", headers=bearer(ANNA))).json()
        assert row["state"] == "open"


async def test_a_log_that_was_moved_away_goes_on_in_a_new_file(service: Service, tmp_path: Path) -> None:
    async with asked(service) as client:
        await client.post("/v1/tasks/way/withdraw", headers=bearer(ANNA))
        (tmp_path / "audit").rename(tmp_path / "audit.1")
        await client.post("/v1/tasks/way/close", headers=bearer(ANNA))
    assert [one["action"] for one in lines(service)] == ["close", "close"]


async def test_with_one_token_who_has_it_may_do_everything(service: Service) -> None:
    alone = replace(service, administrators=())
    async with asked(alone) as client:
        assert (await client.post("/v1/tasks/way/close", headers=bearer(TOKEN))).status_code == 200
    assert [one["token"] for one in lines(alone)] == ["token", "token"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "has no line NAME TOKEN"),
        (f"{ANNA}\n", "is not NAME TOKEN"),
        (f"anna {ANNA}\nanna {BERT}\n", "a name or a token twice"),
        (f"anna {ANNA}\nbert {ANNA}\n", "a name or a token twice"),
        ("anna short\n", "is shorter than"),
        (f"an/na {ANNA}\n", "is not NAME TOKEN"),
    ],
)
def test_a_file_of_administrators_that_is_none_is_refused_without_its_tokens(
    tmp_path: Path, text: str, words: str
) -> None:
    file = tmp_path / "administrators"
    file.write_text(text)
    file.chmod(0o600)
    with pytest.raises(OptionError, match=words) as caught:
        find_administrators("--admin-token-file", file)
    assert ANNA not in str(caught.value)


def test_a_log_that_cannot_be_written_is_told_at_the_start(tmp_path: Path) -> None:
    options = HttpOptions("--http", "127.0.0.1:0", "--http-", audit_log=tmp_path / "missing" / "audit")
    with pytest.raises(OptionError, match=r"--http-audit-log: .*audit cannot be written"):
        HttpListener.open(options, tmp_path / "store")


def test_a_token_is_for_readers_or_for_an_administrator(tmp_path: Path) -> None:
    for name, text in (("readers", ANNA), ("administrators", f"anna {ANNA}")):
        (tmp_path / name).write_text(text, encoding="utf-8")
        (tmp_path / name).chmod(0o600)
    options = HttpOptions(
        "--bind", "127.0.0.1:0", "--", tmp_path / "readers", admin_token_file=tmp_path / "administrators"
    )
    with pytest.raises(OptionError, match="has the token of the readers") as caught:
        HttpListener.open(options, tmp_path / "store")
    assert ANNA not in str(caught.value)


def test_only_the_owner_can_read_the_log_whoever_made_it(tmp_path: Path) -> None:
    path = tmp_path / "audit"
    path.touch(0o644)
    AuditLog(path).write("anna", "close", "heights", "ok")
    assert path.stat().st_mode & 0o777 == 0o600
    (tmp_path / "link").symlink_to(path)
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "pipe"):
        with pytest.raises(OptionError, match="cannot be written"):
            AuditLog(tmp_path / name).check("--audit-log")
