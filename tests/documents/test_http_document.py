"""docs/http.md: its commands run, and its tables name each path, option, problem and limit."""

import csv
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from commands import commands
from http_world import Service, make_store
from servers import free_port, need

TEXT = (Path(__file__).parents[2] / "docs" / "http.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```sh\n(.*?)```", TEXT, re.DOTALL)
WEIGHTS = 'id = "weights"\nepsilon = "1"\n[domain]\nkind = "number"\nlower = 0.0\nupper = 1.0\n'


@pytest.mark.large
def test_its_commands_run_as_they_are_written(tmp_path: Path) -> None:
    for program in ("curl", "openssl", "bash"):
        need(program)
    make_store(tmp_path / "hush.sqlite3")
    (tmp_path / "weights.toml").write_text(WEIGHTS, encoding="utf-8")
    start, *rest = (block.replace("8080", str(port)) for port in [free_port()] for block in BLOCKS)
    url = re.search(r"http://[0-9.:]+", rest[0])
    assert url is not None
    wait = f"for _ in $(seq 600); do curl -s -o health {url[0]}/healthz && break; sleep 0.1; done\n"
    script = f"set -e\ntrap 'kill $!' EXIT\n{start}{wait}" + "\necho\n".join(rest).replace("\ncurl", "\necho\ncurl")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    run = subprocess.run(
        ["bash", "-c", script],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PATH": path},
    )
    assert run.returncode == 0, run.stderr
    listed, latest, given, withdrawn = (json.loads(line) for line in run.stdout.split("\n") if line.startswith("{"))
    assert {one["task"] for one in listed["tasks"]} == {"heights", "way"}
    assert (latest["round"], latest["n"]) == (2, 5)
    assert (given["status"], withdrawn["status"]) == ("given_to_the_store", "withdrawn")
    with (tmp_path / "reports.csv").open(encoding="utf-8", newline="") as file:
        assert len([*csv.reader(file)]) == 46
    assert (tmp_path / "token").stat().st_mode & 0o077 == 0


def test_its_tables_name_every_path_and_option(tmp_path: Path) -> None:
    from hush_aggregator.web.app import create_app  # noqa: PLC0415 - it brings the web framework

    named = TEXT.replace("`….parquet`", "`reports.parquet`")
    for place in create_app(Service(tmp_path / "store")).openapi()["paths"]:
        assert place.rpartition("/")[2].replace("{task_id}", "{id}").replace("{number}", "{n}") in named, place
    options = {option.flag for name in ("http", "serve") for option in commands()[name]}
    listed = set(re.findall(r"(--(?:http[a-z-]*|bind|token-file|write|open|host|trusted-proxy))\b", TEXT))
    assert {flag for flag in options if flag.startswith("--http")} <= listed <= options


def test_its_limits_are_those_of_the_service() -> None:
    from hush_aggregator.web import security  # noqa: PLC0415 - it brings the web framework

    (table,) = re.findall(r"^\| bound \|(.*?)\n\n", TEXT, re.MULTILINE | re.DOTALL)
    for limit in (security.REQUESTS, security.HEADER_LIMIT, security.STREAMS):
        assert re.search(rf"\b{limit}\b", table), limit
    assert f"{security.BODY_LIMIT // 1024} KiB" in table
    assert f"{security.HEAD_LIMIT // 1024} KiB" in table
    assert f"{security.REQUEST_S:g} s" in table
