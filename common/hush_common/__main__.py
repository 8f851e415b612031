"""`python -m hush_common` is the `hush` command, where scripts are not on the path."""

from hush_common.cli import main

__all__: list[str] = []

if __name__ == "__main__":
    main()
