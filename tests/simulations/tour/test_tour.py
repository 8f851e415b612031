"""Every chapter of the tour runs, and what it says is so: each constant is computed here without hush."""

import json
import math
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mpmath
import numpy as np
import pytest
from typer.testing import CliRunner, Result
from waiting import PATIENCE_S, wait_until

from hush_common.errors import OptionError
from hush_common.terminal import Screen, width_of
from hush_simulations.display.style import DARK
from hush_tour.command import app
from hush_tour.contents import CHAPTERS, chapter
from hush_tour.exercises import EXERCISES
from hush_tour.export import write_notebook, write_page
from hush_tour.prose import Plot, Prose
from hush_tour.reading import blocks, run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

pytestmark = pytest.mark.large


class Late:
    """The laws of scipy, imported when they are used: that takes a second, which quick tests do not need."""

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - any law
        return getattr(import_module("scipy.stats"), name)


stats = Late()

Run = tuple[list[Prose | Plot], dict[str, Any]]
NAMES = [one.name for one in CHAPTERS]

_RUNS: dict[str, Run] = {}


def done(name: str) -> Run:
    """A chapter, run once for all tests."""
    if name not in _RUNS:
        shown, names = run(chapter(name))
        _RUNS[name] = shown, {**names}
    return _RUNS[name]


# ---- heights


def difference(sign: float = 0.0) -> list[tuple[float, Any]]:
    """The law of x - x' of two people of the notebook: weights and normal distributions."""
    parts = ((178.0, 7.0), (162.0, 6.5))
    return [(0.25, stats.norm(a - c + sign, math.hypot(b, d))) for a, b in parts for c, d in parts]


def test_the_expected_sensitivity_is_the_integral() -> None:
    names = done("heights")[1]
    integrate: Any = import_module("scipy.integrate")
    expected = integrate.quad(lambda d: d * sum(w * 2 * one.pdf(d) for w, one in difference()), 0, 200, limit=400)[0]
    assert expected == pytest.approx(11.9939, abs=1e-4)
    assert names["expected_difference"] == pytest.approx(expected, rel=1e-9)
    beyond = {at: sum(w * (one.sf(at) + one.cdf(-at)) for w, one in difference()) for at in (expected, 43.77)}
    assert names["share_beyond_expected"] == pytest.approx(beyond[expected], rel=1e-9)
    assert names["share_beyond_sampled"] == pytest.approx(beyond[43.77], rel=1e-6)
    assert names["chance_of_less"] == pytest.approx((1 - beyond[43.77]) ** 1325, rel=1e-6)


def test_the_sampled_sensitivity_takes_the_pairs_of_the_theorem() -> None:
    names = done("heights")[1]
    rho = float(mpmath.exp(mpmath.lambertw(-0.05 / (2 * mpmath.sqrt(mpmath.e)), -1) + 0.5))
    m = math.ceil(math.log(1 / rho) / (2 * (0.05 - rho) ** 2))
    assert (names["least"].m, names["least"].k) == (m, m) == (1305, 1305)
    assert names["least"].rho == pytest.approx(rho, rel=1e-9)
    assert (names["of_the_document"].m, names["of_the_document"].k) == (1325, 1325)
    # of 1325 random pairs the largest lies between 38 and 62 cm but once in ten thousand times, the mean near 11.99
    assert 38 < names["sampled_sensitivity"] < 62
    assert names["sampled_mean"] == pytest.approx(11.994, abs=4 * 8.683 / math.sqrt(1325))


def test_the_error_is_that_of_a_mean_of_laplace_noise() -> None:
    names = done("heights")[1]
    for (_, sensitivity), points in zip(names["lines"], names["measured"], strict=True):
        expected = [
            sensitivity / epsilon * math.sqrt(2 / 500) * math.sqrt(2 / math.pi) for epsilon in names["epsilons"]
        ]
        assert points == pytest.approx(expected, rel=4.5 * math.sqrt((math.pi / 2 - 1) / 400))
        assert points != pytest.approx([one / math.sqrt(2) for one in expected], rel=0.15)  # b² for 2b² is found
    assert [round(sensitivity, 2) for _, sensitivity in names["lines"]] == [11.99, 22.46, 32.93, 100.0]
    for one in names["runs"]:
        low, high = one.result.intervals["reporters"]
        assert abs(one.result.estimate.mean - one.truth["reporters"]) < 1.5 * (high - low)  # 5.9 deviations


