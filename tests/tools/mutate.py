"""Run the tests on mutants: how many small changes of a package does nobody notice?

    cd tests && ../.venv/bin/python -m tools.mutate --module hush_aggregator.estimate.bounded_mean --sample 40
    cd tests && ../.venv/bin/python -m tools.mutate --package hush_client --sample 10

First every test file is run once on the package as it is, to learn which lines each test reaches, itself or in the
processes that it starts, and how long it takes. Each mutant is then written into a copy of the package, and a process
forked from one that has imported the libraries, and nothing of hush, runs the tests that reach the changed statement,
the fast ones first, to the first failure. One that hangs is killed by the time limit of a test. What survives is
printed, and the score of each module over all that are not equivalent (`equivalent_mutants.toml` has those, with
reasons). Tests marked slow are left out: no change should need a simulation to be seen.

What is known is kept in `out/mutants` and not asked again until the module changes; of survivors, until the tests
change. The tree is never written to.
"""

import argparse
import hashlib
import json
import os
import random
import re
import shutil
import signal
import sys
import time
import tomllib
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

import pytest
from tools.mutants import Mutant, mutants
from tools.reached import Recorder, Selection

TESTS = Path(__file__).resolve().parents[1]
ROOT = TESTS.parent
OUT = ROOT / "out" / "mutants"
_SENTENCE = re.compile(r"'[a-z]+,?( [\w']+,?){4}")  # words for a person, which no test pins
EQUIVALENT = Path(__file__).with_name("equivalent_mutants.toml")
SEED = 20_250_101
WARM = (
    "matplotlib",
    "mpmath",
    "numpy",
    "pydantic",
    "rich",
    "scipy.stats",
    "typer",
)

Reached = dict[str, dict[str, list[int]]]  # test -> module -> lines
_Job = Callable[[Path, Path], int]  # of the copy and of a file for the name of what ran last; gives an exit code


@dataclass(frozen=True)
class Package:
    """A package and its tests.

    Args:
        folder: that of its parent, in the repository.
        modules: patterns of the files that are changed unless a module is named.
        weighty: modules of which twice the sample is taken.
        searched: folders of tests.
        about: what a test file mentions that could matter.
    """

    folder: str
    modules: tuple[str, ...]
    weighty: tuple[str, ...]
    searched: tuple[str, ...]
    about: str


PACKAGES = {
    "hush_aggregator": Package(
        "aggregator",
        ("estimate/**/*.py", "store/*.py"),
        (),
        ("statistics", "unit/aggregator"),
        "hush_aggregator|hush_simulations|covering|documented|judge",
    ),
    "hush_client": Package(
        "client",
        ("**/*.py",),
        (
            "hush_client.privacy.decide",
            "hush_client.privacy.draw",
            "hush_client.state.ledger",
            "hush_client.sending.sender",
            "hush_client.state.database",
        ),
        ("unit/client", "unit/common", "properties", "attacks", "integration"),
        "hush_client",
    ),
    "hush_common": Package(
        "common",
        ("mechanisms/*.py", "epsilon.py", "wire.py"),
        (),
        ("unit/common", "unit/client", "ports", "properties", "attacks", "statistics"),
        "hush_common",
    ),
}


@dataclass(frozen=True)
class Result:
    """What became of one mutant: `fate` is killed, survived, or untested where no test reaches it."""

    module: str
    key: tuple[str, str, str, int]
    fate: str
    by: str
    seconds: float


@dataclass(frozen=True)
class Known:
    """What each test reaches, and how long it takes (s)."""

    lines: Reached
    seconds: dict[str, float]

    def tests(self, module: str, mutant: Mutant) -> dict[str, float]:
        """Those that reach the changed statement; what runs at import is reached by whoever reaches the module.

        So do tests whose file names it: it may be imported when they are collected, where nothing is recorded. They are
        also asked about what nobody is known to reach, as in a process that was forked.
        """
        first, last = mutant.span
        reaching = {
            test
            for test, lines in self.lines.items()
            if any(mutant.at_import or first <= line <= last for line in lines.get(module, ()))
        }
        if mutant.at_import or not reaching:
            reaching |= {test for test in self.lines if _names(test.partition("::")[0], module)}
        return {test: self.seconds[test] for test in reaching}


