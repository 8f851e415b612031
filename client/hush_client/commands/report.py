"""`hush report`: answer a task once, from a shell or cron."""

import asyncio
import json
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Annotated

import typer

from hush_client.client import Client
from hush_client.commands.device import (
    Broker,
    Ca,
    Cert,
    Device,
    Keep,
    Key,
    PasswordFile,
    StateDirectory,
    Timeout,
    User,
    check_device,
    check_seconds,
    check_there,
    name_state,
    verified,
)
from hush_client.limits import LONGEST_KEEP
from hush_client.policy import Policy
from hush_client.receipt import Receipt
from hush_client.sending.schedule import LONGEST_SPREAD
from hush_client.sending.sender import SyncResult
from hush_client.state.database import state_directory
from hush_common.broker_url import BrokerUrl, address
from hush_common.domain import BitDomain, CategoryDomain, Domain, NumberDomain, VectorDomain
from hush_common.epsilon import decimal_text, parse_epsilon
from hush_common.errors import BrokerError, OptionError
from hush_common.formatting import exact, typed, whole
from hush_common.task import Task, is_task_id
from hush_common.terminal import Sentence, show

app: typer.Typer = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)

_NUMBER = re.compile(r"[+-]?(([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?|[iI][nN][fF]([iI][nN][iI][tT][yY])?)")
_LONGEST = 100
_LONGEST_LINE = 1 << 20
_SHOWN = 6
_TOLD = {
    "moved": "a value outside the task's bounds or labels was moved inside; only this terminal is told",
    "replaced": "there was no usable value; one was drawn at random in its place, and only this terminal is told",
}
_BITS = {"yes": True, "true": True, "1": True, "no": False, "false": False, "0": False}


@dataclass(frozen=True, slots=True)
class _Order:
    broker: BrokerUrl
    device: str
    state: Path
    timeout: float
    spread: float
    keep: float
    policy: Policy
    epsilon: Fraction | None


def parse_value(domain: Domain, text: str) -> float | bool | str | list[float | None] | None:
    """Read a value as a person types it: a number, yes or no, a label, or numbers with commas between them.

    It is total: a text that is no value is None, and what a device makes of that says `hush_common.domain`.
    """
    match domain:
        case BitDomain():
            return _BITS.get(text.lower())
        case CategoryDomain():
            return text
        case VectorDomain():
            return [_number(part.strip()) for part in text.split(",")]
        case NumberDomain():
            return _number(text)


def _number(text: str) -> float | None:
    """The nearest binary64, infinite where it is beyond all of them; what docs/wire.md says of text."""
    return float(text) if len(text) <= _LONGEST and _NUMBER.fullmatch(text) else None


def _remedy(domain: Domain) -> str:
    """What to type instead of a text that is no value."""
    match domain:
        case BitDomain():
            return "it is neither yes nor no; write yes, no, true, false, 1 or 0"
        case CategoryDomain(labels=labels):
            return f"it is not a label of this task; write one of {_some(labels)}"
        case VectorDomain(coordinates=coordinates):
            return f"it is not {len(coordinates)} numbers; write {_some([part.name for part in coordinates])}"
        case NumberDomain(lower=lower, upper=upper, unit=unit):
            return f"it is not a number; write one from {typed(lower)} to {typed(upper)}{f' {unit}' if unit else ''}"


def _some(names: Sequence[str]) -> str:
    """The first few names, for a message."""
    return ", ".join(names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "")


def _typed() -> str:
    """A line of standard input; what is no text in it is no value, either."""
    if sys.stdin is None:
        return ""
    return sys.stdin.buffer.readline(_LONGEST_LINE).decode("utf-8", errors="replace").strip()


def _is_watched() -> bool:
    """Whether a person is there to read standard error. Elsewhere it goes into files and mails."""
    return sys.stderr is not None and sys.stderr.isatty()


def _is_typed_by_a_person() -> bool:
    return _is_watched() and sys.stdin is not None and sys.stdin.isatty()


