"""Whether a message of a device is a report that the aggregator counts."""

from collections.abc import Iterator

from hush_common.task import Task
from hush_common.topics import task_of_report_topic
from hush_common.wire import Frame, Refusal, decode
from hush_conform.broker import Publication
from hush_conform.device import Device
from hush_conform.findings import Rule, RuleViolation

_LONGEST_SHOWN = 80


def frame_of(publication: Publication) -> Frame | None:
    """Return the frame in a message; None if it is not one."""
    frame = decode(publication.payload)
    return None if isinstance(frame, Refusal) else frame


def body_of(publication: Publication) -> tuple[int, ...]:
    """Return the body of the first report in a message that `inspect` found nothing wrong with."""
    frame = frame_of(publication)
    return () if frame is None else frame.reports[0].body


def inspect(device: Device, *asked: Task, rounds: range = range(1)) -> list[RuleViolation]:
    """Return what is wrong with the messages of a device that was asked some tasks; each fault once."""
    known = {task.id: task for task in asked}
    found = list[RuleViolation]()
    for one in device.reports:
        task = known.get(task_of_report_topic(one.topic) or "", asked[0])
        found += _faults(one, device, task, rounds)
    found += [RuleViolation(Rule.MQTT, f"the device {fault}") for fault in device.broker.faults]
    used = [name for _, name in device.broker.client_ids]
    if len(set(used)) < len(used):
        found.append(
            RuleViolation(Rule.MQTT, "two runs of the program have the same client id; end it in random digits")
        )
    return list(dict.fromkeys(found))


def _faults(one: Publication, device: Device, task: Task, rounds: range) -> Iterator[RuleViolation]:
    if one.topic != device.topic(task.id):
        yield RuleViolation(
            Rule.TOPIC, f"published to {one.topic[:_LONGEST_SHOWN]!r} instead of {device.topic(task.id)!r}"
        )
    if one.qos != 1:
        yield RuleViolation(Rule.QOS, f"published a report at QoS {one.qos}")
    if one.is_retained:
        yield RuleViolation(Rule.RETAINED, "published a retained report")
    frame = decode(one.payload)
    if isinstance(frame, Refusal):
        yield RuleViolation(Rule.FRAME, f"published {len(one.payload)} bytes that are not a report: {frame.meaning}")
    else:
        yield from _faults_of_frame(frame, task, rounds)


def _faults_of_frame(frame: Frame, task: Task, rounds: range) -> Iterator[RuleViolation]:
    if frame.task not in (None, task.id):
        yield RuleViolation(Rule.FRAME, "the task in a JSON report is not that of its topic")
    if len(frame.reports) != 1:
        yield RuleViolation(Rule.CHARGED_ONCE, f"one message holds {len(frame.reports)} reports of one device")
    if frame.digest != task.report_digest:
        yield RuleViolation(Rule.DIGEST, "a report has another digest than the first 16 bytes of SHA-256 of the task")
    if frame.round not in rounds:
        yield RuleViolation(Rule.ROUND, f"a report names round {frame.round}; open was {_listed(rounds)}")
    for report in frame.reports:
        if not task.randomizer.admits(report.body):
            yield RuleViolation(Rule.BODY, f"a report has the body {str(list(report.body))[:_LONGEST_SHOWN]}")


def _listed(rounds: range) -> str:
    return f"round {rounds[0]}" if len(rounds) == 1 else f"one of the rounds {rounds[0]} to {rounds[-1]}"


def changed(device: Device, when: str, rule: Rule = Rule.CHARGED_ONCE) -> list[RuleViolation]:
    """Return a fault if a device asked for one answer has sent two different ones."""
    if len(device.frames) < 2:  # noqa: PLR2004 - one answer
        return []
    frames = [frame for one in device.reports if (frame := frame_of(one)) is not None]
    ids = {report.id for frame in frames for report in frame.reports}
    how = "with the same id" if len(ids) == 1 else "with another id"
    return [RuleViolation(rule, f"{when}: sent {len(device.frames)} different reports of one answer, {how}")]
