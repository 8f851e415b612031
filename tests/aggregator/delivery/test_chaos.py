"""Counted, whatever dies: broker and aggregator are killed while thousands answer, and every report counts once.

mosquitto has `persistence true` and nothing else: a SIGKILL takes all that it acknowledged and did not deliver.
"""

import sys
from pathlib import Path

import pytest
from chaos import Chaos, Serve, spent
from servers import Mosquitto

pytestmark = pytest.mark.medium


def chaos(bare: Mosquitto, directory: Path, *, over: int = 2, **size: float) -> Chaos:
    return Chaos(bare, Serve(bare.url, directory, over), directory, **size)  # type: ignore[arg-type]  # whole numbers


def check(run: Chaos, counted: int) -> None:
    assert counted == run.reports
    assert [spent(run.state(number)) for number in range(run.gateways)] == [(run.devices, run.devices)] * run.gateways


@pytest.mark.large
async def test_ten_thousand_reports_are_counted_once_although_broker_and_aggregator_die_twice(
    bare: Mosquitto, memory_path: Path
) -> None:
    run = chaos(bare, memory_path, gateways=5, devices=2000, seconds=6.0, kills=2)
    check(run, await run.run(patience=120))


@pytest.mark.soak  # how much of a short run waits on the broker is chance; test_recalls_mosquitto.py loses for certain
async def test_without_recalls_the_same_run_loses_some(bare: Mosquitto, memory_path: Path) -> None:
    run = chaos(bare, memory_path, over=0, gateways=5, devices=2000, seconds=6.0, kills=2)
    assert await run.run(patience=5) < run.reports


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("over", [10, 0])
async def test_two_hundred_thousand_reports_and_ten_deaths_of_each(
    bare: Mosquitto, memory_path: Path, over: int
) -> None:
    run = chaos(bare, memory_path, over=over, gateways=50, devices=4000, seconds=80.0, kills=10)
    counted = await run.run(patience=300 if over else 20)
    sys.stdout.write(f"\n{counted} of {run.reports} counted; {run.statuses}\n{run.serve.told()}\n")
    if over:
        check(run, counted)
    else:
        assert counted < run.reports
