"""`hush conform`: whether a program behaves as a device of hush must."""

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

from hush_common.errors import HushError, OptionError
from hush_common.formatting import whole
from hush_common.options import Argument, Commands, Option
from hush_common.output import print_json
from hush_common.terminal import note, show
from hush_conform.conform import Order, check_names, conform
from hush_conform.device import Setup
from hush_conform.program import adopted_orphans
from hush_conform.table import conformance_blocks
from hush_simulations.commands.options import JsonOption, run_to_end

app: Commands = Commands()


class NonconformingError(HushError):
    """A program breaks a rule of hush."""


@app.command()
def run(
    command: Annotated[
        list[str],
        Argument(
            metavar="-- COMMAND...",
            help="The program and its arguments, where {broker} {task} {sender} {state} {value_file} {value} {spread} "
            "{max_epsilon} are filled in; all are in its environment, too.",
        ),
    ],
    *,
    check: Annotated[
        list[str] | None, Option(metavar="NAME", help="Only this check; may be given several times.")
    ] = None,
    require: Annotated[
        list[str] | None,
        Option(metavar="NAME", help="An optional part that the device must have: rounds, recalls, or a mechanism."),
    ] = None,
    law: Annotated[
        list[str] | None, Option(metavar="NAME", help="Sample only this law: a mechanism, offers, coins, or other.")
    ] = None,
    samples: Annotated[
        int | None,
        Option(
            metavar="N",
            min=0,
            max=1_000_000,
            help="Reports of each value, for the law of the noise. By default so many that noise for twice the epsilon "
            "is found.",
        ),
    ] = None,
    seconds: Annotated[
        float,
        Option(metavar="SECONDS", min=0, max=86_400, help="Time of the devices for these reports together."),
    ] = 300.0,
    batch: Annotated[
        int, Option(metavar="N", min=1, max=1000, help="Tasks that one run of the program answers, at most.")
    ] = 1,
    timeout: Annotated[
        float, Option(metavar="SECONDS", min=1, max=300, help="Seconds in which a device must answer.")
    ] = 10.0,
    jobs: Annotated[int, Option(metavar="N", min=1, max=64, help="Devices that run at the same time.")] = 4,
    websockets: Annotated[bool, Option("--websockets", help="The broker speaks MQTT over WebSockets.")] = False,
    first: Annotated[bool, Option("--first", help="Stop at the first fault.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Check that a program is a correct device: play its broker and its aggregator. Exit 1: it breaks a rule.

    The program may be written in any language; docs/conform.md says how it is started. Nothing leaves this machine.
    """
    if not command or not command[0]:
        raise OptionError("COMMAND", "is missing; write the program that is to be checked after --")
    order = Order(check or (), require or (), law or (), samples, seconds)
    check_names(order)
    with (
        tempfile.TemporaryDirectory(prefix="hush-conform-") as directory,
        adopted_orphans(),
        _show_checks() as tell,
    ):
        setup = Setup(tuple(command), Path(directory), timeout, jobs, websockets=websockets, batch=batch, stops=first)
        done = run_to_end(conform(setup, order, tell))
    if as_json:
        print_json(done.to_document())
    else:
        show(conformance_blocks(done))
    if not done.passed:
        count = len(done.faults)
        raise NonconformingError(f"NOT CONFORMING: {count} {'fault' if count == 1 else 'faults'}")


@contextmanager
def _show_checks() -> Iterator[Callable[[str, int, int], None]]:
    """Yield a function to call with the name of a check that starts, its number from 0, and how many there are."""
    from rich.console import Console  # noqa: PLC0415 - rich is for terminals alone
    from rich.text import Text  # noqa: PLC0415

    console, began = Console(stderr=True, highlight=False), time.monotonic()

    def words(name: str, number: int, count: int) -> str:
        return f"{number + 1} of {count} checks: {name}, {whole(time.monotonic() - began)} s"

    def one_line(words: str) -> Text:
        text = Text(words)
        text.truncate(console.width - len("⠋ "), overflow="ellipsis")
        return text

    if not console.is_terminal:
        yield lambda *at: note(words(*at))
        return
    with console.status("starting") as status:
        yield lambda *at: status.update(one_line(words(*at)))
