"""docs/http.md: its blocks run as they stand, and its tables name every endpoint and option."""

import csv
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from commands import commands
from http_world import make_store
from servers import free_port, need

from hush_aggregator.http.app import create_app
from hush_aggregator.http.connection import _FILES_FOR_OTHERS, _MOST
from hush_aggregator.http.security import BODY_LIMIT, HEAD_LIMIT, HEADER_LIMIT, REQUEST_S, REQUESTS, STREAMS
from hush_aggregator.http.service import Service

TEXT = (Path(__file__).parents[3] / "docs" / "http.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```sh\n(.*?)```", TEXT, re.DOTALL)
WEIGHTS = 'id = "weights"\nepsilon = "1"\n[domain]\nkind = "number"\nlower = 0.0\nupper = 1.0\n'


@pytest.mark.medium
def test_its_blocks_run_as_they_stand(tmp_path: Path) -> None:
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


def test_its_tables_name_every_endpoint_option_and_bound(tmp_path: Path) -> None:
    places = create_app(Service(tmp_path / "store")).openapi()["paths"].keys()
    named = TEXT.replace("`….parquet`", "`reports.parquet`")
    for place in places:
        assert place.rpartition("/")[2].replace("{task_id}", "{id}").replace("{number}", "{n}") in named, place
    options = {option.flag for name in ("http", "serve") for option in commands()[name]}
    told = set(re.findall(r"(--(?:http[a-z-]*|bind|token-file|write|open|host|trusted-proxy))\b", TEXT))
    assert told <= options
    assert {flag for flag in options if flag.startswith("--http")} <= told
    for bound in (REQUESTS, HEADER_LIMIT, STREAMS, _MOST, _FILES_FOR_OTHERS):
        assert str(bound) in TEXT
    assert f"{BODY_LIMIT // 1024} KiB" in TEXT
    assert f"{HEAD_LIMIT // 1024} KiB" in TEXT
    assert f"{REQUEST_S:g} s" in TEXT
