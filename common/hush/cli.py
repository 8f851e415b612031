"""The `hush` command: one table of commands, each loaded only when it is called.

Nothing but typer is imported for `hush --help`, and a command whose extra is not installed says which one to install.
"""

import gc
import os
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Annotated, Any, NamedTuple, cast

import typer
import typer.main
from typer.core import TyperCommand

from hush_common.errors import HushError
from hush_common.lazy import load
from hush_common.output import OutputLostError, flush_output
from hush_common.terminal import note


class _Command(NamedTuple):
    module: str
    summary: str
    app: str = "app"


_COMMANDS = {
    "simulate": _Command(
        "hush_simulations.commands.simulate", "Run a population of devices and an aggregator; compare with the truth."
    ),
    "feasible": _Command(
        "hush_simulations.commands.plan",
        "Can this be learned from these people, how precisely, at which epsilon?",
        "feasible_app",
    ),
    "plan": _Command("hush_simulations.commands.plan", "Compute sample size, epsilon or error from the other two."),
    "sweep": _Command(
        "hush_simulations.commands.sweep", "Simulate at every point of a grid, and measure what estimates are worth."
    ),
    "scenario": _Command("hush_simulations.commands.scenario", "List, show, check and copy what can be simulated."),
    "audit": _Command("hush_simulations.commands.audit", "Measure from samples how much a mechanism gives away."),
    "conform": _Command("hush_conform.command", "Check that a program, in any language, is a correct device."),
    "poll": _Command("hush_poll.command", "Ask a class or a meeting: phones answer with noise, in the browser."),
    "attack": _Command("hush_attacks.command", "Watch an attack on a naive system, and on hush."),
    "tour": _Command("hush_tour.command", "See the ideas behind hush at work, a chapter for each source."),
    "serve": _Command("hush_aggregator.commands.serve", "Run the aggregator: reports in, estimates out."),
    "task": _Command(
        "hush_aggregator.commands.task", "Check, publish, list, withdraw and close tasks; recall reports."
    ),
    "results": _Command("hush_aggregator.commands.results", "Print results: of any round of a store, or as retained."),
    "watch": _Command("hush_aggregator.commands.watch", "Watch a task in the terminal as its reports arrive."),
    "export": _Command(
        "hush_aggregator.commands.results", "Write the counted reports of a task to CSV or Parquet.", "export_app"
    ),
    "http": _Command("hush_aggregator.commands.http", "Serve tasks and results of a store over HTTP."),
    "store": _Command("hush_aggregator.commands.store", "Back up the store of an aggregator, and put it back."),
    "doctor": _Command(
        "hush_aggregator.commands.doctor", "Check an aggregator, its store and its broker before something fails."
    ),
    "report": _Command("hush_client.commands.report", "Answer a task once, from a shell or cron."),
    "gateway": _Command(
        "hush_client.commands.gateway", "Answer for sensors that speak MQTT, as of Zigbee2MQTT, each with its ledger."
    ),
    "sync": _Command("hush_client.commands.report", "Send what waits or was recalled, and answer nothing.", "sync_app"),
    "ledger": _Command("hush_client.commands.ledger", "Show what this device has spent, in plain words."),
    "broker": _Command("hush.broker", "Set up mosquitto for hush, or run a small broker to try things."),
}

HELP = ["-h", "--help"]
_COMPLETES = "_HUSH_COMPLETE"
"""Set by the shell while it completes."""

app: typer.Typer = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": HELP},
    help="""Statistics from devices without the devices' values: local differential privacy over MQTT.

\b
Three first things to try:
  hush simulate    500 people, over MQTT
  hush tour        a chapter for each idea
  hush feasible --people 3000 --lower 0 --upper 110
""",
)


def _version(wanted: bool) -> None:
    if wanted:
        from hush.version import __version__  # noqa: PLC0415 - a tenth of the time of --help

        typer.echo(f"hush {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Show it.")] = False,
) -> None:
    pass


def _ready(name: str, command: _Command) -> Callable[..., object]:
    """Return the command that is behind a name."""
    ready: Callable[..., object] = typer.main.get_command(getattr(_load(name, command), command.app))
    return ready


def _load(name: str, command: _Command) -> ModuleType:
    """Import the module of a command without looking for garbage: what an import makes is nearly all kept."""
    if command.module in sys.modules:
        return sys.modules[command.module]
    gc.disable()
    try:
        return load(command.module, f"hush {name}")
    finally:
        gc.freeze()
        gc.enable()


class _Verbatim(TyperCommand):
    """A command that parses nothing, so that `--` is still there for the one behind its name."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 - typer does not export it
        ctx.args = args
        return args


def _forward(name: str, command: _Command) -> None:
    """Register `name` as a command that loads its module and hands over everything that follows."""

    @app.command(
        name,
        cls=_Verbatim,
        help=command.summary,
        short_help=command.summary,  # which is never cut, as the start of a help is
    )
    def run(context: typer.Context) -> None:
        ready = _ready(name, command)
        status = ready(context.args, prog_name=f"hush {name}", standalone_mode=False, help_option_names=HELP)
        raise typer.Exit(status if isinstance(status, int) else 0)


for _name, _command in _COMMANDS.items():
    _forward(_name, _command)


# typer exports this one kind of usage error, and not what all of them are.
_UsageError = cast("type[Exception]", typer.BadParameter.__base__)


def _show_usage(error: Exception) -> None:
    """Print a line for an option or an argument that does not exist or cannot be read; the help for no command."""
    context, message = getattr(error, "ctx", None), str(getattr(error, "message", error))
    if "\n" in message:  # a bare `hush`: the help is the message
        print(message, file=sys.stderr)
        return
    remedy = f"; see {context.command_path} --help" if context is not None else ""
    words = getattr(error, "format_message", lambda: message)()
    if type(error) is _UsageError:  # in brackets, arguments too many: an address with its password, half of a value
        words = words.partition(" (")[0]
    note(f"{words.rstrip('.')}{remedy}")


def _root_command() -> Any:  # noqa: ANN401 - typer does not export it
    """Return the command `hush`. For a shell that completes it has the one that is typed, with all its options."""
    root = typer.main.get_command(app)
    if _COMPLETES in os.environ:
        words = (os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS", "")).split()
        name = next((word for word in words[1:] if word in _COMMANDS), None)
        if name is not None:
            root.commands[name] = _ready(name, _COMMANDS[name])  # type: ignore[attr-defined] # it is a group
    return root


def main() -> None:
    """Entry point. A mistake of the user ends in one line on standard error, never in a traceback."""
    try:
        code = _run()
        flush_output()
    except OutputLostError as error:
        code = error.exit_code
        if code == 1:
            note(str(error))
    sys.exit(code)


def _run() -> int | None:
    try:
        status: int | None = _root_command()(prog_name="hush", standalone_mode=False)
    except _UsageError as error:
        _show_usage(error)
        return 2
    except HushError as error:
        note(str(error))
        return error.exit_code
    except (KeyboardInterrupt, typer.Abort):
        note("stopped")
        return 130
    return status
