"""`hush doctor`: warn an operator before something fails."""

import asyncio
import json
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from hush_aggregator.commands.options import HTTP, BrokerOption, JsonOption, ReaderToken
from hush_common.broker_url import BrokerUrl, password_in
from hush_common.errors import HushError, OptionError
from hush_common.options import BROKER, Commands, Login, Option
from hush_common.terminal import Fact, Facts, Styled, show

if TYPE_CHECKING:
    from hush_aggregator.ops.doctor.check_result import CheckResult
    from hush_aggregator.ops.watch.source import HttpUrl

app: Commands = Commands()


class _ProblemsFoundError(HushError):
    """Checks failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorOptions:
    store: Annotated[
        str | None, Option(metavar="STORE", envvar="HUSH_STORE", help="The store of an aggregator.", show_default=False)
    ] = None
    broker: BrokerOption = ""
    login: Login
    device_user: Annotated[str, Option(group=BROKER, help="User of a device, whose rights are tested too.")] = ""
    device_password_file: Annotated[
        Path | None, Option(group=BROKER, help="File whose first line is the password of that user.")
    ] = None
    http: Annotated[
        str, Option(group=HTTP, metavar="ADDRESS", help="`hush serve --http` or `hush http`, as http://HOST:PORT.")
    ] = ""
    token: ReaderToken
    clock: Annotated[
        str, Option(metavar="SERVER", help="Server to compare the clock with, as https://example.org.")
    ] = ""
    strict: Annotated[bool, Option("--strict", help="Fail for warnings too.")] = False
    as_json: JsonOption = False

    def device(self) -> BrokerUrl | None:
        """Return the address of the broker with the login of a device; None without one."""
        option = "--device-password-file"
        if self.device_password_file is not None and not self.device_user:
            raise OptionError(option, "is for the user that --device-user names; give both, or neither")
        if not self.device_user:
            return None
        if not self.broker:
            raise OptionError("--device-user", "is tested on a broker; name it with --broker, or leave this out")
        password = None if self.device_password_file is None else password_in(self.device_password_file, option)
        try:
            return replace(BrokerUrl.parse(self.broker), user=self.device_user, password=password, cert=None, key=None)
        except ValueError as error:
            raise OptionError("--device-user", str(error)) from None


@app.command()
def doctor(options: DoctorOptions) -> None:
    """Check an aggregator, its store and its broker, and say what to do before something fails.

    Each line is one check: ok, warning or failure, the figure, and the remedy. The exit code is 1 if a check failed.

    The user for the broker needs the role `aggregator`, and must be one that no aggregator uses. The test of its rights
    counts as up to three refused reports.
    """
    from hush_aggregator.ops.doctor.check_result import Verdict  # noqa: PLC0415 - --help must not wait for numpy

    found = _findings(options)
    if options.as_json:
        verdicts = {one.verdict for one in found}
        worst = next(verdict for verdict in reversed(Verdict) if verdict in verdicts or verdict is Verdict.OK)
        print(json.dumps({"v": 1, "status": worst.value, "checks": [one.to_document() for one in found]}))
    else:
        show([Facts([_line(one) for one in found], indent=0)])
    fatal = {Verdict.FAILURE, Verdict.WARNING} if options.strict else {Verdict.FAILURE}
    bad = [one.check for one in found if one.verdict in fatal]
    if bad:
        raise _ProblemsFoundError(f"{len(bad)} of {len(found)} checks failed: {', '.join(bad)}")


def _findings(options: DoctorOptions) -> "list[CheckResult]":
    from hush_aggregator.ops.doctor import peers  # noqa: PLC0415 - --help must not wait for numpy
    from hush_aggregator.ops.doctor.broker import check_broker  # noqa: PLC0415 - as above
    from hush_aggregator.ops.doctor.store import check_store  # noqa: PLC0415 - as above
    from hush_aggregator.store.location import parse_store  # noqa: PLC0415 - as above

    if options.store is None and not options.broker and not options.http:
        raise OptionError("--store", "name what to check: --store, --broker or --http")
    token = options.token.read()
    broker = options.login.at(options.broker) if options.broker else None
    device = options.device()
    service, clock = _url(options.http, "--http"), _url(options.clock, "--clock")
    now = datetime.now(UTC)
    found = [] if options.store is None else [*check_store(parse_store(options.store), now)]
    if broker is not None:
        running = next((bool(one.figures["running"]) for one in found if "running" in one.figures), None)
        found += asyncio.run(check_broker(broker, now, device=device, running=running))
    if service is not None:
        found += peers.check_service(service, token, version("hush-ldp"))
    return [*found, *peers.check_clock(clock, lambda: datetime.now(UTC), peers.is_synchronised)]


def _url(text: str, option: str) -> "HttpUrl | None":
    from hush_aggregator.ops.watch.source import HttpUrl  # noqa: PLC0415 - --help must not wait for it

    return HttpUrl(text, option) if text else None


def _line(finding: "CheckResult") -> Fact:
    text = f"{finding.detail}; {finding.remedy}" if finding.remedy else finding.detail
    style = {"warning": "bold", "failure": "red"}.get(finding.verdict.value, "")
    return Fact(f"{finding.verdict.value:<8} {finding.check}", Styled(text, style))
