"""A store with one task of every kind that the page can show, for its tests and for its picture."""

import itertools
import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np

from hush import Task
from hush_aggregator import Result, SqliteStore
from hush_aggregator.estimate import estimate
from hush_aggregator.publish.steps import step_of
from hush_aggregator.store import Accepted
from hush_aggregator.store.steps import hours_until
from hush_common.rng import SystemRng
from hush_common.task import make_task
from hush_common.wire import Refusal

__all__ = ["COUNTS", "HOSTILE", "TASKS", "count", "count_over_time", "fill", "values_of"]

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\" onclick='alert(3)' &amp; ]]> à̴̵̶̷̸̡̢̧̨̛̖̗̘̙̜̝̞̟̠̣̤̥̦̩̪̫̬̭̮̯̰̱̲̳̹̺̻̼͇͈͉͍͎́̂̃̄̅̆̇̈̉̊̋̌̍̎̏̐̑̒̓̔ שלום عربي"
OPENED = datetime(2026, 1, 1, tzinfo=UTC)

_NUMBER = {"kind": "number", "lower": 120, "upper": 220, "unit": "cm"}
_WAYS = ["Bicycle", "On foot", "Bus, tram or underground, with a monthly or a yearly pass", "Car, alone", "Car, shared"]
_FAR = {"rounds": 12, "round_every": "1d", "opens": OPENED.isoformat()}

_DRAFTS: Sequence[Mapping[str, object]] = (
    {
        "id": "heights",
        "title": "Mean height of adults",
        "purpose": "Sizing of desks and doors in public buildings",
        "epsilon": "1",
        "domain": _NUMBER,
        "enrolled": 4000,
    },
    {
        "id": "remote-work",
        "title": "Who worked from home this week?",
        "purpose": "Planning of trains",
        "epsilon": "0.5",
        "domain": {"kind": "bit"},
    },
    {
        "id": "way-to-work",
        "title": "How people came to work today",
        "purpose": "Where the city builds cycle paths",
        "epsilon": "2",
        "domain": {"kind": "category", "labels": _WAYS},
    },
    {
        "id": "air",
        "title": "Air at home, over a day",
        "purpose": "How well flats are aired in winter",
        "epsilon": "4",
        "domain": {
            "kind": "vector",
            "coordinates": [
                {"name": "Temperature", "lower": 10, "upper": 30, "unit": "°C"},
                {"name": "Humidity", "lower": 0, "upper": 100, "unit": "%"},
                {"name": "Carbon dioxide", "lower": 400, "upper": 3000, "unit": "ppm"},
            ],
        },
    },
    {
        "id": "sleep",
        "title": "Hours of sleep, night after night",
        "purpose": "A study of shift work",
        "epsilon": "6",
        "domain": {"kind": "number", "lower": 0, "upper": 14, "unit": "h"},
        **_FAR,
    },
    {
        "id": "offers",
        "title": "Monthly use of electricity",
        "purpose": "Advice on saving",
        "epsilon": "2",
        "offers": ["0.5", "1", "2"],
        "domain": {"kind": "number", "lower": 0, "upper": 1000, "unit": "kWh"},
    },
    {"id": "quiet", "title": "Noise in the street at night", "epsilon": "1", "domain": {"kind": "bit"}},
    {"id": "hostile", "title": HOSTILE, "purpose": HOSTILE[::-1], "epsilon": "50", "domain": _NUMBER | {"unit": "<b>"}},
    {
        "id": "closed",
        "title": "Share of homes with a heat pump",
        "purpose": "Load of the grid",
        "epsilon": "1",
        "domain": {"kind": "bit"},
        "enrolled": 2500,
    },
    {"id": "broken", "title": "Steps of a day", "purpose": "Health", "epsilon": "1", "domain": {**_NUMBER, "unit": ""}},
)

TASKS: tuple[Task, ...] = tuple(make_task(dict(draft)) for draft in _DRAFTS)
"""One of every kind; `broken` is one whose estimate fails where a test makes it."""

COUNTS = {"heights": 3127, "remote-work": 1800, "way-to-work": 2400, "air": 1200, "sleep": 400, "offers": 900} | {
    "hostile": 150,
    "closed": 2210,
    "broken": 120,
}


def values_of(task: Task, wanted: int, seed: int = 1) -> list[object]:
    """True values that somebody might have."""
    draw = random.Random(f"{task.id} {seed}")  # noqa: S311 - a sample that anybody can draw again
    values: dict[str, Callable[[], object]] = {
        "heights": lambda: draw.gauss(171, 9),
        "remote-work": lambda: draw.random() < 0.37,
        "way-to-work": lambda: draw.choices(_WAYS, [27, 18, 31, 20, 4])[0],
        "air": lambda: [draw.gauss(20.5, 1.5), draw.gauss(48, 9), draw.gauss(980, 250)],
        "sleep": lambda: draw.gauss(6.9 + 0.1 * seed, 1.1),
        "offers": lambda: draw.gauss(240, 90),
        "closed": lambda: draw.random() < 0.16,
    }
    one = values.get(task.id, lambda: 170.0 if task.domain.kind == "number" else True)
    return [one() for _ in range(wanted)]


def count(store: SqliteStore, task: Task, values: Iterable[object], round_: int = 0) -> None:
    """Count a report of each value, drawn as a device draws it."""
    rng = SystemRng()
    bodies = []
    for place, value in enumerate(values):
        offer = place % len(task.offers) if task.offers else 0
        bodies.append(list(task.perturb(task.domain.index(value), rng, offer)))
    if bodies:
        ids = np.frombuffer(random.SystemRandom().randbytes(16 * len(bodies)), dtype="V16")
        store.commit([Accepted(task, round_, ids, np.array(bodies, dtype=np.int64))], {})


def count_over_time(
    store: SqliteStore, task: Task, values: Sequence[object], *, length: timedelta, now: datetime, round_: int = 0
) -> None:
    """Count values spread over the time before now, more by day than by night, with steps as an aggregator writes."""
    hours = length // timedelta(hours=1)
    weights = [1 + 0.8 * math.sin((k + now.hour - hours) / 24 * 2 * math.pi - 2) for k in range(hours + 1)]
    ends = [round(len(values) * part / sum(weights)) for part in itertools.accumulate(weights)]
    first = 0
    for k, end in enumerate(ends):
        count(store, task, values[first:end], round_)
        if end > first:
            made = estimate(task, store.tally(task.digest, round_), 0.95)
            at = now - timedelta(hours=hours - k)
            store.put_steps([step_of(Result(task, round_, made, {}, 0.95, at))])
        first = end
    store.thin_steps(hours_until(int(now.timestamp())))


_OVER_TIME = {
    "heights": timedelta(hours=30),
    "remote-work": timedelta(days=12),
    "way-to-work": timedelta(days=3),
    "closed": timedelta(days=40),
}


def fill(path: Path, counts: Mapping[str, int] = COUNTS) -> None:
    """Write a store with all the tasks, and so many reports of each."""
    with SqliteStore(path) as store:
        for task in TASKS:
            store.add_task(task)
            for round_ in range(min(task.rounds, 9)):
                values = values_of(task, counts.get(task.id, 0), seed=round_)
                if task.id in _OVER_TIME:
                    count_over_time(store, task, values, length=_OVER_TIME[task.id], now=datetime.now(UTC))
                else:
                    count(store, task, values, round_)
        refused = {Refusal.DUPLICATE: 41, Refusal.WRONG_DIGEST: 3, Refusal.QUOTA: 12}
        store.commit([], {("heights", reason): n for reason, n in refused.items()})
        store.close_task("closed")
