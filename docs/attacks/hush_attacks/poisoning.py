"""`poison`: move a mean with false reports, and with many identities of one device.

Nobody can distinguish a false report from an honest one: both look like noise. hush limits how far one report moves
the mean (`worst_case_bias`), and how many reports one login can send (`--quota`). Here liars join 1000 honest devices,
and a real aggregator counts them all.
"""

import asyncio
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from math import nan
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hush_aggregator import Aggregator, SqliteStore
from hush_aggregator.estimate.result import Result
from hush_aggregator.store.base import CommitOutcome
from hush_aggregator.store.quotas import Limits
from hush_attacks.demonstration import Demonstration
from hush_common.aio import run_blocking
from hush_common.formatting import whole
from hush_common.mechanisms import Mechanism
from hush_common.rng import SystemRng
from hush_common.task import Task, make_task
from hush_common.topics import report_topic
from hush_common.wire import Report, encode_frame
from hush_simulations.brokers.memory import MemoryBroker
from hush_simulations.display.style import LIGHT, Palette, canvas, finish, logarithmic, styled
from hush_tour.mixtures import HEIGHTS

if TYPE_CHECKING:
    from matplotlib.figure import Figure


HONEST = 1000
_LIARS = (1, 10, 50)
_SYBILS = 50
_DOMAIN = {"kind": "number", "lower": 120.0, "upper": 220.0, "unit": "cm"}

Bodies = list[tuple[int, ...]]


def run(seed: int | None = None) -> Demonstration:
    """Count honest devices, then the same with liars."""
    heights = HEIGHTS.draws(HONEST, np.random.default_rng(seed)).tolist()
    rows: list[tuple[str, ...]] = []
    figures: dict[str, float] = {}
    for mechanism in ("laplace", "auto"):
        task = make_task({"id": f"heights-{mechanism}", "epsilon": "1", "mechanism": mechanism, "domain": _DOMAIN})
        honest = [_drawn(task, height) for height in heights]
        alone, _ = run_blocking(_counted(task, honest, []))
        for name, false in (
            ("lies, follows the protocol", partial(_drawn, task, 220.0)),
            ("reports the extreme", partial(_extreme, task)),
        ):
            for liars in _LIARS:
                result, _ = run_blocking(_counted(task, honest, [false() for _ in range(liars)]))
                shift, bound = _mean(result) - _mean(alone), liars * result.estimate.single.worst_case_bias["1"]
                robust = _robust(result, alone)
                kind = task.mechanism
                rows.append(
                    (
                        f"{liars} of {HONEST + liars}",
                        name,
                        kind,
                        f"{shift:+.1f} cm",
                        "" if robust is None else f"{robust:+.1f} cm",
                        f"{bound:.1f} cm",
                    )
                )
                figures |= {
                    f"{mechanism}, {name}, {liars}: shift": shift,
                    f"{mechanism}, {name}, {liars}: bound": bound,
                }
                if robust is not None:
                    figures[f"{mechanism}, {name}, {liars}: winsorised shift"] = robust
        if mechanism == "auto":
            for quota in (0, 1):
                sybils = [_extreme(task) for _ in range(_SYBILS)]
                result, counted = run_blocking(_counted(task, honest, sybils, one_sender=True, quota=quota))
                shift = _mean(result) - _mean(alone)
                said = f"one device with {_SYBILS} reports" + (f", --quota {quota}" if quota else ", no quota")
                rows.append(
                    (
                        f"{counted - HONEST} counted",
                        said,
                        task.mechanism,
                        f"{shift:+.1f} cm",
                        "",
                        f"{(counted - HONEST) * result.estimate.single.worst_case_bias['1']:.1f} cm",
                    )
                )
                figures |= {
                    f"sybils, quota {quota}: shift": shift,
                    f"sybils, quota {quota}: counted": float(counted - HONEST),
                }
    return Demonstration(
        "poison",
        f"Move the mean of {HONEST} heights at ε = 1",
        ("liars", "each of them", "mechanism", "mean moves", "winsorised", "at most"),
        tuple(rows),
        "With unbounded noise, one false report can move the mean up to the limit in the last column. A bounded "
        "mechanism, or the winsorised mean, removes most of that. A quota removes all but one of many reports of one "
        "login. A liar who follows the protocol looks like a tall person.",
        figures,
        partial(_draw, figures),
    )


