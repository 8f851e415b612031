"""An aggregator in a program of one's own: it asks, counts, and goes on as soon as enough have answered.

python docs/examples/aggregator.py mqtt://broker.local heights.sqlite3 1000
"""

import asyncio
import sys
from pathlib import Path

from hush_aggregator import Aggregator, MqttBroker, Result, SqliteStore
from hush_common.broker_url import BrokerUrl
from hush_common.task import make_task
from hush_common.topics import status_topic

HEIGHTS = make_task(
    {
        "id": "heights",
        "title": "Mean height of adults",
        "purpose": "Sizing of workplaces",
        "epsilon": "1",
        "domain": {"kind": "number", "lower": 120.0, "upper": 220.0, "unit": "cm"},
    }
)


async def answers(broker: str, store: SqliteStore, enough: int) -> Result:
    """The result once `enough` reports are counted. Each counts once, also if this program is ended and run again."""
    # What waits on the broker while nobody is here waits under a client id that nobody can guess.
    mqtt = MqttBroker(BrokerUrl.parse(broker), f"heights-{store.identity}", status=status_topic("heights"))
    counted = asyncio.Event()
    aggregator = Aggregator(mqtt, store, tasks=[HEIGHTS], on_commit=lambda _: counted.set())
    async with asyncio.TaskGroup() as group:
        running = group.create_task(aggregator.run())
        while True:
            await counted.wait()
            counted.clear()
            result = await aggregator.estimate("heights")
            if result.n >= enough:
                running.cancel()
                return result


def main(broker: str, path: str, enough: int) -> None:
    with SqliteStore(Path(path)) as store:
        result = asyncio.run(answers(broker, store, enough))
    low, high = result.intervals["reporters"]
    print(f"{result.n} reports: {low:.1f} to {high:.1f} cm")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
