"""What is set aside: the message that was under way when two connections in a row were lost, and those like it."""

import asyncio
from typing import cast

import pytest

from hush_aggregator.delivery.session import BrokerSession, OversizeGuard
from hush_common.errors import BrokerError

A, B, TASK = "hush/v1/estimates/a", "hush/v1/estimates/b", "hush/v1/tasks/a"


class Broker:
    """Hangs up on long messages, and as often as it is told to."""

    def __init__(self, most: int = 1000) -> None:
        self.most = most
        self.hang_ups = 0
        self.taken: list[tuple[str, int]] = []
        self.unsent: list[str] = []
        self.again: list[str] = []
        self.aside = OversizeGuard(self.unsent.append, self.again.append)

    async def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        assert retain
        await asyncio.sleep(0)  # so that others may be under way
        if self.hang_ups or len(payload) > self.most:
            self.hang_ups -= self.hang_ups > 0
            raise BrokerError("broker", "lost")
        self.taken.append((topic, len(payload)))

    async def send(self, *messages: tuple[str, int]) -> bool:
        """On a new connection, all at once; whether it was there at the end."""
        session = self.aside.guard(cast("BrokerSession", self))
        sent = [session.publish(topic, bytes(size), retain=True) for topic, size in messages]
        lost = any(await asyncio.gather(*sent, return_exceptions=True))
        if lost:
            self.aside.lost()
        return not lost


async def test_what_was_lost_twice_in_a_row_is_held_back_and_warned_about_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker = Broker()
    await broker.send((A, 500))
    for _ in range(2):
        assert not await broker.send((A, 2000))
    for _ in range(3):
        assert await broker.send((A, 2000))
    assert broker.unsent == [A] * 3
    assert broker.taken == [(A, 500)]
    (told,) = caplog.messages
    assert [word for word in ("task a", A, "2026 bytes", "526", "max_packet_size", "600 s") if word not in told] == []
    assert await broker.send((A, 400))
    assert broker.taken[-1] == (A, 400), "a shorter one of the same topic passes, for one like it did"


async def test_a_connection_that_is_lost_now_and_then_sets_nothing_aside(caplog: pytest.LogCaptureFixture) -> None:
    broker = Broker()
    for _ in range(10):
        broker.hang_ups = 1
        assert not await broker.send((A, 500))
        assert await broker.send((A, 500))
    assert (broker.unsent, caplog.messages) == ([], [])


async def test_of_all_that_was_under_way_the_longest_is_suspected() -> None:
    broker = Broker()
    for _ in range(2):
        assert not await broker.send((TASK, 900), (A, 2000), (B, 300))
        broker.hang_ups = 0
    assert await broker.send((TASK, 900), (A, 2000), (B, 300))
    assert broker.unsent == [A]


async def test_what_is_as_long_is_held_back_on_topics_of_that_kind_alone() -> None:
    broker = Broker()
    for _ in range(2):
        await broker.send((A, 2000))
    assert await broker.send((B, 2001))
    assert broker.unsent == [B]
    assert not await broker.send((TASK, 2001)), "another kind of topic may have other rules"


@pytest.mark.virtual_time
async def test_one_trial_after_the_pause_costs_a_connection_or_frees_all() -> None:
    broker = Broker()
    for _ in range(2):
        await broker.send((A, 2000))
    assert await broker.send((B, 3000))
    await asyncio.sleep(601)
    assert broker.again == [A, B], "the shortest first"
    assert not await broker.send((A, 2000))
    assert await broker.send((A, 2000), (B, 3000)), "one trial"
    await asyncio.sleep(601)
    broker.again.clear()
    broker.most = 5000
    assert await broker.send((A, 2000))
    assert broker.again == [B]
    assert await broker.send((B, 3000))
    assert broker.taken == [(A, 2000), (B, 3000)]


async def test_after_a_loss_messages_go_one_by_one_to_find_a_forbidden_one() -> None:
    """Rules of a broker may forbid any message; with many under way the longest would be suspected for ever."""

    class Forbids(Broker):
        """Hangs up on one topic; what is under way then is lost, and nothing is taken before the next connection."""

        lost = False

        async def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
            for _ in range(5):
                await asyncio.sleep(0)
                if self.lost or topic == TASK:
                    self.lost = True
                    raise BrokerError("broker", "lost")
            await super().publish(topic, payload, retain=retain)

    broker = Forbids()
    many = [(f"hush/v1/estimates/{k}", 100 + k) for k in range(50)]
    connections = 1
    while not await broker.send(*many[:20], (TASK, 50), *many[20:]):
        connections, broker.lost = connections + 1, False
    assert (connections, broker.unsent) == (4, [TASK])
    assert {topic for topic, _ in broker.taken} == {topic for topic, _ in many}