@app.command(context_settings={"ignore_unknown_options": True})  # a negative VALUE looks like an option
def report(
    task: Annotated[str, typer.Argument(metavar="TASK", help="Id of the task to answer.")],
    value: Annotated[
        str,
        typer.Argument(
            metavar="VALUE",
            help="A number, yes/no, a label, or numbers separated by commas; - reads it from standard input, where no "
            "process list shows it and no shell splits it. It is perturbed here and never sent.",
        ),
    ],
    *,
    broker: Broker = "mqtt://localhost",
    user: User = "",
    password_file: PasswordFile = None,
    ca: Ca = "",
    cert: Cert = "",
    key: Key = "",
    device: Device = "",
    state: StateDirectory = None,
    timeout: Timeout = 10.0,
    spread: Annotated[
        float,
        typer.Option(
            min=0,
            max=LONGEST_SPREAD,
            help="Longest random delay before sending, in seconds, so that the time of sending tells nothing.",
        ),
    ] = 1.0,
    epsilon: Annotated[
        str, typer.Option(help="Which epsilon on offer to take; if not given, the largest that your limits allow.")
    ] = "",
    max_epsilon: Annotated[str, typer.Option(help="Largest epsilon of one task.")] = "4",
    lifetime: Annotated[str, typer.Option(help="Largest total epsilon of all tasks with one purpose.")] = "4",
    total: Annotated[
        str, typer.Option(help="Largest total epsilon over all purposes; no such limit if not given.")
    ] = "",
    sticky: Annotated[
        bool, typer.Option("--sticky", help="Answer sticky (memoized) tasks too: they reveal when a value changes.")
    ] = False,
    keep: Keep = LONGEST_KEEP,
    as_json: Annotated[bool, typer.Option("--json", help="Print the receipt as JSON.")] = False,
) -> None:
    """Answer a task once. The ledger is charged first; the report is stored and sent until the broker has it.

    Whatever VALUE is, an answer is given: silence would tell of it. A number outside the bounds counts as the nearer
    one, a text that is no value as a random one. Only at a terminal, where it may be a slip, is the latter an error.
    """
    if not is_task_id(task):  # it is not repeated: it may be the value, or an address with its password
        raise typer.BadParameter("TASK is not a task id; use a-z, 0-9 and -, at most 64, and write VALUE after it")
    check_device(device)
    check_seconds("--timeout", timeout)
    check_seconds("--spread", spread)
    policy = Policy(
        parse_epsilon(max_epsilon, field="--max-epsilon"),
        parse_epsilon(lifetime, field="--lifetime"),
        parse_epsilon(total, field="--total") if total else None,
        sticky,
    )
    chosen = parse_epsilon(epsilon, field="--epsilon") if epsilon else None
    completed = address(broker, {"user": user, "ca": ca, "cert": cert, "key": key}, password_file)
    order = _Order(completed, device, state_directory(state), timeout, spread, keep, policy, chosen)
    text = _typed() if value == "-" else value
    known, receipt, trouble = asyncio.run(_report(order, task, text))
    if as_json:
        typer.echo(json.dumps(_document(receipt)))
    else:
        said = Sentence(_sentence(known, receipt, order, trouble), indent=0, hanging=2)
        show([said], sys.stderr if receipt.status == "refused" else sys.stdout)
    if receipt.value in _TOLD and _is_watched():
        typer.echo(f"hush: {_TOLD[receipt.value]}", err=True)
    if receipt.status == "refused":
        raise typer.Exit(1)


async def _report(order: _Order, task_id: str, text: str) -> tuple[Task, Receipt, str]:
    """The task, the receipt, and why there was no connection in the end."""
    deadline = asyncio.get_running_loop().time() + order.timeout
    device = await verified(order.state, order.device)
    async with Client(
        order.broker, device=device, state=order.state, policy=order.policy, spread=order.spread, keep=order.keep
    ) as client:
        task = await client.task(task_id, timeout=order.timeout)
        value = parse_value(task.domain, text)
        if _is_typed_by_a_person() and task.domain.check(value) == "replaced":
            raise OptionError("VALUE", _remedy(task.domain))  # a slip of the keyboard, and nobody else learns of it
        left = deadline - asyncio.get_running_loop().time()
        receipt = await client.report(task_id, value, timeout=max(left, 0), epsilon=order.epsilon)
        left = deadline - asyncio.get_running_loop().time()
        await client.sync(timeout=max(left, 0))  # what earlier calls have sent may have been recalled
        left = deadline - asyncio.get_running_loop().time()
        await client.flush(timeout=max(left, 0))  # what they could not send goes with this one
        return task, receipt, client.trouble


def _document(receipt: Receipt) -> dict[str, object]:
    document: dict[str, object] = {
        "v": 1,
        "status": receipt.status,
        "reason": receipt.reason,
        "task": receipt.task,
        "round": receipt.round,
        "epsilon": decimal_text(receipt.epsilon),
        "spent": decimal_text(receipt.spent),
        "cap": decimal_text(receipt.cap),
        "report_id": receipt.report_id,
        "told": receipt.told,
        "offline": receipt.offline or None,
        "waiting": receipt.waiting or None,
    }
    return {name: value for name, value in document.items() if value is not None}


