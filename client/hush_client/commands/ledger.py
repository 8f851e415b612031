"""`hush ledger`: what a device has spent, and what that means."""

import asyncio
import json
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Annotated, Literal, TypeVar

import typer

from hush_client.commands.options import JsonOption, StateDirectory
from hush_client.commands.report import check_exists, name_state
from hush_client.policy import Policy
from hush_client.receipt import Reason
from hush_client.state import ledger, outbox
from hush_client.state.database import DeviceState, Job, state_directory, stored_policy
from hush_client.state.ledger import Account, Charge, RefusedAnswer
from hush_common.epsilon import at_most_sure, decimal_text, float_at_most, parse_epsilon
from hush_common.errors import OptionError, printable
from hush_common.formatting import percent_at_most, whole
from hush_common.options import Commands, Option
from hush_common.output import print_done
from hush_common.terminal import Column, Renderable, Row, Sentence, Table, show

app: Commands = Commands()

_T = TypeVar("_T")
_PRIORS = (Fraction(1, 2), Fraction(1, 100))
"""Observers to compare: one without any knowledge of two values, one who thought a value unlikely."""


@dataclass(frozen=True, slots=True)
class _Page:
    """The whole ledger, with device, task and digest of pinned tasks that cost nothing yet."""

    accounts: list[tuple[Account, list[Charge]]]
    refused: list[RefusedAnswer]
    pinned: list[tuple[str, str, bytes]]
    waiting: int


@dataclass(frozen=True, slots=True)
class _Caps:
    """Caps to show next to the spending."""

    lifetime: Fraction
    total: Fraction | None
    source: Literal["stated", "program", "default"]  # options, the last program that answered from this state, or hush

    @classmethod
    def of(cls, directory: Path, lifetime: str, total: str) -> "_Caps":
        """Return the caps that are stated as options; the others are those of the last program."""
        stored = stored_policy(directory)
        policy = stored or Policy()
        return cls(
            parse_epsilon(lifetime, field="--lifetime") if lifetime else policy.lifetime,
            parse_epsilon(total, field="--total") if total else policy.total,
            "stated" if lifetime else "program" if stored else "default",
        )


@app.command()
def run(
    state: StateDirectory = None,
    lifetime: Annotated[
        str,
        Option(
            metavar="EPS",
            help="Largest total epsilon of all tasks with one purpose; that of the last program here if not given.",
        ),
    ] = "",
    total: Annotated[
        str,
        Option(
            metavar="EPS", help="Largest total epsilon over all purposes; that of the last program here if not given."
        ),
    ] = "",
    forget: Annotated[
        str, Option(metavar="TASK", help="Unpin a task that was admitted, if nothing was charged for it.")
    ] = "",
    as_json: JsonOption = False,
) -> None:
    """Show what this device has spent, on what, and the most that an observer could learn from it."""
    directory = state_directory(state)
    check_exists(directory)
    caps = _Caps.of(directory, lifetime, total)
    if forget:
        count = asyncio.run(_forget(directory, forget))
        if as_json:
            print_done(json.dumps({"v": 1, "forgotten": forget, "devices": count}))
        else:
            devices = "1 device" if count == 1 else f"{whole(count)} devices"
            print_done(printable(f"{forget}: unpinned on {devices}; a task published under this id counts as new."))
        name_state(state)
        return
    page = asyncio.run(_run(directory, _read))
    if as_json:
        typer.echo(json.dumps(_document(page, caps)))
    else:
        nothing = [] if page.accounts else [_said(f"{directory}: nothing has been spent here.")]
        show([*nothing, *_blocks(page, caps)])
    name_state(state)


async def _forget(directory: Path, task: str) -> int:
    """Unpin a task on each device that it cost nothing; return their number, or raise OptionError if it is 0."""
    count = await _run(directory, partial(ledger.unpin, task=task))
    if not count:
        wrong = f"{task[:80]!r} is not pinned, or was already charged, and a charge is never forgotten"
        raise OptionError("--forget", wrong)
    return count


async def _run(directory: Path, job: Job[_T]) -> _T:
    state = await DeviceState.open(directory)
    try:
        return await state.run(job)
    finally:
        await state.close()


def _read(connection: sqlite3.Connection) -> _Page:
    """Read everything, and check that the accounts add up."""
    ledger.verify(connection)
    accounts = ledger.accounts(connection)
    pages = [(account, ledger.charges(connection, account.device, account.purpose)) for account in accounts]
    return _Page(pages, ledger.refusals(connection), ledger.unpaid_pins(connection), outbox.count(connection))


def _totals(page: _Page) -> dict[str, Fraction]:
    """Return what each device has spent on all purposes together."""
    pages = groupby(page.accounts, lambda entry: entry[0].device)
    return {device: sum((account.spent for account, _ in group), Fraction(0)) for device, group in pages}


