"""HTTP beside an aggregator, in its event loop: whatever becomes of it, reports are counted."""

import logging
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from hush_aggregator.commands.http_extra import http_extra
from hush_aggregator.intake import Intake
from hush_aggregator.log_fields import fields
from hush_aggregator.metrics.figures import Figures, IntakeFigures
from hush_aggregator.processes import InProcesses
from hush_aggregator.store.base import CommitOutcome
from hush_common.errors import OptionError

if TYPE_CHECKING:
    from hush_aggregator.http.listen import Access
    from hush_aggregator.pipeline import Aggregator
    from hush_aggregator.store import SqliteStore

__all__ = ["HttpBeside"]

_LOG = logging.getLogger("hush.aggregator")


class HttpBeside:
    """HTTP where an address is given for it, else nothing. It listens once it is made; at its end it is closed.

    Args:
        address: `HOST:PORT`; empty for none.
        token_file: whose first line is the token.
        write: whether tasks may be written.
        open_: whether everybody who reaches the address may read.
        hosts: further names under which it is asked.
        trusted_proxies: addresses or networks of proxies, of whose requests the forwarded address counts.
        store: the file of the store.
        confidence: nominal coverage of the intervals, inside (0, 1).

    Raises:
        OptionError: it cannot be served as it is wanted.
        MissingExtraError: what it stands on is not installed.
    """

    def __init__(
        self,
        address: str,
        *,
        token_file: Path | None,
        write: bool,
        open_: bool,
        hosts: tuple[str, ...],
        trusted_proxies: tuple[str, ...] = (),
        store: Path,
        confidence: float,
    ) -> None:
        self._store = store
        self._confidence = confidence
        self._counting = IntakeFigures({}, {})
        self._access: Access | None = None
        self._inside = ExitStack()
        if not address:
            _need_none(
                {"--http-token-file": token_file, "--http-write": write, "--http-open": open_, "--http-host": hosts}
                | {"--http-trusted-proxy": trusted_proxies}
            )
            return
        with http_extra("hush serve --http"):
            from hush_aggregator.http import app, listen  # noqa: PLC0415 - only where it is wanted
        self._create_app, self._serve_http = app.create_app, app.serve_http
        options = listen.HttpOptions("--http", address, "--http-", token_file, write, open_, hosts, trusted_proxies)
        self._access = listen.Access.open(options)

    def __enter__(self) -> Self:
        if self._access is not None:
            self._inside.enter_context(self._access.listener)
            self._estimator = self._inside.enter_context(InProcesses())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._inside.close()

    def begin(self, store: "SqliteStore") -> None:
        """Go on from what is counted, before anything is counted here."""
        if self._access is not None:
            accepted = {count.id: count.counted for count in store.counts()}
            self._counting = IntakeFigures(accepted, store.refused())

    def add(self, outcome: CommitOutcome) -> None:
        """A batch was committed and acknowledged."""
        self._counting.add(outcome)

    async def run(self, aggregator: "Aggregator") -> None:
        """Answer until cancelled. What goes wrong is told, and raises nothing."""
        if self._access is None:
            return
        _LOG.info("HTTP on %s: %s", self._access.url, self._access.meaning, extra=fields("listening"))
        try:
            live = _Live(aggregator, self._counting)
            service = self._access.service(self._store, self._confidence, estimator=self._estimator, live=live)
            await self._serve_http(self._create_app(service), self._access.listener)
        except Exception as error:  # noqa: BLE001 - whatever it is, it must not stop the intake
            _LOG.error(
                "HTTP has ended (%s), and reports are counted all the same",
                type(error).__name__,
                extra=fields("http_ended"),
            )


class _Live:
    """The aggregator as HTTP sees it, with what was counted of it."""

    def __init__(self, aggregator: "Aggregator", counting: IntakeFigures) -> None:
        self._aggregator = aggregator
        self._counting = counting

    @property
    def intake(self) -> Intake:
        return self._aggregator.intake

    @property
    def task_limit(self) -> str:
        return self._aggregator.task_limit

    def figures(self) -> Figures:
        return self._counting.figures(self._aggregator.intake)


def _need_none(given: Mapping[str, object]) -> None:
    for option, value in given.items():
        if value:
            raise OptionError(option, "is about HTTP; give the address to serve it on with --http, or leave this out")
