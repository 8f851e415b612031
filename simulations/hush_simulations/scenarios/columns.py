"""Which column of somebody's table is meant, by the name that a person wrote."""

from collections.abc import Sequence

from hush_common.errors import OptionError

__all__ = ["choose_column"]

_MOST_COLUMNS = 20  # as many as a person reads in a message


def choose_column(table: str, names: Sequence[str], column: str | None, option: str = "--column") -> str:
    """The column that is meant.

    Args:
        table: what a message calls the table.
        names: its columns, at least one.
        column: one of them; may be left out if there is only one.
        option: what a message calls the option.

    Raises:
        OptionError: none is named, or no such column, or several.
    """
    if column is None and len(names) == 1:
        return names[0]
    shown = ", ".join(repr(name[:40]) for name in names[:_MOST_COLUMNS])
    shown += f" and {len(names) - _MOST_COLUMNS} more" if len(names) > _MOST_COLUMNS else ""
    if column is None:
        raise OptionError(option, f"is missing; {table} has the columns {shown}")
    if column not in names:
        raise OptionError(option, f"{column[:40]!r} is no column of {table}; it has {shown}")
    if names.count(column) > 1:
        raise OptionError(option, f"{column[:40]!r} stands {names.count(column)} times in {table}; rename one")
    return column
