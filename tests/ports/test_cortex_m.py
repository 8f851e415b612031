"""The C port on a Cortex-M, in qemu-system-arm: the vectors, the storage through resets, and what both need."""

import json
import random
import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from port_cases import VECTORS, Answer, Case, answer_of
from port_programs import C_PORT
from servers import need

from hush_common.task import decode_task, make_task
from hush_common.wire import encode_frame

pytestmark = pytest.mark.large

SOURCES = Path(__file__).parent / "cortex_m"
GUIDE = Path(__file__).parents[2] / "docs" / "device.md"
MACHINES = {"cortex-m0plus": "microbit", "cortex-m3": "lm3s6965evb", "cortex-m4": "mps2-an386"}
"""By processor; micro:bit has a Cortex-M0, which has the same instructions."""
FLAGS = "-mthumb -Os -std=c11 -ffunction-sections -fdata-sections -Wall -Wextra -Wconversion -Wshadow -Werror"
LARGER = "lm3s6965evb"
"""For a whole device, with two pages of 4 KiB in RAM: it has 64 KiB. A Cortex-M3 runs the instructions of an M0+."""
LINK = "--specs=nano.specs -nostartfiles -Wl,--gc-sections"
OFTEN = [
    pytest.param("cortex-m0plus"),
    pytest.param("cortex-m3", marks=pytest.mark.soak),
    pytest.param("cortex-m4"),
]
"""A Cortex-M3 runs the instructions that a Cortex-M4 runs of these programs, which use no floats."""
ROUNDS = 200
TABLES = ["1", "2", "4", "8"]
HOSTED = {"hush_report.c", "hush_file.c", "hush_line.c"}
"""They need an operating system."""
HEAP = {"malloc", "_malloc_r", "calloc", "realloc", "free", "_sbrk"}
SLACK = 1.15
"""Compilers differ: what is documented may be exceeded by 15 %."""
MOST_FLASH = 32 * 1024
"""Of the whole port on a Cortex-M3 or M4."""


@dataclass(frozen=True)
class Asked:
    """A vector for the machine. One with a name is measured: the first of its mechanism, or a table."""

    case: Case
    topic: str
    frame: bytes
    name: str = ""

    def row(self) -> str:
        case = self.case
        texts = [case.task.payload.decode(), case.most, case.value, case.sender, self.topic]
        words = [*map(literal, texts), str(case.now), numbers(case.data), numbers(self.frame)]
        return f"{{{', '.join([*words, str(len(case.data)), str(len(self.frame)), literal(self.name)])}}},\n"


def literal(text: str | None) -> str:
    return "NULL" if text is None else json.dumps(text, ensure_ascii=False)


def numbers(data: bytes) -> str:
    return f"(const uint8_t[]){{{','.join(map(str, data))}}}"


def published_vectors() -> Iterator[Asked]:
    """Of each mechanism the first task as it is measured, and a few more whose tasks are short."""
    of_mechanism: dict[str, list[str]] = {}
    for vector in VECTORS["answers"]:
        task = decode_task(vector["task"].encode())
        seen = of_mechanism.setdefault(task.mechanism, [])
        if len(task.payload) > 4000:
            continue
        if seen.count(task.id) < 4 and len(seen) < 16:
            about = vector["now"], vector["sender"], vector["most"]
            case = Case(task, vector["value"], bytes.fromhex(vector["random"]), *about)
            name = task.mechanism if not seen and task.mechanism != "table" else ""
            yield Asked(case, vector["topic"], bytes.fromhex(vector["frame"]), name)
            seen.append(task.id)


def wide_task() -> str:
    """A task with one coordinate more than the port takes as it is compiled by default."""
    coordinates = [{"name": f"n{i}", "lower": 0.0, "upper": 1.0} for i in range(65)]
    domain = {"kind": "vector", "coordinates": coordinates}
    return make_task({"id": "wide", "epsilon": "2", "mechanism": "vector", "domain": domain}).payload.decode()


def table_of(epsilon: str) -> bytes:
    """A published task about a number, with hush's own table for this epsilon."""
    domain = {"kind": "number", "lower": 0.0, "upper": 100.0}
    return make_task({"id": f"table-{epsilon}", "epsilon": epsilon, "mechanism": "table", "domain": domain}).payload


def tables(monkeypatch: pytest.MonkeyPatch) -> Iterator[Asked]:
    for epsilon in TABLES:
        task = make_task(json.loads(table_of(epsilon)))
        case = Case(task, "37.5", random.Random(epsilon).randbytes(300))  # noqa: S311 - the same bytes every time
        answer = answer_of(case, monkeypatch)
        assert isinstance(answer, Answer)
        case = Case(task, case.value, case.data[: len(case.data) - answer.left])
        yield Asked(case, answer.topic, encode_frame((answer.report,)), task.id)


