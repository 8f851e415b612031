"""A gateway through any sequence of reports, crashes, losses, jumps of the clock and changed tasks.

Nothing is lost, doubled, changed, sent before it is paid for, or paid for twice. The same rules find planted faults.
"""

import asyncio
import random
import shutil
import sqlite3
import tempfile
from collections import deque
from collections.abc import Callable
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from functools import partial
from pathlib import Path
from unittest.mock import patch

import pytest
from device_state import FILE_NAME
from heights import make_heights
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from scripted_broker import ScriptedBroker
from virtual_time import VirtualLoop

from hush_client import Gateway, Policy, Receipt
from hush_common.errors import BrokerError
from hush_common.topics import task_topic
from hush_common.wire import Frame, decode
from hush_simulations.brokers.faulty import Fate, FaultyTransport

FATES = [fate for fate in Fate if fate is not Fate.FORGOTTEN]
"""What a device alone has to survive: what a broker forgot, a recall repairs (tests of recalls)."""

Key = tuple[str, str, int]

_BIRTH = datetime(2026, 1, 1, tzinfo=UTC)
_LIMITS = Policy(max_epsilon=Fraction(2), lifetime=Fraction(3))
_DAILY = {"rounds": 3, "round_every": "1d", "opens": "2026-01-02T00:00:00Z", "closes": "2026-06-01T00:00:00Z"}
_TASKS: dict[str, dict[str, object]] = {
    "heights": {},
    "daily": {"epsilon": "1.5", **_DAILY},
    "dear": {"epsilon": "2"},  # with the others it exceeds the lifetime's limit
    "too-dear": {"epsilon": "3"},
}
_SOME_TASK = st.sampled_from(tuple(_TASKS))
_PAUSE = st.sampled_from([0.01, 0.1, 0.3, 1.0, 3.0, 40.0])
_DEVICES = ("a", "b", "c", "d")


def ids(payload: bytes) -> list[str]:
    frame = decode(payload)
    assert isinstance(frame, Frame)
    return [report.id.hex() for report in frame.reports]


class Life:
    """One process of the gateway, with a loop of its own and a directory that the next life gets a copy of."""

    def __init__(
        self,
        wire: ScriptedBroker,
        directory: Path,
        clock: Callable[[VirtualLoop], datetime],
        fate: Callable[[str, bytes], Fate],
    ) -> None:
        self.loop = VirtualLoop()
        self.directory = directory
        self.transport = FaultyTransport(wire, fate)
        self.gateway = Gateway(
            self.transport,
            name="g",
            state=directory,
            policy=_LIMITS,
            clock=partial(clock, self.loop),
            spread=0.5,
            capacity=8,
        )
        self.calls: deque[asyncio.Task[Receipt | None]] = deque()
        self.loop.run_until_complete(self.gateway.__aenter__())

    def ask(self, device: str, task: str, timeout: float) -> None:
        async def call() -> Receipt | None:
            try:
                return await self.gateway.report(device, task, 172.0, timeout=timeout)
            except BrokerError:  # the task is not known
                return None

        self.calls.append(self.loop.create_task(call()))

    def ask_a_source(self, device: str, task: str, value: float | None) -> None:
        async def source() -> float | None:
            await asyncio.sleep(0.1)
            return value

        with suppress(ValueError):  # there is one already
            self.gateway.answer(device, task, source, source_timeout=1)

    async def send_all(self) -> bool:
        """Let everybody who asks now be answered, and send what waits; False if some of it waits in the end."""
        await asyncio.gather(*self.calls, return_exceptions=True)
        return await self.gateway.flush(timeout=300)

    def end(self) -> None:
        """Close properly; whoever still waits is told to go."""
        self.loop.run_until_complete(self._end())
        self.loop.close()

    async def _end(self) -> None:
        for call in self.calls:
            call.cancel()
        await self.gateway.__aexit__(None, None, None)
        await asyncio.gather(*self.calls, return_exceptions=True)


