"""The `hush` command, and `python -m hush` where scripts are not on the path. Without typer it says what to install."""

import os
import sys

_HERE = os.path.realpath(sys.path[0])
if __name__ == "__main__" and os.path.dirname(os.path.dirname(os.path.realpath(__file__))) != _HERE:  # noqa: PTH120
    del sys.path[0]  # the working directory, where `python -m` looks for modules first; pathlib could be there, too

from hush_common.errors import MissingExtraError  # noqa: E402 - after the line above
from hush_common.lazy import load  # noqa: E402
from hush_common.output import open_outputs  # noqa: E402
from hush_common.terminal import note  # noqa: E402


def main() -> None:
    """Entry point: `hush.cli`, if typer is installed."""
    open_outputs()
    try:
        command = load("hush.cli", "the command hush").main
    except MissingExtraError as error:
        note(str(error))
        sys.exit(error.exit_code)
    command()


if __name__ == "__main__":
    main()
