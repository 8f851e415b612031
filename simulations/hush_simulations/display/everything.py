"""Every figure of a document, one to a line: what `--json` has, for people."""

from collections.abc import Iterator, Mapping, Sequence

from hush_common.formatting import significant, whole
from hush_common.terminal import Block, Fact, Facts, Sentence

__all__ = ["everything"]

_DIGITS = 6
_NAMES = ("label", "name")
_PAIRS = 2


def everything(document: Mapping[str, object]) -> Iterator[Block]:
    """All that a document holds, by where it stands.

    Args:
        document: as `--json` prints it.
    """
    yield Sentence("Every figure of --json:", "bold")
    yield Sentence("")
    yield Facts([*_facts("", document)])
    yield Sentence("")


def _facts(place: str, value: object) -> Iterator[Fact]:
    match value:
        case Mapping():
            for name, part in value.items():
                if name not in _NAMES or not place:
                    yield from _facts(f"{place}, {name}" if place else str(name), part)
        case [Mapping(), *_]:
            for number, part in enumerate(value):
                names = [part[name] for name in _NAMES if isinstance(part, Mapping) and name in part]
                yield from _facts(f"{place}, {[*names, number][0]}", part)
        case list() | tuple():
            yield Fact(_words(place), _listed(value))
        case str() if place.rpartition(" ")[2] == "digest":
            yield Fact(_words(place), bytes.fromhex(value).hex(" ", 16))  # so that it fits a narrow terminal
        case _:
            yield Fact(_words(place), _text(value))


def _words(place: str) -> str:
    return place.replace("_", " ")


def _listed(values: Sequence[object]) -> str:
    return (" to " if len(values) == _PAIRS else ", ").join(map(_text, values)) or "none"


def _text(value: object) -> str:
    match value:
        case bool():
            return "yes" if value else "no"
        case int():
            return whole(value)
        case float():
            return significant(value, _DIGITS)
        case _:
            return str(value)
