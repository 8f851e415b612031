"""What strangers wrote stays text on the page, whatever it is."""

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import UndefinedError
from made_results import result_of, single

from hush_aggregator import Estimate, PartEstimate
from hush_aggregator.http.page.environment import ENVIRONMENT, sanitize, untrusted
from hush_aggregator.http.page.pages import render_index, render_message, render_task
from hush_aggregator.http.page.view import CARDS, TaskListing, TaskSearch, TaskView
from hush_aggregator.store.base import Origin, TaskState
from hush_common.task import make_task

NOW = datetime(2026, 1, 1, tzinfo=UTC)
MARKUP = ["<script>alert(1)</script>", '" onclick="x', "'><img src=x onerror=x>", "&lt;b&gt;", "]]>", "{{ 7 * 7 }}"]
NUMBER = {"lower": 0.0, "upper": 1.0, "unit": "TEXT"}
DOMAINS: list[dict[str, object]] = [
    {"kind": "number", **NUMBER},
    {"kind": "bit"},
    {"kind": "category", "labels": ["TEXT", "b"]},
    {"kind": "vector", "coordinates": [{"name": "TEXT", **NUMBER}, {"name": "b", "lower": 0.0, "upper": 1.0}]},
]
INTERVALS = {"anytime": (0.1, 0.9), "population": (0.2, 0.8)}
NUMBERS = single(9, 0.5, intervals=INTERVALS)
ESTIMATES: Mapping[str, Callable[[str], Estimate]] = {
    "number": lambda _: NUMBERS,
    "bit": lambda _: NUMBERS,
    "category": lambda text: Estimate(
        9, (PartEstimate(name=text, n=9, mean=0.5, intervals=INTERVALS, joint_intervals=INTERVALS),) * 2
    ),
    "vector": lambda text: Estimate(
        9, (PartEstimate(name=text, unit=text, n=4, mean=0.5, joint_intervals=INTERVALS),) * 2
    ),
}
MARK = "\N{REPLACEMENT CHARACTER}"


class Seen(HTMLParser):
    """The elements of a document, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
def shown() -> Callable[[str], Seen]:
    """A template with a text as an element, as an attribute, and as text of the author of a task."""
    template = ENVIRONMENT.from_string('<p data-x="{{ text }}">{{ text }}</p>{{ text|untrusted }}')
    return lambda text: Seen(template.render(text=text))


@given(text=st.text(max_size=60))
def test_text_in_an_element_or_an_attribute_is_never_markup(shown: Callable[[str], Seen], text: str) -> None:
    seen = shown(text)
    assert seen.tags == ["p", "bdi"]
    assert [name for name, _ in seen.attributes] == ["data-x"]
    assert [value for _, value in seen.attributes] == [text] or not text.isprintable()
    assert seen.text == text * 2 or not text.isprintable()


@pytest.mark.parametrize("text", MARKUP)
def test_what_looks_like_markup_is_shown_as_it_was_typed(shown: Callable[[str], Seen], text: str) -> None:
    seen = shown(text)
    assert seen.tags == ["p", "bdi"]
    assert seen.text == text * 2
    assert dict(seen.attributes)["data-x"] == text


@pytest.mark.parametrize("text", MARKUP)
@pytest.mark.parametrize("domain", DOMAINS, ids=lambda domain: str(domain["kind"]))
def test_each_text_of_a_task_is_text_on_its_page_and_its_card(domain: dict[str, object], text: str) -> None:
    """Title, purpose, unit, labels and names: the page has the same elements and attributes as with letters."""

    def pages(text: str) -> Seen:
        fields = json.loads(json.dumps(domain).replace("TEXT", json.dumps(text)[1:-1]))
        draft = {"id": "t", "epsilon": "1", "title": text, "purpose": text, "domain": fields, "enrolled": 9}
        task = make_task(draft)
        estimate = result_of(task, ESTIMATES[str(domain["kind"])](text))
        view = TaskView(task, TaskState.OPEN, Origin.FILE, False, NOW, estimate)
        few, many = (TaskListing(TaskSearch(text), [view], total, 1, 1) for total in (1, CARDS + 1))
        return Seen("".join([render_task(view, "/", NOW), *(render_index(one, "/", NOW) for one in (few, many))]))

    seen, plain = pages(text), pages("letters")
    assert text in seen.text
    assert seen.tags == plain.tags
    assert [name for name, _ in seen.attributes] == [name for name, _ in plain.attributes]


def test_a_name_that_a_template_does_not_know_is_an_error() -> None:
    with pytest.raises(UndefinedError):
        ENVIRONMENT.from_string("{{ unknown }}").render()


@pytest.mark.parametrize(
    "one", ["\0", "\n", "\x1b", "\x7f", "\x85", "\u202e", "\u2066", "\u200f", "\ud800", "\u2028", "\ufeff"]
)
def test_what_would_write_over_its_neighbours_is_shown_instead(one: str) -> None:
    assert sanitize(f"a{one}b") == f"a{MARK}b"
    assert MARK in Seen(untrusted(f"a{one}b")).text


def test_a_tower_of_combining_marks_is_cut_and_words_of_any_script_are_not() -> None:
    assert sanitize("a" + "\u0301" * 5000) == "a" + "\u0301" * 6 + "…"
    words = "ñ क्षि ཧཱུྃ שָׁלוֹם عَرَبِيّ Việt 가"
    assert sanitize(words) == words


def test_ten_thousand_characters_end_in_an_ellipsis() -> None:
    assert len(sanitize("x" * 10_000)) == 501
    assert sanitize("x" * 500) == "x" * 500


def test_the_title_of_a_document_cannot_turn_its_letters_round() -> None:
    document = render_message("/", NOW, "</title><script>\u202ex", 404)
    assert "</title><script>" not in document
    assert "\u202e" not in document.partition("</title>")[0]
    assert Seen(document).tags.count("script") == 1
