"""`python -m hush` is the `hush` command, where scripts are not on the path."""

from hush.cli import main

__all__: list[str] = []

if __name__ == "__main__":
    main()
