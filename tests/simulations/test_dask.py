"""A Dask cluster makes the same figures as this process: two workers, one of which is killed at work."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from servers import free_port
from typer.testing import CliRunner

import hush
from hush_common.errors import OptionError
from hush_simulations.commands.simulate import app
from hush_simulations.engines import cluster as cluster_module
from hush_simulations.engines.bulk import devices
from hush_simulations.engines.cluster import Cluster

pytestmark = pytest.mark.medium
distributed = pytest.importorskip("distributed")

GRID = {"task.mechanism": ["multilevel", "laplace"], "task.epsilon": [0.5, 1, 2]}


@pytest.fixture(scope="module")
def scheduler() -> Iterator[str]:
    """Two processes that work."""
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
    with distributed.Client(scheduler, set_as_default=False) as client:
        return sorted(client.run(os.getpid).values())


@pytest.mark.large
def test_a_sweep_is_the_same_on_a_cluster_of_which_a_worker_is_killed_at_work(scheduler: str, tmp_path: Path) -> None:
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


@pytest.mark.large
def test_devices_in_bulk_are_the_same_on_a_cluster(
    scheduler: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices, "CHUNK", 1 << 20)
    options = ["heights", "--engine", "bulk", "--draw", "devices", "--clients", "2500000", "--json"]
    out = tmp_path / "run"
    there = CliRunner().invoke(app, [*options, "--seed", "3", "--dask", scheduler, "--out", str(out)])
    here = CliRunner().invoke(app, [*options, "--seed", "3", "--workers", "2"])
    figures = [json.loads(shown.stdout) for shown in (here, there)]
    for one in figures:
        del one["elapsed_s"], one["reports_per_s"], one["result"]["updated_at"], one["result"]["digest"]
    assert figures[0] == figures[1]
    assert "dask" not in json.loads((out / "run.json").read_text(encoding="utf-8"))["options"]
    again = CliRunner().invoke(app, ["--rerun", str(out), "--dask", scheduler])
    assert again.stderr.endswith("nothing differs\n")


def test_other_versions_on_the_workers_are_named(scheduler: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_module, "version", lambda _: "0.0.1")  # here, and not in their processes
    with pytest.raises(
        OptionError, match=r"--dask: the worker tcp://\S+ has hush-ldp \S+, here 0\.0\.1; numpy \S+, here 0"
    ) as error:
        Cluster(scheduler).__enter__()
    assert "install the same there" in str(error.value)


def test_a_scheduler_that_is_not_there_is_one_line_within_the_time_that_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_module, "TIMEOUT_S", 0.5)
    address = f"tcp://127.0.0.1:{free_port()}"
    with pytest.raises(OptionError, match=f"no scheduler answers at {address} within 0.5 s; start dask scheduler"):
        hush.sweep({"task.epsilon": [1]}, out=tmp_path, trials=2, seed=1, dask=address)
    assert not list((tmp_path / "cells").iterdir())


@pytest.mark.parametrize("address", ["scheduler", "tcp://user:secret@host:1", "http://host:8786", "tcp://host"])
def test_what_is_no_address_is_not_repeated(tmp_path: Path, address: str) -> None:
    with pytest.raises(OptionError, match="--dask: is not the address of a scheduler; write it as in tcp://host:8786"):
        hush.sweep({"task.epsilon": [1]}, out=tmp_path / "out", trials=2, seed=1, dask=address)
    assert not list(tmp_path.iterdir())


@pytest.mark.large
def test_a_cluster_draws_devices_and_no_tallies() -> None:
    with pytest.raises(OptionError, match="--dask: shares out devices, and tallies are drawn at once"):
        hush.simulate("heights", mechanism="multilevel", engine="bulk", clients=10, dask="tcp://host:8786")
