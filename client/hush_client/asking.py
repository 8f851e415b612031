"""Asking a source for a value, until it has one or its time is over. Whatever it does, nothing else depends on it.

What an application's code may do (raise, hang, end the thread, give nonsense) depends on the value. So one that is no
`async def` runs in a thread of its own, which nobody waits for: threads that are shared would keep the broker's
address, or another device's source, waiting behind one that hangs; and one that Python joins would keep the process.
"""

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable, Mapping
from decimal import Decimal
from fractions import Fraction
from functools import partial
from typing import TypeVar

from hush_common.domain import Domain, Reading

__all__ = ["Asker", "Source", "aside", "read_all"]

Source = Callable[[], object] | Callable[[], Awaitable[object]]
"""Gives the value of now, or None where there is none. One that is not async runs in a thread."""

_T = TypeVar("_T")
_PAUSE = 1.0
"""Seconds after which a source that had no value is asked again."""
_PLAIN = frozenset({type(None), bool, int, float, str, Decimal, Fraction})


class Asker:
    """A source, and whether it is still busy with an earlier question: then it is not asked another one.

    Args:
        source: what is asked.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._busy = False
        self._late = False

    async def ask(self, domain: Domain, seconds: float) -> Reading | None:
        """The first usable value of the source, else the last that was read, else None. It never raises.

        It may return early: whoever calls it waits for the end of the time all the same.

        Args:
            domain: reads what the source gives; a wrong type is no value.
            seconds: how long it has, from now. Then whatever it still does is nobody's concern.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        best: Reading | None = None
        while True:
            asking = asyncio.create_task(self._once(domain), name="hush-source")
            try:
                await asyncio.wait((asking,), timeout=max(deadline - loop.time(), 0))
            finally:
                asking.cancel()
            if not asking.done():
                return best
            best = asking.result() or best
            left = deadline - loop.time()
            if (best is not None and best.became != "replaced") or left <= 0:
                return best
            await asyncio.sleep(min(_PAUSE, left))

    async def _once(self, domain: Domain) -> Reading | None:
        """What the source gives now; None if it gives nothing or fails. What it says then may hold the value."""
        if self._busy:
            return None
        self._busy, self._late = True, False
        try:
            if inspect.iscoroutinefunction(self._source):
                return await self._awaited(self._source(), domain)
            reading, rest = await aside(partial(self._called, domain))
            return reading if rest is None else await self._awaited(rest, domain)
        except BaseException:  # noqa: BLE001 - our own cancellation, too: then nobody looks at the result
            self._late = True
            return None

    def _called(self, domain: Domain) -> tuple[Reading | None, Awaitable[object] | None]:
        """In the thread: the value, read here, where its methods may take their time; or what to await."""
        try:
            value = self._source()
            if self._late and inspect.iscoroutine(value):
                value.close()  # nobody will await it, and Python would say so
            return (None, value) if inspect.isawaitable(value) else (_read(domain, value), None)
        finally:
            self._busy = False

    async def _awaited(self, value: Awaitable[object], domain: Domain) -> Reading | None:
        try:
            self._busy = True
            return _read(domain, await value)
        finally:
            self._busy = False


def _read(domain: Domain, value: object) -> Reading | None:
    return None if value is None else domain.read(value, strict=False)


async def read_all(domain: Domain, values: Mapping[str, object]) -> dict[str, Reading]:
    """What a domain reads of each value; where values have methods of their own, in a thread of its own.

    Raises:
        TypeError: one of them is of a type that the domain never takes; it names whose.
    """

    def read() -> dict[str, Reading]:
        readings = {}
        for device, value in values.items():
            try:
                readings[device] = domain.read(value)
            except TypeError as error:
                raise TypeError(f"device {device!r}: {error}" if len(values) > 1 else str(error)) from None
        return readings

    return read() if all(map(_is_plain, values.values())) else await aside(read)


def _is_plain(value: object) -> bool:
    """Whether nothing but Python's own code runs when it is read."""
    if type(value) in (list, tuple):
        return all(type(part) in _PLAIN for part in value)  # type: ignore[attr-defined]  # a sequence
    return type(value) in _PLAIN


async def aside(function: Callable[[], _T]) -> _T:
    """Call a function in a thread of its own, which is left alone if nobody waits for it any more."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[_T] = loop.create_future()

    def settle(result: _T | None, error: BaseException | None) -> None:
        if done.cancelled():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(result)  # type: ignore[arg-type]  # the function's

    def run() -> None:
        result, error = None, None
        try:
            result = function()
        except BaseException as raised:  # noqa: BLE001 - handed to the caller
            error = raised if isinstance(raised, Exception) else RuntimeError(type(raised).__name__)
        try:
            loop.call_soon_threadsafe(settle, result, error)
        except RuntimeError:  # the loop is closed: nobody waits
            return

    threading.Thread(target=run, name="hush-aside", daemon=True).start()
    return await done
