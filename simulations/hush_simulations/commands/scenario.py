"""`hush scenario`: what can be simulated: the scenarios that come with hush, and a person's own."""

from pathlib import Path
from typing import Annotated

from hush_common.errors import OptionError, printable
from hush_common.formatting import whole
from hush_common.options import Argument, Commands, Option
from hush_common.output import print_data, print_done
from hush_common.terminal import Column, Row, Sentence, Table
from hush_common.terminal import show as show_blocks
from hush_simulations.scenarios.scenario_file import SCENARIOS, find_scenario, read_scenario, text_of

app: Commands = Commands(no_args_is_help=True)

_Name = Annotated[str, Argument(values=SCENARIOS, metavar="NAME", help=f"{', '.join(SCENARIOS)}.")]


@app.callback()
def _root() -> None:
    """List, show, check and copy scenarios."""


@app.command("list")
def list_() -> None:
    """List the scenarios that come with hush, with what each teaches."""
    rows = [Row([name, one.task().mechanism, whole(one.clients), one.about]) for name, one in SCENARIOS.items()]
    columns = [Column("scenario"), Column("mechanism"), Column("devices", right=True), Column("what it teaches")]
    note = "hush simulate NAME runs one; hush scenario new FILE.toml --like NAME makes one of your own."
    show_blocks([Table(columns, rows), Sentence(""), Sentence(note)])


@app.command()
def show(name: _Name) -> None:
    """Print the file of a scenario that comes with hush."""
    _check_shipped(name)
    print_data(text_of(name))


@app.command()
def check(file: Annotated[Path, Argument(metavar="FILE", help="A scenario in TOML.")]) -> None:
    """Check a scenario file, and say what it asks of whom."""
    found = read_scenario(file)
    task = found.task()
    print(printable(f"{file}: {task.title or task.id}, {task.mechanism}, {whole(found.clients)} devices"))


@app.command()
def new(
    file: Annotated[Path, Argument(metavar="FILE", help="The file to make.")],
    like: Annotated[str, Option(metavar="NAME", help="Which scenario to begin with.")] = "heights",
) -> None:
    """Copy a scenario that comes with hush, to change it."""
    _check_shipped(like)
    try:
        with file.open("x", encoding="utf-8") as out:
            out.write(text_of(like))
    except FileExistsError:
        raise OptionError("FILE", f"{file} exists; name a new file") from None
    except OSError as error:
        raise OptionError("FILE", f"{file} cannot be written ({error.strerror}); name another") from error
    print_done(printable(f"{file}: change it, then run hush simulate {file}"))


def _check_shipped(name: str) -> None:
    if name not in SCENARIOS:
        find_scenario(name.rpartition("/")[2].removesuffix(".toml"), "NAME")
        raise OptionError("NAME", f"{name[:60]!r} is a file; name a scenario that comes with hush")
