"""Run the checks against a program, and collect what they find."""

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from hush_common.errors import OptionError
from hush_common.suggestion import meant
from hush_conform.checks import answers, choices, noise, recalls, refusals, rounds, sending, times
from hush_conform.checks.check import Check, CheckOutcome, Knowledge
from hush_conform.device import Setup
from hush_conform.findings import CheckVerdict, Conformance
from hush_conform.pace import StarvedError
from hush_conform.tasks import DOMAINS, LAWS

CHECKS: Sequence[Check] = (
    *answers.CHECKS,
    *sending.CHECKS,
    *rounds.CHECKS,
    *choices.CHECKS,
    *recalls.CHECKS,
    *refusals.CHECKS,
    *times.CHECKS,
    *noise.CHECKS,
)
"""In the order in which they run; the first one measures how long an answer takes."""

_FIRST = CHECKS[0].name


@dataclass(frozen=True, slots=True)
class Order:
    """What is to be checked."""

    checks: Collection[str] = ()  # all of them if there are none
    require: Collection[str] = ()  # optional parts that the device must have
    laws: Collection[str] = ()  # that the check of the noise samples; all of them if there are none
    samples: int | None = None
    seconds: float = 300.0


_OPTIONAL_CHECKS = [check.name for check in (*rounds.CHECKS, *choices.CHECKS, *recalls.CHECKS)]
OPTIONAL: Sequence[str] = (*_OPTIONAL_CHECKS, *DOMAINS, *(law.name for law in LAWS if law.name not in _OPTIONAL_CHECKS))
"""What a device need not have: checks, kinds of values, mechanisms, and other laws."""

_SHOWN_BY = dict.fromkeys(DOMAINS, answers.CHECKS[1].name) | {
    name: noise.CHECKS[0].name for name in OPTIONAL if name not in (*_OPTIONAL_CHECKS, *DOMAINS)
}
"""Which check finds out whether a device has an optional part that is not a check itself."""


def check_names(order: Order) -> None:
    """Raise OptionError for the name of a check, of an optional part, or of a law that does not exist."""
    for option, given, names in (
        ("--check", order.checks, [check.name for check in CHECKS]),
        ("--require", order.require, list(dict.fromkeys(OPTIONAL))),
        ("--law", order.laws, [law.name for law in LAWS]),
    ):
        for name in given:
            if name not in names:
                hint = meant(name, names)
                raise OptionError(option, f"unknown name {name[:40]!r}; choose {', '.join(names)}{hint}")


async def conform(setup: Setup, order: Order, tell: Callable[[str, int, int], object]) -> Conformance:
    """Check a program; `tell` is called with the name of each check, its number and their count.

    The first check always runs, because the others need its times; if the device does not answer, they do not run.

    Raises:
        OptionError: a name is unknown, or the program cannot be started.
    """
    check_names(order)
    wanted = {_FIRST, *order.checks, *(_SHOWN_BY.get(name, name) for name in order.require)}
    chosen = [check for check in CHECKS if not order.checks or check.name in wanted]
    knowledge, findings = Knowledge(setup, order.samples, order.seconds, order.laws), list[CheckVerdict]()
    for number, check in enumerate(chosen):
        is_over = setup.stops and any(finding.faults for finding in findings)
        if is_over or (number and not setup.slowest):
            findings.append(CheckVerdict(check.name, check.title, "not run", finds=check.finds, misses=check.misses))
            continue
        tell(check.name, number, len(chosen))
        began = time.monotonic()
        outcome = await _outcome(check, knowledge)
        (knowledge.supported if outcome.is_supported else knowledge.missing).add(check.name)
        faults, remarks = tuple(outcome.faults), tuple(outcome.remarks)
        seconds = time.monotonic() - began
        findings.append(
            CheckVerdict(check.name, check.title, outcome.status, faults, remarks, seconds, check.finds, check.misses)
        )
    missing = tuple(name for name in order.require if name not in knowledge.supported)
    return Conformance(setup.command[0], tuple(findings), missing)


async def _outcome(check: Check, knowledge: Knowledge) -> CheckOutcome:
    """Run a check; it is not judged if the machine leaves the program too little time."""
    try:
        return await check.run(knowledge)
    except StarvedError as starved:
        return CheckOutcome(remarks=[str(starved)], is_judged=False)
