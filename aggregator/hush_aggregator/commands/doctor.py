"""`hush doctor`: warn an operator before something fails."""

import asyncio
import json
import os
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hush_common.broker_url import LOGIN_FILE_HELP, USER_HELP, BrokerUrl, address, password_in
from hush_common.errors import HushError, OptionError
from hush_common.terminal import Fact, Facts, Styled, show

if TYPE_CHECKING:
    from hush_aggregator.ops.doctor.check_result import CheckResult
    from hush_aggregator.ops.watch.source import HttpUrl

app: typer.Typer = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


class _ProblemsFoundError(HushError):
    """Checks failed."""


@app.command()
def doctor(
    *,
    store: Annotated[
        str | None, typer.Option(envvar="HUSH_STORE", help="The store of an aggregator.", show_default=False)
    ] = None,
    broker: Annotated[
        str, typer.Option(envvar="HUSH_BROKER", help="mqtt://[user[:password]@]host[:port], or mqtts:// for TLS.")
    ] = "",
    user: Annotated[str, typer.Option(help=USER_HELP)] = "",
    password_file: Annotated[Path | None, typer.Option(help=LOGIN_FILE_HELP)] = None,
    device_user: Annotated[str, typer.Option(help="User of a device, whose rights are tested too.")] = "",
    device_password_file: Annotated[
        Path | None, typer.Option(help="File whose first line is the password of that user.")
    ] = None,
    http: Annotated[str, typer.Option(help="`hush serve --http` or `hush http`, as http://HOST:PORT.")] = "",
    token_file: Annotated[
        Path | None, typer.Option(help="With --http: file whose first line is the token, or set HUSH_HTTP_TOKEN.")
    ] = None,
    clock: Annotated[str, typer.Option(help="Server to compare the clock with, as https://example.org.")] = "",
    strict: Annotated[bool, typer.Option("--strict", help="Fail for warnings too.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Check an aggregator, its store and its broker, and say what to do before something fails.

    Each line is one check: ok, warning or failure, the figure, and the remedy. The exit code is 1 if a check failed.

    The user for the broker needs the role `aggregator`, and must be one that no aggregator uses. The test of its rights
    counts as up to three refused reports.
    """
    from hush_aggregator.ops.doctor.check_result import Verdict  # noqa: PLC0415 - --help must not wait for numpy
    from hush_aggregator.ops.watch.source import TOKEN_VARIABLE  # noqa: PLC0415 - as above

    if store is None and not broker and not http:
        raise OptionError("--store", "name what to check: --store, --broker or --http")
    token = os.environ.get(TOKEN_VARIABLE, "") if token_file is None else password_in(token_file, "--token-file")
    found = _findings(
        store,
        address(broker, {"user": user}, password_file) if broker else None,
        device=_device(broker, device_user, device_password_file),
        service=(_url(http, "--http"), token),
        clock=_url(clock, "--clock"),
    )
    if as_json:
        verdicts = {one.verdict for one in found}
        worst = next(verdict for verdict in reversed(Verdict) if verdict in verdicts or verdict is Verdict.OK)
        print(json.dumps({"v": 1, "status": worst.value, "checks": [one.to_document() for one in found]}))
    else:
        show([Facts([_line(one) for one in found], indent=0)])
    bad = [one.check for one in found if one.verdict is Verdict.FAILURE or (strict and one.verdict is Verdict.WARNING)]
    if bad:
        raise _ProblemsFoundError(f"{len(bad)} of {len(found)} checks failed: {', '.join(bad)}")


def _findings(
    store: str | None,
    broker: BrokerUrl | None,
    *,
    device: BrokerUrl | None,
    service: tuple["HttpUrl | None", str],
    clock: "HttpUrl | None",
) -> "list[CheckResult]":
    from hush_aggregator.ops.doctor import peers  # noqa: PLC0415 - --help must not wait for numpy
    from hush_aggregator.ops.doctor.broker import check_broker  # noqa: PLC0415 - as above
    from hush_aggregator.ops.doctor.store import check_store  # noqa: PLC0415 - as above
    from hush_aggregator.store.location import parse_store  # noqa: PLC0415 - as above

    now = datetime.now(UTC)
    found = [] if store is None else [*check_store(parse_store(store), now)]
    if broker is not None:
        running = next((bool(one.figures["running"]) for one in found if "running" in one.figures), None)
        found += asyncio.run(check_broker(broker, now, device=device, running=running))
    where, token = service
    if where is not None:
        found += peers.check_service(where, token, version("hush-ldp"))
    return [*found, *peers.check_clock(clock, lambda: datetime.now(UTC), peers.is_synchronised)]


def _device(broker: str, user: str, password_file: Path | None) -> BrokerUrl | None:
    """Return the address of the broker with the login of a device; None without one."""
    if password_file is not None and not user:
        raise OptionError("--device-password-file", "is for the user that --device-user names; give both, or neither")
    if not user:
        return None
    if not broker:
        raise OptionError("--device-user", "is tested on a broker; name it with --broker, or leave this out")
    option = "--device-password-file"
    password = None if password_file is None else password_in(password_file, option)
    try:
        return replace(BrokerUrl.parse(broker), user=user, password=password, cert=None, key=None)
    except ValueError as error:
        raise OptionError("--device-user", str(error)) from None


def _url(text: str, option: str) -> "HttpUrl | None":
    from hush_aggregator.ops.watch.source import HttpUrl  # noqa: PLC0415 - --help must not wait for it

    return HttpUrl(text, option) if text else None


def _line(finding: "CheckResult") -> Fact:
    text = f"{finding.detail}; {finding.remedy}" if finding.remedy else finding.detail
    style = {"warning": "bold", "failure": "red"}.get(finding.verdict.value, "")
    return Fact(f"{finding.verdict.value:<8} {finding.check}", Styled(text, style))
