"""`silence`: find a value from the questions that a device does not answer.

The publisher of a task chooses its bounds. If a device refuses a task because its value is outside, its silence reveals
that: each refusal halves the possible range, and no ledger is charged. hush decides without the value whether to
answer, and moves a value outside the bounds to the nearest one.
"""

import tempfile
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from hush_attacks.demonstration import Demonstration
from hush_attacks.overheard import OverheardBroker, device
from hush_client import Client, Policy
from hush_common.aio import run_blocking
from hush_common.domain import NumberDomain
from hush_common.mechanisms import Laplace
from hush_common.task import Task, make_task
from hush_simulations.display.style import LIGHT, Palette, canvas, finish, logarithmic, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure


TASKS = 25
_EPSILON = "0.000001"
_LOWER, _UPPER = 100.0, 250.0
_SECRETS = tuple(_LOWER + 3 * k for k in range(51))
"""The values that the attacker thinks possible, each equally likely."""
_VALUE = 139.0
_STEPS = NumberDomain(_LOWER, _UPPER).steps  # the same for every task, whatever its bounds


@dataclass
class _Observer:
    """An attacker who publishes tasks, reads all reports, knows the code, and uses both answers and silence."""

    likely: list[Decimal] = field(default_factory=lambda: [Decimal(0)] * len(_SECRETS))

    def hear(self, broker: OverheardBroker, task: Task) -> bool:
        """Update the odds with the reports of a task. Return whether there were any."""
        reports = broker.reports(task)
        law = Laplace(Fraction(_EPSILON), _STEPS)
        for _, report in reports:
            for place, secret in enumerate(_SECRETS):
                chance = law.probability(report.body, task.domain.index(secret).scalar, digits=30)
                self.likely[place] += chance.ln()
        return bool(reports)

    @property
    def moved(self) -> float:
        """The largest change of the log-odds of any two secrets."""
        return float(max(self.likely) - min(self.likely))


def run(seed: int | None = None) -> Demonstration:  # noqa: ARG001 - nothing is drawn that a seed could fix
    """Bisect the value of a naive device, and of a real one."""
    widths = _naive()
    moved, spent, answered = run_blocking(_real())
    shown = (1, 2, 4, 8, 16, TASKS)
    rows = tuple(
        (
            f"{k}",
            f"{widths[k]:.3g} cm",
            "0",
            "all" if answered[k] == k else f"{answered[k]}",
            f"{moved[k]:.1e}",
            f"{float(spent[k]):.1e}",
        )
        for k in shown
    )
    figures = {f"naive width, task {k}": widths[k] for k in shown}
    figures |= {f"hush log-odds, task {k}": moved[k] for k in shown}
    figures |= {f"hush spent, task {k}": float(spent[k]) for k in shown}
    figures["hush answered"] = float(answered[TASKS])
    return Demonstration(
        "silence",
        "Find a height by the tasks that a device does not answer",
        (
            "tasks",
            "naive: height known to",
            "naive: charged",
            "hush: answered",
            "hush: change of log-odds",
            "hush: charged",
        ),
        rows,
        "A refusal that depends on the value is an answer without noise and without a charge. hush decides without the "
        "value. An attacker who uses every report and every silence learns no more than was charged.",
        figures,
        partial(_draw, widths, moved),
    )


def _naive() -> list[float]:
    """Return how precisely the value is known after each task, if the device refuses bounds without its value."""
    low, high, widths = _LOWER, _UPPER, [_UPPER - _LOWER]
    for _ in range(TASKS):
        middle = (low + high) / 2
        low, high = (low, middle) if low <= _VALUE <= middle else (middle, high)
        widths.append(high - low)
    return widths


async def _real() -> tuple[list[float], list[Fraction], list[int]]:
    """Return, after each task: the change of the log-odds, the amount spent, and the number of answers."""
    broker, observer, answered = OverheardBroker(), _Observer(), [0]
    moved, spent = [0.0], [Fraction(0)]
    with tempfile.TemporaryDirectory() as folder:
        async with device(broker, "victim", folder, Policy(lifetime=Fraction(1, 1000))) as client:
            low, high = _LOWER, _UPPER
            for number in range(TASKS):
                middle = (low + high) / 2
                task = _task(number, low, middle)
                await _ask(broker, client, task)
                heard = observer.hear(broker, task)
                low, high = (low, middle) if heard else (middle, high)
                answered.append(answered[-1] + heard)
                moved.append(observer.moved)
                spent.append((await client.ledger()).spent)
    return moved, spent, answered


def _task(number: int, low: float, high: float) -> Task:
    domain = {"kind": "number", "lower": low, "upper": high}
    return make_task({"id": f"bisect-{number}", "epsilon": _EPSILON, "mechanism": "laplace", "domain": domain})


async def _ask(broker: OverheardBroker, client: Client, task: Task) -> None:
    broker.publish(task)
    await client.report(task.id, _VALUE)
    await client.flush()


def _draw(widths: list[float], moved: list[float], palette: Palette = LIGHT) -> "Figure":
    with styled(palette):
        figure = canvas(3.6)
        left, right = figure.subplots(1, 2)
        tasks = np.arange(TASKS + 1)
        left.plot(tasks, widths, "o-", color=palette.noisy, lw=2, ms=4)
        logarithmic(left, "y")
        left.set_title("A device that refuses")
        left.set_ylabel("value is known to, cm")
        right.plot(tasks, 1e6 * np.array(moved), "o-", color=palette.true, lw=2, ms=4, label="learned")
        right.plot(tasks, tasks, color=palette.ink, lw=1.4, ls=(0, (4, 3)), label="charged")
        right.set_title("hush")
        right.set_ylabel("log-odds, millionths")
        right.legend()
        for axes in (left, right):
            axes.set_xlabel("tasks")
        finish(figure)
    return figure
