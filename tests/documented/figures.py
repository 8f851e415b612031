# ruff: noqa: RUF001 - sentences of the document
"""Which digits of a document are recomputed, and which are only quoted; every one is one of the two.

A *claim* is a sentence of the document, written by a test from what it has computed: `computed` figures stand where
the document has its results, `given` ones where it has the arguments of the same computation. The sentence has to
occur in its section, once. So no digit of it can be altered without being found: whether it was a result, an argument
or a word.

What is left are *quotes*: years, references, names such as p₁, formulas. Each belongs to a named class of patterns,
and the digits of each class are pinned in their order. Those are held in place, but nothing recomputes them.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

__all__ = [
    "COMPUTED", "DIGIT", "GIVEN", "Ledger", "Section", "claims_of", "computed", "count", "given", "on_section",
    "percent", "sections",
]  # fmt: skip

DIGIT = re.compile(r"[0-9⁰¹²³⁴⁵⁶⁷⁸⁹₀₁₂₃₄₅₆₇₈₉½¼⅛]")
COMPUTED = "computed"
GIVEN = "argument of a computation"
WORDS = "word of a computed sentence"
_OPEN = {COMPUTED: "\ue000", GIVEN: "\ue001"}
_CLOSE = "\ue002"
_MARK = re.compile("([\ue000\ue001])([^\ue002]*)\ue002")

Claims = Callable[[], Iterable[str]]
_CLAIMS: dict[str, list[Claims]] = {}


def computed(value: object, form: str = "") -> str:
    """A figure that was computed, at the precision of the document; a minus is a typographic one."""
    return f"{_OPEN[COMPUTED]}{format(value, form).replace('-', '−')}{_CLOSE}"


def given(value: object, form: str = "") -> str:
    """A figure that went into a computation."""
    return f"{_OPEN[GIVEN]}{format(value, form).replace('-', '−')}{_CLOSE}"


def percent(share: float, digits: int = 0) -> str:
    """A computed share of 1."""
    return computed(100 * share, f".{digits}f") + " %"


def count(number: float) -> str:
    """A computed whole number, thousands apart from 10 000 on."""
    whole = round(number)
    return computed(f"{whole:,}".replace(",", " ") if whole >= 10_000 else whole)


def on_section(name: str) -> Callable[[Claims], Claims]:
    """The claims of a section, by its number."""

    def keep(claims: Claims) -> Claims:
        _CLAIMS.setdefault(name, []).append(claims)
        return claims

    return keep


def claims_of(name: str) -> list[str]:
    """All claims of a section, computed."""
    return [claim for one in _CLAIMS.get(name, ()) for claim in one()]


@dataclass(frozen=True)
class Ledger:
    """What is known of every digit of a text.

    Args:
        labels: class of each digit, by its place in the text.
        faults: what does not hold: claims that are not there, digits of no class, digits that were pinned otherwise.
    """

    labels: Mapping[int, str]
    faults: Sequence[str]


@dataclass(frozen=True)
class Section:
    """A section of the document, all white space one blank.

    Args:
        name: its number, or the word that opens it.
        text: heading included.
        claims: sentences with their figures marked.
        quotes: patterns, by class.
        pinned: the digits of each class in their order.
    """

    name: str
    text: str
    claims: Sequence[str]
    quotes: Mapping[str, re.Pattern[str]]
    pinned: Mapping[str, str]

    @cached_property
    def _sentences(self) -> list[tuple[str, list[tuple[int, int, str]]]]:
        return [_unmarked(" ".join(claim.split())) for claim in self.claims]

    def ledger(self, text: str | None = None) -> Ledger:
        """Of the text, or of another one in its place."""
        text = self.text if text is None else text
        labels: dict[int, str] = {}
        faults = list(self._claimed(text, labels))
        for name, pattern in self.quotes.items():
            taken = [
                place
                for match in pattern.finditer(text)
                for place in _digits(text, match.start(), match.end())
                if place not in labels
            ]
            labels |= dict.fromkeys(taken, name)
            digits = "".join(text[place] for place in sorted(taken))
            if digits != self.pinned.get(name, ""):
                faults.append(f"§{self.name}, {name}: {digits!r}, pinned were {self.pinned.get(name, '')!r}")
        faults += [
            f"§{self.name}: nothing accounts for the digit in …{text[max(0, place - 40) : place + 25]}…"
            for place in _digits(text, 0, len(text))
            if place not in labels
        ]
        return Ledger(labels, faults)

    def _claimed(self, text: str, labels: dict[int, str]) -> Iterator[str]:
        for sentence, figures in self._sentences:
            start = text.find(sentence)
            if start < 0 or text.find(sentence, start + 1) >= 0:
                yield f"§{self.name}: {'not there' if start < 0 else 'there twice'}: {sentence}"
                continue
            for place in _digits(text, start, start + len(sentence)):
                labels.setdefault(place, WORDS)
            for low, high, kind in figures:
                labels |= dict.fromkeys(_digits(text, start + low, start + high), kind)

    def altered(self) -> Iterator[tuple[int, str, str]]:
        """Place and class of each digit, and the text with that digit turned into the next one."""
        for place, label in self.ledger().labels.items():
            digit = self.text[place]
            other = chr(ord("0") + (ord(digit) - ord("0") + 1) % 10) if digit.isascii() else "7"
            yield place, label, self.text[:place] + other + self.text[place + 1 :]


def _digits(text: str, start: int, end: int) -> list[int]:
    return [match.start() for match in DIGIT.finditer(text, start, end)]


def _unmarked(claim: str) -> tuple[str, list[tuple[int, int, str]]]:
    """The sentence, and where its figures are."""
    plain, figures, last = "", [], 0
    for match in _MARK.finditer(claim):
        plain += claim[last : match.start()]
        kind = COMPUTED if match[1] == _OPEN[COMPUTED] else GIVEN
        figures.append((len(plain), len(plain) + len(match[2]), kind))
        plain += match[2]
        last = match.end()
    return plain + claim[last:], figures


def sections(document: str) -> dict[str, str]:
    """The text of each section, white space made even, by its number; "0" comes before the first."""
    found = {"0": ""}
    name = "0"
    for line in document.splitlines():
        if match := re.match(r"## (?:(\d+)\.|(\w+))", line):
            name = match[1] or match[2]
            found[name] = ""
        found[name] += line + "\n"
    return {name: " ".join(text.split()) for name, text in found.items()}
