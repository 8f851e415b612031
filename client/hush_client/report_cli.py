"""`hush report`: answer a task once, from a shell or cron."""

import asyncio
import json
import math
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Annotated

import typer

from hush_client.client import Client
from hush_client.identity import device_name
from hush_client.places import state_directory
from hush_client.policy import Policy
from hush_client.receipt import Receipt
from hush_client.schedule import LONGEST_SPREAD
from hush_client.state import State
from hush_common.broker_url import BrokerUrl
from hush_common.domain import BitDomain, CategoryDomain, Domain, NumberDomain, VectorDomain
from hush_common.epsilon import decimal_text, parse_epsilon
from hush_common.errors import DomainError, OptionError
from hush_common.figures import exact
from hush_common.task import Task
from hush_common.topics import is_sender

__all__ = ["app", "parse_value"]

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)

_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,3})?")
_LONGEST = 100
_SHOWN = 6
_BITS = {"yes": True, "true": True, "1": True, "no": False, "false": False, "0": False}


@dataclass(frozen=True, slots=True)
class _Order:
    broker: BrokerUrl
    device: str
    state: Path
    timeout: float
    spread: float
    policy: Policy
    epsilon: Fraction | None


def parse_value(domain: Domain, text: str) -> Decimal | bool | str | list[Decimal]:
    """Read a value as a person types it: a number, yes or no, a label, or numbers with commas between them.

    Raises:
        DomainError: it is no value of the domain. The message repeats it: whoever typed it sees it alone.
    """
    match domain:
        case BitDomain():
            if text.lower() not in _BITS:
                raise DomainError(f"{text[:40]!r} is neither yes nor no; write yes, no, true, false, 1 or 0")
            return _BITS[text.lower()]
        case CategoryDomain(labels=labels):
            if text not in labels:
                raise DomainError(f"{text[:40]!r} is no label of this task; write one of {_some(labels)}")
            return text
        case VectorDomain(coordinates=coordinates):
            parts = text.split(",")
            if len(parts) != len(coordinates):
                names = _some([coordinate.name for coordinate in coordinates])
                raise DomainError(f"{text[:40]!r} holds {len(parts)} numbers, not {len(coordinates)}; write {names}")
            return [_number(part.strip()) for part in parts]
        case NumberDomain():
            return _number(text)


def _some(names: Sequence[str]) -> str:
    """The first few names, for a message."""
    return ", ".join(names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "")


def _number(text: str) -> Decimal:
    if len(text) > _LONGEST or not _NUMBER.fullmatch(text):
        raise DomainError(f"{text[:40]!r} is no finite number; write for example 172.5")
    return Decimal(text)


@app.command(context_settings={"ignore_unknown_options": True})  # a negative VALUE looks like an option
def report(
    task: Annotated[str, typer.Argument(metavar="TASK", help="Id of the task to answer.")],
    value: Annotated[
        str,
        typer.Argument(
            metavar="VALUE",
            help="A number, yes/no, a label, or numbers with commas; - reads it from standard input, where no list of "
            "processes shows it. It is perturbed here and never sent.",
        ),
    ],
    *,
    broker: Annotated[
        str, typer.Option(envvar="HUSH_BROKER", help="mqtt[s]:// or ws[s]://, [user:password@]host[:port][/path]")
    ] = "mqtt://localhost",
    user: Annotated[str, typer.Option(help="User at the broker, if the address names none.")] = "",
    password_file: Annotated[
        Path | None, typer.Option(help="File whose first line is the password, where no list of processes shows it.")
    ] = None,
    ca: Annotated[str, typer.Option(help="PEM file of the authority that signed the broker's certificate.")] = "",
    cert: Annotated[str, typer.Option(help="PEM file of the certificate that this device shows.")] = "",
    key: Annotated[str, typer.Option(help="PEM file of its private key.")] = "",
    device: Annotated[str, typer.Option(help="Name of the device; made up once and kept if not given.")] = "",
    state: Annotated[
        Path | None, typer.Option(envvar="HUSH_STATE", help="Where the device remembers what it spent.")
    ] = None,
    timeout: Annotated[float, typer.Option(min=0, help="Seconds to wait for the broker.")] = 10.0,
    spread: Annotated[
        float,
        typer.Option(
            min=0,
            max=LONGEST_SPREAD,
            help="Most seconds to hold the report back, at random, so that the time of sending tells nothing.",
        ),
    ] = 1.0,
    epsilon: Annotated[
        str, typer.Option(help="Which of the task's epsilons to take; else the dearest that your limits admit.")
    ] = "",
    max_epsilon: Annotated[str, typer.Option(help="Most that one task may cost.")] = "4",
    lifetime: Annotated[str, typer.Option(help="Most that all tasks of one purpose may cost together.")] = "4",
    total: Annotated[
        str, typer.Option(help="Most that all purposes may cost together; else there is no such limit.")
    ] = "",
    sticky: Annotated[
        bool, typer.Option("--sticky", help="Answer sticky tasks, too: when a value changes shows.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the receipt as JSON.")] = False,
) -> None:
    """Answer a task once. The ledger is charged first; the report is stored and sent until the broker has it."""
    if device and not is_sender(device):
        raise typer.BadParameter(f"{device!r} is no device name; use letters, digits and . _ @ : -")
    for option, seconds in (("--timeout", timeout), ("--spread", spread)):
        if not math.isfinite(seconds):
            raise typer.BadParameter(f"{option} {seconds} is no number of seconds; write for example 10")
    policy = Policy(
        parse_epsilon(max_epsilon, field="--max-epsilon"),
        parse_epsilon(lifetime, field="--lifetime"),
        parse_epsilon(total, field="--total") if total else None,
        sticky,
    )
    chosen = parse_epsilon(epsilon, field="--epsilon") if epsilon else None
    address = _address(broker, {"user": user, "ca": ca, "cert": cert, "key": key}, password_file)
    order = _Order(address, device, state_directory(state), timeout, spread, policy, chosen)
    text = sys.stdin.readline().strip() if value == "-" else value
    known, receipt = asyncio.run(_report(order, task, text))
    if as_json:
        typer.echo(json.dumps(_document(receipt)))
    else:
        typer.echo(_sentence(known, receipt, order), err=receipt.status == "refused")
    if receipt.status == "refused":
        raise typer.Exit(1)