# ---- mechanism


def test_the_exercises_have_the_numbers_of_their_formulas() -> None:
    names = done("mechanism")[1]
    assert [names["norm_of_example"], names["norm_of_ones"]] == [4, 5]
    assert [float(one) for one in names["found"].values()] == pytest.approx([1 / 3, 2, 1, 4])
    assert names["county_scale"] == pytest.approx(20)
    assert names["bound_of_lemma"] == pytest.approx(20 * (math.log(3143) + 1))
    assert names["exact_mean"] == pytest.approx(float(20 * mpmath.harmonic(3143)), rel=1e-12)
    assert names["largest"].mean() == pytest.approx(172.61, abs=4.5 * 20 * math.pi / math.sqrt(6) / math.sqrt(2000))
    tenth, one = names["sizes_at"].values()
    e = math.exp
    for (central, coins, noise), epsilon in ((tenth, 0.1), (one, 1.0)):
        assert central == math.ceil(math.sqrt(2) / (0.01 * epsilon))
        assert coins == math.ceil(e(epsilon) / (e(epsilon) - 1) ** 2 / 0.01**2)
        assert noise == pytest.approx(2 / (0.01 * epsilon) ** 2, rel=1e-6)
    assert names["halved_error"] == pytest.approx([2, 4], rel=1e-3)
    assert names["halved_epsilon"] == pytest.approx([2, 4], rel=1e-2)


def test_draws_have_the_moments_and_the_ratio_of_the_lemma() -> None:
    names = done("mechanism")[1]
    assert names["mean_absolute"] == pytest.approx(20, rel=4.5 / math.sqrt(20_000))
    assert names["root_mean_square"] == pytest.approx(20 * math.sqrt(2), rel=4.5 * math.sqrt(5 / 20_000) / 2)
    for t, share in names["beyond"].items():
        p = math.exp(-t)
        assert share == pytest.approx(p, abs=4.5 * math.sqrt(p * (1 - p) / 20_000))
    assert names["bound"] == pytest.approx(math.exp(0.7))
    assert 0.99 * math.exp(0.7) < names["largest_ratio"] <= math.exp(0.7) * (1 + 1e-9)


# ---- slides, notes, lecture


def test_the_slides_show_a_distribution_and_a_bounded_ratio() -> None:
    names = done("slides")[1]
    assert names["drawn"].var() == pytest.approx(2, rel=4.5 * math.sqrt(5 / 20_000))
    assert stats.kstest(names["inverted"], stats.laplace.cdf).pvalue > 1e-4
    assert stats.kstest(names["inverted"], stats.laplace(scale=1.1).cdf).pvalue < 1e-4
    assert float(names["global_sensitivity"]) == pytest.approx(10 / 100)
    for epsilon, deviation in zip((0.1, 0.5, 2.0), names["deviations"].values(), strict=True):
        assert deviation == pytest.approx(math.sqrt(2) * 0.1 / epsilon, rel=4.5 * math.sqrt(5 / 5000) / 2)
    assert names["observed_ratio"] == pytest.approx(math.exp(1.0))  # both means on one side of z = 1.3


def test_the_notes_prove_step_by_step() -> None:
    names = done("notes")[1]
    assert names["norm_of_example"] == 15
    assert [int(names["found"][key, "replace"]) for key in ("of_age", "readers", "both", "four_kinds")] == [1, 1, 2, 2]
    assert float(names["found"]["share_of_age", "replace"]) == pytest.approx(1 / 3)
    ratio, same, exponent, distance, bound = names["steps"].values()
    b = 2.0
    by_scipy = math.prod(
        stats.laplace.pdf(s, first, b) / stats.laplace.pdf(s, second, b)
        for s, first, second in ((115, 120, 121), (8, 10, 11))
    )
    assert [ratio, same, exponent] == pytest.approx([by_scipy] * 3)
    assert ratio <= distance * (1 + 1e-12)
    assert distance <= bound * (1 + 1e-12)
    assert bound == pytest.approx(math.e)
    for scale, values in names["drawn"].items():
        assert values.var() == pytest.approx(2 * scale**2, rel=4.5 * math.sqrt(5 / 20_000))


