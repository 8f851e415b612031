"""Count the product's files that a simulation enters, and those that one value enters on its way to its estimate.

    python tests/tools/files_entered.py simulate    # hush.simulate("heights", clients=3, engine="memory")
    python tests/tools/files_entered.py value       # Gateway -> MemoryBroker -> Aggregator: one report, one estimate
    python tests/tools/files_entered.py value --list

A file is entered if a profiler, set in every thread, sees a call into it; a first run, which warms caches, is not
counted. `simulate` also prints how many modules of hush are loaded. It needs nothing but an installed hush, so that it
runs on any commit.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType

PACKAGES = ("hush", "hush_common", "hush_client", "hush_aggregator", "hush_simulations")
TASK = {"id": "heights", "epsilon": "1", "domain": {"kind": "number", "lower": 120, "upper": 220, "unit": "cm"}}
_SECONDS = 30


class Profiler:
    """Files of hush into which a call goes while `is_on`, in any thread that starts after `install`."""

    def __init__(self) -> None:
        self.is_on = False
        self.files: set[str] = set()
        self._product: dict[str, bool] = {}

    def install(self) -> None:
        threading.setprofile(self._see)
        sys.setprofile(self._see)

    def _see(self, frame: FrameType, event: str, _: object) -> None:
        if event == "call" and self.is_on:
            name = frame.f_code.co_filename
            if name not in self._product:
                self._product[name] = any(part in PACKAGES for part in Path(name).parts[:-1])
            if self._product[name] and frame.f_code.co_name != "<module>":
                self.files.add(name)


def loaded() -> list[str]:
    """The modules of hush that this process has loaded, packages included."""
    return sorted(name for name in sys.modules if name.partition(".")[0] in PACKAGES)


def simulate(profiler: Profiler) -> None:
    """Run the smallest simulation twice, and profile the second run."""
    import hush  # noqa: PLC0415 - what it loads is counted

    hush.simulate("heights", clients=3, engine="memory")
    profiler.is_on = True
    hush.simulate("heights", clients=3, engine="memory")
    profiler.is_on = False


def value(profiler: Profiler) -> None:
    """Report twice from a real gateway to a real aggregator, and profile the second report until it is estimated."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        asyncio.run(_two_reports(profiler, Path(folder)))


async def _two_reports(profiler: Profiler, folder: Path) -> None:
    from hush_aggregator import Aggregator, SqliteStore  # noqa: PLC0415 - as the simulation
    from hush_client import Gateway  # noqa: PLC0415
    from hush_common.task import make_task  # noqa: PLC0415
    from hush_common.topics import estimate_topic  # noqa: PLC0415
    from hush_simulations.brokers.memory import MemoryBroker  # noqa: PLC0415

    broker, task, store = MemoryBroker(), make_task(TASK), SqliteStore(folder / "aggregator.sqlite")
    running = asyncio.create_task(Aggregator(broker.bus(), store, tasks=(task,), settle_s=0.1).run())
    gateway = Gateway(broker.transport(), name="gateway", state=folder / "gateway", spread=0)
    reports = _retained_reports(broker.retained, estimate_topic(task.id))
    async with gateway:
        await gateway.report("one", task.id, 172.0)
        await _until(lambda: reports() == 1)
        profiler.is_on = True
        await gateway.report("two", task.id, 172.0)
        await _until(lambda: reports() == 2)
        profiler.is_on = False
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    store.close()


def _retained_reports(retained: dict[str, bytes], topic: str) -> Callable[[], int]:
    return lambda: int(json.loads(retained.get(topic, b'{"n": 0}'))["n"])


async def _until(done: Callable[[], bool]) -> None:
    async with asyncio.timeout(_SECONDS):
        while not done():  # noqa: ASYNC110 - a retained message sets no event
            await asyncio.sleep(0.01)


def main() -> None:
    parser = argparse.ArgumentParser(description="Count the product's files that are entered.")
    parser.add_argument("mode", choices=("simulate", "value"))
    parser.add_argument("--list", action="store_true", help="Print the files, and with simulate the modules.")
    chosen = parser.parse_args()
    profiler = Profiler()
    profiler.install()
    (simulate if chosen.mode == "simulate" else value)(profiler)
    sys.setprofile(None)
    print(f"{chosen.mode}: {len(profiler.files)} files entered, {len(loaded())} modules of hush loaded")
    if chosen.list:
        print("\n".join([*sorted(profiler.files), *loaded()]))


if __name__ == "__main__":
    main()
