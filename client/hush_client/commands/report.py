"""`hush report` and `hush sync`: act as a device from a shell or cron."""

import asyncio
import json
import sys
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Annotated

import typer

from hush_client.client import Client
from hush_client.commands.options import (
    PRIVACY,
    BrokerOptions,
    DeviceOptions,
    JsonOption,
    Keep,
    PolicyOptions,
    Spread,
    Timeout,
    check_seconds,
)
from hush_client.limits import LONGEST_KEEP
from hush_client.policy import Policy
from hush_client.receipt import Receipt
from hush_client.sending.sender import SyncResult
from hush_client.state import ledger
from hush_client.state.database import FILE_NAME, DeviceState, device_name, state_directory, unusable
from hush_common.broker_url import BrokerUrl
from hush_common.epsilon import decimal_text, parse_epsilon
from hush_common.errors import BrokerError, OptionError
from hush_common.formatting import exact, whole
from hush_common.options import OUTPUT, Argument, Commands, Option
from hush_common.output import noted_if_lost, print_done
from hush_common.task import Task, is_task_id
from hush_common.terminal import Sentence, note, show


def check_exists(directory: Path) -> None:
    """Raise OptionError if a directory has no state: a wrong one must not look like a device that spent nothing."""
    try:
        (directory / FILE_NAME).stat()
    except FileNotFoundError as error:
        wrong = f"has no state of a device (no {FILE_NAME})" if directory.is_dir() else "does not exist"
        raise OptionError("--state", f"{directory} {wrong}; name the directory of the device") from error
    except OSError as error:
        raise unusable(directory, error) from error


def name_state(given: Path | None) -> None:
    """Print the state that a command has used on standard error if the user did not name one."""
    if given is None:
        note(f"used the state in {state_directory(given)}; --state names another")


async def verified(directory: Path, device: str) -> str:
    """Check that every account is the sum of its charges; return the name of the device."""
    state = await DeviceState.open(directory)
    try:
        await state.run(ledger.verify)
        return device or await state.run(device_name)
    finally:
        await state.close()


app: Commands = Commands()

_LONGEST_LINE = 1 << 20
_COERCED = {
    "moved": "a value outside the task's bounds or labels was moved inside; only this terminal shows it",
    "replaced": "there was no usable value; a random one took its place, and only this terminal shows it",
}


def _read_line() -> str:
    """Read a line of standard input; bytes that are not text make it an invalid value."""
    if sys.stdin is None:
        return ""
    return sys.stdin.buffer.readline(_LONGEST_LINE).decode("utf-8", errors="replace").strip()


def _is_watched() -> bool:
    """Whether a person reads standard error; otherwise it goes into files and mails."""
    return sys.stderr is not None and sys.stderr.isatty()


def _is_typed_by_a_person() -> bool:
    return _is_watched() and sys.stdin is not None and sys.stdin.isatty()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportOptions:
    task: Annotated[str, Argument(metavar="TASK", help="Id of the task to answer.")]
    value: Annotated[
        str,
        Argument(
            metavar="VALUE",
            help="A number, yes/no, a label, or numbers separated by commas; - reads it from standard input: then no "
            "process list shows it and no shell splits it. It is perturbed here and never sent.",
        ),
    ]
    where: BrokerOptions
    timeout: Timeout = 10.0
    epsilon: Annotated[
        str,
        Option(
            group=PRIVACY,
            metavar="EPS",
            help="One of the epsilons on offer; if not given, the largest that your limits allow.",
        ),
    ] = ""
    limits: PolicyOptions
    device: DeviceOptions
    spread: Spread = 1.0
    keep: Keep = LONGEST_KEEP
    as_json: Annotated[bool, Option("--json", group=OUTPUT, help="Print the receipt as JSON.")] = False

    def __post_init__(self) -> None:
        check_seconds("--timeout", self.timeout)
        check_seconds("--spread", self.spread)


@app.command(context_settings={"ignore_unknown_options": True})  # a negative VALUE looks like an option
def report(options: ReportOptions) -> None:
    """Answer a task once. The ledger is charged first; the report is stored and sent until the broker has it.

    Whatever VALUE is, the device answers: silence would reveal it. A number outside the bounds counts as the nearer
    bound, invalid text as a random value. In a terminal invalid text is an error, because it may be a typing mistake.
    """
    if not is_task_id(options.task):  # it is not repeated: it may be the value, or an address with its password
        raise typer.BadParameter("TASK is not a task id; use a-z, 0-9 and -, at most 64, and write VALUE after it")
    policy = options.limits.policy()
    chosen = parse_epsilon(options.epsilon, field="--epsilon") if options.epsilon else None
    broker = options.where.address()
    text = _read_line() if options.value == "-" else options.value
    known, receipt, trouble = asyncio.run(_report(options, broker, policy, chosen, text))
    if options.as_json:
        print_done(json.dumps(_document(receipt)))
    else:
        said = _sentence(known, receipt, options, trouble)
        with noted_if_lost(said):
            show([Sentence(said, indent=0, hanging=2)], sys.stderr if receipt.status == "refused" else sys.stdout)
    if receipt.value in _COERCED and _is_watched():
        note(_COERCED[receipt.value])
    if receipt.status == "refused":
        raise typer.Exit(1)