def _sentence(task: Task, receipt: Receipt, order: _Order, trouble: str) -> str:
    cost, spent, cap = (decimal_text(amount) for amount in (receipt.epsilon, receipt.spent, receipt.cap))
    budget = f"spent for {task.purpose or 'no stated purpose'}: epsilon {spent} of {cap}"
    where = f"{task.id}, round {receipt.round}"
    match receipt.status:
        case "sent":
            head = f"{where}: sent, and the broker has it ({receipt.caveat}). It cost epsilon {cost}; {budget}."
        case "queued":
            head = (
                f"{where}: stored but not yet sent: {_cause(receipt, order, trouble)}. "
                f"The next `hush report` with this state sends the same bytes. It cost epsilon {cost}; {budget}."
            )
        case "undelivered":
            head = (
                f"{where}: stored but not delivered: {receipt.meaning}. "
                f"The next `hush report` with this state sends the same bytes. It cost epsilon {cost}; {budget}."
            )
        case "already_answered":
            earlier = _earlier(receipt, trouble)
            head = f"{where}: answered before; nothing new was drawn, spent or sent{earlier}; {budget}."
        case "refused":
            return f"hush: {task.id}: refused: {receipt.meaning} (it costs epsilon {cost}; {budget}); nothing was spent"
    return head


def _earlier(receipt: Receipt, trouble: str) -> str:
    """What became of the report of a round that was answered before, if the broker does not have it."""
    if not receipt.waiting:
        return ""
    if receipt.meaning:
        return f"; that report is not delivered ({receipt.meaning})"
    return "; that report still waits for the broker" + (f" ({trouble})" if trouble else "")


def _cause(receipt: Receipt, order: _Order, trouble: str) -> str:
    if receipt.offline:
        why = f"there is no connection ({trouble})" if trouble else "there was no connection"
        return f"{why}, and the task was answered as this device has kept it"
    if order.spread > order.timeout:
        return f"its moment did not come within {exact(order.timeout)} s, or the broker did not acknowledge it"
    return f"the broker did not acknowledge it within {exact(order.timeout)} s"


sync_app: typer.Typer = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@sync_app.command()
def sync(
    *,
    broker: Broker = "mqtt://localhost",
    user: User = "",
    password_file: PasswordFile = None,
    ca: Ca = "",
    cert: Cert = "",
    key: Key = "",
    device: Device = "",
    state: StateDirectory = None,
    timeout: Timeout = 10.0,
    keep: Keep = LONGEST_KEEP,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Send what waits, and what an aggregator asks for again because the broker may have forgotten it.

    A recall spreads what it asks for over a time of its own: what is not due yet goes with a later run.
    """
    check_device(device)
    check_seconds("--timeout", timeout)
    completed = address(broker, {"user": user, "ca": ca, "cert": cert, "key": key}, password_file)
    directory = state_directory(state)
    check_there(directory)
    synced = asyncio.run(_sync(completed, directory, device, timeout=timeout, keep=keep))
    if as_json:
        counts = {"resent": synced.resent, "planned": synced.planned, "waiting": synced.waiting}
        counts |= {"elsewhere": synced.elsewhere} if synced.elsewhere else {}
        typer.echo(json.dumps({"v": 1, "done": synced.done} | counts))
    else:
        typer.echo(_sync_sentence(synced))
    name_state(state)
    if not synced.done:
        why = f"the broker did not acknowledge everything within {exact(timeout)} s"
        raise synced.trouble or BrokerError(str(completed), why)


async def _sync(broker: BrokerUrl, directory: Path, device: str, *, timeout: float, keep: float) -> SyncResult:  # noqa: ASYNC109 - its end is no error
    name = await verified(directory, device)
    async with Client(broker, device=name, state=directory, keep=keep) as client:
        return await client.sync(timeout=timeout)


def _sync_sentence(synced: SyncResult) -> str:
    later = f"{whole(synced.planned)} more at a later moment, with a later run" if synced.planned else "no more later"
    waiting = f"{whole(synced.waiting)} still wait for the broker" if synced.waiting else "nothing waits for the broker"
    others = ""
    if synced.elsewhere:
        others = f" {whole(synced.elsewhere)} kept for another broker or device name go by that alone; check --device."
    return f"{whole(synced.resent)} sent again for a recall, {later}; {waiting}.{others}"
