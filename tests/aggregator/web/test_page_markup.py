"""What strangers wrote stays text on the page, whatever it is."""

import dataclasses
import json
from collections.abc import Mapping
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_results import single
from page_views import NOW, card, listing, page, view_of

from hush_aggregator import Estimate, PartEstimate
from hush_aggregator.web.page.environment import sanitize, untrusted
from hush_aggregator.web.page.pages import render_message

MARKUP = ["<script>alert(1)</script>", '" onclick="x', "'><img src=x onerror=x>", "&lt;b&gt;", "]]>", "{{ 7 * 7 }}"]
NUMBER = {"lower": 0.0, "upper": 1.0, "unit": "TEXT"}
DOMAINS: list[dict[str, object]] = [
    {"kind": "number", **NUMBER},
    {"kind": "category", "labels": ["TEXT", "b"]},
    {"kind": "vector", "coordinates": [{"name": "TEXT", **NUMBER}, {"name": "b", "lower": 0.0, "upper": 1.0}]},
]
ENDS = {"anytime": (0.1, 0.9), "population": (0.2, 0.8)}
MARK = "\N{REPLACEMENT CHARACTER}"


class Seen(HTMLParser):
    """The elements of a document, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.attributes: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [name for name, _ in attrs]

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.mark.medium
@given(text=st.one_of(st.text(max_size=60), st.sampled_from(MARKUP)))
def test_text_of_an_author_is_never_markup(text: str) -> None:
    seen = Seen(untrusted(text))
    assert (seen.tags, seen.attributes) == (["bdi"], [])
    assert seen.text == text or not text.isprintable()


def estimate(kind: str, text: str) -> Estimate:
    if kind == "number":
        return single(9, 0.5, intervals=ENDS)
    part = PartEstimate(name=text, n=9, mean=0.5, intervals=ENDS, joint_intervals=ENDS)
    return Estimate(9, (part if kind == "category" else dataclasses.replace(part, unit=text),) * 2)


@pytest.mark.parametrize("domain", DOMAINS, ids=lambda domain: str(domain["kind"]))
def test_each_text_of_a_task_is_text_on_its_page_and_in_lists(domain: Mapping[str, object]) -> None:
    """Title, purpose, unit, labels and names: the pages have the same elements and attributes as with letters."""

    def pages(text: str) -> Seen:
        fields = json.loads(json.dumps(domain).replace("TEXT", json.dumps(text)[1:-1]))
        draft: dict[str, Any] = {"id": "t", "epsilon": "1", "title": text, "purpose": text, "domain": fields}
        view = view_of(estimate(str(domain["kind"]), text), draft={**draft, "enrolled": 9})
        return Seen(page(view) + card(view) + listing([view], total=100, text=text))

    plain = pages("letters")
    for text in MARKUP:
        seen = pages(text)
        assert text in seen.text
        assert (seen.tags, seen.attributes) == (plain.tags, plain.attributes)


@pytest.mark.parametrize(
    "one", ["\0", "\n", "\x1b", "\x7f", "\x85", "\u202e", "\u2066", "\u200f", "\ud800", "\u2028", "\ufeff"]
)
def test_a_character_that_could_overwrite_others_is_replaced(one: str) -> None:
    assert sanitize(f"a{one}b") == f"a{MARK}b"
    assert MARK in Seen(untrusted(f"a{one}b")).text


def test_combining_marks_are_cut_where_no_script_needs_them() -> None:
    assert sanitize("a" + "\u0301" * 5000).count("\u0301") < 10
    words = "ñ क्षि ཧཱུྃ שָׁלוֹם عَرَبِيّ Việt 가"
    assert sanitize(words) == words


def test_the_title_of_a_document_is_escaped_too() -> None:
    document = render_message("/", NOW, "</title><script>\u202ex", 404)
    assert "</title><script>" not in document
    assert "\u202e" not in document.partition("</title>")[0]
    assert Seen(document).tags.count("script") == 1
