"""`hush_report`, the C port as a program: what it writes, prints and refuses."""

import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from port_cases import VECTORS
from port_programs import PORTS, compiled

from hush_common.codec import Frame, decode
from hush_common.task_file import decode_task

pytestmark = pytest.mark.slow

HEIGHTS = VECTORS["answers"][0]["task"]
TASK = decode_task(HEIGHTS.encode())
VALUE = "171.4375"
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("program"), main=PORTS / "hush_report.c")


@pytest.fixture
def run(program: Path, tmp_path: Path) -> Run:
    """Runs it in an empty directory with the task in `heights.json`."""
    (tmp_path / "heights.json").write_text(HEIGHTS, encoding="utf-8")

    def started(*arguments: str, typed: str = "") -> subprocess.CompletedProcess[str]:
        command = [str(program), *arguments]
        return subprocess.run(command, cwd=tmp_path, input=typed, capture_output=True, text=True, check=False)

    return started


def test_it_writes_one_new_private_frame_that_the_mechanism_admits(run: Run, tmp_path: Path) -> None:
    outcome = run("heights.json", "dev", VALUE, "out")
    assert (outcome.returncode, outcome.stderr) == (0, "")
    frame = decode((tmp_path / "out").read_bytes())
    assert isinstance(frame, Frame)
    assert (frame.digest, frame.round, len(frame.reports)) == (TASK.digest, 0, 1)
    assert TASK.randomizer.admits(frame.reports[0].body)
    facts = ["topic hush/v1/reports/heights/dev", f"id {frame.reports[0].id.hex()}", "task heights"]
    facts += [f"digest {TASK.digest.hex()}", "epsilon 1", "purpose Sizing of workplaces"]
    assert outcome.stdout.splitlines() == facts
    assert stat.S_IMODE((tmp_path / "out").stat().st_mode) == 0o600
    assert sorted(path.name for path in tmp_path.iterdir()) == ["heights.json", "out"]


def test_a_second_answer_is_refused_and_the_first_one_kept(run: Run, tmp_path: Path) -> None:
    run("heights.json", "dev", VALUE, "out")
    first = (tmp_path / "out").read_bytes()
    again = run("heights.json", "dev", VALUE, "out")
    assert (again.returncode, again.stdout) == (1, "")
    assert "send it again as it is" in again.stderr
    assert (tmp_path / "out").read_bytes() == first


def test_answers_differ_in_noise_and_id(run: Run, tmp_path: Path) -> None:
    ids, bodies = set(), set()
    for name in ("one", "two", "three"):
        run("heights.json", "dev", VALUE, name)
        frame = decode((tmp_path / name).read_bytes())
        assert isinstance(frame, Frame)
        ids.add(frame.reports[0].id)
        bodies.add(frame.reports[0].body)
    assert len(ids) == 3
    assert len(bodies) > 1, "all equal with probability below 1e-12"


def test_it_says_what_an_answer_costs_without_drawing_one(run: Run, tmp_path: Path) -> None:
    outcome = run("heights.json")
    assert outcome.stdout.splitlines()[-2:] == ["epsilon 1", "purpose Sizing of workplaces"]
    assert [path.name for path in tmp_path.iterdir()] == ["heights.json"]


def test_the_task_or_the_value_may_come_from_standard_input(run: Run, tmp_path: Path) -> None:
    assert run("-", "dev", VALUE, "one", typed=HEIGHTS).returncode == 0
    assert run("heights.json", "dev", "-", "two", typed=VALUE + "\n").returncode == 0
    assert (tmp_path / "one").stat().st_size == (tmp_path / "two").stat().st_size == 40


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ((), "usage"),
        (("heights.json", "dev", VALUE), "usage"),
        (("-", "dev", "-", "out"), "usage"),
        (("missing.json", "dev", VALUE, "out"), "missing.json: cannot be read"),
        (("heights.json", "a/b", VALUE, "out"), "SENDER: cannot be part of a topic"),
        (("heights.json", "dev", VALUE + "x", "out"), "heights: the task's domain does not admit the value"),
        (("heights.json", "dev", VALUE + "0" * 200, "out"), "VALUE: cannot be read, or is too long"),
        (("heights.json", "dev", VALUE, "no/such/out"), "no/such/out: cannot be written"),
        (("heights.json", "dev", VALUE, "out", "0.5"), "above the limit of this device"),
    ],
)
def test_a_mistake_is_one_line_without_the_value_and_writes_nothing(
    run: Run, tmp_path: Path, arguments: tuple[str, ...], complaint: str
) -> None:
    outcome = run(*arguments)
    assert (outcome.returncode, outcome.stdout) == (1, "")
    assert complaint in outcome.stderr
    assert outcome.stderr.count("\n") == 1
    assert VALUE not in outcome.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["heights.json"]


def test_a_value_that_was_moved_is_told_to_the_person_alone(run: Run) -> None:
    outcome = run("heights.json", "dev", "999.25", "out")
    assert outcome.returncode == 0
    assert "moved to the nearer one" in outcome.stderr
    assert "999.25" not in outcome.stdout + outcome.stderr
