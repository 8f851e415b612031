"""Checks of recalls: the same bytes once more, and nothing else."""

import secrets
import time
from collections.abc import Mapping

from hush_common.recall import RECALL_ID_BYTES, Recall, encode_recall
from hush_common.task import Task
from hush_common.topics import recall_topic
from hush_conform.broker import Reply
from hush_conform.checks.answers import silent
from hush_conform.checks.check import Check, CheckOutcome, Knowledge, together
from hush_conform.device import Device, Setup
from hush_conform.findings import Rule, RuleViolation
from hush_conform.reports import changed, inspect
from hush_conform.tasks import task

_OVER = 1
"""Seconds over which a recall is spread."""
_DAY = 86_400
_SPREAD_DEVICES, _EARLY = 3, 60.0
"""That all of these devices send so early, by chance, has the probability 3·10⁻¹⁰."""


async def _recalls(knowledge: Knowledge) -> CheckOutcome:
    setup = knowledge.setup
    asked = task("conform-recall")
    async with setup.device(asked.id) as device:
        faults = await _acknowledged(device, asked)
        if faults:
            return CheckOutcome(faults)
        identifier = _identifier()
        device.recall(asked.id, asked.digest, identifier, _OVER)
        device.set_value("219")
        if not await device.until_reports(2):
            return CheckOutcome(changed(device, "after a recall", Rule.SAME_BYTES), is_supported=False)
        faults = await _served(device, asked, identifier)
    cases = [_ignored(setup, *case) for case in _SPOILED.items()]
    early = list[float]()
    later = [_spread(setup, number, early) for number in range(_SPREAD_DEVICES)]
    faults += await together(setup, [*cases, _forbidden(setup), _killed(setup), *later])
    if len(early) == _SPREAD_DEVICES:
        words = f"{len(early)} of {_SPREAD_DEVICES} devices sent a report that was recalled over a day"
        faults.append(RuleViolation(Rule.SPREAD, f"{words} within {max(early):.1f} s"))
    return CheckOutcome(faults, [f"recalls over {_OVER} s; one over a day is not served at once"])


def _identifier() -> bytes:
    return secrets.token_bytes(RECALL_ID_BYTES)


async def _acknowledged(device: Device, asked: Task) -> list[RuleViolation]:
    """Get a report acknowledged, and let the program record that."""
    device.publish(asked.id, asked.payload)
    if not await device.until_reports(1):
        return [silent(device, "a legal task"), *inspect(device, asked)]
    await device.broker.wait(lambda: not device.is_running, 1.0)
    return []


async def _served(device: Device, asked: Task, identifier: bytes) -> list[RuleViolation]:
    """Recall again after a recall that was served: with the same id, and with a new one within the hour."""
    faults = [*inspect(device, asked), *changed(device, "after a recall", Rule.SAME_BYTES)]
    await device.broker.wait(lambda: not device.is_running, 1.0)
    for when, again in (
        ("a recall that was served, at the next start", identifier),
        ("a second recall within an hour", _identifier()),
    ):
        before = len(device.reports)
        await device.kill()
        device.recall(asked.id, asked.digest, again, _OVER)
        if await _sent(device, before):
            faults.append(RuleViolation(Rule.RECALL_LIMITS, f"{when}: the report was sent once more"))
    return [*faults, *changed(device, "after a second recall", Rule.SAME_BYTES)]


async def _sent(device: Device, before: int) -> bool:
    """Whether the program sends something within the time of a recall, started once more."""

    def more() -> bool:
        return len(device.reports) > before

    await device.run_idle(more)
    return more() or (await device.broker.wait(lambda: more() or not device.is_running, _OVER) and more())


_SPOILED: Mapping[str, tuple[bytes, bytes]] = {
    "a recall with a key twice": (b'"v":1', b'"v":1,"v":1'),
    "a recall with an unknown key": (b'"v":1', b'"v":1,"now":1'),
    "a recall that is not JSON": (b"}", b""),
    "a recall of another version": (b'"v":1', b'"v":2'),
    "a recall of another task": (b'"task":"', b'"task":"x'),
    "a recall with the digest of another task": (b'"digest":"', b'"digest":"0000'),
}


async def _ignored(setup: Setup, when: str, edit: tuple[bytes, bytes]) -> list[RuleViolation]:
    """A recall that is not one; then a legal one."""
    asked = task("conform-ignored")
    async with setup.device(asked.id) as device:
        if faults := await _acknowledged(device, asked):
            return faults
        payload = encode_recall(Recall(asked.id, asked.digest, _identifier(), _OVER)).replace(*edit, 1)
        if b"0000" in edit[1]:
            payload = payload.replace(asked.digest.hex()[-4:].encode() + b'"', b'"', 1)
        device.broker.retain(recall_topic(asked.id), payload)
        before = len(device.reports)
        if await _sent(device, before):
            faults.append(RuleViolation(Rule.RECALL_LIMITS, f"{when}: the report was sent once more"))
        device.recall(asked.id, asked.digest, _identifier(), _OVER)
        before = len(device.reports)
        if not faults and not await device.until_reports(before + 1):
            faults.append(RuleViolation(Rule.RECALLED, f"after {when}, a legal one was not served"))
        return [*faults, *inspect(device, asked), *changed(device, f"after {when}", Rule.SAME_BYTES)]


async def _forbidden(setup: Setup) -> list[RuleViolation]:
    """A broker whose rules do not let the device read recalls."""
    asked = task("conform-forbidden")
    async with setup.device(asked.id) as device:
        device.broker.forbids = lambda topic: "/recalls/" in topic
        device.publish(asked.id, asked.payload)
        if not await device.until_reports(1):
            return [silent(device, "a broker that refuses the subscription to recalls"), *inspect(device, asked)]
        return inspect(device, asked)


async def _spread(setup: Setup, number: int, early: list[float]) -> list[RuleViolation]:
    """A recall over the longest time: note how soon its report came, if it came at once."""
    asked = task(f"conform-spread-{number}")
    async with setup.device(asked.id) as device:
        if faults := await _acknowledged(device, asked):
            return faults
        began = time.monotonic()
        device.recall(asked.id, asked.digest, _identifier(), _DAY)
        if await device.run_idle(lambda: len(device.reports) > 1):
            after = device.reports[1].at - began
            early += [after] if after <= _EARLY else []
        return [*inspect(device, asked), *changed(device, "after a recall", Rule.SAME_BYTES)]


async def _killed(setup: Setup) -> list[RuleViolation]:
    """A recall while the program does not run, and a kill before the resent report is acknowledged."""
    asked, when = task("conform-recalled"), "killed before a recalled report was acknowledged"
    async with setup.device(asked.id) as device:
        if faults := await _acknowledged(device, asked):
            return faults
        await device.kill()
        device.set_value("219")
        device.recall(asked.id, asked.digest, _identifier(), _OVER)
        device.broker.replies.append(Reply.WITHHOLD)
        if not await device.until_reports(2):
            faults.append(
                RuleViolation(Rule.RECALLED, "a recall that came while the program did not run was not served")
            )
        await device.kill()
        if not faults and not await device.until_reports(3):
            faults.append(RuleViolation(Rule.RECALLED, f"{when}: it was not sent again"))
        return [*faults, *inspect(device, asked), *changed(device, when, Rule.SAME_BYTES)]


CHECKS = (
    Check(
        "recalls",
        "sends a report that the broker lost once more, the same bytes",
        _recalls,
        "a recall that is not served, is served twice, against the rules, or with other bytes",
        "reports that are spread unevenly, and a second recall after the hour",
    ),
)
