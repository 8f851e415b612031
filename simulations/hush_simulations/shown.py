"""What every result has in common: how it shows itself in a terminal, in a notebook and in a data frame."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal, Protocol

from hush_common.errors import MissingExtraError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_FRAMES: tuple[Literal["pandas", "polars", "pyarrow"], ...] = ("pandas", "polars", "pyarrow")
"""Libraries of data frames; the first that is installed makes one."""


class _Printer(Protocol):
    """What IPython passes to `_repr_pretty_`."""

    def text(self, text: str, /) -> None: ...


class Shown(ABC):
    """A result: `print(result)` is what the command shows, a notebook shows its table and its picture."""

    __slots__ = ()

    @abstractmethod
    def columns(self) -> Mapping[str, Sequence[object]]:
        """Return its table, for people and programs, as columns by name; all are equally long."""

    @abstractmethod
    def in_short(self) -> str:
        """Return what it is, in a few words without a value."""

    def to_frame(self) -> Any:  # noqa: ANN401 - of the library that is installed
        """Return the columns as a data frame of pandas, polars or pyarrow, whichever is installed, in this order.

        Raises:
            MissingExtraError: none of them is.
        """
        import narwhals  # noqa: PLC0415 - a fiftieth of a second

        for name in _FRAMES:
            if find_spec(name) is not None:
                return narwhals.from_dict(dict(self.columns()), backend=name).to_native()
        raise MissingExtraError("a data frame needs pandas, polars or pyarrow; install one of them, or take columns()")

    def figure(self, *, dark: bool = False) -> "Figure":
        """Its picture: `result.figure().savefig("result.png")`.

        Args:
            dark: on a dark ground.
        """
        found: Figure = _display().figure_of(self, dark=dark)
        return found

    def __repr__(self) -> str:  # here, because IPython takes whichever it finds first on the way to the root
        return f"<{self.in_short()}>"

    def __str__(self) -> str:
        """Return what the command prints, as wide as the terminal."""
        text: str = _display().text_of(self)
        return text

    def _repr_pretty_(self, printer: _Printer, cycle: bool) -> None:  # noqa: ARG002 - IPython calls it
        printer.text(str(self))

    def _repr_html_(self) -> str:
        html: str = _display().html_of(self)
        return html


def _display() -> Any:  # noqa: ANN401 - by name: results import nothing that shows them
    return import_module("hush_simulations.display.shown")
