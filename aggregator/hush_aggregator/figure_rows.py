"""Rows of figures: the document of a result as a table, a row for each interval."""

from collections.abc import Iterator, Mapping

from hush_common.untrusted import ESTIMATE, read_json

COLUMNS = ("task", "round", "n", "part", "value", "unit", "target", "stderr", "low", "high", "final")
"""`part` is a category or a coordinate, empty for a number or a bit; `target` is whose mean the interval is for."""

Figure = str | int | float


def document_of(payload: bytes) -> Mapping[str, object] | None:
    """What is retained on the topic of an estimate; None if it is no document, whatever it is."""
    try:
        document = read_json(payload, ESTIMATE)
    except ValueError:
        return None
    return document if isinstance(document, dict) else None


def rows_of(document: Mapping[str, object]) -> Iterator[dict[str, Figure]]:
    """The rows of one round; one without an interval where there is none. What is not known is empty.

    A document that another program published may have anything anywhere: what is not of its kind is left out.
    """
    head = {"task": _figure(document, "task"), "round": _figure(document, "round"), "n": _figure(document, "n")}
    head["final"] = "yes" if document.get("final") is True else ""
    for name, key, value in (("categories", "label", "frequency"), ("coordinates", "name", "mean")):
        parts = document.get(name)
        if isinstance(parts, list) and parts:
            for part in parts:
                if isinstance(part, dict):
                    own = {"part": _figure(part, key), "unit": _figure(part, "unit")}
                    own |= {"n": part["n"]} if isinstance(part.get("n"), int) else {}
                    yield from _intervals(head | own, part, value)
            return
    yield from _intervals(head | {"part": "", "unit": _figure(document, "unit")}, document, "mean")


def _intervals(head: dict[str, Figure], figures: Mapping[str, object], value: str) -> Iterator[dict[str, Figure]]:
    head = head | {"value": _figure(figures, value)}
    intervals, stderr = _mapping(figures, "intervals"), _mapping(figures, "stderr")
    if not intervals:
        yield head | dict.fromkeys(("target", "stderr", "low", "high"), "")
    for target, interval in intervals.items():
        if isinstance(interval, list) and len(interval) == len(("low", "high")):
            low, high = (one if isinstance(one, int | float) else "" for one in interval)
            yield head | {"target": target, "stderr": _figure(stderr, target), "low": low, "high": high}


def _figure(figures: Mapping[str, object], name: str) -> Figure:
    value = figures.get(name)
    return value if isinstance(value, str | int | float) else ""


def _mapping(figures: Mapping[str, object], name: str) -> Mapping[str, object]:
    value = figures.get(name)
    return value if isinstance(value, dict) else {}
