# ruff: noqa: T201 - printing is its job
"""How long a real browser takes to paint the list of a hundred tasks, and how many bytes it loads.

`python tests/benchmarks/bench_paint.py [tasks]`. Times are the entry `first-contentful-paint` of Chromium: from the
click to the first text on the screen. Each has an empty cache. A fresh service has calculated no estimate yet. A page
with one line of text shows what browser and machine take without the list. Processor time is that of the main thread of
the browser, until the page is loaded: it says what the page costs on a machine that does other work, too.
"""

import statistics
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
from http_process import HttpProcess, running
from page_browser import browsing
from playwright.sync_api import Browser

from hush_aggregator import SqliteStore
from hush_aggregator.store import Accepted
from hush_common.rng import SystemRng
from hush_common.task import make_task

TIMES = 9
STARTS = 5
REPORTS = 500
DOMAINS: tuple[dict[str, object], ...] = (
    {"kind": "number", "lower": 0, "upper": 100, "unit": "cm"},
    {"kind": "bit"},
    {"kind": "category", "labels": [f"label {place}" for place in range(12)]},
    {"kind": "vector", "coordinates": [{"name": name, "lower": 0, "upper": 1} for name in "xyz"]},
)
VALUES: tuple[object, ...] = (40.0, True, "label 3", [0.1, 0.5, 0.9])
_PAINTED = """() => new Promise(done => new PerformanceObserver(list => {
  for (const one of list.getEntriesByName("first-contentful-paint")) done(one.startTime);
}).observe({type: "paint", buffered: true}))"""


def fill(path: Path, tasks: int) -> None:
    """Each kind of task in turn, with the reports that its devices draw."""
    rng = SystemRng()
    with SqliteStore(path) as store:
        for number in range(tasks):
            kind = number % len(DOMAINS)
            draft = {"id": f"task-{number:03}", "title": f"Question {number}", "purpose": "To know", "epsilon": "1"}
            task = make_task({**draft, "domain": DOMAINS[kind]})
            store.add_task(task)
            bodies = [task.perturb(task.domain.index(VALUES[kind]), rng, 0) for _ in range(REPORTS)]
            ids = np.frombuffer(np.random.default_rng().bytes(16 * REPORTS), dtype="V16")
            store.commit([Accepted(task, 0, ids, np.array(bodies, dtype=np.int64))], {})


class Painted(NamedTuple):
    """A page that was opened: until the first paint, processor time of its main thread, both in ms; bytes."""

    first: float
    processor: float
    size: int


def paint(browser: Browser, service: HttpProcess, where: str = "/") -> Painted:
    """Open a page with an empty cache."""
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    page = context.new_page()
    devtools = context.new_cdp_session(page)
    devtools.send("Network.enable")
    devtools.send("Performance.enable", {"timeDomain": "threadTicks"})
    sizes: list[int] = []
    devtools.on("Network.loadingFinished", lambda event: sizes.append(int(event["encodedDataLength"])))
    page.goto(f"{service.url}{where}", wait_until="load")
    first = float(page.evaluate(_PAINTED))
    metrics = {one["name"]: one["value"] for one in devtools.send("Performance.getMetrics")["metrics"]}
    context.close()
    return Painted(first, 1000 * metrics["TaskDuration"], sum(sizes))


def report(name: str, painted: list[Painted]) -> None:
    """Print the medians, the range, and the bytes."""
    times = sorted(one.first for one in painted)
    processor = statistics.median(one.processor for one in painted)
    size = max(one.size for one in painted)
    print(f"{name:8} first paint {statistics.median(times):4.0f} ms ({times[0]:.0f} to {times[-1]:.0f}), ", end="")
    print(f"{processor:.0f} ms of processor time, {size} bytes")


def main() -> None:
    tasks = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    with tempfile.TemporaryDirectory() as scratch, browsing() as browser:
        folder = Path(scratch)
        fill(folder / "store", tasks)
        command = ["http", "--store", str(folder / "store")]
        print(
            f"{tasks} tasks, {REPORTS} reports each; the median of {TIMES} ({STARTS} of a fresh service), and the range"
        )
        fresh = []
        for _ in range(STARTS):
            with running(folder, command) as service:
                fresh.append(paint(browser, service))
        with running(folder, command) as service:
            for _ in range(3):
                paint(browser, service)
            pairs = [(paint(browser, service), paint(browser, service, "/tasks/nowhere")) for _ in range(TIMES)]
        report("fresh", fresh)
        report("warm", [warm for warm, _ in pairs])
        report("one line", [line for _, line in pairs])
        ratios = sorted(warm.first / line.first for warm, line in pairs)
        print(
            f"warm over one line: {statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f}), pair by pair"
        )


if __name__ == "__main__":
    main()
