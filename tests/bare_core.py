"""A device where nothing can be installed: `python -I -S tests/bare_core.py COMMON CLIENT STATE`.

Every import from outside the standard library and the two packages fails. What is left must answer a task.
"""
# ruff: noqa: E402, T201 - nothing of ours is imported before the finder stands; what it found goes to standard output

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType


class Refuse:
    """Stands before all other finders."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        del path, target
        top = name.partition(".")[0]
        if top not in sys.stdlib_module_names and top not in {"hush_common", "hush_client"}:
            raise ModuleNotFoundError(f"{name} is not of the standard library", name=name)
        return None


sys.meta_path.insert(0, Refuse())
sys.path[:0] = sys.argv[1:3]

import asyncio
import json
from dataclasses import replace
from datetime import UTC, datetime
from fractions import Fraction
from functools import partial
from pathlib import Path

from hush_client import Policy
from hush_client.privacy.answer import Question, answer
from hush_client.state import ledger, outbox
from hush_client.state.database import DeviceState, device_name
from hush_common.domain import NumberDomain
from hush_common.rng import SystemRng
from hush_common.task import Task, decode_task, make_task
from hush_common.topics import report_topic
from hush_common.wire import Frame, decode

NUMBER = {"id": "heights", "epsilon": "1", "domain": {"kind": "number", "lower": 120.0, "upper": 220.0}}
DAILY = {"rounds": 9, "round_every": "1d", "opens": "2026-01-01T00:00:00Z", "repeat": "sticky"}
HABIT = {"id": "habit", "epsilon": "1", "domain": {"kind": "bit"}} | DAILY


async def main(directory: Path) -> dict[str, object]:
    task, habit = (decode_task(make_task(document).payload) for document in (NUMBER, HABIT))
    by_hand = Task(id="heights", epsilon=Fraction(1), mechanism="laplace", domain=NumberDomain(120.0, 220.0))
    state = await DeviceState.open(directory)
    name = await state.run(device_name)
    policy, topic = Policy(sticky=True), report_topic(task.id, name)
    for asked, value, day in ((task, 172.0, 1), (habit, True, 1), (habit, True, 2)):
        question = Question(asked, topic, policy, datetime(2026, 1, day, tzinfo=UTC))
        await state.run(partial(answer, question=question, values={name: asked.domain.read(value)}, rng=SystemRng()))
    await state.close()
    state = await DeviceState.open(directory)
    entries = await state.run(partial(outbox.page, after=0, limit=10))
    charges = await state.run(partial(ledger.charges, device=name, purpose=""))
    await state.close()
    reports = [frame.reports[0] for entry in entries if isinstance(frame := decode(entry.payload), Frame)]
    return {
        "charged": [[charge.task, charge.kind, str(charge.epsilon)] for charge in charges],
        "same reports": {charge.report_id for charge in charges} == {report.id for report in reports},
        "same task": replace(task, payload=b"") == by_hand,
        "admitted": task.randomizer.admits(reports[0].body),
        "remembered": reports[1].body == reports[2].body,
        "sent to": [entry.topic == topic for entry in entries],
    }


print(json.dumps(asyncio.run(main(Path(sys.argv[3])))))
