# ruff: noqa: T201 - a script that prints a table
"""`hush poll` from nothing to the first counted answer: python tests/benchmarks/bench_poll.py [runs].

The clock starts when the process of `hush poll` is created. A Chromium that already runs opens the address as soon as
the command prints it, in a new context each time, with an empty cache. A person who needs no time answers as soon as
the form is there. The clock stops when the store has the report: a second process reads it every few milliseconds.

The columns are seconds since the start: the command has printed the address; the form can be filled in; the browser has
the broker's acknowledgement; the answer is counted. `processor` is what `hush poll` used until then, on all cores. With
the load of the machine, for on a busy one only the processor time means something. One run before is not counted: it
writes the bytecode of all modules, which an installation has.
"""

import asyncio
import os
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from page_browser import CHROMIUM, CHROMIUM_ARGUMENTS
from playwright.async_api import Browser, async_playwright

from hush_aggregator import SqliteReader

ASK = ("How many hours did you sleep?", "--number", "0", "14", "h", "--epsilon", "2")
_PATIENCE_S = 60


class Moments(NamedTuple):
    """Seconds since the process was started; `processor` is seconds of its cores."""

    address: float
    form: float
    acknowledged: float
    counted: float
    processor: float


def processor_seconds(pid: int) -> float:
    """Return what a process has used, on all cores, with the children that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(") ")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


async def counted(store: Path) -> None:
    """Return when the store has a report."""
    with SqliteReader(store) as reader:
        while not any(one.n for row in reader.task_rows() for one in reader.stored_rounds(row.digest)):  # noqa: ASYNC110 - another process writes
            await asyncio.sleep(0.003)


def installed(bytecode: Path) -> dict[str, str]:
    """Return the environment of the command, in which a module is compiled once, as in an installation."""
    own = {name: text for name, text in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**own, "PYTHONPYCACHEPREFIX": str(bytecode)}


async def measure(browser: Browser, store: Path, environment: Mapping[str, str]) -> Moments:
    """Start a poll and answer it once."""
    context = await browser.new_context(viewport={"width": 390, "height": 844})
    page = await context.new_page()
    began = time.perf_counter()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "hush", "poll", *ASK, "--bind", "127.0.0.1", "--port", "0", "--store", str(store)),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        env=environment,
    )

    def since() -> float:
        return time.perf_counter() - began

    assert process.stderr is not None
    try:
        async with asyncio.timeout(_PATIENCE_S):
            while not (found := re.search(rb"phones: +(\S+)", await process.stderr.readline())):
                pass
            address = since()
            counting = asyncio.create_task(counted(store))
            await page.goto(found[1].decode(), wait_until="commit")
            await page.get_by_role("spinbutton").fill("7")
            form = since()
            await page.get_by_role("button", name="Add noise and send").click()
            await page.get_by_text("It has arrived").wait_for()
            acknowledged = since()
            await counting
            return Moments(address, form, acknowledged, since(), processor_seconds(process.pid))
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        await context.close()


async def main(runs: int) -> None:
    found = []
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=CHROMIUM_ARGUMENTS)
        print(f"{'':8} {'address':>8} {'form':>8} {'arrived':>8} {'counted':>8} {'processor':>10} {'load':>6}")
        with tempfile.TemporaryDirectory() as scratch:
            environment = installed(Path(scratch) / "bytecode")
            for run in range(runs + 1):
                moments = await measure(browser, Path(scratch) / f"store-{run}", environment)
                if run:
                    found.append(moments)
                    print_row(f"run {run}", moments)
        await browser.close()
    print_row("median", Moments(*map(statistics.median, zip(*found, strict=True))))
    print_row("longest", Moments(*map(max, zip(*found, strict=True))))


def print_row(name: str, moments: Moments) -> None:
    *times, processor = moments
    print(f"{name:8} " + " ".join(f"{one:8.2f}" for one in times) + f" {processor:10.2f} {os.getloadavg()[0]:6.1f}")


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 10))
