"""`hush ledger`: what a device has spent, and what that means, in plain words."""

import asyncio
import json
import sqlite3
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Annotated

import typer

from hush_client import ledger, outbox
from hush_client.ledger import Account, Charge
from hush_client.places import state_directory
from hush_client.state import FILE_NAME, State
from hush_common.epsilon import decimal_text, parse_epsilon, posterior

__all__ = ["app", "certainty"]

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)

_ALMOST = 0.99995


@dataclass(frozen=True, slots=True)
class _Page:
    """The whole ledger: every account with its charges, and how many reports wait for the broker."""

    accounts: list[tuple[Account, list[Charge]]]
    waiting: int


def certainty(epsilon: Fraction) -> str:
    """How sure an observer who was 50/50 about a value can become at most: e^epsilon / (1 + e^epsilon)."""
    share = posterior(epsilon)
    if share > _ALMOST:
        return "more than 99.99 %"
    return f"{share:.1%}".replace("%", " %") if share < 0.999 else f"{share:.2%}".replace("%", " %")  # noqa: PLR2004


@app.command()
def show(
    state: Annotated[
        Path | None, typer.Option(envvar="HUSH_STATE", help="Where the device remembers what it spent.")
    ] = None,
    lifetime: Annotated[str, typer.Option(help="Most that all tasks of one purpose may cost together.")] = "4",
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
) -> None:
    """Show what this device has spent, on what, and what an observer could learn from it at most."""
    cap = parse_epsilon(lifetime, field="--lifetime")
    directory = state_directory(state)
    page = asyncio.run(_load(directory)) if (directory / FILE_NAME).exists() else _Page([], 0)
    if as_json:
        typer.echo(json.dumps(_document(page, cap)))
        return
    typer.echo("\n".join(_lines(page, cap)) if page.accounts else f"{directory}: nothing was ever spent here.")


async def _load(directory: Path) -> _Page:
    state = await State.open(directory)
    try:
        return await state.run(_read)
    finally:
        await state.close()


def _read(connection: sqlite3.Connection) -> _Page:
    accounts = ledger.accounts(connection)
    pages = [(account, ledger.charges(connection, account.device, account.purpose)) for account in accounts]
    return _Page(pages, outbox.count(connection))


def _document(page: _Page, cap: Fraction) -> dict[str, object]:
    return {
        "v": 1,
        "accounts": [
            {
                "device": account.device,
                "purpose": account.purpose,
                "spent": decimal_text(account.spent),
                "cap": decimal_text(cap),
                "charges": [_charge(charge) for charge in charges],
            }
            for account, charges in page.accounts
        ],
        "waiting": page.waiting,
    }


def _charge(charge: Charge) -> dict[str, object]:
    return {
        "at": charge.charged_at.isoformat(),
        "task": charge.task,
        "digest": charge.digest.hex(),
        "round": charge.round,
        "mechanism": charge.mechanism,
        "epsilon": decimal_text(charge.epsilon),
        "report_id": charge.report_id.hex(),
    }


def _lines(page: _Page, cap: Fraction) -> list[str]:
    lines: list[str] = []
    totals: dict[str, Fraction] = {}
    for account, charges in page.accounts:
        totals[account.device] = totals.get(account.device, Fraction(0)) + account.spent
        spent = f"epsilon {decimal_text(account.spent)} of {decimal_text(cap)}"
        lines.append(f"{account.device}, for {account.purpose or 'no stated purpose'}: {spent}")
        lines += [
            f"    {charge.charged_at:%Y-%m-%d %H:%M} UTC  {charge.task}, round {charge.round}: "
            f"epsilon {decimal_text(charge.epsilon)} ({charge.mechanism})"
            for charge in charges
        ]
    lines += [
        f"{device}: whoever was 50/50 about an answer can be at most {certainty(total)} sure of it, "
        f"even with all its reports in hand (epsilon {decimal_text(total)} in total)."
        for device, total in totals.items()
    ]
    if page.waiting:
        lines.append(f"{page.waiting} of these reports still wait for the broker; they will be sent unchanged.")
    return lines
