"""What is wrong with the reports of a round, in words. No numpy: `hush watch` starts without it."""

from collections.abc import Iterable
from typing import NamedTuple


class Verdict(NamedTuple):
    """A verdict on the reports."""

    word: str
    sentence: str


MONITOR: dict[str | None, Verdict] = {
    "ok": Verdict("Looks right", "The reports vary as much as the noise of this task makes them."),
    "too_little_noise": Verdict(
        "Too little noise",
        "The reports vary less than the noise of this task makes them. Some programs that answer add less noise than "
        "they must, and protect their people less than is stated here.",
    ),
    "outliers": Verdict(
        "Impossible reports",
        "No honest group of devices gives such reports: a program has a mistake, or somebody makes reports up. The "
        "estimate may be far off.",
    ),
    None: Verdict("Too early to say", "Fewer than 100 reports show nothing about the noise in them."),
}
"""What the monitor says of the reports."""

_FLAGS = {
    "more_than_enrolled": Verdict(
        "Too many reports",
        "More reports came than devices were asked: some sender answers for several, or makes them up.",
    )
}


def report_problems(monitor: str | None, flags: Iterable[str]) -> list[Verdict]:
    """Return what is wrong with the reports; nothing if they look right, or are too few to say.

    Args:
        monitor: as the document of a result has it; an unknown verdict is a problem, too.
        flags: as the document of a result has them.
    """
    found = [] if monitor in (None, "ok") else [MONITOR.get(monitor, Verdict(_plain(monitor), ""))]
    return found + [_FLAGS.get(flag, Verdict(_plain(flag), "")) for flag in flags]


def _plain(code: str) -> str:
    return code.replace("_", " ").capitalize()
