"""Every result shows itself alike: in text what its command prints, in a notebook its table and its picture."""

import base64
import re
from collections.abc import Sequence
from html.parser import HTMLParser
from io import BytesIO
from pathlib import Path

import pytest
from commands import run

import hush
import hush_simulations.shown
from hush_simulations.shown import Shown

pytestmark = pytest.mark.medium

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


def shown_in_a_notebook(result: Shown) -> str:
    """What IPython asks an object for."""
    html: str = getattr(result, "_repr_html_")()  # noqa: B009 - its name is that of a protocol
    return html


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
    html = shown_in_a_notebook(results[kind])
    reader.feed(html)
    assert "table" in reader.tags
    (image,) = reader.images
    data = str(image["src"]).removeprefix("data:image/png;base64,")
    assert base64.b64decode(data, validate=True).startswith(b"\x89PNG")
    assert len(str(image["alt"])) > 30
    assert not re.search(r"<script|src=.http|href=|@import|<style", html)

    said = set(" ".join(reader.words).split())
    text = {word for word in re.sub("[─]", " ", str(results[kind])).split() if word}
    assert text <= said | {word.rstrip(",") for word in said}, text - said


def test_a_result_in_text_is_what_its_command_prints(tmp_path: Path) -> None:
    commands = {
        ("plan", "--people", "500", "--epsilon", "1", "--domain", "bit"): hush.plan(
            {"kind": "bit"}, people=500, epsilon=1
        ),
        ("feasible", "--people", "500", "--domain", "bit"): hush.feasible({"kind": "bit"}, people=500),
        ("audit", "laplace", "--samples", "200", "--seed", "1"): hush.audit("laplace", samples=200, seed=1),
    }
    for command, result in commands.items():
        assert run(command, tmp_path).out.strip() == str(result).strip()


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
    with pytest.raises(hush.MissingExtraError, match="pandas"):
        results[kind].to_frame()


@pytest.mark.large
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dark", [False, True])
def test_a_result_has_a_picture_on_either_ground(results: dict[str, Shown], kind: str, *, dark: bool) -> None:
    figure, file = results[kind].figure(dark=dark), BytesIO()
    figure.savefig(file)
    assert figure.get_facecolor()[0] == pytest.approx(0x16 / 255 if dark else 1.0)
    assert file.getvalue().startswith(b"\x89PNG")


def test_the_reports_of_a_run_are_columns() -> None:
    done = hush.simulate("heights", engine="memory", clients=40, rounds=2, epsilon=2)
    reports = done.reports()
    assert list(reports) == ["round", "report_id", "epsilon", "body", "decoded"]
    assert reports["round"] == [0] * 40 + [1] * 40
    assert len(set(reports["report_id"])) == 80
    assert set(reports["epsilon"]) == {"1"}
    assert done.result.mean == pytest.approx(sum(float(str(one)) for one in reports["decoded"][40:]) / 40, abs=1e-6)
    ways = hush.simulate("commute", engine="memory", clients=5)
    named = {label for text in ways.reports()["decoded"] for label in str(text).split(" | ")}
    assert named <= {part.name for part in ways.result.parts}
    with pytest.raises(hush.HushError, match=r"^engine: "):
        hush.simulate("heights", engine="bulk").reports()


def test_the_table_of_a_run_has_each_interval_next_to_its_truth() -> None:
    done = hush.simulate("heights", engine="memory", clients=60, seed=3)
    columns = done.columns()
    assert columns["interval"] == list(done.result.intervals)
    assert columns["truth"][:2] == [done.truth["reporters"], done.truth["population"]]
    assert columns["covers"] == [done.covered[name] for name in done.result.intervals]
    lower, upper = done.result.intervals["reporters"]
    assert (columns["lower"][0], columns["upper"][0]) == (lower, upper)


def test_an_own_function_is_audited_as_such() -> None:
    honest = hush.audit(lambda value: value, inputs=(0, 1), samples=300)
    assert honest.findings[0].verdict is None
    leaking = hush.audit(lambda value: value, inputs=(0, 1), samples=300, epsilon=1)
    assert [one.verdict for one in leaking.violations] == ["violation"]
    assert "VIOLATION" in str(leaking)
    with pytest.raises(hush.HushError, match=r"^inputs: "):
        hush.audit(lambda value: value)
    with pytest.raises(hush.HushError, match=r"^task: "):
        hush.audit("laplace", task=hush.Scenario({"id": "a", "epsilon": "1", "domain": {"kind": "bit"}}, None).task())  # type: ignore[arg-type]
