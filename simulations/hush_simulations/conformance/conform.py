"""Run the checks against a program, and collect what they find."""

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from hush_common.errors import OptionError
from hush_common.mechanisms.registry import known
from hush_common.suggestion import meant
from hush_simulations.conformance.checks import answers, noise, recalls, refusals, rounds, sending, times
from hush_simulations.conformance.checks.check import Check, Knowledge
from hush_simulations.conformance.device import Setup
from hush_simulations.conformance.findings import CheckVerdict, Conformance
from hush_simulations.conformance.tasks import DOMAINS

CHECKS: Sequence[Check] = (
    *answers.CHECKS,
    *sending.CHECKS,
    *rounds.CHECKS,
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
    samples: int = 200
    seconds: float = 60.0


OPTIONAL: Sequence[str] = (rounds.CHECKS[0].name, recalls.CHECKS[0].name, *DOMAINS, *(kind.name for kind in known()))
"""What a device need not have: checks, kinds of values, and mechanisms."""

_SHOWN_BY = dict.fromkeys(DOMAINS, answers.CHECKS[1].name) | {kind.name: noise.CHECKS[0].name for kind in known()}
"""Which check finds out whether a device has an optional part that is not a check itself."""


def check_names(checks: Collection[str], require: Collection[str]) -> None:
    """Raise OptionError for the name of a check, or of an optional part, that does not exist."""
    for option, given, names in (
        ("--check", checks, [check.name for check in CHECKS]),
        ("--require", require, list(dict.fromkeys(OPTIONAL))),
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
    check_names(order.checks, order.require)
    wanted = {_FIRST, *order.checks, *(_SHOWN_BY.get(name, name) for name in order.require)}
    chosen = [check for check in CHECKS if not order.checks or check.name in wanted]
    knowledge, findings = Knowledge(setup, order.samples, order.seconds), list[CheckVerdict]()
    for number, check in enumerate(chosen):
        is_over = setup.stops and any(finding.faults for finding in findings)
        if is_over or (number and not setup.slowest):
            findings.append(CheckVerdict(check.name, check.title, "not run"))
            continue
        tell(check.name, number, len(chosen))
        began = time.monotonic()
        outcome = await check.run(knowledge)
        (knowledge.supported if outcome.is_supported else knowledge.missing).add(check.name)
        faults, remarks = tuple(outcome.faults), tuple(outcome.remarks)
        findings.append(
            CheckVerdict(check.name, check.title, outcome.status, faults, remarks, time.monotonic() - began)
        )
    missing = tuple(name for name in order.require if name not in knowledge.supported)
    return Conformance(setup.command[0], tuple(findings), missing)