async def _report(
    options: ReportOptions, broker: BrokerUrl, policy: Policy, epsilon: Fraction | None, text: str
) -> tuple[Task, Receipt, str]:
    """Return the task, the receipt, and why there was no connection in the end."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + options.timeout
    state = state_directory(options.device.state)
    device = await verified(state, options.device.device)
    async with Client(
        broker, device=device, state=state, policy=policy, spread=options.spread, keep=options.keep
    ) as client:
        task = await client.task(options.task, timeout=options.timeout)
        value = task.domain.parse(text)
        if _is_typed_by_a_person() and task.domain.check(value) == "replaced":
            raise OptionError("VALUE", task.domain.typing_hint)  # a typing mistake; only this person learns of it
        receipt = await client.report(task.id, value, timeout=max(deadline - loop.time(), 0), epsilon=epsilon)
        # an aggregator may have recalled the reports of earlier calls
        await client.sync(timeout=max(deadline - loop.time(), 0))
        await client.flush(timeout=max(deadline - loop.time(), 0))  # reports of earlier calls that were not sent
        return task, receipt, client.trouble


def _document(receipt: Receipt) -> dict[str, object]:
    document: dict[str, object] = {"v": 1}
    document |= {name: getattr(receipt, name) for name in ("status", "reason", "task", "round")}
    document |= {name: decimal_text(getattr(receipt, name)) for name in ("epsilon", "spent", "cap")}
    document |= {"report_id": receipt.report_id, "can_refuse": receipt.can_refuse}
    document |= {name: getattr(receipt, name) or None for name in ("offline", "waiting")}
    return {name: value for name, value in document.items() if value is not None}


def _sentence(task: Task, receipt: Receipt, options: ReportOptions, trouble: str) -> str:
    cost, spent, cap = (decimal_text(amount) for amount in (receipt.epsilon, receipt.spent, receipt.cap))
    budget = f"spent for {task.purpose or 'no stated purpose'}: epsilon {spent} of {cap}"
    where = f"{task.id}, round {receipt.round}"
    later = "The next `hush report` with this state sends the same bytes."
    match receipt.status:
        case "sent":
            head = f"sent, and the broker has it ({receipt.caveat})."
        case "queued":
            head = f"stored but not yet sent: {_cause(receipt, options, trouble)}. {later}"
        case "undelivered":
            head = f"stored but not delivered: {receipt.meaning}. {later}"
        case "already_answered":
            earlier = _earlier(receipt, trouble)
            return f"{where}: answered before; nothing new was drawn, spent or sent{earlier}; {budget}."
        case "refused":
            return f"hush: {task.id}: refused: {receipt.meaning} (it costs epsilon {cost}; {budget}); nothing was spent"
    return f"{where}: {head} It cost epsilon {cost}; {budget}."


def _earlier(receipt: Receipt, trouble: str) -> str:
    if not receipt.waiting:
        return ""
    if receipt.meaning:
        return f"; that report is not delivered ({receipt.meaning})"
    return "; that report still waits for the broker" + (f" ({trouble})" if trouble else "")


def _cause(receipt: Receipt, options: ReportOptions, trouble: str) -> str:
    if receipt.offline:
        why = f"there is no connection ({trouble})" if trouble else "there was no connection"
        return f"{why}, and this device answered the task from its cache"
    if options.spread > options.timeout:
        return f"it was not due within {exact(options.timeout)} s, or the broker did not acknowledge it"
    return f"the broker did not acknowledge it within {exact(options.timeout)} s"


sync_app: Commands = Commands()


@sync_app.command()
def sync(
    *,
    where: BrokerOptions,
    timeout: Timeout = 10.0,
    device: DeviceOptions,
    keep: Keep = LONGEST_KEEP,
    as_json: JsonOption = False,
) -> None:
    """Send what waits, and what an aggregator recalls because the broker may have lost it.

    A recall spreads the reports over time: a later run sends what is not due yet.
    """
    check_seconds("--timeout", timeout)
    broker = where.address()
    directory = state_directory(device.state)
    check_exists(directory)
    synced = asyncio.run(_sync(broker, directory, device.device, timeout=timeout, keep=keep))
    if as_json:
        counts = {"resent": synced.resent, "planned": synced.planned, "waiting": synced.waiting}
        counts |= {"elsewhere": synced.elsewhere} if synced.elsewhere else {}
        print_done(json.dumps({"v": 1, "done": synced.done} | counts))
    else:
        print_done(_sync_sentence(synced))
    name_state(device.state)
    if not synced.done:
        why = f"the broker did not acknowledge everything within {exact(timeout)} s"
        raise synced.trouble or BrokerError(str(broker), why)


async def _sync(broker: BrokerUrl, directory: Path, device: str, *, timeout: float, keep: float) -> SyncResult:  # noqa: ASYNC109 - its end is no error
    name = await verified(directory, device)
    async with Client(broker, device=name, state=directory, keep=keep) as client:
        return await client.sync(timeout=timeout)


def _sync_sentence(synced: SyncResult) -> str:
    later = f"{whole(synced.planned)} more are due for a later run" if synced.planned else "nothing more is due later"
    waiting = f"{whole(synced.waiting)} still wait for the broker" if synced.waiting else "nothing waits for the broker"
    others = f"{whole(synced.elsewhere)} kept for another broker or device name are sent only there; check --device."
    sent = f"{whole(synced.resent)} sent again for a recall, {later}; {waiting}."
    return f"{sent} {others}" if synced.elsewhere else sent
