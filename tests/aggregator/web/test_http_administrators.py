"""Readers and administrators have different tokens, and each action of an administrator is logged."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from http_world import DRAFT, TOKEN, Service, Token, asked, bearer, kind_of, make_store

from hush_aggregator.web.audit import AuditLog
from hush_common.errors import OptionError

ANNA, BERT = "9d3c51f07ab84e6c2d19f5a8b7c6034e1f2a", "77e0c4b95a1d4f83a6b20e9c8d1f5a37642b"
NEW = {**DRAFT, "id": "weights"}

virtual = pytest.mark.virtual_time


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


def lines(service: Service) -> list[dict[str, Any]]:
    assert service.audit is not None
    path = service.audit.path
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.mark.medium
@virtual
async def test_a_reader_cannot_write_and_an_administrator_can_do_both(service: Service) -> None:
    async with asked(service) as client:
        for token, status in ((TOKEN, 200), (ANNA, 200), (BERT, 200), ("x" * 36, 401)):
            assert (await client.get("/v1/tasks", headers=bearer(token))).status_code == status
        reports = "/v1/tasks/heights/reports.csv"
        assert kind_of(await client.get(reports, headers=bearer(TOKEN))) == "token-wrong"
        assert (await client.get(reports, headers=bearer(ANNA))).status_code == 200
        assert kind_of(await client.post("/v1/tasks", json=NEW, headers=bearer(TOKEN))) == "token-wrong"
        assert (await client.post("/v1/tasks", json=NEW, headers=bearer(BERT))).status_code == 201


@pytest.mark.medium
@virtual
async def test_each_action_is_logged_with_its_administrator_and_result(service: Service) -> None:
    async with asked(service) as client:
        await client.get("/v1/tasks", headers=bearer(ANNA))  # reading is no action
        await client.get("/v1/tasks/heights/reports.csv", headers=bearer(ANNA))
        await client.post("/v1/tasks", json=NEW, headers=bearer(BERT))
        await client.post("/v1/tasks", json={**NEW, "epsilon": "2"}, headers=bearer(BERT))
        await client.post("/v1/tasks/heights/rounds/0001/close?round=7", headers=bearer(ANNA))
        await client.get("/v1/tasks/heights/reports.csv?round=0&round=002", headers=bearer(ANNA))
        await client.post("/v1/tasks/nowhere/withdraw", headers=bearer(ANNA))
        await client.post("/v1/tasks/way/close?round=7", headers=bearer(ANNA))
        await client.post("/v1/tasks/way/close", headers=bearer("y" * 36))
    found = lines(service)
    assert all(one["v"] == 1 and one["at"].endswith("Z") for one in found)
    assert [one["status"] for one in found[::2]] == ["asked"] * 7
    done = [tuple(one.get(name) for name in ("token", "action", "task", "round", "status")) for one in found[1::2]]
    assert done == [
        ("anna", "export", "heights", None, "ok"),
        ("bert", "publish", "weights", None, "ok"),
        ("bert", "publish", None, None, "TakenError"),
        ("anna", "close round", "heights", 1, "ok"),
        ("anna", "export", "heights", 2, "ok"),
        ("anna", "withdraw", "nowhere", None, "UnknownError"),
        ("anna", "close", "way", None, "ok"),
    ]
    assert service.audit is not None
    text = service.audit.path.read_text()
    assert not any(secret in text for secret in (ANNA, BERT, TOKEN))


@pytest.mark.medium
@virtual
async def test_a_round_in_another_notation_is_refused(service: Service) -> None:
    others = ["4%0a", "%205", "%2B6", "0_7", "8.0", "9%09", "%0a10", "12e0", "%EF%BC%913", "-1", "0x3", "1" * 30]
    async with asked(service) as client:
        for given in others:
            closed = await client.post(f"/v1/tasks/heights/rounds/{given}/close", headers=bearer(ANNA))
            exported = await client.get(f"/v1/tasks/heights/reports.csv?round={given}", headers=bearer(ANNA))
            assert {closed.status_code, exported.status_code} <= {404, 422}, given
        assert (await client.document("/v1/tasks/heights", **bearer(ANNA)))["state"] == "open"
    assert {one["action"] for one in lines(service)} <= {"close round", "export"}
    assert "ok" not in {one["status"] for one in lines(service)}


@pytest.mark.medium
@virtual
async def test_without_a_log_that_can_be_written_nothing_is_done(service: Service, tmp_path: Path) -> None:
    blocked = replace(service, audit=AuditLog(tmp_path / "missing" / "audit"))
    async with asked(blocked) as client:
        assert kind_of(await client.post("/v1/tasks/way/close", headers=bearer(ANNA))) == "no-audit"
        assert (await client.document("/v1/tasks/way", **bearer(ANNA)))["state"] == "open"


@pytest.mark.medium
@virtual
async def test_a_log_that_was_renamed_continues_in_a_new_file(service: Service, tmp_path: Path) -> None:
    async with asked(service) as client:
        await client.post("/v1/tasks/way/withdraw", headers=bearer(ANNA))
        (tmp_path / "audit").rename(tmp_path / "audit.1")
        await client.post("/v1/tasks/way/close", headers=bearer(ANNA))
    assert [one["action"] for one in lines(service)] == ["close", "close"]


@pytest.mark.medium
@virtual
async def test_without_administrators_the_one_token_may_do_everything(service: Service) -> None:
    alone = replace(service, administrators=())
    async with asked(alone) as client:
        assert (await client.post("/v1/tasks/way/close", headers=bearer(TOKEN))).status_code == 200
    assert [one["token"] for one in lines(alone)] == ["token", "token"]


def test_only_its_owner_can_read_the_log(tmp_path: Path) -> None:
    for name in ("new", "audit"):
        if name == "audit":
            (tmp_path / name).touch(0o644)
        AuditLog(tmp_path / name).write("anna", "close", "heights", "ok")
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o600
    (tmp_path / "link").symlink_to(tmp_path / "audit")
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "pipe"):
        with pytest.raises(OptionError, match=f"--audit-log: .*{name}"):
            AuditLog(tmp_path / name).check("--audit-log")


FILLING = """
import resource, signal, sys
from pathlib import Path
from hush_aggregator.web.audit import AuditLog

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


@pytest.mark.medium
@pytest.mark.parametrize("room", [10, 1001])
def test_a_line_without_room_is_an_error_and_leaves_nothing(tmp_path: Path, room: int) -> None:
    words = [sys.executable, "-c", FILLING, str(tmp_path / "audit"), str(room)]
    written = int(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    found = [json.loads(line)["task"] for line in (tmp_path / "audit").read_text().splitlines()]
    assert found == [*(f"task-{number}" for number in range(written)), "last"]