def test_the_lecture_has_its_losses_and_its_risk_right() -> None:
    names = done("lecture")[1]
    assert sorted(names["losses_of_coins"].values()) == pytest.approx([-math.log(3)] * 2 + [math.log(3)] * 2)
    assert sorted(names["losses_of_epsilon"].values()) == pytest.approx(
        [-math.log(3)] * 2 + [math.log(3)] * 2, abs=1e-5
    )
    assert names["right_risk"] == pytest.approx(2 / 100**2)
    assert names["measured_risk"] == pytest.approx(2 / 100**2, rel=4.5 * math.sqrt(5 / 10_000))
    assert names["largest_loss"] <= 1
    assert max(names["moves"].values()) <= 1 / 100
    for epsilon, (classical, analytic) in names["calibrations"].items():
        half, slope = 1 / (2 * analytic), epsilon * analytic
        delta = mpmath.ncdf(half - slope) - mpmath.exp(epsilon) * mpmath.ncdf(-half - slope)
        assert float(delta) == pytest.approx(1e-6, rel=1e-6)
        if classical is not None:
            assert classical == pytest.approx(math.sqrt(2 * math.log(1.25e6)) / epsilon)


# ---- what is drawn


def curves(figure: "Figure", axes: int = 0) -> dict[str, tuple[Any, Any]]:
    """The lines of a figure by their names: where, and how high."""
    return {str(one.get_label()): (one.get_xdata(), one.get_ydata()) for one in figure.axes[axes].lines}


def drawn(name: str, shows: str) -> "Figure":
    """The figure of a chapter whose description starts like that."""
    (picture,) = (one for one in done(name)[0] if isinstance(one, Plot) and one.shows.startswith(shows))
    seen: list[Figure] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("matplotlib.figure.Figure.savefig", lambda figure, *_, **__: seen.append(figure))
        picture.png()
    return seen[0]


def test_the_curves_are_those_of_their_formulas() -> None:
    people = curves(drawn("heights", "Densities"))
    x = people["men"][0]
    assert people["men"][1] == pytest.approx(stats.norm.pdf(x, 178, 7))
    both = (stats.norm.pdf(x, 178, 7) + stats.norm.pdf(x, 162, 6.5)) / 2
    assert people["everybody"][1] == pytest.approx(both)
    for scale, (x, y) in zip((1, 2, 4, 7), curves(drawn("mechanism", "Densities")).values(), strict=True):
        assert y == pytest.approx(stats.laplace.pdf(x, scale=scale))
    for at, (x, y) in zip((-3, 0, 3, 6), curves(drawn("notes", "Laplace densities of scale 1")).values(), strict=True):
        assert y == pytest.approx(stats.laplace.pdf(x, at))
    for scale, (x, y) in zip((1, 2, 3, 4), curves(drawn("notes", "Laplace densities around")).values(), strict=True):
        assert y == pytest.approx(stats.laplace.pdf(x, scale=scale))
    sides = drawn("slides", "Six panels")
    (density,), (distribution,), (inverse,) = (curves(sides, place).values() for place in range(3))
    assert density[1] == pytest.approx(stats.laplace.pdf(density[0]))
    assert distribution[1] == pytest.approx(stats.laplace.cdf(distribution[0]))
    assert inverse[1] == pytest.approx(stats.laplace.ppf(inverse[0]))
    prices = curves(drawn("mechanism", "Error of a share"))
    n = prices["randomized response"][0]
    assert prices["randomized response"][1] == pytest.approx(np.sqrt(math.e / (math.e - 1) ** 2 / n))
    assert prices["trusted collector, 1/n"][1] == pytest.approx(math.sqrt(2) / n)
    calibrated = curves(drawn("lecture", "Standard deviation"))
    assert calibrated["Laplace, δ = 0"][1] == pytest.approx(math.sqrt(2) / calibrated["Laplace, δ = 0"][0])
    assert all(calibrated["Gauss, analytic"][1] > calibrated["Laplace, δ = 0"][1])


