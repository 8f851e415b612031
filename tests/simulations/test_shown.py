"""Every result shows itself alike: in text what its command prints, in a notebook its table and its picture."""

import base64
import re
from collections.abc import Sequence
from html.parser import HTMLParser
from io import BytesIO
from pathlib import Path

import pytest

import hush
import hush_simulations.shown
from hush_simulations.display.plan_table import audit_blocks, plan_blocks
from hush_simulations.display.shown import blocks_of, text_of
from hush_simulations.display.sweep import sweep_blocks
from hush_simulations.display.table import run_blocks
from hush_simulations.shown import Shown

DOMAIN = {"kind": "number", "lower": 0, "upper": 220, "unit": "<cm>"}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Shown]:
    return {
        "run": hush.simulate("heights", engine="memory", clients=60, seed=3),
        "parts": hush.simulate("commute", engine="memory", clients=60, seed=3),
        "sweep": hush.sweep({"task.epsilon": [1, 2]}, out=tmp_path_factory.mktemp("sweep"), trials=3, seed=1),
        "plan": hush.plan(DOMAIN, people=500, epsilon=1),
        "feasible": hush.feasible(DOMAIN, people=500),
        "audit": hush.audit("laplace", samples=200, seed=1),
    }


KINDS = ("run", "parts", "sweep", "plan", "feasible", "audit")


class Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.images: list[dict[str, str | None]] = []
        self.words: list[str] = []

    def handle_starttag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag == "img":
            self.images.append(dict(attrs))

    def handle_data(self, data: str) -> None:
        self.words.append(data)


@pytest.mark.large
@pytest.mark.parametrize("kind", KINDS)
def test_a_notebook_shows_a_table_and_a_picture(results: dict[str, Shown], kind: str) -> None:
    reader = Reader()
    html = results[kind]._repr_html_()
    reader.feed(html)
    assert "table" in reader.tags
    (image,) = reader.images
    data = str(image["src"]).removeprefix("data:image/png;base64,")
    assert base64.b64decode(data, validate=True).startswith(b"\x89PNG")
    assert len(str(image["alt"])) > 30
    assert not re.search(r"<script|src=.http|href=|@import|<style", html)


@pytest.mark.large
@pytest.mark.parametrize("kind", KINDS)
def test_the_words_of_the_html_are_those_of_the_text(results: dict[str, Shown], kind: str) -> None:
    reader = Reader()
    reader.feed(results[kind]._repr_html_())
    said = set(" ".join(reader.words).split())
    shown = {word for word in re.sub("[─]", " ", str(results[kind])).split() if word}
    assert shown <= said | {word.rstrip(",") for word in said}, shown - said