def _drawn(task: Task, height: float) -> tuple[int, ...]:
    """Draw a body by the protocol."""
    return _mechanism(task).perturb(task.domain.index(height).scalar, SystemRng())


def _extreme(task: Task) -> tuple[int, ...]:
    """Return the legal body that moves the mean up furthest."""
    mechanism = _mechanism(task)
    return max(mechanism.outputs()) if mechanism.span is None else (mechanism.span[1],)


def _mechanism(task: Task) -> Mechanism:
    if not isinstance(task.randomizer, Mechanism):
        raise TypeError(f"{task.id} offers several epsilons")
    return task.randomizer


async def _counted(
    task: Task, honest: Bodies, false: Bodies, *, one_sender: bool = False, quota: int = 0
) -> tuple[Result, int]:
    """Return the result of a real aggregator for these reports, and how many it counted."""
    broker, settled = MemoryBroker(), asyncio.Event()
    expected, seen = len(honest) + len(false), 0

    def committed(outcome: CommitOutcome) -> None:
        nonlocal seen
        seen += outcome.accepted + sum(outcome.refused.values())
        if seen >= expected:
            settled.set()

    with tempfile.TemporaryDirectory() as folder:
        store = SqliteStore(Path(folder) / "store.sqlite3", limits=Limits(quota) if quota else None)
        try:
            aggregator = Aggregator(broker.bus(), store, tasks=[task], on_commit=committed)
            async with asyncio.timeout(60), asyncio.TaskGroup() as group:
                running = group.create_task(aggregator.run())
                while not broker.session().filters:  # noqa: ASYNC110 - it has no event
                    await asyncio.sleep(0.01)
                _send(broker, task, honest, lambda number: f"device-{number}")
                _send(broker, task, false, lambda number: "liar" if one_sender else f"liar-{number}")
                await settled.wait()
                result = await aggregator.estimate(task.id)
                running.cancel()
        finally:
            store.close()
    return result, result.n


def _send(broker: MemoryBroker, task: Task, bodies: Sequence[tuple[int, ...]], sender: Callable[[int], str]) -> None:
    for number, body in enumerate(bodies):
        frame = encode_frame([Report.new(task.report_digest, 0, body, SystemRng())])
        broker.deliver(report_topic(task.id, sender(number)), frame)


def _mean(result: Result) -> float:
    return nan if result.estimate.mean is None else result.estimate.mean


def _robust(result: Result, alone: Result) -> float | None:
    """Return how far the winsorised mean moved; None if the mechanism has none."""
    after, before = result.estimate.winsorised, alone.estimate.winsorised
    return None if after is None or before is None else after.mean - before.mean


def _draw(figures: dict[str, float], palette: Palette = LIGHT) -> "Figure":
    extreme = "reports the extreme"
    marks = (
        ("o", "laplace: mean", f"laplace, {extreme}, {{}}: shift", palette.noisy),
        ("s", "laplace: winsorised mean", f"laplace, {extreme}, {{}}: winsorised shift", palette.third),
        ("^", "the mechanism that hush chooses", f"auto, {extreme}, {{}}: shift", palette.true),
    )
    with styled(palette):
        figure = canvas(3.7)
        axes = figure.subplots()
        x = np.arange(len(_LIARS))
        for sign, name, key, color in marks:
            moved = [abs(figures[key.format(many)]) for many in _LIARS]
            axes.plot(x, moved, sign, color=color, ms=9, label=name)  # a bar on this axis begins nowhere
        logarithmic(axes, "y")
        low, high = axes.get_ylim()
        axes.set_ylim(low / 1.5, 30 * high)  # the legend is above the points
        axes.set_xlim(-0.5, len(_LIARS) - 0.5)
        axes.grid(axis="y", color=palette.faint, alpha=0.25, lw=0.6)
        axes.set_xticks(x, [f"{many} liars" if many > 1 else "1 liar" for many in _LIARS])
        axes.set_ylabel("the mean moves by, cm")
        axes.set_title(f"False reports among {whole(HONEST)} honest ones")
        axes.legend()
        finish(figure)
    return figure