@cache
def _names(file: str, module: str) -> bool:
    package, _, name = module.removesuffix(".__init__").rpartition(".")
    return re.search(rf"\b{name}\b|from {package or name} import", (ROOT / file).read_text("utf-8")) is not None


def main() -> None:
    options = _options()
    OUT.mkdir(parents=True, exist_ok=True)
    for name in WARM:
        __import__(name)
    package = options.module[0].partition(".")[0] if options.module else options.package
    modules = options.module or _modules(package)
    known = _learn(package, options.jobs)
    samples = {module: _sample(module, options.sample, options.seed) for module in modules}
    chosen = [  # one of each module in turn, so that a run that is ended early tells of all
        (module, sample[place])
        for place in range(max(map(len, samples.values())))
        for module, sample in samples.items()
        if place < len(sample)
    ]
    results = _run(chosen, known, options)
    _print(modules, chosen, results)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--package", choices=PACKAGES, default="hush_aggregator")
    parser.add_argument(
        "--module", action="append", help="such as hush_client.state.database; several must be of one package"
    )
    parser.add_argument("--sample", type=int, default=40, help="mutants a module (40), of some twice as many; 0: all")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--minutes", type=float, default=float("inf"), help="start no mutant after so long")
    parser.add_argument("--jobs", type=int, choices=(1, 2), default=1)
    return parser.parse_args()


def _folder(package: str) -> Path:
    return ROOT / PACKAGES[package].folder / package


def _modules(package: str) -> list[str]:
    files = [file for pattern in PACKAGES[package].modules for file in sorted(_folder(package).glob(pattern))]
    return [".".join(file.relative_to(ROOT / PACKAGES[package].folder).with_suffix("").parts) for file in files]


def _file(module: str) -> Path:
    package = module.partition(".")[0]
    return (ROOT / PACKAGES[package].folder).joinpath(*module.split(".")).with_suffix(".py")


def _sample(module: str, size: int, seed: int) -> list[Mutant]:
    """The first `size` of a shuffle, so that a larger sample holds every smaller one."""
    found = mutants(_file(module).read_text("utf-8"))
    shuffled = random.Random(f"{seed} {module}").sample(found, len(found))
    weight = 2 if module in PACKAGES[module.partition(".")[0]].weighty else 1
    return shuffled[: weight * size or None]


# What the tests reach


def _learn(package: str, jobs: int) -> Known:
    """Run every test file that could matter on the package as it is; some may be known from the last time."""
    files = [
        file
        for folder in PACKAGES[package].searched
        for file in sorted((TESTS / folder).glob("test_*.py"))
        if re.search(PACKAGES[package].about, file.read_text("utf-8"))
    ]
    common = [*sorted(_folder(package).rglob("*.py")), *sorted(TESTS.glob("*.py"))]
    waiting = []
    for file in files:
        conftest = file.with_name("conftest.py")
        made_of = [*common, file, *([conftest] if conftest.exists() else [])]
        kept = OUT / f"reached-{package}-{file.parent.name}-{file.stem}-{_digest(made_of)}.json"
        waiting.append((file, kept))
    new = [(file, kept) for file, kept in waiting if not kept.exists()]
    list(_fork_all(package, [(_recording(file, kept), 1800.0) for file, kept in new], jobs, "reading"))
    lines: Reached = {}
    seconds: dict[str, float] = {}
    for file, kept in waiting:
        if not kept.exists():
            sys.exit(f"{file}: its tests do not run; see {OUT}/log-*.txt")
        told = json.loads(kept.read_text("utf-8"))
        if told["failed"]:
            print(f"left out, as they fail on the package as it is: {', '.join(told['failed'])}")
        lines |= told["lines"]
        seconds |= told["seconds"]
    return Known(lines, seconds)


def _digest(files: list[Path]) -> str:
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:16]