@pytest.mark.parametrize("kind", KINDS)
def test_a_result_in_text_is_what_its_command_prints(
    results: dict[str, Shown], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = results[kind]
    monkeypatch.setenv("COLUMNS", "70")
    lines = str(result).splitlines()
    assert max(map(len, lines)) <= 74
    assert lines[0].strip()
    assert lines[-1].strip()
    assert "\x1b" not in str(result)
    assert text_of(result) == str(result)
    match result:
        case hush.Run():
            expected = [*run_blocks(result)]
        case hush.SweepResult():
            expected = sweep_blocks(result)
        case hush.Plan():
            expected = [*plan_blocks(result)]
        case hush.Audit():
            expected = [*audit_blocks(result.findings, result.confidence)]
        case _:
            return
    assert [*blocks_of(result)] == expected


@pytest.mark.parametrize("kind", KINDS)
def test_columns_make_a_data_frame_of_the_first_library_there_is(
    results: dict[str, Shown], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = results[kind].columns()
    assert len({len(column) for column in columns.values()}) == 1
    frame = results[kind].to_frame()
    assert type(frame).__module__.startswith("pandas")
    assert list(frame) == list(columns)
    assert len(frame) == len(next(iter(columns.values()))) > 0
    here = {"pandas": False, "polars": False, "pyarrow": True}
    monkeypatch.setattr(hush_simulations.shown, "find_spec", lambda name: object() if here[name] else None)
    assert type(results[kind].to_frame()).__module__.startswith("pyarrow")
    here["pyarrow"] = False
    with pytest.raises(hush.MissingExtraError, match="a data frame needs pandas, polars or pyarrow"):
        results[kind].to_frame()


@pytest.mark.large
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dark", [False, True])
def test_a_result_has_a_picture_on_either_ground(results: dict[str, Shown], kind: str, *, dark: bool) -> None:
    figure, file = results[kind].figure(dark=dark), BytesIO()
    figure.savefig(file)
    assert figure.get_facecolor()[0] == pytest.approx(0x16 / 255 if dark else 1.0)
    assert file.getvalue().startswith(b"\x89PNG")


@pytest.mark.parametrize("kind", KINDS)
def test_a_representation_is_short(results: dict[str, Shown], kind: str) -> None:
    assert len(repr(results[kind])) < 60
    assert repr(results[kind]).startswith(f"<{type(results[kind]).__name__}")


def test_the_reports_of_a_run_are_columns() -> None:
    run = hush.simulate("heights", engine="memory", clients=40, rounds=2, epsilon=2)
    reports = run.reports()
    assert list(reports) == ["round", "report_id", "epsilon", "body", "decoded"]
    assert reports["round"] == [0] * 40 + [1] * 40
    assert len(set(reports["report_id"])) == 80
    assert set(reports["epsilon"]) == {"1"}
    assert run.result.mean == pytest.approx(sum(float(str(one)) for one in reports["decoded"][40:]) / 40, abs=1e-6)
    with pytest.raises(hush.HushError, match="engine: a simulation in bulk has no reports"):
        hush.simulate("heights", engine="bulk").reports()


def test_the_table_of_a_run_has_each_interval_next_to_its_truth() -> None:
    run = hush.simulate("heights", engine="memory", clients=60, seed=3)
    columns = run.columns()
    assert columns["interval"] == list(run.result.intervals)
    assert columns["truth"][:2] == [run.truth["reporters"], run.truth["population"]]
    assert columns["covers"] == [run.covered[name] for name in run.result.intervals]
    lower, upper = run.result.intervals["reporters"]
    assert (columns["lower"][0], columns["upper"][0]) == (lower, upper)


def test_an_own_function_is_audited_as_such() -> None:
    honest = hush.audit(lambda value: value, inputs=(0, 1), samples=300)
    assert honest.findings[0].verdict is None
    leaking = hush.audit(lambda value: value, inputs=(0, 1), samples=300, epsilon=1)
    assert [one.verdict for one in leaking.violations] == ["violation"]
    assert "VIOLATION" in str(leaking)
    assert "The probability that a measured epsilon is above the true one is at most 1 %." in str(honest)
    titles = [audit.figure().get_suptitle() for audit in (honest, leaking)]
    assert titles == ["Epsilon that the reports show", "1 of 1 claims is exceeded"]
    signs = [{text.get_text() for text in audit.figure().legends[0].get_texts()} for audit in (honest, leaking)]
    assert signs == [{"measured, at least"}, {"measured, at least", "claimed"}]  # nothing is claimed of the first
    with pytest.raises(hush.HushError, match="inputs: is missing"):
        hush.audit(lambda value: value)
    with pytest.raises(hush.HushError, match="task: says mechanism, epsilon and inputs itself"):
        hush.audit("laplace", task=hush.Scenario({"id": "a", "epsilon": "1", "domain": {"kind": "bit"}}, None).task())  # type: ignore[arg-type]


def test_a_mistake_in_a_notebook_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(hush.HushError) as caught:
        hush.simulate(tmp_path / "nowhere.toml")
    (line,) = caught.value._render_traceback_()
    assert line == f"{type(caught.value).__name__}: {caught.value}"
