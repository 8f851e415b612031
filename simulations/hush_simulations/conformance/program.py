"""The program under test: how it is started, with what, and how it ends."""

import asyncio
import os
import signal
from asyncio.subprocess import Process
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from hush_common.errors import OptionError

_END_SECONDS = 2.0
"""Seconds between SIGTERM and SIGKILL."""


@dataclass(frozen=True, slots=True)
class Place:
    """What a program is told: the rows of docs/conform.md."""

    broker: str
    host: str
    port: int
    tasks: Sequence[str]
    sender: str
    state: Path
    value_file: Path
    max_epsilon: str
    spread: str

    @property
    def named(self) -> dict[str, str]:
        """What is in the environment, and what a placeholder stands for."""
        return {
            "broker": self.broker,
            "task": ",".join(self.tasks),
            "sender": self.sender,
            "state": str(self.state),
            "value_file": str(self.value_file),
            "max_epsilon": self.max_epsilon,
            "spread": self.spread,
        }

    @property
    def value(self) -> str:
        return self.value_file.read_text(encoding="utf-8").removesuffix("\n")


def filled(command: Sequence[str], place: Place) -> list[str]:
    """Return a command with its placeholders replaced; any other brace stays."""
    meanings = {**place.named, "host": place.host, "port": str(place.port), "value": place.value}
    words = []
    for word in command:
        for name, meaning in meanings.items():
            word = word.replace("{" + name + "}", meaning)  # noqa: PLW2901
        words.append(word)
    return words


def environment(place: Place, inherited: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the environment of a program: that of hush, without other settings of hush."""
    kept = {name: text for name, text in inherited.items() if not name.startswith("HUSH_")}
    return kept | {f"HUSH_{name.upper()}": text for name, text in place.named.items()}


class Program:
    """One run of the program, with everything that it starts."""

    def __init__(self, process: Process, output: Path) -> None:
        self._process = process
        self.output = output

    @classmethod
    async def start(cls, command: Sequence[str], place: Place, output: Path) -> "Program":
        """Start it in its own process group; what it prints is added to the file `output`.

        Raises:
            OptionError: it cannot be started.
        """
        words = filled(command, place)
        with place.value_file.open("rb") as value, output.open("ab") as printed:
            try:
                process = await asyncio.create_subprocess_exec(
                    *words,
                    env=environment(place),
                    stdin=value,
                    stdout=printed,
                    stderr=printed,
                    start_new_session=True,
                )
            except (OSError, ValueError) as error:
                reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
                shown = repr(command[0][:80])  # its arguments may hold a password
                raise OptionError("COMMAND", f"{shown} cannot be started ({reason}); write it after --") from error
        return cls(process, output)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def code(self) -> int | None:
        """Its exit code, negative after a signal; None while it runs."""
        return self._process.returncode

    async def ended(self) -> int:
        """Wait until it has ended; return its exit code."""
        return await self._process.wait()

    async def kill(self) -> None:
        """End it and what it has started, without a warning."""
        self._signal(signal.SIGKILL)
        await self._process.wait()

    async def stop(self) -> None:
        """Ask it to end; kill it if it does not in time."""
        if self.code is None:
            self._signal(signal.SIGTERM)
            with suppress(TimeoutError):
                async with asyncio.timeout(_END_SECONDS):
                    await self._process.wait()
        await self.kill()

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):  # the whole group has ended
            os.killpg(self._process.pid, number)
