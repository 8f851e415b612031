"""Templates: how a sensor of Home Assistant reads a figure from the retained estimate.

Each gives `None`, which Home Assistant shows as *unknown*, wherever the figure is missing: no report yet, an estimate
that failed, a topic that was cleared. None of them asks for an attribute of what is undefined, which would be a warning
in its log at every message; and no text of a task is part of any.
"""

__all__ = ["attributes", "bound", "figure", "part", "part_bound", "refused"]

_DOCUMENT = "{% set d = value_json if value_json is mapping else {} %}"
_DETAILS = ("round", "final", "refused", "flags", "monitor", "updated_at")


def figure(name: str, *, percent: bool = False) -> str:
    """A figure of the document."""
    return _DOCUMENT + _shown(f"d.{name}", percent=percent)


def bound(target: str, end: int, *, percent: bool = False) -> str:
    """One end of an interval of the document: 0 is the lower, 1 the upper."""
    return _DOCUMENT + _interval("d", "intervals", target) + _end(end, percent=percent)


def part(kind: str, number: int, name: str, *, percent: bool = False) -> str:
    """A figure of a category or a coordinate, by its place: the order is that of the task."""
    return _part(kind, number) + _shown(f"p.{name}", percent=percent)


def part_bound(kind: str, number: int, intervals: str, target: str, end: int, *, percent: bool = False) -> str:
    """One end of an interval of a category or a coordinate."""
    return _part(kind, number) + _interval("p", intervals, target) + _end(end, percent=percent)


def refused() -> str:
    """How many reports were refused, whatever the reason."""
    return (
        f"{_DOCUMENT}{{% set r = d.refused if d.refused is mapping else {{}} %}}"
        "{{ (r.values() | sum) if d.n is number else None }}"
    )


def attributes() -> str:
    """What else there is to know of a result, as a JSON object; small, for it is kept with every state."""
    fields = ", ".join(f"'{name}': d.get('{name}')" for name in _DETAILS)
    return f"{_DOCUMENT}{{{{ {{{fields}}} | tojson }}}}"


def _part(kind: str, number: int) -> str:
    there = f"d.{kind} is sequence and d.{kind} | length > {number} and d.{kind}[{number}] is mapping"
    return f"{_DOCUMENT}{{% set p = d.{kind}[{number}] if {there} else {{}} %}}"


def _interval(of: str, intervals: str, target: str) -> str:
    return f"{{% set i = {of}.{intervals}.{target} if {of}.{intervals} is mapping else none %}}"


def _end(end: int, *, percent: bool) -> str:
    number = _number(f"i[{end}]", percent=percent)
    return f"{{{{ {number} if i is sequence and i | length == 2 and i[{end}] is number else None }}}}"


def _shown(figure: str, *, percent: bool) -> str:
    return f"{{{{ {_number(figure, percent=percent)} if {figure} is number else None }}}}"


def _number(figure: str, *, percent: bool) -> str:
    return f"({figure} * 100) | round(6)" if percent else figure