def _address(text: str, given: dict[str, str], password_file: Path | None) -> BrokerUrl:
    """The address of the broker, completed by the options that were given."""
    parts = {name: value for name, value in given.items() if value}
    if password_file is not None:
        try:
            parts["password"] = password_file.read_text(encoding="utf-8").partition("\n")[0].rstrip("\r")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is no text"
            raise OptionError("--password-file", f"{password_file} cannot be read ({reason}); name a file") from error
    address = BrokerUrl.parse(text)
    try:
        return replace(address, **parts)  # type: ignore[arg-type]  # the names above are all of texts
    except ValueError as error:
        raise OptionError("--broker", f"{address}: {error}") from None


async def _report(order: _Order, task_id: str, text: str) -> tuple[Task, Receipt]:
    deadline = asyncio.get_running_loop().time() + order.timeout
    device = order.device or await _own_name(order.state)
    async with Client(
        order.broker, device=device, state=order.state, policy=order.policy, spread=order.spread
    ) as client:
        task = await client.task(task_id, timeout=order.timeout)
        value = parse_value(task.domain, text)
        left = deadline - asyncio.get_running_loop().time()
        try:
            receipt = await client.report(task_id, value, timeout=max(left, 0), epsilon=order.epsilon)
        except DomainError as error:
            raise DomainError(f"{text!r}: {error}") from error
        left = deadline - asyncio.get_running_loop().time()
        await client.flush(timeout=max(left, 0))  # what earlier calls could not send goes with this one
        return task, receipt


async def _own_name(directory: Path) -> str:
    state = await State.open(directory)
    try:
        return await state.run(device_name)
    finally:
        await state.close()


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
        "clamped": receipt.clamped,
    }
    return {name: value for name, value in document.items() if value is not None}


def _sentence(task: Task, receipt: Receipt, order: _Order) -> str:
    cost, spent, cap = (decimal_text(amount) for amount in (receipt.epsilon, receipt.spent, receipt.cap))
    budget = f"spent for {task.purpose or 'no stated purpose'}: epsilon {spent} of {cap}"
    where = f"{task.id}, round {receipt.round}"
    match receipt.status:
        case "sent":
            head = f"{where}: sent, and the broker has it. It cost epsilon {cost}; {budget}."
        case "queued":
            head = (
                f"{where}: stored but not yet sent: {_cause(order)}. "
                f"The next `hush report` with this state sends the same bytes. It cost epsilon {cost}; {budget}."
            )
        case "already_answered":
            head = f"{where}: answered before; nothing new was drawn, spent or sent; {budget}."
        case "refused":
            meaning = "" if receipt.reason is None else receipt.reason.meaning
            return f"hush: {task.id}: refused: {meaning} (it costs epsilon {cost}; {budget}); nothing was spent"
    return f"{head}\n{_clamped(task)}" if receipt.clamped else head


def _cause(order: _Order) -> str:
    if order.spread > order.timeout:
        return f"within {exact(order.timeout)} s its moment did not come, or the broker did not acknowledge it"
    return f"the broker did not acknowledge it within {exact(order.timeout)} s"


def _clamped(task: Task) -> str:
    if not isinstance(task.domain, NumberDomain):
        return "A number lies outside its bounds; the nearer bound was answered instead."
    low, high = Fraction(task.domain.lower), Fraction(task.domain.upper)
    bounds = f"{decimal_text(low)} to {decimal_text(high)} {task.unit}".rstrip()
    return f"The value lies outside {bounds}; the nearer bound was answered instead."
