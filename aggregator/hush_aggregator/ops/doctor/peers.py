"""Checks against other machines and the system: the HTTP service, its version, and the clock."""

import ctypes
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http.client import HTTPException

from hush_aggregator.http_deadline import Deadline
from hush_aggregator.ops.doctor.check_result import CheckResult, failure, ok, warning
from hush_aggregator.ops.watch.source import HttpUrl
from hush_common.errors import printable
from hush_common.formatting import significant
from hush_common.task import CLOCK_SKEW
from hush_common.untrusted import ESTIMATE, read_json

_PATIENCE_S = 10.0
_LONGEST = 1024 * 1024
_OK, _UNAUTHORIZED = 200, (401, 403)
_VERSION = re.compile(rb'^hush_build_info\{version="([^"\\]{1,40})"\} 1', re.MULTILINE)
_FAR_S = 60.0
_SET = "set it by NTP: systemd-timesyncd or chrony"
_UNSYNCHRONISED = 5  # TIME_ERROR of adjtimex(2)
_TIMEX_BYTES = 512  # more than a struct timex has


def check_service(url: HttpUrl, token: str, installed: str) -> Iterator[CheckResult]:
    """Yield the findings about `hush serve --http` or `hush http`; `installed` is the version of this hush."""
    try:
        status, _, body = _get(url, "/readyz", token)
        _, _, metrics = _get(url, "/metrics", token)
    except (OSError, HTTPException, ValueError) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        yield failure("http", f"{url} does not answer ({reason})", "start hush serve --http, or correct the address")
        return
    document = _document(body)
    if status == _OK:
        warnings = document.get("warnings")
        if isinstance(warnings, list) and warnings:
            yield warning("http", f"{url} is ready, and warns: {printable(str(warnings[0])[:500])}", "see its log")
        else:
            yield ok("http", f"{url} is ready")
    else:
        detail = printable(str(document.get("detail", f"it answers {status}"))[:500])
        yield failure("http", f"{url} is not ready: {detail}", "see the log of hush serve")
    found = _VERSION.search(metrics)
    if found is None:
        yield warning(
            "release", f"{url} does not report its version", "name its token with --token-file, if it has one"
        )
    elif (running := found[1].decode("ascii", "replace")) != installed:
        what = f"hush {printable(running)} runs, and {installed} is installed here"
        yield warning("release", what, "restart hush serve, or finish the update", running=running, installed=installed)
    else:
        yield ok("release", f"hush {installed} runs", running=running, installed=installed)
    yield from _of_metrics(metrics)


def _of_metrics(text: bytes) -> Iterator[CheckResult]:
    """Yield findings from the metrics of `hush serve`; `hush http` has none of them."""
    failed, waiting = _value(text, b"hush_estimates_failed"), _value(text, b"hush_notifications_waiting")
    if failed:
        what = f"{failed} tasks are published without figures" if failed > 1 else "1 task is published without figures"
        yield warning("estimates", what, "the log of hush serve has the reason", failed=failed)
    elif failed is not None:
        yield ok("estimates", "every estimate was made", failed=failed)
    if waiting:
        what = f"the webhook has not accepted {waiting} {'events' if waiting > 1 else 'event'}"
        yield warning("webhook", what, "the log of hush serve has the receiver's answer", waiting=waiting)
    elif waiting is not None:
        yield ok("webhook", "the webhook has accepted every event", waiting=waiting)


def _value(text: bytes, name: bytes) -> int | None:
    """Return the value of a metric without labels; None if it is missing."""
    found = re.search(rb"^%b (\d{1,15})(?:\.0)?$" % name, text, re.MULTILINE)
    return None if found is None else int(found[1])


def check_clock(
    url: HttpUrl | None, now: Callable[[], datetime], is_synchronised: Callable[[], bool | None]
) -> Iterator[CheckResult]:
    """Yield a finding about the clock: compared with that of a server, if one is named, else what the system says."""
    if url is not None:
        yield _compared(url, now)
        return
    known = is_synchronised()
    if known is False:
        what = "the system reports that nothing synchronises its clock"
        yield warning("clock", what, f"{_SET}; to compare it, name a server: --clock https://example.org")
    elif known:
        yield ok("clock", "the system reports that its clock is synchronised")


def _compared(url: HttpUrl, now: Callable[[], datetime]) -> CheckResult:
    before = now()
    try:
        _, headers, _ = _get(url, "/", "")
    except (OSError, HTTPException, ValueError) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        return warning("clock", f"{url} does not answer ({reason})", "name another server with --clock")
    after = now()
    try:
        theirs = parsedate_to_datetime(headers.get("date", ""))
    except ValueError:
        return warning("clock", f"{url} sends no valid Date header", "name another server with --clock")
    if theirs.utcoffset() is None:
        theirs = theirs.replace(tzinfo=UTC)
    ahead = (before + (after - before) / 2 - theirs).total_seconds() - 0.5  # theirs is rounded down to the second
    seconds = f"{significant(abs(ahead), 2)} s {'ahead of' if ahead > 0 else 'behind'}"
    what = f"the clock is {seconds} that of {url}"
    if abs(ahead) > CLOCK_SKEW.total_seconds():
        remedy = f"{_SET}; from {CLOCK_SKEW.total_seconds():g} s on, reports are refused as `not_open` or `closed`"
        return failure("clock", what, remedy, ahead_s=round(ahead, 1))
    if abs(ahead) > _FAR_S:
        return warning("clock", what, _SET, ahead_s=round(ahead, 1))
    return ok("clock", what, ahead_s=round(ahead, 1))


def is_synchronised() -> bool | None:
    """Whether the system reports that its clock is synchronised; None if it does not say."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        state = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.create_string_buffer(_TIMEX_BYTES))
    except (OSError, AttributeError):
        return None
    return None if state < 0 else state != _UNSYNCHRONISED


def _get(url: HttpUrl, path: str, token: str) -> tuple[int, Mapping[str, str], bytes]:
    """Return status, headers in lower case, and body."""
    with closing(url.connection()) as connection:

        def get() -> tuple[int, Mapping[str, str], bytes]:
            connection.request("GET", url.path(path), headers={"Authorization": f"Bearer {token}"} if token else {})
            response = connection.getresponse()
            headers = {name.lower(): value for name, value in response.getheaders()}
            return response.status, headers, response.read(_LONGEST)

        return Deadline(connection, _PATIENCE_S).within(get)


def _document(body: bytes) -> Mapping[str, object]:
    try:
        found = read_json(body, ESTIMATE)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
