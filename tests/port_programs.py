"""The ports of the client to other languages as programs that tests talk to: one order a line, one outcome a line.

The orders are described in tests/ports/driver.c. These are in addition. BODY has its integers separated
by commas; of several offers a device takes the largest up to MAX.

    decide MAX NOW PAYLOAD                                  -> ok ROUND OFFER COST
    sticky MAX SENDER PAYLOAD RANDOM NOW VALUE [NOW VALUE …] -> ok DIGEST ID BODY BECAME LEFT TOPIC FRAME JSON [| …]

COST is a fraction in lowest terms, `1/3`. The answers of `sticky` are from one memory, drawn with the first of them.
"""

import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from threading import Thread

from servers import missing, need

__all__ = [
    "CLIENT",
    "C_PORT",
    "FEATURES",
    "LARGE",
    "PORTS",
    "Port",
    "Session",
    "compiled",
    "compiled_device",
    "hexadecimal",
    "micropython",
    "micropython_module",
    "planted",
    "port_of",
]

CLIENT = Path(__file__).parents[1] / "client"
PORTS = CLIENT / "ports"
C_PORT = PORTS / "c"
_DRIVERS = Path(__file__).parent / "ports"
_PACKAGE = "out/micropython/node_modules/@micropython/micropython-webassembly-pyscript"
_WEBASSEMBLY = Path(__file__).resolve().parents[1] / _PACKAGE / "micropython.mjs"
_WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Werror"]
_SANITIZERS = ["-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]


LARGE = ["-DHUSH_COORDINATES=1024", "-DHUSH_WIDTH=1024", "-DHUSH_MEMORY_LEVELS=1024"]
"""Limits of the C port with which it reads every legal task."""

FEATURES = frozenset({"table", "subset_selection", "vector", "coins", "offers", "rounds", "sticky"})
"""What a task may need in addition to `laplace`, `multilevel`, `randomized_response` and one round."""


@dataclass(frozen=True)
class Port:
    """A port, ready to be asked.

    Args:
        command: runs it; a script of random bytes may follow.
        in_order: whether it reads a task from left to right, and so meets the same one of several faults first as
            others do. The rest parse JSON before they look at a field.
        is_slow: whether it takes about twenty times as long as the others: MicroPython, most of all in WebAssembly.
    """

    command: tuple[str, ...]
    in_order: bool = True
    is_slow: bool = False

    def share(self, count: int) -> int:
        """How many of `count` inputs this port gets: a slow one a twentieth: `cpython` runs all with the same file."""
        return count // 20 if self.is_slow else count

    def ask(self, orders: Sequence[str], script: Path | None = None) -> list[str]:
        """The outcome of each order; `sample` takes its random bytes from `script`."""
        command = [*self.command, *([] if script is None else [str(script)])]
        text = "".join(order + "\n" for order in orders)
        run = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
        assert (run.returncode, run.stderr) == (0, ""), run.stderr[:4000]
        outcomes = run.stdout.splitlines()
        assert len(outcomes) == len(orders)
        return outcomes

    @contextmanager
    def session(self, log: Path) -> Iterator["Session"]:
        """The program, running; what it complains of goes to a file."""
        with (
            log.open("wb") as stderr,
            subprocess.Popen(
                self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, text=True
            ) as process,
        ):
            yield Session(process, log)
            assert process.stdin is not None
            process.stdin.close()
            assert process.wait(60) == 0

    def agrees(self, outcome: str, expected: str, *, among: AbstractSet[str]) -> bool:
        """Whether an outcome is the expected one; of refusals by a port that is not `in_order`, one of `among`."""
        return outcome == expected or (not self.in_order and {outcome, expected} <= among)


@dataclass(frozen=True)
class Session:
    """A running port."""

    process: "subprocess.Popen[str]"
    log: Path

    def ask(self, orders: Sequence[str]) -> list[str]:
        """The outcome of each order."""
        stdin, stdout = self.process.stdin, self.process.stdout
        assert stdin is not None
        assert stdout is not None

        def write() -> None:
            with suppress(OSError):  # it has ended, as the missing outcomes show
                stdin.write("".join(order + "\n" for order in orders))
                stdin.flush()

        writer = Thread(target=write)
        writer.start()
        outcomes = [stdout.readline().rstrip("\n") for _ in orders]
        writer.join()
        assert all(outcomes), self.log.read_text(encoding="utf-8", errors="replace")[-4000:]
        return outcomes


def compiled(
    directory: Path,
    *,
    main: Path = _DRIVERS / "driver.c",
    library: Path = C_PORT / "hush.c",
    sanitized: bool = True,
    options: Sequence[str] = LARGE,
) -> Path:
    """The C port with a main program; warnings are errors, and so is what the sanitizers find."""
    program = directory / main.stem
    flags = [*_WARNINGS, *(_SANITIZERS if sanitized else []), *_spoiled_variables(), *options]
    flags += [f"-I{C_PORT}", "-o", str(program)]
    command = [need("gcc"), "-std=c11", *flags, str(library), str(main)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr[:4000]
    return program


def compiled_device(
    directory: Path, main: Path, *, device: Path | None = None, port: Path = C_PORT, sanitized: bool = True
) -> Path:
    """A program with the device part of the C port, with the limits of an ordinary build; `port` has its sources."""
    sources = [port / "hush.c", *([port / "hush_file.c"] if main.parent == port else [])]
    options = ["-O2", *map(str, sources)] if not sanitized else [*map(str, sources)]
    library = port / "hush_device.c" if device is None else device
    return compiled(directory, main=main, library=library, sanitized=sanitized, options=options)


@cache
def _spoiled_variables() -> list[str]:
    """A pattern in every variable that is used before it is set, which the sanitizers do not see; since gcc 12."""
    version = subprocess.run([need("gcc"), "-dumpversion"], capture_output=True, text=True, check=True).stdout
    return ["-ftrivial-auto-var-init=pattern"] if int(version.split(".")[0]) >= 12 else []


def planted(directory: Path, name: str, right: str, wrong: str) -> Path:
    """Copy the ports with one change in a file, which has the text once; return what takes the place of `CLIENT`."""
    shutil.copytree(PORTS, directory / "ports", ignore=shutil.ignore_patterns("__pycache__", "node_modules"))
    file = directory / "ports" / name
    source = file.read_text(encoding="utf-8")
    assert source.count(right) == 1, f"{name} has {right!r} {source.count(right)} times"
    file.write_text(source.replace(right, wrong), encoding="utf-8")
    return directory


def port_of(language: str, directory: Path, client: Path = CLIENT) -> Port:
    """The port to `"c"`, `"node"` or `"micropython"`; `"cpython"` is the latter's file under the tests' interpreter."""
    match language:
        case "c":
            return Port((str(compiled(directory)),))
        case "node":
            return Port((need("node"), str(_DRIVERS / "driver.mjs"), str(client)), in_order=False)
        case "micropython":
            return Port((*micropython(_DRIVERS / "driver.py"), str(client)), is_slow=True)
        case _:
            return Port((sys.executable, "-I", "-u", str(_DRIVERS / "driver.py"), str(client)))


def micropython(program: Path, *reads: Path) -> list[str]:
    """The command that runs a program in MicroPython; arguments may follow, each a path.

    Where the port to unix is not installed, node runs the one to WebAssembly, which .ci/run fetches.

    Args:
        program: a file.
        reads: the directories whose files it reads, which the port to WebAssembly has to copy.
    """
    unix = shutil.which("micropython")
    if unix is not None:
        return [unix, "-X", "heapsize=64M", str(program)]
    return [need("node"), str(_DRIVERS / "micropython.mjs"), str(micropython_module()), str(program), *map(str, reads)]


def micropython_module() -> Path:
    """MicroPython for WebAssembly, which .ci/run fetches."""
    if not _WEBASSEMBLY.exists():
        missing(f"{_WEBASSEMBLY}, which .ci/run fetches")
    return _WEBASSEMBLY


def hexadecimal(data: bytes | str) -> str:
    """How an order holds bytes or text."""
    return (data.encode() if isinstance(data, str) else data).hex() or "-"
