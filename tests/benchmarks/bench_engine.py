# ruff: noqa: T201 - a script that prints a table
"""The engine with real devices: `python tests/benchmarks/bench_engine.py [devices] [turns] [before]`.

Reports a second of `hush simulate heights` over mosquitto and in memory, from the first draw to the last commit, beside
the plainest script that aiomqtt allows: as many connections, floats with noise, no ledger, no outbox, no store. Each in
a process of its own, in turns. `before` is the command of an older hush, to measure that beside it.

Other work on the machine counts in the seconds in all, and so does the disk. Processor time is that of the process and
of mosquitto, without what a run with 20 devices takes: to start.
"""

import json
import resource
import statistics
import subprocess
import sys
from collections.abc import Callable
from functools import partial

__all__ = ["main"]

_PLAIN = """
import asyncio, json, logging, random, struct, sys, tempfile, time
from pathlib import Path
import aiomqtt
from hush_simulations.brokers.choice import mosquitto_broker

CONNECTIONS = 20
logging.disable(logging.WARNING)

async def main(devices):
    with tempfile.TemporaryDirectory() as directory:
        async with mosquitto_broker(Path(directory)) as url:
            ready, total, seen = asyncio.Event(), 0.0, 0

            async def collect():
                nonlocal total, seen
                async with aiomqtt.Client(url.host, transport="unix", max_inflight_messages=4000) as client:
                    await client.subscribe("reports/+", qos=1)
                    ready.set()
                    async for message in client.messages:
                        total += struct.unpack(">d", message.payload)[0]
                        seen += 1
                        if seen == devices:
                            return

            async def send(connection):
                async with aiomqtt.Client(url.host, transport="unix") as client:
                    for _ in range(connection, devices, CONNECTIONS):
                        noise = random.expovariate(0.01) - random.expovariate(0.01)
                        payload = struct.pack(">d", random.gauss(170, 8) + noise)
                        await client.publish(f"reports/{connection}", payload, qos=1)

            async with asyncio.TaskGroup() as group:
                group.create_task(collect())
                await ready.wait()
                began = time.perf_counter()
                for connection in range(CONNECTIONS):
                    group.create_task(send(connection))
            print(json.dumps({"elapsed_s": time.perf_counter() - began}))

asyncio.run(main(int(sys.argv[1])))
"""


def command(hush: list[str], engine: str, devices: int) -> list[str]:
    way = ["--engine", "memory"] if engine == "memory" else ["--broker", engine]
    return [*hush, "simulate", "heights", "--clients", str(devices), *way, "--json"]


def works(before: str | None) -> dict[str, Callable[[int], list[str]]]:
    """Commands by what they measure, for so many devices."""
    ours = [sys.executable, "-m", "hush"]
    found: dict[str, Callable[[int], list[str]]] = {}
    found["aiomqtt alone, mosquitto"] = lambda devices: [sys.executable, "-c", _PLAIN, str(devices)]
    for engine in ("mosquitto", "embedded", "memory"):
        found[f"hush, {engine}"] = partial(command, ours, engine)
        if before is not None:
            found[f"hush before, {engine}"] = partial(command, [before], engine)
    return found


def measured(run: list[str]) -> tuple[float, float]:
    """Seconds from the first draw to the last commit, and of processor time from start to end, that of a broker too."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(run, capture_output=True, text=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    elapsed: float = json.loads(done.stdout)["elapsed_s"]
    return elapsed, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main(devices: int, turns: int, before: str | None) -> None:
    commands = works(before)
    few = {name: min(measured(make(20))[1] for _ in range(2)) for name, make in commands.items()}
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
    for _ in range(turns):
        for name, make in commands.items():
            found[name].append(measured(make(devices)))
    print(
        f"{devices} devices, {turns} turns:{'median in all':>24}{'processor':>12}{'least in all':>14}{'processor':>12}"
    )
    for name, runs in found.items():
        wall, spent = (sorted(column) for column in zip(*runs, strict=True))
        figures = [statistics.median(wall), statistics.median(spent) - few[name], wall[0], spent[0] - few[name]]
        print(f"{name:38}{figures[0]:10.2f}{figures[1]:12.2f}{figures[2]:14.2f}{figures[3]:12.2f}")


if __name__ == "__main__":
    _, *arguments = [*sys.argv, *("", "", "")]
    main(int(arguments[0] or 20_000), int(arguments[1] or 3), arguments[2] or None)
