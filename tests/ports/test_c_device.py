"""The device part of the C port: a power cut at every write, compared with a model; and its storage in a directory."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from port_programs import C_PORT, Port, compiled, compiled_device, hexadecimal
from servers import need

from hush_common.task import make_task

pytestmark = pytest.mark.large

CRASH = Path(__file__).parent / "device_crash.c"
LINES = C_PORT / "hush_line.c"
OPENS = 1_767_225_600_000
BITS = (
    '{"domain":{"kind":"bit"},"epsilon":"1","id":"bits","mechanism":"randomized_response",'
    '"opens":"2026-01-01T00:00:00Z","purpose":"p","round_every":"1d","rounds":3}'
)
Ask = Callable[..., list[str]]


def test_the_program_of_the_guide_compiles(tmp_path: Path) -> None:
    guide = (C_PORT.parents[2] / "docs" / "ports.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```c\n(.*?)```", guide, re.DOTALL)
    (tmp_path / "thermometer.c").write_text(block, encoding="utf-8")
    flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", f"-I{C_PORT}", "-c", "thermometer.c"]
    subprocess.run([need("gcc"), *flags], cwd=tmp_path, check=True)


# ---- a power cut at every write


def lived(program: Path, *words: str) -> str:
    run = subprocess.run([str(program), *words], capture_output=True, text=True, check=False, timeout=250)
    return run.stdout.strip() if run.returncode == 0 else f"wrong: {run.stdout}{run.stderr[:2000]}"


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled_device(tmp_path_factory.mktemp("crash"), CRASH, sanitized=False)


@pytest.mark.parametrize(
    ("scenario", "hours", "stride"),
    [("fresh", 12, 1), ("sticky", 12, 1), ("full", 12, 1), ("full_sticky", 12, 1), ("fresh", 76, 97)],
    ids=["rounds", "a sticky task", "a full storage", "a sticky task, full", "more rounds than an account knows"],
)
def test_a_cut_at_any_write_charges_once_and_keeps_the_bytes(
    quick: Path, scenario: str, hours: int, stride: int
) -> None:
    cuts, writes = map(int, lived(quick, scenario, str(hours), str(stride)).split())
    assert cuts == 2 * -(-writes // stride), "before and after each write"
    assert writes > 3 * hours


def test_no_cut_makes_the_device_read_what_it_must_not(tmp_path: Path) -> None:
    program = compiled_device(tmp_path, CRASH)
    assert not lived(program, "fresh", "12", "7").startswith("wrong")


SLIPS = {
    "a folded round is not charged": (
        "status = add_charge(&device->account, one->epsilon, one->divisor);\n        }\n        mark_folded",
        "(void)add_charge;\n        }\n        mark_folded",
    ),
    "an old answer that waits is not charged": (
        "            status = fold_older(device, account, one->round);\n",
        "            (void)fold_older;\n",
    ),
    "the memory is not stored": (
        "        status = store_account(device, account);\n    } else {",
        "        status = HUSH_OK;\n    } else {",
    ),
    "an answer is drawn again": (
        "    if (status != HUSH_NONE) {\n        return status == HUSH_OK ? HUSH_ANSWERED : status;\n    }\n",
        "",
    ),
    "an acknowledged report is not kept": (
        "hush_kept_until(seconds_of(now), one.closes, device->policy.keep, NULL)",
        "hush_kept_until(seconds_of(now), one.closes, 0, NULL)",
    ),
}
"""Planted in hush_device.c, each must be found."""


@pytest.mark.parametrize("slip", SLIPS.values(), ids=SLIPS.keys())
def test_a_slip_in_the_device_is_found(slip: tuple[str, str], tmp_path: Path) -> None:
    source = (C_PORT / "hush_device.c").read_text(encoding="utf-8")
    assert source.count(slip[0]) == 1
    changed = source.replace(*slip)
    if slip[0].startswith("    if (status != HUSH_NONE)"):  # the other check of the same
        changed = changed.replace("status == HUSH_OK ? HUSH_ANSWERED : HUSH_STORAGE;", "HUSH_OK;")
    (tmp_path / "hush_device.c").write_text(changed, encoding="utf-8")
    program = compiled_device(tmp_path, CRASH, device=tmp_path / "hush_device.c", sanitized=False)
    runs = (("fresh", "12", "3"), ("full", "12", "3"), ("sticky", "12", "3"), ("fresh", "76", "400"))
    assert any(lived(program, *words).startswith("wrong") for words in runs)


# ---- the directory


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled_device(tmp_path_factory.mktemp("lines"), LINES)


@pytest.fixture
def ask(lines: Path, tmp_path: Path) -> Ask:
    """The answers of a device whose state is in `state`, from its start to its end."""

    def run(*orders: str, status: int = 0) -> list[str]:
        command = [str(lines), str(tmp_path / "state"), "dev", "mqtt://broker", "0"]
        done = subprocess.run(
            command, input="".join(f"{order}\n" for order in orders), capture_output=True, text=True, check=False
        )
        assert done.returncode == status, done.stderr[:4000]
        return (done.stdout if status == 0 else done.stderr).splitlines()

    return run


def answered(now: int, value: str = "yes") -> tuple[str, ...]:
    return f"time {now}", f"task bits {hexadecimal(BITS)}", f"value {hexadecimal(value)}"


def test_a_restarted_device_sends_the_same_bytes_until_acknowledged(ask: Ask) -> None:
    first = ask(*answered(OPENS), "send")
    assert first[:3] == ["ok", "decided bits 0", "answered"]
    again = ask(*answered(OPENS + 1000), "send", "spent", "ack 1 0", "send")
    assert again[1:3] == ["refused answered", "refused argument"]
    assert again[3] == first[3]
    assert again[5:] == ["spent 1/3", "ok", "wait -"]
    assert ask(f"time {OPENS + 2000}", "send", "spent") == ["ok", "wait -", "spent 1/3"]


def test_a_report_that_a_broker_refuses_is_sent_again_later(ask: Ask) -> None:
    found = ask(*answered(OPENS), "send", "ack 1 135", "send", f"time {OPENS + 10_000}", "send", "ack 2 16", "send")
    publish = found[3].split()
    assert found[4:7] == ["wait -", "ok", f"wait {OPENS + 10_000}"]
    assert found[8].split() == ["publish", "2", *publish[2:]]
    assert found[-1] == f"wait {OPENS + 30_000}", "twice as long"


def test_a_changed_task_is_refused_and_its_report_still_sent(ask: Ask) -> None:
    other = hexadecimal(BITS.replace('"epsilon":"1"', '"epsilon":"2"'))
    found = ask(*answered(OPENS), f"task bits {other}", f"time {OPENS + 86_400_000}", f"task bits {other}", "send")
    assert found[3:6] == ["refused changed", "ok", "refused changed"]
    assert found[6].startswith("publish 1 hush/v1/reports/bits/dev ")


def test_a_task_under_another_name_than_that_of_its_topic_is_refused(ask: Ask) -> None:
    assert ask(f"task other {hexadecimal(BITS)}", "value none") == ["refused task", "refused argument"]


def test_an_order_that_is_too_long_is_one_refusal(ask: Ask) -> None:
    assert ask(f"task bits {'20' * 70_000}", "spent") == ["refused too_large", "spent 0/1"]


def test_the_budget_of_a_purpose_is_for_all_its_tasks(ask: Ask) -> None:
    def order(name: str, purpose: str) -> str:
        document = {**json.loads(BITS), "id": name, "purpose": purpose}
        return f"task {name} {hexadecimal(json.dumps(document))}"

    found = ask(
        "limits 4 0.6 no",
        f"time {OPENS}",
        order("a", "p"),
        "value none",
        order("b", "p"),
        order("c", "other"),
        "value none",
    )
    assert found[2:] == ["decided a 0", "answered", "refused spent", "decided c 0", "answered"]


CLOCKS = [2**63 - 1, 2**63 - 2, 2**63 - 10**6, 2**62, 0, -1, -(2**62), -(2**63) + 1, -(2**63) + 10**6]


def test_no_clock_is_beyond_the_arithmetic_of_a_device(ask: Ask) -> None:
    """The sanitizer ends the program at a sum or a difference that does not fit."""
    always = BITS.replace('"opens":"2026-01-01T00:00:00Z",', "").replace('"round_every":"1d","rounds":3', '"rounds":1')
    times = ',"opens":"0001-01-01T00:00:00Z"', ',"closes":"9999-12-31T23:59:59Z"', ',"closes":"0001-01-01T00:00:01Z"'
    kinds = ["", *times]
    for place, now in enumerate(CLOCKS):
        tasks = []
        for number, more in enumerate(kinds):
            name = f"t{place}-{number}"
            fields = json.loads(always.replace('"bits"', f'"{name}"')[:-1] + more + "}")
            tasks += [f"task {name} {hexadecimal(json.dumps(fields, sort_keys=True))}", "value none"]
        others = [word for other in CLOCKS for word in (f"time {other}", "send", "ack 1 135", "ack 2 0", "send")]
        lines = ask("limits 50 50 yes", f"time {now}", *tasks, *others, "spent")
        assert lines[-1].startswith("spent ")
        assert "answered" in lines


def test_a_second_program_is_locked_out(ask: Ask, lines: Path, tmp_path: Path) -> None:
    command = [str(lines), str(tmp_path / "state"), "dev", "mqtt://broker"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdin is not None
        assert first.stdout is not None
        first.stdin.write("spent\n")
        first.stdin.flush()
        assert first.stdout.readline() == "spent 0/1\n"
        assert "another program" in ask("spent", status=1)[0]
        first.stdin.close()
        assert first.wait(60) == 0
    assert ask("spent") == ["spent 0/1"]


@pytest.mark.parametrize("kind", ["a", "t"], ids=["an answer", "an account"])
@pytest.mark.parametrize("how", ["changed", "cut", "empty"])
def test_a_damaged_record_is_never_taken_for_nothing(ask: Ask, tmp_path: Path, kind: str, how: str) -> None:
    ask(*answered(OPENS))
    (found,) = (tmp_path / "state").glob(f"{kind}-*")
    stored = bytearray(found.read_bytes())
    if how == "changed":
        stored[len(stored) // 2] ^= 1
    found.write_bytes(stored if how == "changed" else stored[:-1] if how == "cut" else b"")
    assert "trusted" in ask("spent", status=1)[0]


def test_a_draft_of_a_run_that_was_cut_off_is_no_record(ask: Ask, tmp_path: Path) -> None:
    ask(*answered(OPENS))
    (tmp_path / "state" / "draft").write_bytes(b"half")
    assert ask("spent", *answered(OPENS + 86_400_000), "spent")[-1] == "spent 2/3"
    assert not (tmp_path / "state" / "draft").exists()


def test_a_directory_that_others_may_write_to_is_refused(ask: Ask, tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state").chmod(0o777)
    assert str(tmp_path / "state") in ask("spent", status=1)[0]


def test_no_link_in_a_directory_is_followed(ask: Ask, tmp_path: Path) -> None:
    state, victim = tmp_path / "state", tmp_path / "victim"
    ask("spent")
    victim.write_text("precious", encoding="utf-8")
    (state / "draft").symlink_to(victim)
    assert ask(*answered(OPENS))[-1] == "answered"
    (state / "lock").unlink()
    (state / "lock").symlink_to(tmp_path / "made")
    assert str(tmp_path / "state") in ask("spent", status=1)[0]
    assert victim.read_text(encoding="utf-8") == "precious"
    assert not (tmp_path / "made").exists()


def test_a_record_is_synced_before_it_has_its_name(lines: Path, tmp_path: Path) -> None:
    trace = need("strace")
    log = tmp_path / "calls"
    command = [trace, "-o", str(log), "-e", "trace=fsync,renameat,renameat2,rename,write", str(lines)]
    command += [str(tmp_path / "state"), "dev", "mqtt://broker", "0"]
    orders = "".join(f"{order}\n" for order in answered(OPENS))
    environment = {**os.environ, "ASAN_OPTIONS": "detect_leaks=0"}
    subprocess.run(command, input=orders, capture_output=True, text=True, check=True, env=environment)
    calls = [
        line.split("(")[0]
        for line in log.read_text(encoding="utf-8").splitlines()
        if "(1," not in line and "(2," not in line
    ]
    assert calls == ["write", "fsync", "renameat", "fsync"] * 2 + ["+++ exited with 0 +++"], (
        "the account, then the answer"
    )


# ---- with a broker


CONFORM = [str(Path(sys.executable).with_name("hush")), "conform", "--json"]
WRAPPER = Path(__file__).parent / "line_device.py"


def conform(program: Path, *options: str) -> dict[str, Any]:
    command = [*CONFORM, *options, "--", sys.executable, str(WRAPPER), str(program)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    document: dict[str, Any] = json.loads(run.stdout)
    assert document["missing"] == []
    return document


def test_a_c_device_conforms_in_what_it_answers_and_sends_again(tmp_path: Path) -> None:
    program = compiled_device(tmp_path, LINES, sanitized=False)
    found = conform(program, "--check", "answers", "--check", "resend", "--check", "rounds", "--require", "rounds")
    assert found["passed"], found


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_a_c_device_conforms(tmp_path: Path) -> None:
    program = compiled_device(tmp_path, LINES, sanitized=False)
    mechanisms = ("laplace", "multilevel", "table", "randomized_response", "subset_selection", "vector")
    required = [word for name in ("rounds", "recalls", *mechanisms) for word in ("--require", name)]
    assert conform(program, *required)["passed"]


# ---- limits of a build


def test_a_task_beyond_the_limits_of_a_build_is_refused_by_its_own_status(tmp_path: Path) -> None:
    port = Port((str(compiled(tmp_path, options=[])),))
    random = Random(25).randbytes(4000)  # noqa: S311 - a test wants the same bytes every time

    def outcome(count: int, sampled: int, **more: object) -> str:
        coordinates = [{"name": f"n{at}", "lower": 0, "upper": 1} for at in range(count)]
        domain = {"kind": "vector", "coordinates": coordinates}
        document = {"id": "v", "epsilon": "1", "domain": domain, "sampled": sampled, "levels": 1, **more}
        payload = make_task(document).payload
        return port.ask([f"answer 4 0 dev none {hexadecimal(payload)} {random.hex()}"])[0].split()[0]

    assert [outcome(64, 20), outcome(65, 1), outcome(64, 21)] == ["ok", "too_large", "too_large"]
    assert outcome(64, 20, offers=["0.5", "1"], levels=[1, 1]) == "ok", "41 integers"