def _recording(file: Path, kept: Path) -> _Job:
    def run(copy: Path, _last: Path) -> int:
        recorder = Recorder(copy)
        code = int(pytest.main([*_QUIET, str(file)], plugins=[recorder]))
        if code in {pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED}:
            kept.write_text(
                json.dumps({"lines": recorder.lines(), "seconds": recorder.seconds, "failed": recorder.failed}), "utf-8"
            )
        return code

    return run


# Mutants


def _run(
    chosen: list[tuple[str, Mutant]], known: Known, options: argparse.Namespace
) -> dict[tuple[str, Mutant], Result]:
    tests = _digest(sorted(TESTS.rglob("*.py")))
    equivalent = _equivalent()
    results: dict[tuple[str, Mutant], Result] = {}
    waiting = []
    killers = Counter[tuple[str, str]]()
    for module, mutant in chosen:
        file = (
            OUT
            / f"{module}-{_digest([_file(module)])}"
            / (hashlib.sha256(repr(mutant.key).encode()).hexdigest()[:20] + ".json")
        )
        file.parent.mkdir(exist_ok=True)
        kept = json.loads(file.read_text("utf-8")) if file.exists() else {}
        if _SENTENCE.match(mutant.change) or any(_is(entry, module, mutant) for entry in equivalent):
            results[module, mutant] = Result(module, mutant.key, "equivalent", "", 0.0)
        elif kept and (kept["fate"] == "killed" or kept["tests"] == tests):
            results[module, mutant] = Result(module, mutant.key, kept["fate"], kept["by"], kept["seconds"])
            killers[module, kept["by"]] += kept["fate"] == "killed"
        elif reaching := known.tests(module, mutant):
            waiting.append((module, mutant, reaching, file))
        else:
            results[module, mutant] = Result(module, mutant.key, "untested", "", 0.0)
    work = [
        (_mutation(module, mutant, reaching, killers), _patience(reaching)) for module, mutant, reaching, _ in waiting
    ]
    package = chosen[0][0].partition(".")[0]
    for number, code, seconds, slot in _fork_all(package, work, options.jobs, "mutants", options.minutes):
        module, mutant, _, file = waiting[number]
        fate = "survived" if code == pytest.ExitCode.OK else "killed"
        by = "timeout" if code is None else (OUT / f"last-{slot}.txt").read_text("utf-8")
        killers[module, by] += fate == "killed"
        results[module, mutant] = result = Result(module, mutant.key, fate, by, round(seconds, 1))
        file.write_text(json.dumps(asdict(result) | {"tests": tests}), "utf-8")
        if fate == "survived":
            print(f"survived: {_shown(module, mutant)}", flush=True)
    return results


def _patience(reaching: dict[str, float]) -> float:
    return 60 + 6 * sum(reaching.values())


def _mutation(module: str, mutant: Mutant, reaching: dict[str, float], killers: Counter[tuple[str, str]]) -> _Job:
    """Run one file of tests after another, those first that have killed most of the module's mutants.

    Then come those that are named after the module, and then whichever takes least time.
    """
    name = module.rpartition(".")[2]

    def run(copy: Path, last: Path) -> int:
        copy.joinpath(*module.split(".")).with_suffix(".py").write_text(mutant.source, "utf-8")
        files = defaultdict[str, float](float)
        for test, seconds in reaching.items():
            files[test.partition("::")[0]] += seconds
        for file in sorted(files, key=lambda file: (-killers[module, file], name not in file, files[file])):
            last.write_text(file, "utf-8")
            code = int(pytest.main([*_QUIET, "-x", file], plugins=[Selection(reaching)]))
            if code not in {pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED}:
                return code
        return 0

    return run


# Processes

_QUIET = [
    "-q",
    "-m",
    "not soak and not slow",
    "-p",
    "no:cacheprovider",
    "--tb=line",
    "--no-header",
    "--hypothesis-seed=0",
    f"--rootdir={ROOT}",
]