def test_the_drawn_ratio_is_between_its_bounds() -> None:
    x, y = next(iter(curves(drawn("slides", "Two Laplace densities"), 1).values()))
    assert y == pytest.approx(stats.laplace.pdf(x, 0) / stats.laplace.pdf(x, 1))
    assert max(y) == pytest.approx(math.e)
    losses = curves(drawn("lecture", "Log-ratios"))
    assert max(abs(losses["n public and fixed"][1])) <= 1
    assert max(abs(losses["each with its own n"][1])) > 3


# ---- pages, notebooks, the command, the document


@pytest.mark.parametrize("name", NAMES)
def test_a_chapter_is_a_page_for_both_themes(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hush_simulations.display.style.DPI", 30)  # small pictures are drawn sooner
    shown = done(name)[0]
    page = write_page(chapter(name), shown, tmp_path).read_text(encoding="utf-8")
    pictures = [one for one in shown if isinstance(one, Plot)]
    assert len(re.findall(r":class: only-(?:light|dark)", page)) == 2 * len(pictures) > 3
    assert sorted(re.findall(r"\{image\} (\S+)", page)) == sorted(path.name for path in tmp_path.glob("*.png"))
    assert all(path.read_bytes()[:4] == b"\x89PNG" for path in tmp_path.glob("*.png"))
    assert pictures[0].png() != pictures[0].png(DARK)
    for width in (60, 100):
        screen = Screen(width)
        lines = [line for block in blocks(shown) for line in block.lines(screen)]
        assert all(width_of(line) <= width or " " not in line.strip() for line in lines)  # one word may be wider
        assert lines == [line.rstrip() for line in lines]


def test_a_chapter_is_a_notebook_of_jupyter_with_its_outputs(tmp_path: Path) -> None:
    cells = json.loads(write_notebook(chapter("notes"), tmp_path).read_text(encoding="utf-8"))["cells"]
    assert len(cells) > 10
    assert "Jupyter" not in "".join(map(str, cells))
    assert sum("data:image/png" in str(cell.get("outputs")) for cell in cells) == 3


ANSWERS = {
    "heights": (100 * math.sqrt(2 / 500), 100 / math.sqrt(500)),  # the second takes b² for 2b²
    "mechanism": (20_000, 10_000),
    "slides": (math.exp(1.2), 1.2),
    "notes": (4 * math.log(20), math.log(20)),
    "lecture": (math.log(9), 9),
}


@pytest.mark.parametrize("name", NAMES)
def test_an_answer_to_the_exercise_is_checked(name: str) -> None:
    right, wrong = ANSWERS[name]
    assert EXERCISES[name].is_right(right)
    assert not any(EXERCISES[name].is_right(answer) for answer in (wrong, math.nan, math.inf, 0.0))
    accepted = run_cli(name, "--answer", f"{right:.3g}")
    refused = run_cli(name, "--answer", f"{wrong:.3g}")
    assert (accepted.exit_code, refused.exit_code) == (0, 0)
    assert EXERCISES[name].hint not in " ".join(accepted.output.split())
    assert EXERCISES[name].hint in " ".join(refused.output.split())


@pytest.mark.parametrize("words", [[], ["heights", "--open"], ["heights", "--edit"]])
def test_an_answer_needs_a_chapter_alone(words: list[str]) -> None:
    assert isinstance(run_cli(*words, "--answer", "5").exception, OptionError)


def test_the_command_lists_prints_and_refuses() -> None:
    listed = run_cli()
    assert [name for name in NAMES if name in listed.stdout] == NAMES
    printed = run_cli("notes")
    assert printed.exit_code == 0
    assert len(printed.stdout.splitlines()) > 50
    assert "'nonsense'" in str(run_cli("nonsense").exception)
    assert isinstance(run_cli("--open").exception, OptionError)


def test_without_marimo_it_says_what_to_install() -> None:
    code = "import sys; sys.modules['marimo'] = None; from hush.cli import main; main()"
    ran = subprocess.run([sys.executable, "-c", code, "tour", "notes"], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (1, "")
    assert "hush-ldp[tour]" in ran.stderr


def run_cli(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


class Opened:
    """What `hush tour` hands to marimo, which is not started.

    Attributes:
        paths: of the notebooks, in turn.
        how: what marimo does with them.
    """

    def __init__(self) -> None:
        self.paths: list[Path] = []
        self.how: list[str] = []

    def __call__(self, command: list[str]) -> int:
        assert command[1] == "-P"
        assert "'marimo'" in command[3]
        self.how.append(command[4])
        self.paths.append(Path(command[5]).resolve())
        return 0


@pytest.fixture
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Opened:
    found = Opened()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("subprocess.call", found)
    return found


def test_edit_opens_a_copy_and_keeps_changes(tmp_path: Path, opened: Opened) -> None:
    copy, installed = tmp_path / "tour-notes" / "notes.py", chapter("notes").path
    first = run_cli("notes", "--edit")
    assert "tour-notes/notes.py" in first.output
    assert copy.read_bytes() == installed.read_bytes()
    copy.write_text("changed", encoding="utf-8")
    again = run_cli("notes", "--edit")
    assert copy.read_text(encoding="utf-8") == "changed"
    assert [first.exit_code, again.exit_code] == [0, 0]
    assert opened.paths == [copy, copy] != [installed, installed]
    assert opened.how == ["edit", "edit"]


def test_open_shows_the_chapter_and_writes_nothing(tmp_path: Path, opened: Opened) -> None:
    before = chapter("notes").path.read_bytes()
    ended = run_cli("notes", "--open")
    assert "--edit" in ended.output
    assert (opened.how, opened.paths) == (["run"], [chapter("notes").path.resolve()])
    assert chapter("notes").path.read_bytes() == before
    assert list(tmp_path.iterdir()) == []
    both = run_cli("notes", "--open", "--edit")
    assert isinstance(both.exception, OptionError)
    assert opened.how == ["run"]


def page_at(browser: urllib.request.OpenerDirector, address: str) -> str:
    """The page, once the program that has named its address listens there."""
    pages: list[str] = []

    def is_read() -> bool:
        try:
            with browser.open(address, timeout=PATIENCE_S) as response:
                pages.append(response.read().decode())
        except urllib.error.URLError:
            return False
        return True

    wait_until(is_read)
    return pages[0]


def started(directory: Path, *options: str) -> str:
    """The page of a chapter, opened as a person opens it, but for the browser."""
    command = [sys.executable, "-m", "hush", "tour", "notes", *options]
    environment = {
        **os.environ,
        "BROWSER": "true",
        "HOME": str(directory),
        "XDG_CONFIG_HOME": str(directory / "config"),
    }
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, cwd=directory, env=environment, stdout=pipe, text=True, start_new_session=True)
    try:
        assert process.stdout is not None
        address = next(found[0] for line in process.stdout if (found := re.search(r"http://\S+", line)))
        browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        return page_at(browser, address.replace("localhost", "127.0.0.1"))
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def test_marimo_itself_edits_the_copy(tmp_path: Path) -> None:
    page = started(tmp_path, "--edit")
    (name,) = re.findall("<marimo-filename[^>]*>(.+)</marimo-filename>", page)
    assert tmp_path / name == tmp_path / "tour-notes" / "notes.py"
    assert str(chapter("notes").path) not in page


def test_marimo_itself_shows_the_chapter_to_read(tmp_path: Path) -> None:
    page = started(tmp_path, "--open")
    assert re.search(r'"mode": ?"(read|run)"', page)
    assert not list(tmp_path.glob("*.py"))