def _document(page: _Page, caps: _Caps) -> dict[str, object]:
    return {
        "v": 1,
        "cap_is": caps.source,
        "devices": [
            {
                "device": device,
                "spent": decimal_text(total),
                "cap": None if caps.total is None else decimal_text(caps.total),
                "at_most_sure": {decimal_text(prior): float_at_most(at_most_sure(total, prior)) for prior in _PRIORS},
            }
            for device, total in _totals(page).items()
        ],
        "accounts": [
            {
                "device": account.device,
                "purpose": account.purpose,
                "spent": decimal_text(account.spent),
                "cap": decimal_text(caps.lifetime),
                "charges": [_charge(charge) for charge in charges],
            }
            for account, charges in page.accounts
        ],
        "refused": [_refusal(entry) for entry in page.refused],
        "pinned": [{"device": device, "task": task, "digest": digest.hex()} for device, task, digest in page.pinned],
        "waiting": page.waiting,
    }


def _charge(charge: Charge) -> dict[str, object]:
    return {
        "at": charge.charged_at.isoformat(),
        "kind": charge.kind,
        "task": charge.task,
        "digest": charge.digest.hex(),
        "round": charge.round,
        "mechanism": charge.mechanism,
        "epsilon": decimal_text(charge.epsilon),
        "report_id": charge.report_id.hex(),
        "resends": charge.resends,
    }


def _refusal(entry: RefusedAnswer) -> dict[str, object]:
    return {
        "at": entry.refused_at.isoformat(),
        "device": entry.device,
        "purpose": entry.purpose,
        "task": entry.task,
        "round": entry.round,
        "reason": entry.reason,
        "epsilon": decimal_text(entry.epsilon),
    }


def _blocks(page: _Page, caps: _Caps) -> Iterator[Renderable]:
    for account, charges in page.accounts:
        spent = f"epsilon {decimal_text(account.spent)} of {decimal_text(caps.lifetime)}"
        yield Sentence(f"{account.device}, for {account.purpose or 'no stated purpose'}: {spent}", "bold", indent=0)
        yield Table(_COLUMNS, [_row(charge) for charge in charges])
        yield Sentence("")
    yield from (_said(f"{entry.device} {_sentence(entry)}") for entry in page.refused)
    for device, task, digest in page.pinned:
        admitted = f"{device} admitted {task}, digest {digest.hex()}, and has not answered yet"
        yield _said(f"{admitted}; --forget {task} unpins it.")
    for device, total in _totals(page).items():
        yield _said(_inference(device, total, caps))
        if caps.total is None and sum(account.device == device for account, _ in page.accounts) > 1:
            own = "each purpose has its own budget, and the task's author chooses its words; a total limits all of them"
            yield _said(f"{device}: {own}.")
    if page.accounts and caps.source == "default":
        lifetime = decimal_text(caps.lifetime)
        yield _said(f"No program has stored its limits here; {lifetime} is the default. State another with --lifetime.")
    memos = (charge for _, charges in page.accounts for charge in charges if charge.kind == "memo")
    for device, task in dict.fromkeys((charge.device, charge.task) for charge in memos):
        yield _said(
            f"{device}: {task} repeats its reports: they may reveal that a value changed, which epsilon does not cover."
        )
    if page.waiting:
        yield _said(f"{whole(page.waiting)} of these reports still wait for the broker; they will be sent unchanged.")


def _said(words: str) -> Sentence:
    return Sentence(words, indent=0, hanging=2)


_COLUMNS = (
    Column("charged (UTC)"),
    Column("task"),
    Column("round", right=True),
    Column("epsilon", right=True),
    Column("mechanism"),
    Column("resent", right=True),
)


def _row(charge: Charge) -> Row:
    how = charge.mechanism if charge.kind == "draw" else f"{charge.mechanism}, from memory"
    again = f"up to {charge.resends}" if charge.resends else "0"
    when = f"{charge.charged_at:%Y-%m-%d %H:%M}"
    return Row([when, charge.task, str(charge.round), decimal_text(charge.epsilon), how, again])


def _sentence(entry: RefusedAnswer) -> str:
    known = entry.reason in set(Reason)
    why = Reason(entry.reason).meaning if known else entry.reason  # a newer hush may have more reasons
    round_ = "" if entry.round is None else f", round {entry.round}"
    return f"refused {entry.task}{round_} (epsilon {decimal_text(entry.epsilon)}): {why}."


def _inference(device: str, total: Fraction, caps: _Caps) -> str:
    even, unlikely = (percent_at_most(at_most_sure(total, prior)) for prior in _PRIORS)
    spent = f"epsilon {decimal_text(total)}" + ("" if caps.total is None else f" of {decimal_text(caps.total)}")
    return (
        f"{device}: from all its reports an observer who was 50/50 about an answer can become at most {even} sure of "
        f"it, an observer who thought it 1 % likely at most {unlikely} ({spent} in total)."
    )
