"""The `hush` command, and `python -m hush` where scripts are not on the path. Without typer it says what to install."""

import sys

from hush_common.errors import MissingExtraError
from hush_common.lazy import load


def main() -> None:
    """Entry point: `hush.cli`, if typer is installed."""
    try:
        command = load("hush.cli", "the command hush").main
    except MissingExtraError as error:
        print(f"hush: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    command()


if __name__ == "__main__":
    main()
