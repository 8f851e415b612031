"""Checks of sending: the same bytes until the broker has them, whatever breaks."""

import asyncio
from collections.abc import Awaitable, Callable

from hush_common.rng import SystemRng
from hush_conform.broker import Reply
from hush_conform.checks.answers import silent
from hush_conform.checks.check import Check, CheckOutcome, Knowledge, together
from hush_conform.device import Device, Setup
from hush_conform.findings import Rule, RuleViolation
from hush_conform.reports import changed, inspect
from hush_conform.tasks import task

_OTHER = "219"
"""The value after each trouble, far from the first one."""

_Trouble = Callable[[Device], Awaitable[None]]


async def _lost(device: Device) -> None:
    """The connection ends instead of an acknowledgement: `Reply.CUT` has done it."""
    device.set_value(_OTHER)


async def _hung(device: Device) -> None:
    """The broker does not answer, and then the connection ends."""
    device.set_value(_OTHER)
    await asyncio.sleep(0.3)
    device.broker.cut()


async def _refused(device: Device) -> None:
    """The broker has refused the report, and the device is started again."""
    device.set_value(_OTHER)
    await device.broker.wait(lambda: not device.is_running, 1.0)
    await device.kill()


async def _killed(device: Device) -> None:
    """The power fails before the acknowledgement."""
    await device.kill()
    device.set_value(_OTHER)


_TROUBLES: tuple[tuple[str, str, Reply, _Trouble], ...] = (
    ("cut", "the connection ended before the acknowledgement", Reply.CUT, _lost),
    ("hung", "the broker did not acknowledge, and the connection ended", Reply.WITHHOLD, _hung),
    ("refused", "the broker refused the report (0x87), and the program was started again", Reply.REFUSE, _refused),
    ("killed", "the program was killed before the acknowledgement", Reply.WITHHOLD, _killed),
)


async def _resend(knowledge: Knowledge) -> CheckOutcome:
    faults = await together(knowledge.setup, [_in_trouble(knowledge.setup, *trouble) for trouble in _TROUBLES])
    return CheckOutcome(faults, ["each trouble twice in a row, with another value after it"])


async def _in_trouble(setup: Setup, name: str, when: str, reply: Reply, trouble: _Trouble) -> list[RuleViolation]:
    asked = task(f"conform-{name}")
    async with setup.device(asked.id) as device:
        device.publish(asked.id, asked.payload)
        device.broker.replies.extend([reply, reply])
        if not await device.until_reports(1):
            return [silent(device, "a legal task"), *inspect(device, asked)]
        for sent in (1, 2):
            await trouble(device)
            if not await device.until_reports(sent + 1, 2 * setup.timeout):
                words = f"{when}: the report was not sent again within {2 * setup.timeout:g} s"
                return [
                    RuleViolation(Rule.RESENT, words),
                    *inspect(device, asked),
                    *changed(device, when, Rule.SAME_BYTES),
                ]
        faults = changed(device, when, Rule.SAME_BYTES) or await _acknowledged(device, when)
        return [*inspect(device, asked), *faults]


async def _acknowledged(device: Device, when: str) -> list[RuleViolation]:
    """Kill the program after the acknowledgement, and start it once more."""
    await asyncio.sleep(0.1)
    await device.kill()
    await device.run_idle(lambda: len(device.frames) > 1)
    return changed(device, f"{when}; then it was acknowledged and the program started again")


_DEVICES, _KILLS = 4, 5


async def _crashes(knowledge: Knowledge) -> CheckOutcome:
    faults = await together(knowledge.setup, [_crashing(knowledge, number) for number in range(_DEVICES)])
    remark = (
        f"{_DEVICES * _KILLS} kills at random moments: what a power cut does to the disk is not shown, "
        "because a killed program loses no page of the operating system"
    )
    return CheckOutcome(faults, [remark])


async def _crashing(knowledge: Knowledge, number: int) -> list[RuleViolation]:
    asked = task(f"conform-crash-{number}")
    async with knowledge.setup.device(asked.id) as device:
        device.publish(asked.id, asked.payload)
        for kill in range(_KILLS):
            await device.start()
            await asyncio.sleep(_moment(1.5 * knowledge.answers))
            await device.kill()
            device.set_value(_OTHER if kill % 2 else "121")
        if not await device.until_reports(1):
            return [silent(device, f"after {_KILLS} kills"), *inspect(device, asked)]
        await device.kill()
        await device.run_idle(lambda: len(device.frames) > 1)
        return [*inspect(device, asked), *changed(device, f"killed {_KILLS} times at random moments")]


def _moment(longest: float) -> float:
    return longest * SystemRng().randbelow(1000) / 1000


CHECKS = (
    Check(
        "resend",
        "sends the same bytes until the broker acknowledges them",
        _resend,
        "a report that changes, or that is not sent again, in one of these eight tries",
        "such a fault that is rare",
    ),
    Check(
        "crashes",
        "answers once, however often it is killed",
        _crashes,
        "a second answer after one of these kills",
        "a moment that no kill hit, and what a power cut does to the disk",
    ),
)