def built(directory: Path, processor: str, main: str, ram: str = "16K", switches: str = "") -> Path:
    """A program with its start for a processor."""
    program = directory / f"{main}.elf"
    files = [SOURCES / "start.c", SOURCES / f"{main}.c", *sorted(C_PORT.glob("hush*.c"))]
    files = [file for file in files if file.name not in HOSTED]
    command = [need("arm-none-eabi-gcc"), f"-mcpu={processor}", *FLAGS.split(), "-DHUSH_NO_OS_RANDOM", f"-I{C_PORT}"]
    command += [f"-I{SOURCES}", f"-I{directory}", *LINK.split(), f"-Wl,--defsym=ram_bytes={ram}"]
    command += [*switches.split(), "-T", str(SOURCES / "link.ld"), *map(str, files)]
    run = subprocess.run([*command, "-o", str(program)], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr[:4000]
    return program


def facts_of(program: Path, machine: str) -> dict[str, int]:
    """What the program prints in the machine: a number by two words."""
    command = [need("qemu-system-arm"), "-M", machine, "-nographic", "-monitor", "none", "-serial", "none"]
    command += ["-semihosting-config", "enable=on,target=native", "-kernel", str(program)]
    run = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    lines = (run.stdout + run.stderr).splitlines()
    assert run.returncode == 0, lines[-5:]
    return {" ".join(words[:2]): int(words[2]) for line in lines if len(words := line.split()) == 3}


@pytest.fixture(scope="module", params=OFTEN)
def facts(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        asked = [*published_vectors(), *tables(monkeypatch)]
    directory = tmp_path_factory.mktemp("cortex")
    rows = "".join(one.row() for one in asked)
    text = f"static const char WIDE[] = {literal(wide_task())};\nstatic const vector VECTORS[] = {{\n{rows}}};\n"
    (directory / "vectors.h").write_text(text, encoding="utf-8")
    return facts_of(built(directory, request.param, "selftest"), MACHINES[request.param]) | {"asked of": len(asked)}


def test_a_cortex_m_makes_the_reports_of_the_vectors(facts: Mapping[str, int]) -> None:
    assert facts["vectors equal"] == facts["asked of"] > 40


def test_a_reset_while_it_writes_leaves_the_old_record_or_the_new_one(facts: Mapping[str, int]) -> None:
    assert facts["resets survived"] == 200
    assert facts["erases of"] > 20


@pytest.fixture(scope="module", params=OFTEN)
def device(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    directory = tmp_path_factory.mktemp("device")
    rounds = {"rounds": ROUNDS, "round_every": "1m", "opens": "2026-01-01T00:00:00Z"}
    domain = {"kind": "number", "lower": 0.0, "upper": 40.0}
    task = make_task({"id": "rounds", "epsilon": "2", "mechanism": "laplace", "domain": domain, **rounds})
    constants = f'enum {{ OPENS = 1767225600, ROUNDS = {ROUNDS} }};\nstatic const char SPENT[] = "2/1";\n'
    text = f"static const char TASK[] = {literal(task.payload.decode())};\n{constants}"
    (directory / "task.h").write_text(text, encoding="utf-8")
    machine = LARGER if request.param == "cortex-m0plus" else MACHINES[request.param]
    return facts_of(built(directory, request.param, "devicetest", "64K"), machine)


def test_a_reset_while_it_writes_answers_each_round_once(device: Mapping[str, int]) -> None:
    """The program ends with an error if a payload changes, a round is not sent, or more or less than 2 is spent."""
    assert device["resets device"] == 100
    assert device["sent device"] > ROUNDS, "some reports were sent again"
    steps = ("open", "decide", "answer", "send", "acknowledge")
    assert max(device[f"{step} device"] for step in steps) <= SLACK * documented()["stack of a device, at most"]
    assert device["size device"] <= SLACK * documented()["`hush_device`"]


@cache
def documented() -> dict[str, int]:
    """The table of sizes in docs/device.md: bytes by what they are of."""
    rows = re.findall(r"^\| (.+?) \| ([\d ]+) \|$", GUIDE.read_text(encoding="utf-8"), re.MULTILINE)
    return {name: int(number.replace(" ", "")) for name, number in rows}


def test_the_stack_is_within_what_is_documented(facts: Mapping[str, int]) -> None:
    depths = {name: depth for name, depth in facts.items() if name.startswith(("read ", "answer ", "encode "))}
    assert len(depths) == 3 * (5 + len(TABLES))
    assert max(depths.values()) <= SLACK * documented()["stack of reading, drawing and encoding, at most"]
    storage = max(facts["open flash"], facts["store flash"])
    assert storage <= SLACK * documented()["stack of the storage in flash, at most"]


def flash_of(program: Path) -> int:
    """Its text and data, in bytes."""
    size = subprocess.run([need("arm-none-eabi-size"), program], capture_output=True, text=True, check=True).stdout
    return sum(map(int, size.splitlines()[1].split()[:2]))


@pytest.mark.parametrize("processor", MACHINES)
def test_an_application_links_what_is_documented_and_no_heap(processor: str, tmp_path: Path) -> None:
    program = built(tmp_path, processor, "application")
    assert 10_000 < flash_of(program) <= SLACK * documented()[f"flash, {processor}"]
    assert processor == "cortex-m0plus" or flash_of(program) <= MOST_FLASH
    names = subprocess.run([need("arm-none-eabi-nm"), program], capture_output=True, text=True, check=True).stdout
    assert not HEAP & set(names.split())


NUMBERS_AND_BITS = ("VECTOR", "SUBSET_SELECTION", "COINS", "STICKY")
LEFT_OUT = {
    "numbers and bits, no messages": NUMBERS_AND_BITS,
    "laplace and one coin, no messages": (*NUMBERS_AND_BITS, "TABLE", "MULTILEVEL"),
}


@pytest.mark.parametrize("build", LEFT_OUT)
def test_what_is_left_out_is_not_linked(build: str, tmp_path: Path) -> None:
    """The build is as much smaller than the whole port as the guide has it."""
    sizes = []
    for left_out in ((), LEFT_OUT[build]):
        switches = " ".join(["-DWITHOUT_MESSAGES", *(f"-DHUSH_WITHOUT_{name}" for name in left_out)])
        sizes.append(flash_of(built(tmp_path, "cortex-m3", "application", switches=switches)))
    saved = documented()["everything, no messages"] - documented()[build]
    assert sizes[0] - sizes[1] >= saved / SLACK


def test_the_tables_of_the_guide_are_those_of_hush() -> None:
    for epsilon in TABLES:
        assert documented()[f"task with a table, ε = {epsilon}"] == len(table_of(epsilon))
