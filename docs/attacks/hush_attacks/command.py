"""`hush attack`: play an attack against a naive system and against hush."""

from pathlib import Path
from typing import Annotated

from hush_attacks.catalogue import ATTACKS, play
from hush_attacks.demonstration import Demonstration
from hush_common.errors import OptionError
from hush_common.options import Argument, Commands, Option
from hush_common.output import files_first, print_json
from hush_common.suggestion import meant
from hush_common.terminal import Column, Renderable, Row, Sentence, Table, show
from hush_simulations.commands.options import JsonOption, ThemeOption, check_theme, parse_seed
from hush_simulations.display.progress import show_waiting
from hush_simulations.display.style import Picture, Theme, write_picture

app: Commands = Commands()


@app.command()
def attack(
    name: Annotated[
        str | None, Argument(values=ATTACKS, metavar="[ATTACK]", help="Name of an attack; without it hush lists them.")
    ] = None,
    out: Annotated[
        Path | None, Option(metavar="DIR", help="Write the picture, as PNG and SVG, into this directory.")
    ] = None,
    theme: ThemeOption = None,
    seed: Annotated[
        int | None, Option(metavar="N", parser=parse_seed, help="Seed of the naive side; real devices have none.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Play an attack against a naive system and against hush. Print a table, draw a picture, explain the result."""
    check_theme(theme, out)
    if name is None:
        _list(as_json=as_json)
        return
    if name not in ATTACKS:
        raise OptionError(
            "ATTACK", f"{name[:40]!r} is not an attack; choose one of {', '.join(ATTACKS)}{meant(name, ATTACKS)}"
        )
    if out is not None:
        _writable(out)
    with show_waiting(f"playing the attack {name}, which takes up to a minute"):
        played = play(name, seed)
    with files_first(out, lambda place: _draw(played, place, theme or "light")):
        if as_json:
            print_json(played.to_document())
        else:
            show(_blocks(played))


def _list(*, as_json: bool) -> None:
    if as_json:
        print_json({"attacks": {name: what for name, (_, what) in ATTACKS.items()}})
        return
    rows = [Row([name, what]) for name, (_, what) in ATTACKS.items()]
    show([Table([Column("attack"), Column("what the attacker does")], rows)])


def _blocks(played: Demonstration) -> list[Renderable]:
    first, *others = played.columns
    table = Table([Column(first), *(Column(title) for title in others)], [Row(row) for row in played.rows])
    return [Sentence(played.title, "bold"), Sentence(""), table, Sentence(""), Sentence(played.meaning)]


def _writable(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OptionError("--out", f"cannot create this directory ({error.strerror}); name another") from error


def _draw(played: Demonstration, folder: Path, theme: Theme) -> list[Path]:
    picture = Picture(played.title, played.meaning, lambda palette: played.draw(palette=palette))
    try:
        return write_picture(picture, folder, f"attack-{played.name}", theme)
    except OSError as error:
        raise OptionError("--out", f"cannot write the picture ({error.strerror}); name another") from error
