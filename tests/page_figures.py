"""What a page shows, and what it has to show: every number of it against the document of the result."""

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from html.parser import HTMLParser
from typing import NamedTuple

__all__ = ["Figure", "agree", "figures_of", "required"]


class Figure(NamedTuple):
    """A figure of a page.

    Args:
        place: where the document has it, with points between.
        value: as a machine reads it.
        text: as a person does.
    """

    place: str
    value: str
    text: str


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[Figure] = []
        self._open = False

    def handle_starttag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        if tag == "data" and "data-figure" in named:
            self.found.append(Figure(named["data-figure"] or "", named["value"] or "", ""))
            self._open = True

    def handle_data(self, data: str) -> None:
        if self._open:
            self.found[-1] = self.found[-1]._replace(text=data)

    def handle_endtag(self, tag: str) -> None:
        self._open = self._open and tag != "data"


def figures_of(html: str) -> list[Figure]:
    """All figures of a page, in its order."""
    reader = _Reader()
    reader.feed(html)
    return reader.found


def required(document: Mapping[str, object]) -> Iterator[str]:
    """Where the document has what a page must not leave out."""
    yield "n"
    yield from _ends(document, "mean", "enrolled", "intervals", "refused", "failures", "stderr")
    if "estimate" not in _mapping(document.get("failures")) and document["n"]:
        yield from _ends(document, "monitor")
    for kind, value in (("categories", "frequency"), ("coordinates", "mean")):
        for place, part in enumerate(_sequence(document.get(kind))):
            inside = {one: part[one] for one in (value, "intervals") if one in part}
            yield from (f"{kind}.{place}.{one}" for one in _ends(inside, value, "intervals"))


def agree(figures: Sequence[Figure], document: Mapping[str, object], scale: int) -> None:
    """Each figure has the very value that the document has there, and is shown rounded: 100-fold where in per cent."""
    for figure in figures:
        there = _at(document, figure.place)
        if isinstance(there, str):
            assert figure.value == there, figure
            continue
        assert isinstance(there, int | float), figure
        assert float(figure.value) == there, figure
        assert "-" not in figure.text, figure  # a minus sign for people
        shown = Decimal(figure.text.replace(" ", "").replace("\N{MINUS SIGN}", "-"))
        exponent = shown.as_tuple().exponent
        assert isinstance(exponent, int)
        times = 1 if isinstance(there, int) else scale
        assert abs(shown - Decimal(there) * times) <= Decimal(10) ** exponent / 2, figure


def _ends(document: Mapping[str, object], *names: str) -> Iterator[str]:
    for name in names:
        value = document.get(name)
        if isinstance(value, Mapping):
            yield from (f"{name}.{one}" for one in _ends(value, *value))
        elif isinstance(value, list):
            yield from (f"{name}.{place}" for place in range(len(value)))
        elif value is not None:
            yield name


def _at(document: object, place: str) -> object:
    for name in place.split("."):
        document = document[int(name)] if isinstance(document, list) else _mapping(document)[name]
    return document


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}


def _sequence(value: object) -> Sequence[Mapping[str, object]]:
    return value if isinstance(value, list) else []
