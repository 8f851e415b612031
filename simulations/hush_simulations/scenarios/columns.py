"""Which column of somebody's table is meant, by the name that a person wrote.

No message lists the names: where a table has lost its header, the cells of a client stand in their place.
"""

import difflib
from collections.abc import Sequence

from hush_common.errors import OptionError

__all__ = ["choose_column"]


def choose_column(
    names: Sequence[str], column: str | None, *, table: str, header: str, option: str = "--column"
) -> str:
    """The column that is meant.

    Args:
        names: of the columns, at least one.
        column: one of them; may be left out if there is only one.
        table: what a message calls the table.
        header: what a message calls the place of the names.
        option: what a message calls the option.

    Raises:
        OptionError: none is named, or no such column, or several.
    """
    if column is None and len(names) == 1:
        return names[0]
    if column is None:
        raise OptionError(option, f"is missing; the {header} of {table} names {len(names)}, write one of them")
    if column not in names:
        near = difflib.get_close_matches(column, names, n=1)
        hint = f"did you mean {near[0][:40]!r}?" if near else f"write one of the names in its {header}"
        raise OptionError(option, f"{column[:40]!r} is not a column of {table}; {hint}")
    if names.count(column) > 1:
        raise OptionError(option, f"{column[:40]!r} appears {names.count(column)} times in {table}; rename one")
    return column