class GatewayModel(RuleBasedStateMachine):
    """What a gateway may do, and what must hold whatever happens.

    Args:
        directory: where each run makes a directory of its own.
        planted: a fault to imitate, "" for none: "redraw" changes a report that is sent again, "forget" deletes it
            from the outbox when it is sent, "refund" undoes the charge of a call that is cancelled, "backup" goes on
            after a crash from the files as they were when the last life began.
    """

    def __init__(self, directory: Path, planted: str = "") -> None:
        super().__init__()
        self.planted = planted
        self.randomness = patch("hush_common.rng.token_bytes", random.Random(1).randbytes)  # noqa: S311 - repeatable
        self.randomness.start()
        self.root = Path(tempfile.mkdtemp(dir=directory))
        self.lives = 0
        tasks = {task_topic(name): make_heights(id=name, **_TASKS[name]) for name in _TASKS}
        self.wire = ScriptedBroker(retained=tasks, on_publish=self.on_publish)
        self.fates: deque[Fate] = deque()
        self.jumped = timedelta(0)
        self.charged: dict[Key, str] = {}
        self.spent: dict[str, Fraction] = {}
        self.bytes: dict[str, bytes] = {}
        self.faults: list[str] = []
        self.life = self.begin(None)

    def begin(self, files: Path | None) -> Life:
        """A new life, on a copy of the files of the last one, or on none."""
        self.lives += 1
        directory = self.root / str(self.lives)
        if files is not None:
            directory.mkdir()
            for file in files.glob(f"{FILE_NAME}*"):
                if not file.name.endswith("-shm"):  # what the dead had in shared memory is gone
                    shutil.copy(file, directory)
            shutil.copytree(directory, directory.with_suffix(".birth"))
        return Life(self.wire, directory, self.clock, self.fate)

    def clock(self, loop: VirtualLoop) -> datetime:
        return _BIRTH + timedelta(seconds=loop.time()) + self.jumped

    def fate(self, _topic: str, _payload: bytes) -> Fate:
        return self.fates.popleft() if self.fates else Fate.GOOD

    # What may happen

    @rule(device=st.sampled_from(_DEVICES), task=_SOME_TASK, turns=st.integers(0, 40))
    def report(self, device: str, task: str, turns: int) -> None:
        self.life.ask(device, task, timeout=3)
        self.life.loop.turn(turns)

    @rule(
        devices=st.lists(st.sampled_from(_DEVICES), min_size=2, max_size=6),
        task=_SOME_TASK,
        fates=st.lists(st.sampled_from(FATES), max_size=6),
        seconds=_PAUSE,
    )
    def report_at_once(self, devices: list[str], task: str, fates: list[Fate], seconds: float) -> None:
        self.fates.extend(fates)
        for device in devices:
            self.life.ask(device, task, timeout=3)
        self.wait(seconds)

    @rule(device=st.sampled_from(_DEVICES), task=_SOME_TASK, value=st.sampled_from([150.0, None]))
    def answer_from_a_source(self, device: str, task: str, value: float | None) -> None:
        self.life.loop.call_soon(self.life.ask_a_source, device, task, value)
        self.life.loop.turn(5)

    @precondition(lambda self: self.life.calls)
    @rule(turns=st.integers(0, 20))
    def cancel(self, turns: int) -> None:
        call = self.life.calls.pop()
        call.cancel()
        self.life.loop.turn(turns)
        with suppress(asyncio.CancelledError):
            self.life.loop.run_until_complete(call)
        if self.planted == "refund":
            self.execute("DELETE FROM charge", "DELETE FROM account", "DELETE FROM outbox")

    @rule()
    def drop(self) -> None:
        self.life.transport.drop()

    @rule(reachable=st.booleans())
    def reach(self, reachable: bool) -> None:
        self.life.transport.reachable = reachable

    @rule(seconds=_PAUSE)
    def wait(self, seconds: float) -> None:
        self.life.loop.run_until_complete(asyncio.sleep(seconds))

    @rule(days=st.sampled_from([-400.0, -1.0, -0.01, 0.01, 1.0, 90.0]))
    def set_the_clock(self, days: float) -> None:
        self.jumped += timedelta(days=days)

    @rule(task=_SOME_TASK, upper=st.sampled_from([220.0, 221.0]))
    def change_a_task(self, task: str, upper: float) -> None:
        domain = {"kind": "number", "lower": 120.0, "upper": upper}
        self.wire.retain(task_topic(task), make_heights(id=task, **_TASKS[task], domain=domain))

    @rule()
    def restart(self) -> None:
        self.settle()
        self.life.end()
        self.life = self.begin(self.life.directory)

    @rule(turns=st.integers(0, 40))
    def crash(self, turns: int) -> None:
        """The files stay as they are at this very moment; nothing that the dead life still does reaches anybody."""
        self.life.loop.turn(turns)
        dead = self.life
        birth = dead.directory.with_suffix(".birth")
        dead.transport.reachable = False
        dead.transport.drop()
        old = birth if self.planted == "backup" and birth.exists() else dead.directory
        self.life = self.begin(old)
        dead.end()

    # What must hold

    def on_publish(self) -> None:
        """Called before a byte leaves: it is paid for, and it is what was sent before."""
        topic, payload = self.wire.attempts[-1]
        if self.planted == "redraw" and payload in self.bytes.values():
            payload = payload[:-1] + bytes([payload[-1] ^ len(self.wire.attempts) % 256])
        self.look()
        for report_id in ids(payload):
            if report_id not in self.charged.values():
                self.faults.append(f"{topic}: sent and not charged")
            self.same_bytes(report_id, payload)
        if self.planted == "forget":
            self.execute("DELETE FROM outbox")

    def arrived(self) -> set[str]:
        return {report_id for _, payload in self.wire.arrived for report_id in ids(payload)}

    def same_bytes(self, report_id: str, payload: bytes) -> None:
        if self.bytes.setdefault(report_id, payload) != payload:
            self.faults.append("a report changed its bytes")

    @invariant()
    def ledger_and_outbox_are_true(self) -> None:
        self.look()
        assert not self.faults

    @invariant()
    def receipts_are_true(self) -> None:
        for call in [call for call in self.life.calls if call.done()]:
            self.life.calls.remove(call)
            receipt = call.result()
            if receipt is None or receipt.report_id is None:
                continue
            assert receipt.status in ("sent", "queued", "already_answered")
            assert receipt.report_id in self.charged.values()
            if receipt.status == "sent":
                assert receipt.report_id in self.arrived()

    def look(self) -> None:
        """Compare the files with what was seen of them before."""
        file = self.life.directory / FILE_NAME
        with closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True)) as reader:
            charges = reader.execute("SELECT device, task, round, report_id, epsilon FROM charge").fetchall()
            changed = reader.execute("SELECT 1 FROM charge GROUP BY device, task HAVING count(DISTINCT digest) > 1")
            assert changed.fetchall() == [], "two tasks were answered under one id"
            accounts = dict(reader.execute("SELECT device, spent FROM account"))
            waiting = reader.execute("SELECT payload FROM outbox").fetchall()
        charged = {(device, task, round_): report_id.hex() for device, task, round_, report_id, _ in charges}
        assert charged.items() >= self.charged.items(), "a charge was forgotten"
        assert len(set(charged.values())) == len(charges), "charged twice"
        for device in _DEVICES:
            total = Fraction(accounts.get(device, 0))
            assert total == sum(Fraction(epsilon) for owner, *_, epsilon in charges if owner == device)
            assert self.spent.get(device, 0) <= total <= _LIMITS.lifetime
            self.spent[device] = total
        self.charged = charged
        for (payload,) in waiting:
            for report_id in ids(payload):
                self.same_bytes(report_id, payload)

    def settle(self) -> None:
        """A good link for a while: all that was charged arrives."""
        self.fates.clear()
        self.life.transport.reachable = True
        self.life.transport.drop()
        for _ in range(5):  # a source may answer while the others are being sent
            assert self.life.loop.run_until_complete(self.life.send_all()), "reports wait for ever"
            self.look()
            if self.arrived() == set(self.charged.values()):
                return
        raise AssertionError("what was charged and what arrived are not the same")

    def teardown(self) -> None:
        try:
            self.settle()
            assert not self.faults
        finally:
            self.life.end()
            self.randomness.stop()
            shutil.rmtree(self.root)

    def execute(self, *statements: str) -> None:
        with closing(sqlite3.connect(self.life.directory / FILE_NAME)) as connection:
            for statement in statements:
                connection.execute(statement)
            connection.commit()


REPEATABLE = settings(
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=50,
    stateful_step_count=40,
    suppress_health_check=list(HealthCheck),
)


def run(machine: Callable[[], GatewayModel], how: settings) -> None:
    run_state_machine_as_test(machine, settings=how)  # type: ignore[arg-type]  # any factory will do


@pytest.mark.medium
@pytest.mark.parametrize("runs", [50, pytest.param(3000, marks=[pytest.mark.soak, pytest.mark.timeout(1800)])])
def test_no_sequence_of_accidents_loses_doubles_or_changes_a_report(memory_path: Path, runs: int) -> None:
    run(lambda: GatewayModel(memory_path), settings(REPEATABLE, max_examples=runs))


@pytest.mark.large
@pytest.mark.parametrize(
    ("planted", "words"),
    [
        ("redraw", "bytes"),
        ("forget", "not the same"),
        ("refund", "a charge was forgotten"),
        ("backup", "a charge was forgotten"),
    ],
)
def test_a_planted_fault_is_found(memory_path: Path, planted: str, words: str) -> None:
    quick = settings(REPEATABLE, phases=[Phase.generate], report_multiple_bugs=False)
    with pytest.raises(AssertionError, match=words):
        run(lambda: GatewayModel(memory_path, planted), quick)
