"""`hush_report`, the C port as a program: what it writes, prints and refuses."""

import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from port_cases import VECTORS
from port_programs import C_PORT, compiled
from terminal import at_terminal

from hush_common.task import decode_task
from hush_common.wire import Frame, decode

pytestmark = pytest.mark.large

HEIGHTS = VECTORS["answers"][0]["task"]
TASK = decode_task(HEIGHTS.encode())
VALUE = "171.4375"
PRINTED = ["topic", "id", "task", "digest", "epsilon", "purpose"]
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("program"), main=C_PORT / "hush_report.c")


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
    assert (frame.digest, frame.round, len(frame.reports)) == (TASK.report_digest, 0, 1)
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
    assert "out" in again.stderr
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
    assert (tmp_path / "one").stat().st_size == (tmp_path / "two").stat().st_size == 48


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ((), "usage"),
        (("heights.json", "dev", VALUE), "usage"),
        (("-", "dev", "-", "out"), "usage"),
        (("missing.json", "dev", VALUE, "out"), "missing.json"),
        (("heights.json", "a/b", VALUE, "out"), "SENDER"),
        (("heights.json", "dev", VALUE, "no/such/out"), "no/such/out"),
        (("heights.json", "dev", VALUE, "out", "0.5"), "limit"),
    ],
)
def test_a_mistake_is_one_line_without_the_value(
    run: Run, tmp_path: Path, arguments: tuple[str, ...], complaint: str
) -> None:
    outcome = run(*arguments)
    assert (outcome.returncode, outcome.stdout) == (1, "")
    assert complaint in outcome.stderr
    assert outcome.stderr.count("\n") == 1
    assert VALUE not in outcome.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["heights.json"]


@pytest.mark.parametrize(
    ("field", "complaint"),
    [
        ('"opens":"2999-01-31T23:00:00Z"', "2999-01-31 23:00:00 UTC"),
        ('"closes":"2020-02-29T00:00:01Z"', "2020-02-29 00:00:01 UTC"),
    ],
)
def test_a_task_that_is_early_or_late_is_refused_with_the_moment(
    run: Run, tmp_path: Path, field: str, complaint: str
) -> None:
    (tmp_path / "timed.json").write_text(HEIGHTS.replace("{", f"{{{field},", 1), encoding="utf-8")
    for value in (VALUE, "twelve"):
        outcome = run("timed.json", "dev", value, "out")
        assert (outcome.returncode, outcome.stdout) == (1, "")
        assert outcome.stderr.startswith("hush_report: heights: ")
        assert complaint in outcome.stderr
        assert value not in outcome.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("value", [VALUE, "999.25", "-inf", "", "twelve", "nan", VALUE + "0" * 200, None])
def test_every_value_gives_an_output_of_the_same_size(run: Run, tmp_path: Path, value: str | None) -> None:
    typed = "" if value is None else value + "\n"
    for name, outcome in (
        ("piped", run("heights.json", "dev", "-", "piped", typed=typed)),
        ("argued", run("heights.json", "dev", value or "", "argued")),
    ):
        assert (outcome.returncode, outcome.stderr) == (0, "")
        assert [line.split()[0] for line in outcome.stdout.splitlines()] == PRINTED
        assert (tmp_path / name).stat().st_size == 48


@pytest.mark.parametrize(
    ("value", "code", "words"),
    [
        ("999.25", 0, "bounds"),
        ("twelve", 1, "from 120 to 220\r\n"),
        ("171.4375", 0, ""),
    ],
)
def test_at_a_terminal_a_person_is_told_and_never_the_value(
    program: Path, tmp_path: Path, value: str, code: int, words: str
) -> None:
    (tmp_path / "heights.json").write_text(HEIGHTS, encoding="utf-8")
    done, shown = at_terminal([str(program), "heights.json", "dev", value, "out"], tmp_path)
    assert done == code
    assert words in shown
    assert value not in shown
    assert (tmp_path / "out").exists() == (code == 0)


@pytest.mark.parametrize(
    ("lower", "upper", "told"),
    [
        ("-0.5", "1500.0", "from -0.5 to 1500\r\n"),
        ("0.1", "0.3", "from 0.1 to 0.3\r\n"),
        ("-40.0", "36.6", "from -40 to 36.6\r\n"),
        ("0.0", "0.9999999", "from 0 to 1\r\n"),
        ("0.0", "1e300", "number\r\n"),
    ],
)
def test_the_bounds_that_a_person_is_told_are_those_of_the_task(
    program: Path, tmp_path: Path, lower: str, upper: str, told: str
) -> None:
    payload = HEIGHTS.replace('"lower":120.0', f'"lower":{lower}').replace('"upper":220.0', f'"upper":{upper}')
    assert payload != HEIGHTS
    (tmp_path / "heights.json").write_text(payload, encoding="utf-8")
    done, shown = at_terminal([str(program), "heights.json", "dev", "twelve", "out"], tmp_path)
    assert done == 1
    assert told in shown


def test_at_a_terminal_an_invalid_bit_is_told(program: Path, tmp_path: Path) -> None:
    survey = next(vector["task"] for vector in VECTORS["answers"] if '"bit"' in vector["task"])
    (tmp_path / "survey.json").write_text(survey, encoding="utf-8")
    done, shown = at_terminal([str(program), "survey.json", "dev", "maybe", "out"], tmp_path)
    assert done == 1
    assert "yes, no" in shown
    assert "maybe" not in shown
    assert not (tmp_path / "out").exists()
