"""How quickly `hush serve` counts a backlog, next to `mosquitto_sub` (C) that drains the same one, and to another hush.

python tests/benchmarks/bench_intake.py [--rounds 5] [--reports 100000] [--against PYTHON]
python tests/benchmarks/bench_intake.py --millions 10 [--frame 1 100]

Everything waits on a mosquitto with `max_inflight_messages 1000`, one topic for each of 20 000 devices; the store is
empty and durable. The programs take turns. PYTHON is the interpreter of another checkout. With `--millions` hush counts
so many reports in one drain, and each million is timed.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from processes import Serve, fill
from servers import Mosquitto, need

from hush_common.task import make_task

_MILLION = 1_000_000
_SETTINGS = "max_queued_messages 0\nmax_inflight_messages 1000"
_NUMBER = make_task({"id": "number", "epsilon": "1", "domain": {"kind": "number", "lower": 0.0, "upper": 1.0}})


def hush(broker: Mosquitto, directory: Path, reports: int, frame: int) -> dict[str, float]:
    """Reports a second from the first commit on, processor time of a report in µs, resident MB at most."""
    service = Serve(broker.url, directory, None, task=_NUMBER).start()
    service.until_subscribed()
    service.end()
    fill(broker.port, _NUMBER, range(reports), frame=frame)
    service.start()
    while not (before := service.n):
        time.sleep(0.002)
    began, used = time.monotonic(), service.processor_s
    while service.n < reports:
        time.sleep(0.01)
    seconds, spent, memory = time.monotonic() - began, service.processor_s - used, service.resident_mb
    service.end()
    rest = reports - before
    return {"rate": rest / seconds, "processor_us": 1e6 * spent / rest, "mb": memory}


def millions(broker: Mosquitto, directory: Path, reports: int, frame: int) -> dict[str, float]:
    """Print the rate of each million."""
    service = Serve(broker.url, directory, None, task=_NUMBER).start()
    service.until_subscribed()
    service.end()
    fill(broker.port, _NUMBER, range(reports), frame=frame)
    service.start()
    while not (before := service.n):
        time.sleep(0.002)
    began, used = time.monotonic(), service.processor_s
    for goal in range(_MILLION, reports + 1, _MILLION):
        while (now := service.n) < goal:
            time.sleep(0.01)
        rate, spent = (now - before) / (time.monotonic() - began), service.processor_s - used
        each = f"{rate:.0f} a second, {1e6 * spent / (now - before):.2f} µs of processor time"
        sys.stderr.write(f"  million {goal // _MILLION}: {each}, {service.resident_mb:.0f} MB\n")
        began, used, before = time.monotonic(), service.processor_s, now
    service.end()
    return {}


def mosquitto_sub(broker: Mosquitto, _: Path, reports: int, frame: int) -> dict[str, float]:
    """Reports a second of the C client, which keeps nothing."""
    command = [need("mosquitto_sub"), "-p", str(broker.port), "-i", "sub", "-c", "-q", "1", "-t", "hush/v1/reports/#"]
    subprocess.run([*command, "-E"], check=True)
    fill(broker.port, _NUMBER, range(reports), frame=frame)
    began = time.monotonic()
    subprocess.run([*command, "-C", str(reports // frame), "-F", "%%"], check=True, stdout=subprocess.DEVNULL)
    return {"rate": reports / (time.monotonic() - began), "processor_us": 0.0, "mb": 0.0}


PROGRAMS = {"hush": hush, "mosquitto_sub": mosquitto_sub, "millions": millions}


def once(program: str, reports: int, frame: int) -> dict[str, float]:
    """One drain, on a broker of its own."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        (directory / "broker").mkdir()
        broker = Mosquitto(directory / "broker", settings=_SETTINGS)
        broker.start()
        try:
            return PROGRAMS[program](broker, directory, reports, frame)
        finally:
            broker.stop()


def main() -> None:
    """Each program in turn; medians, and ratios to the first one."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--reports", type=int, default=100_000)
    parser.add_argument("--against", default="")
    parser.add_argument("--frame", type=int, nargs="*", default=[1, 100])
    parser.add_argument("--millions", type=int, default=0)
    parser.add_argument("--once", default="")
    options = parser.parse_args()
    if options.once:
        sys.stdout.write(json.dumps(once(options.once, options.reports, options.frame[0])))
        return
    for frame in options.frame if options.millions else ():
        sys.stderr.write(f"{options.millions} million reports, {frame} a message\n")
        once("millions", options.millions * _MILLION, frame)
    for frame in () if options.millions else options.frame:
        reports = options.reports * (10 if frame > 1 else 1)
        programs = {"hush": (sys.executable, "hush")}
        if options.against:
            programs["the other hush"] = (options.against, "hush")
        programs["mosquitto_sub"] = (sys.executable, "mosquitto_sub")
        found: dict[str, list[dict[str, float]]] = {name: [] for name in programs}
        for _ in range(options.rounds):
            for name, (python, program) in programs.items():
                command = [python, __file__, "--once", program, "--reports", str(reports), "--frame", str(frame)]
                run = subprocess.run(command, check=True, capture_output=True, text=True)
                found[name].append(json.loads(run.stdout))
        first = median(one["rate"] for one in found["hush"])
        sys.stdout.write(f"{reports} reports, {frame} a message\n")
        for name, runs in found.items():
            rates = sorted(one["rate"] for one in runs)
            sys.stdout.write(
                f"  {name}: {median(rates):.0f} a second ({rates[0]:.0f} to {rates[-1]:.0f}), hush is "
                f"{first / median(rates):.2f} times as fast; {median(one['processor_us'] for one in runs):.1f} µs of "
                f"processor time, {max(one['mb'] for one in runs):.0f} MB\n"
            )


if __name__ == "__main__":
    main()
