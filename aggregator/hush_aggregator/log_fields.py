"""Fields of a log line: what it says for programs, beside its text for people."""

from collections.abc import Mapping

__all__ = ["LogFields", "fields"]

LogFields = Mapping[str, str | int | Mapping[str, int]]

_NAME = "hush"


def fields(event: str, *, held: bool = False, **known: str | int | Mapping[str, int] | None) -> dict[str, object]:
    """For `extra` of a call of `logging`.

    Args:
        event: one word for what happened, the same for every line of the kind.
        held: whether it follows from reports: then the line waits for the turn of the minute (`logs`), so that it does
            not say when one came.
        known: what else there is: `task`, `reason`, `count`, `round`. None is left out.
    """
    given = {name: value for name, value in known.items() if value is not None}
    return {_NAME: {"event": event, **given}, "hush_held": held}
