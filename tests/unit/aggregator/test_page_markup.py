"""What strangers wrote stays text on the page, whatever it is."""

from datetime import UTC, datetime
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hush_aggregator.http.page.frame import Around, framed
from hush_aggregator.http.page.markup import Html, element, foreign, fragment, harmless, tabular, void

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


@given(st.text(max_size=60))
def test_text_in_an_element_or_an_attribute_is_never_markup(text: str) -> None:
    seen = Seen(element("p", text, foreign(text), void("img", alt=text), data_x=text))
    assert seen.tags == ["p", "bdi", "img"]
    assert [name for name, _ in seen.attributes] == ["data-x", "alt"]
    assert [value for _, value in seen.attributes] == [text, text] or not text.isprintable()
    assert seen.text == text * 2 or not text.isprintable()


@pytest.mark.parametrize(
    "text", ["<script>alert(1)</script>", '" onclick="x', "'><img src=x onerror=x>", "&lt;b&gt;", "]]>"]
)
def test_what_looks_like_markup_is_shown_as_it_was_typed(text: str) -> None:
    seen = Seen(fragment(foreign(text), element("b", text, title=text)))
    assert seen.tags == ["bdi", "b"]
    assert seen.text == text * 2
    assert dict(seen.attributes)["title"] == text


@pytest.mark.parametrize(
    "one", ["\0", "\n", "\x1b", "\x7f", "\x85", "\u202e", "\u2066", "\u200f", "\ud800", "\u2028", "\ufeff"]
)
def test_what_would_write_over_its_neighbours_is_shown_instead(one: str) -> None:
    assert harmless(f"a{one}b") == f"a{MARK}b"
    assert MARK in Seen(foreign(f"a{one}b")).text


def test_a_tower_of_combining_marks_is_cut_and_words_of_any_script_are_not() -> None:
    assert harmless("a" + "\u0301" * 5000) == "a" + "\u0301" * 6 + "…"
    words = "ñ क्षि ཧཱུྃ שָׁלוֹם عَرَبِيّ Việt 가"
    assert harmless(words) == words


def test_ten_thousand_characters_end_in_an_ellipsis() -> None:
    assert len(harmless("x" * 10_000)) == 501
    assert harmless("x" * 500) == "x" * 500


def test_the_title_of_a_document_cannot_turn_its_letters_round() -> None:
    around = Around(
        {"hush.css": "/a", "hush.js": "/b", "hush.svg": "/c"},
        "/",
        datetime(2026, 1, 1, tzinfo=UTC),
        "1",
    )
    document = framed(around, "</title><script>\u202ex", None)
    assert "</title><script>" not in document
    assert "\u202e" not in document
    assert Seen(document).tags.count("script") == 1


def test_markup_of_markup_is_not_escaped_twice_and_nothing_is_nothing() -> None:
    assert element("p", Html("<b>x</b>"), None, "&") == "<p><b>x</b>&amp;</p>"
    assert (
        void("rect", x=1.0, y=0.123456, focusable=None, hidden=True, class_="a")
        == '<rect x="1" y="0.12" hidden class="a"/>'
    )
    assert tabular("<", class_="c") == '<table class="c">&lt;</table>'
