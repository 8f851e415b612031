"""The thread of an aggregator's store, which waits while the server of the store restarts."""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NoReturn, TypeVar, TypeVarTuple, Unpack

from hush_aggregator.logs import fields
from hush_common.errors import StoreUnavailableError, UnknownCommitError

_LOG = logging.getLogger("hush.aggregator")
T = TypeVar("T")
Ts = TypeVarTuple("Ts")

PATIENCE_S = 7.0
"""Seconds after the begin of an outage in which calls are repeated: the restart of a database takes up to five."""
_PAUSE_S = 0.25


class StoreThread:
    """Calls functions in one thread, in the order of their calls."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="hush-store")
        self._is_patient = False
        self._lost_at: float | None = None

    async def run(self) -> NoReturn:
        """Until cancelled, repeat calls for a while if the store is unavailable."""
        self._is_patient = True
        try:
            await asyncio.Event().wait()
        finally:
            self._is_patient, self._lost_at = False, None
        raise AssertionError  # nobody sets the event

    async def call(self, function: Callable[[Unpack[Ts]], T], *args: *Ts) -> T:
        """Return what a function returns, which may be called several times.

        Raises:
            StoreError: the store failed, or remained unavailable.
        """
        loop = asyncio.get_running_loop()
        failed_at: float | None = None
        while True:
            try:
                result = await loop.run_in_executor(self._executor, function, *args)
            except StoreUnavailableError as error:
                now = loop.time()
                self._note_outage(error, now)
                failed_at = now if failed_at is None else failed_at
                if self._lost_at is None or now - min(self._lost_at, failed_at) >= PATIENCE_S:
                    raise
            except UnknownCommitError:
                if self._is_patient:
                    self._lost_at = loop.time() - PATIENCE_S  # it has waited that long: no other call waits again
                raise
            else:
                self._note_answer(loop.time())
                return result
            await asyncio.sleep(_PAUSE_S)

    def _note_outage(self, error: StoreUnavailableError, now: float) -> None:
        if self._lost_at is None and self._is_patient:
            self._lost_at = now
            said = fields("store_lost")
            _LOG.warning("%s; trying again for %.0f s", error, PATIENCE_S, extra=said)

    def _note_answer(self, now: float) -> None:
        if self._lost_at is not None:
            said = fields("store_found")
            _LOG.info("the store is available again after %.1f s", now - self._lost_at, extra=said)
            self._lost_at = None
