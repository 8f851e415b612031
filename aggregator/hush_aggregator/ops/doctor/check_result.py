"""The result of one check."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from hush_common.formatting import significant

Figure = int | float | str | bool


class Verdict(StrEnum):
    """How bad a finding is."""

    OK = "ok"
    WARNING = "warning"  # it works, and may fail later or under attack
    FAILURE = "failure"  # it does not work, or reports may be lost


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of one check.

    Args:
        check: its name, one word.
        verdict: how bad it is.
        detail: what was found, with the figure.
        remedy: what to do; empty if it is ok.
        figures: the same for programs.
    """

    check: str
    verdict: Verdict
    detail: str
    remedy: str = ""
    figures: Mapping[str, Figure] = field(default_factory=dict)

    def to_document(self) -> dict[str, object]:
        """The JSON object."""
        document: dict[str, object] = {"check": self.check, "status": self.verdict.value, "detail": self.detail}
        if self.remedy:
            document["remedy"] = self.remedy
        if self.figures:
            document["figures"] = dict(self.figures)
        return document


def ok(check: str, detail: str, **figures: Figure) -> CheckResult:
    return CheckResult(check, Verdict.OK, detail, figures=figures)


def warning(check: str, detail: str, remedy: str, **figures: Figure) -> CheckResult:
    return CheckResult(check, Verdict.WARNING, detail, remedy, figures)


def failure(check: str, detail: str, remedy: str, **figures: Figure) -> CheckResult:
    return CheckResult(check, Verdict.FAILURE, detail, remedy, figures)


def failed(check: str, error: Exception) -> CheckResult:
    """Return the finding of an error whose one line says what is wrong; then, after a semicolon, what to do."""
    detail, _, remedy = str(error).partition("; ")
    return failure(check, detail, remedy or "see the log of hush serve")


_UNITS = ("bytes", "kB", "MB", "GB", "TB")


def size(count: float) -> str:
    """Format a number of bytes: `"4.61 MB"`."""
    power = 0
    while abs(count) >= 1000 and power < len(_UNITS) - 1:  # noqa: PLR2004 - of the units
        count, power = count / 1000, power + 1
    return f"{significant(count)} {_UNITS[power]}"
