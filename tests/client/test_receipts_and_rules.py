"""What hush's own receipt says where the rules of `hush broker config` forbid a report: a real mosquitto with them."""

import asyncio
import json
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import pytest
from hardened import HOST, Hardened, hush
from heights import make_heights

from hush_client import Client, MqttTransport, Undelivered
from hush_common.topics import ALL_REPORTS, report_topic, task_topic

USERS = {"aggregator": "aggregator", "publisher": "publisher", "kitchen": "device", "evil": "device"}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hardened]:
    hardened = Hardened(tmp_path_factory.mktemp("hardened") / "broker", USERS)
    hardened.set_up()
    with (hardened.home / "rules").open("a", encoding="utf-8") as rules:
        rules.write(f"\nuser evil\ntopic deny {report_topic('weights', 'evil')}\n")  # an operator's own, on top
    hardened.start()
    yield hardened
    hardened.stop()


async def publish_tasks(broker: Hardened) -> None:
    async with broker.client("publisher") as publisher:
        for name in ("heights", "weights"):
            await publisher.publish(task_topic(name), make_heights(id=name, purpose=name), qos=1, retain=True)


@pytest.mark.medium
@pytest.mark.parametrize(("task", "sender"), [("heights", "kitchen"), ("weights", "evil")], ids=["name", "task"])
async def test_a_report_against_the_rules_is_kept_and_reaches_nobody(
    broker: Hardened, tmp_path: Path, task: str, sender: str
) -> None:
    await publish_tasks(broker)
    url = f"mqtts://evil:{broker.password('evil')}@{HOST}:{broker.port}?ca={broker.home / 'ca.pem'}"
    async with broker.client("aggregator") as aggregator:
        await aggregator.subscribe(ALL_REPORTS, qos=1)
        link = MqttTransport(url, "evil")  # by its address alone, hush writes under the name of the user
        async with Client(
            "mqtts://" + HOST, device=sender, state=tmp_path / "state", spread=0, transport=link
        ) as client:
            forbidden = await client.report(task, 172.0, timeout=60)
            assert not await client.flush(timeout=60)
            assert (await client.ledger()).spent == Fraction(1), "the charge stands"
        async with Client(url, device="kitchen", state=tmp_path / "own", spread=0) as client:
            own = await client.report("heights", 172.0, timeout=60)
        assert (forbidden.status, forbidden.reason, forbidden.can_refuse) == (
            "undelivered",
            Undelivered.FORBIDDEN,
            True,
        )
        assert "access rules" in forbidden.meaning
        assert (own.status, own.reason) == ("sent", None), "a report under its own name is taken"
        async with asyncio.timeout(60):
            first = await anext(aggregator.messages)
        assert str(first.topic) == report_topic("heights", "evil"), "the forbidden one would have come before"


@pytest.mark.medium
async def test_the_command_says_so_too(broker: Hardened, tmp_path: Path) -> None:
    await publish_tasks(broker)
    login = (*broker.login("evil"), "--spread", "0", "--state", str(tmp_path / "state"))
    said = await asyncio.to_thread(hush, "report", "weights", "172", *login, "--json")
    receipt = json.loads(said.stdout)
    assert (receipt["status"], receipt["reason"]) == ("undelivered", "forbidden"), said.stderr
