"""Markup: HTML and SVG that are escaped by construction. Titles and labels are written by strangers.

What is put into an element is text unless it is `Html`, and only the functions here make `Html`. So nothing that
somebody typed becomes a tag, an attribute or an address, whoever writes a page and whatever they forget.
"""

import unicodedata
from collections.abc import Iterable
from html import escape

__all__ = ["Html", "Part", "element", "foreign", "fragment", "harmless", "joined", "tabular", "void"]

_LONGEST = 500  # characters of one text: as long as a title may be
_MARKS = 6  # combining marks on one letter: as many as any script needs, and no tower over the next line
_VISIBLE = "\N{REPLACEMENT CHARACTER}"


class Html(str):
    """Text that is markup already."""

    __slots__ = ()


Part = str | Html | None
"""What an element has inside: text, markup, or nothing."""


def harmless(text: str, longest: int = _LONGEST) -> str:
    """Somebody's text without what writes over its neighbours.

    Control characters, direction marks, lone surrogates and line separators are shown as a replacement character; of
    combining marks on one letter six remain; what is longer than `longest` ends in an ellipsis.
    """
    kept: list[str] = []
    marks = 0
    for one in text[:longest]:
        marks = marks + 1 if unicodedata.category(one) in {"Mn", "Me"} else 0
        if marks <= _MARKS:
            kept.append(one if one.isprintable() or one == " " else _VISIBLE)
    shown = "".join(kept)
    return shown if len(text) <= longest else f"{shown}…"


def element(name: str, /, *parts: Part, **attributes: str | float | bool | None) -> Html:
    """`<name …>parts</name>`.

    Args:
        name: of the element; a constant of this program.
        parts: what is inside: text is escaped, markup is not, None is nothing.
        attributes: values are escaped; True is an attribute without a value, False and None are none at all. The name
            loses an underscore at its end (`class_`), and others become hyphens (`aria_label`).
    """
    return Html(f"<{name}{_attributes(attributes)}>{fragment(*parts)}</{name}>")


def tabular(*parts: Part, **attributes: str | None) -> Html:
    """A table; what is inside are its parts."""
    return Html(f"<table{_attributes({**attributes})}>{fragment(*parts)}</table>")


def void(name: str, /, **attributes: str | float | bool | None) -> Html:
    """An element that has no inside: `<meta …>`, or of SVG `<rect …/>`."""
    return Html(f"<{name}{_attributes(attributes)}/>")


def fragment(*parts: Part) -> Html:
    """Several parts, one after the other."""
    return Html("".join(_inside(part) for part in parts))


def foreign(text: str, longest: int = _LONGEST) -> Html:
    """What a stranger wrote, isolated: the order of its letters turns nothing round outside of it."""
    return element("bdi", harmless(text, longest))


def joined(parts: Iterable[Html], between: str) -> Html:
    """Parts with a text between them."""
    return Html(escape(between).join(parts))


def _inside(part: Part) -> str:
    if part is None:
        return ""
    return part if isinstance(part, Html) else escape(part, quote=False)


def _attributes(attributes: dict[str, str | float | bool | None]) -> str:
    return "".join(
        f" {name.rstrip('_').replace('_', '-')}" + ("" if value is True else f'="{escape(_value(value))}"')
        for name, value in attributes.items()
        if value is not None and value is not False
    )


def _value(value: str | float) -> str:
    """Lengths of a drawing, which are at most a thousand, have two decimals: finer than any screen."""
    return value if isinstance(value, str) else f"{round(value, 2):g}"
