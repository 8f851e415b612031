"""An event loop that never waits: its clock is put forward instead, and ten minutes take as long as their events."""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

_T = TypeVar("_T")
_TURN = 1e-6  # seconds that a turn of the loop takes at least: time never stands still


class _Selector(selectors.DefaultSelector):
    """Instead of waiting, tells how long it would have waited."""

    passed = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("everybody waits for something that will never come")
        self.passed += max(_TURN, timeout)
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop for code that needs no socket. What would run in a thread runs at once, so that runs can be repeated."""

    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)

    def time(self) -> float:
        return self._virtual.passed

    def sleep(self, seconds: float) -> None:
        """Let time pass while nobody can go on, as where the machine sleeps."""
        self._virtual.passed += seconds

    def run_in_executor(
        self,
        executor: object,  # noqa: ARG002 - there is none
        func: Callable[..., Any],
        *args: object,
    ) -> asyncio.Future[Any]:
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 - whoever awaits it gets it
            future.set_exception(error)
        return future

    def turn(self, count: int = 1) -> None:
        """Let everybody who is ready go on, `count` times; next to no time passes."""
        for _ in range(count):
            self.call_soon(self.stop)
            self.run_forever()


def in_virtual_time(main: Coroutine[Any, Any, _T]) -> _T:
    """Return what `main` returns, without its waiting."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)


async def eventually(condition: Callable[..., object], seconds: float = 86_400.0) -> None:
    """Wait for it in virtual time, a day at most."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0.5)
