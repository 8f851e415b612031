"""The `hush` command, and `python -m hush` where scripts are not on the path. Without typer it says what to install."""

import sys

from hush_common.errors import MissingExtraError
from hush_common.lazy import load
from hush_common.terminal import note


def main() -> None:
    """Entry point: `hush.cli`, if typer is installed."""
    try:
        command = load("hush.cli", "the command hush").main
    except MissingExtraError as error:
        note(str(error))
        sys.exit(error.exit_code)
    command()


if __name__ == "__main__":
    main()
