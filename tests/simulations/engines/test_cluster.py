"""A Dask cluster makes the same figures as this process: two workers, one of which is killed at work."""

import json
import os
import signal
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from commands import run
from servers import free_port

import hush
from hush_common.errors import OptionError
from hush_simulations.engines import cluster as cluster_module
from hush_simulations.engines.bulk import devices
from hush_simulations.engines.cluster import Cluster

pytestmark = pytest.mark.large

GRID = {"task.mechanism": ["multilevel", "laplace"], "task.epsilon": [0.5, 1, 2]}


@pytest.fixture(scope="module")
def scheduler() -> Iterator[str]:
    """Two processes that work."""
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        processes=True,
        dashboard_address="127.0.0.1:0",
        host="127.0.0.1",
        silence_logs=50,
    ) as local:
        yield local.scheduler_address


def workers_of(scheduler: str) -> list[int]:
    distributed: Any = import_module("distributed")
    with distributed.Client(scheduler, set_as_default=False) as client:
        return sorted(client.run(os.getpid).values())


def test_a_sweep_is_the_same_on_a_cluster_that_loses_a_worker(scheduler: str, tmp_path: Path) -> None:
    here = hush.sweep(GRID, out=tmp_path / "here", trials=20, seed=7)
    victim, killed = workers_of(scheduler)[0], []

    def kill(made: int, _: int) -> None:
        if made == 1:
            os.kill(victim, signal.SIGKILL)
            killed.append(victim)

    there = hush.sweep(GRID, out=tmp_path / "there", trials=20, seed=7, dask=scheduler, progress=kill)
    assert killed
    assert there.rows == here.rows
    cells = [path.read_bytes() for path in sorted((tmp_path / "there" / "cells").iterdir())]
    assert cells == [path.read_bytes() for path in sorted((tmp_path / "here" / "cells").iterdir())]


def test_devices_in_bulk_are_the_same_on_a_cluster(
    scheduler: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices, "CHUNK", 1 << 20)
    options = ["simulate", "heights", "--engine", "bulk", "--draw", "devices", "--clients", "2500000", "--json"]
    there = run([*options, "--seed", "3", "--dask", scheduler, "--out", "run"], tmp_path)
    here = run([*options, "--seed", "3", "--workers", "2"], tmp_path)
    figures = [json.loads(shown.out) for shown in (here, there)]
    for one in figures:
        del one["elapsed_s"], one["reports_per_s"], one["result"]["updated_at"], one["result"]["digest"]
    assert figures[0] == figures[1]
    assert "dask" not in json.loads((tmp_path / "run" / "run.json").read_text(encoding="utf-8"))["options"]
    assert run(["simulate", "--rerun", "run", "--dask", scheduler], tmp_path).code == 0


def test_other_versions_on_the_workers_are_named(scheduler: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_module, "version", lambda _: "0.0.1")  # here, and not in their processes
    with pytest.raises(OptionError, match=r"^--dask: .*tcp://.*hush-ldp.* 0\.0\.1.*numpy"):
        Cluster(scheduler).__enter__()


def test_a_missing_scheduler_is_an_error_after_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_module, "TIMEOUT_S", 0.5)
    address = f"tcp://127.0.0.1:{free_port()}"
    with pytest.raises(OptionError, match=f"{address} .*0.5 s"):
        hush.sweep({"task.epsilon": [1]}, out=tmp_path, trials=2, seed=1, dask=address)
    assert not list((tmp_path / "cells").iterdir())


@pytest.mark.parametrize("address", ["scheduler", "tcp://user:secret@host:1", "http://host:8786", "tcp://host"])
def test_a_wrong_address_is_refused_without_its_password(tmp_path: Path, address: str) -> None:
    with pytest.raises(OptionError, match=r"--dask: .*tcp://host:8786"):
        hush.sweep({"task.epsilon": [1]}, out=tmp_path / "out", trials=2, seed=1, dask=address)
    assert not list(tmp_path.iterdir())