def _fork_all(
    package: str, work: list[tuple[_Job, float]], jobs: int, what: str, minutes: float = float("inf")
) -> Iterator[tuple[int, int | None, float, int]]:
    """Run each in a fork with a fresh copy of the package.

    Yields:
        Its number, its exit code or None if it was too slow, seconds, and whose copy it had.
    """
    running: dict[int, tuple[int, int, float]] = {}
    end, free, number, done = time.monotonic() + 60 * minutes, list(range(jobs)), 0, 0
    while (number < len(work) and time.monotonic() < end) or running:
        while free and number < len(work) and time.monotonic() < end:
            slot = free.pop()
            running[_fork(package, work[number][0], slot)] = number, slot, time.monotonic()
            number += 1
        time.sleep(0.02)
        for pid, (which, slot, since) in list(running.items()):
            ended, status = os.waitpid(pid, os.WNOHANG)
            late = time.monotonic() - since > work[which][1]
            if late and not ended:
                os.killpg(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            if ended or late:
                del running[pid]
                free.append(slot)
                done += 1
                if done % 20 == 0 or done == len(work):
                    print(f"{what}: {done} of {len(work)}", file=sys.stderr, flush=True)
                yield which, os.waitstatus_to_exitcode(status) if ended else None, time.monotonic() - since, slot


def _fork(package: str, job: _Job, slot: int) -> int:
    copy = OUT / f"copy-{slot}"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(_folder(package), copy / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(Path(__file__).with_name("followed.py"), copy / "sitecustomize.py")
    pid = os.fork()
    if pid:
        return pid
    code = 70
    try:
        os.setsid()
        log = os.open(OUT / f"log-{slot}.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(log, 1)
        os.dup2(log, 2)
        sys.dont_write_bytecode = True
        sys.path.insert(0, str(copy))
        os.environ |= {"PYTHONPATH": str(copy), "HYPOTHESIS_STORAGE_DIRECTORY": str(OUT / "hypothesis")}
        os.chdir(ROOT)
        code = job(copy, OUT / f"last-{slot}.txt")
        imported = __import__(package).__file__  # only here, where it must be the copy
        assert imported is not None
        assert Path(imported).is_relative_to(copy), imported
    except BaseException:  # noqa: BLE001 - the fork ends here, whatever happened
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)


# What is told


def _equivalent() -> list[dict[str, object]]:
    entries: list[dict[str, object]] = tomllib.loads(EQUIVALENT.read_text("utf-8")).get("equivalent", [])
    return entries


def _is(entry: dict[str, object], module: str, mutant: Mutant) -> bool:
    where, text, change, number = mutant.key
    changes = entry["changes"]
    assert isinstance(changes, list)
    return (
        (entry["module"], entry["where"], entry["text"]) == (module, where, text)
        and change in changes
        and number == entry.get("number", number)
    )


def _shown(module: str, mutant: Mutant) -> str:
    return f"{_file(module).relative_to(ROOT)}:{mutant.line}: {mutant.change}    [{mutant.text}]"


def _print(modules: list[str], chosen: list[tuple[str, Mutant]], results: dict[tuple[str, Mutant], Result]) -> None:
    for module, mutant in sorted(results, key=lambda one: (one[0], one[1].line)):
        if results[module, mutant].fate in {"survived", "untested"}:
            print(f"{results[module, mutant].fate}: {_shown(module, mutant)}")
    for module in [*modules, "all"]:
        fates = Counter(result.fate for result in results.values() if module in {result.module, "all"})
        asked = fates["killed"] + fates["survived"] + fates["untested"]
        share = f"{fates['killed'] / asked:.1%}" if asked else "-"
        rest = f"{fates['untested']} reached by no test, {fates['equivalent']} equivalent"
        print(f"{module:40} {share:>7}  {fates['killed']:4} of {asked:4} killed, {rest}")
    if len(results) < len(chosen):
        print(f"not run yet: {len(chosen) - len(results)} of {len(chosen)}; the next run goes on")
    for entry in _equivalent():
        module = str(entry["module"])
        if not any(_is(entry, module, mutant) for mutant in mutants(_file(module).read_text("utf-8"))):
            print(f"{EQUIVALENT.name}: {module}: no such mutant any more: {entry['text']}")


if __name__ == "__main__":
    main()
