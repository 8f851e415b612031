"""A device that keeps running, made of `hush_client.Client`, by the contract of docs/conform.md."""

import asyncio
import os
from functools import partial
from pathlib import Path

from hush import Task
from hush_client import Client, Policy
from hush_common.domain import Domain

LIMIT = os.environ["HUSH_MAX_EPSILON"]
TASKS = os.environ["HUSH_TASK"].split(",")
SOURCE_TIMEOUT = float(os.environ.get("HUSH_SOURCE_TIMEOUT", "0.1"))


def value(domain: Domain) -> object:
    return domain.parse(Path(os.environ["HUSH_VALUE_FILE"]).read_text(encoding="utf-8").removesuffix("\n"))


async def main() -> None:
    answered = set[str]()
    async with Client(
        os.environ["HUSH_BROKER"],
        device=os.environ["HUSH_SENDER"],
        state=os.environ["HUSH_STATE"],
        policy=Policy(LIMIT, LIMIT, sticky=True),
        spread=float(os.environ["HUSH_SPREAD"]),
    ) as client:

        def answer(task: Task) -> None:
            if task.id in TASKS and task.id not in answered:
                answered.add(task.id)
                client.answer(task.id, partial(value, task.domain), source_timeout=SOURCE_TIMEOUT)

        client.on_task(answer)
        await asyncio.Event().wait()


asyncio.run(main())
