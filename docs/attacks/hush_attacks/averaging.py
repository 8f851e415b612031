"""`averaging`: ask the same device repeatedly, until the mean of its noisy reports is its value.

A device that draws fresh noise for each report is safe once. After T reports the error of the mean is
R·sqrt(2/T)/epsilon, and their losses add up to T·epsilon. A ledger stops that. It is charged before a report leaves,
and the device refuses every task beyond its limit, under any name.
"""

import math
import tempfile
from collections.abc import Sequence
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from hush_attacks.demonstration import Demonstration
from hush_attacks.overheard import OverheardBroker, device
from hush_client import Policy
from hush_common.aio import run_blocking
from hush_common.domain import NumberDomain
from hush_common.task import Task, make_task
from hush_simulations.display.style import LIGHT, Palette, canvas, finish, logarithmic, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure


DAYS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 365)
_ASKED = 16  # days on which the real devices are asked; they stop much earlier
_VICTIMS = 24
_VALUE = 172.0
_DOMAIN: dict[str, object] = {"kind": "number", "lower": 120.0, "upper": 220.0, "unit": "cm"}
_NUMBERS = NumberDomain(120.0, 220.0)
_RANGE = 100.0
_TOTAL = Fraction(4)


def run(seed: int | None = None) -> Demonstration:
    """Ask naive devices every day of a year, and real ones for 16 days: under one purpose, and under one a day."""
    naive = _naive(np.random.default_rng(seed))
    same, spent = run_blocking(_real(reworded=False))
    reworded, spent_reworded = run_blocking(_real(reworded=True))
    rows = tuple(
        (
            f"{day}",
            f"{naive[day]:.1f} cm",
            f"{_exact(day):.1f} cm",
            f"{day}",
            f"{_at(same, day):.1f} cm",
            f"{_at(reworded, day):.1f} cm",
            f"{_exact(min(day, len(same))):.1f} cm",
            f"{min(day, float(spent)):g}",
        )
        for day in DAYS
    )
    figures = {f"naive error, day {day}": naive[day] for day in DAYS}
    figures |= {f"hush error, day {day}": _at(same, day) for day in DAYS}
    figures |= {f"naive exact error, day {day}": _exact(day) for day in DAYS}
    figures |= {f"hush exact error, day {day}": _exact(min(day, len(same))) for day in DAYS}
    figures |= {"devices": float(_VICTIMS)}
    figures |= {"hush spent": float(spent), "hush spent, reworded": float(spent_reworded)}
    figures |= {"hush reports": float(len(same)), "hush reports, reworded": float(len(reworded))}
    return Demonstration(
        "averaging",
        "Learn a height by asking for it every day at ε = 1",
        (
            "day",
            f"naive: error of {_VICTIMS} devices",
            "naive: exact",
            "naive: ε spent",
            f"hush: error of {_VICTIMS} devices",
            f"hush, purpose reworded: error of {_VICTIMS} devices",
            "hush: exact",
            "hush: ε spent",
        ),
        rows,
        "Fresh noise averages out: every further report reduces the error. hush charges a ledger before each report. "
        "So its devices stop, and further questions do not reduce the error. Errors are root mean squares. Exact is "
        f"the error of infinitely many devices. {_VICTIMS} differ from it by chance, with a standard deviation of 14 "
        "to 23 %.",
        figures,
        partial(_draw, naive, same, reworded),
    )


def _exact(reports: int) -> float:
    """Return the root mean square error of the mean of n reports: each has noise of variance 2·R^2."""
    return _RANGE * math.sqrt(2 / reports)


def _naive(rng: np.random.Generator) -> dict[int, float]:
    """Return the root mean square error by day, for as many naive devices as there are real ones."""
    noise = rng.laplace(0, _RANGE, (_VICTIMS, DAYS[-1])).cumsum(axis=1)
    return {day: float(np.sqrt(((noise[:, day - 1] / day) ** 2).mean())) for day in DAYS}


async def _real(*, reworded: bool) -> tuple[list[float], Fraction]:
    """Return the error after each report of real devices, and the largest amount spent.

    With a new purpose every day, the devices have a limit over all purposes. SECURITY.md advises one if not everybody
    who may publish tasks is trusted.
    """
    broker = OverheardBroker()
    tasks = [_task(day, reworded=reworded) for day in range(1, _ASKED + 1)]
    policy = Policy(total=_TOTAL) if reworded else Policy()
    means: list[list[float]] = []
    most = Fraction(0)
    with tempfile.TemporaryDirectory() as folder:
        for victim in range(_VICTIMS):
            async with device(broker, f"victim-{victim}", f"{folder}/{victim}", policy) as client:
                for task in tasks:
                    broker.publish(task)
                    await client.report(task.id, _VALUE)
                await client.flush()
                most = max(most, (await client.ledger()).spent)
            means.append(_heard(broker, tasks, f"victim-{victim}"))
    counts = min(map(len, means))
    running = np.array([np.cumsum(one[:counts]) / np.arange(1, counts + 1) for one in means])
    return np.sqrt(((running - _VALUE) ** 2).mean(axis=0)).tolist(), most


def _task(day: int, *, reworded: bool) -> Task:
    return make_task(
        {
            "id": f"day-{day}",
            "purpose": f"Purpose number {day}" if reworded else "Sizing of workplaces",
            "epsilon": "1",
            "mechanism": "laplace",
            "domain": _DOMAIN,
        }
    )


def _heard(broker: OverheardBroker, tasks: Sequence[Task], sender: str) -> list[float]:
    """Return the decoded reports of one device, in the order of the tasks."""
    values = []
    for task in tasks:
        values += [float(_NUMBERS.value_of(report.body[0])) for one, report in broker.reports(task) if one == sender]
    return values


def _at(errors: Sequence[float], day: int) -> float:
    """Return the error after that day; after the budget is spent, that of the last report."""
    return errors[min(day, len(errors)) - 1]


def _draw(
    naive: dict[int, float], same: Sequence[float], reworded: Sequence[float], palette: Palette = LIGHT
) -> "Figure":
    with styled(palette):
        figure = canvas(3.7)
        axes = figure.subplots()
        days = np.array(DAYS)
        exact = [_exact(day) for day in DAYS]
        axes.plot(days, exact, color=palette.noisy, lw=1.4, ls=(0, (4, 3)), label="fresh noise every day, theory")
        axes.plot(days, [naive[day] for day in DAYS], "o-", color=palette.noisy, lw=2, label="fresh noise every day")
        axes.plot(days, [_at(same, day) for day in DAYS], "o-", color=palette.true, lw=2, label="hush, one purpose")
        axes.plot(
            days,
            [_at(reworded, day) for day in DAYS],
            "s-",
            color=palette.third,
            lw=2,
            label="hush, a new purpose a day, ε = 4 in all",
        )
        logarithmic(axes, "xy")
        axes.set_xlabel("days on which the device was asked")
        axes.set_ylabel("error of the attacker, cm")
        axes.set_title("Asking for one height, day after day")
        axes.legend(fontsize=10)
        finish(figure)
    return figure
