"""What every result has in common: how it shows itself in a terminal, in a notebook and in a data frame."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

from hush_common.errors import MissingExtraError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_FRAMES: tuple[Literal["pandas", "polars", "pyarrow"], ...] = ("pandas", "polars", "pyarrow")
"""Libraries of data frames; the first that is installed makes one."""


class _Printer(Protocol):
    """What IPython passes to `_repr_pretty_`."""

    def text(self, text: str, /) -> None: ...


class Display(Protocol):
    """How results are shown. It is above them: it imports every result, and no result imports it."""

    def text_of(self, result: "Shown", /) -> str:
        """Return what the command prints."""

    def html_of(self, result: "Shown", /) -> str:
        """Return tables and picture for a notebook."""

    def figure_of(self, result: "Shown", /, what: str = "", *, dark: bool = False) -> "Figure":
        """Return the picture; `what` names one of several."""


class Shown(ABC):
    """A result: `print(result)` is what the command shows, a notebook shows its table and its picture."""

    __slots__ = ()

    _load: ClassVar[Callable[[], Display]]

    @classmethod
    def show_by(cls, load: Callable[[], Display]) -> None:
        """Set how all results are shown; `load` imports it when a result is first shown."""
        cls._load = load

    @classmethod
    def display(cls) -> Display:
        """Return what shows all results."""
        return cls._load()

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
        return self.display().figure_of(self, dark=dark)

    def __repr__(self) -> str:  # here, because IPython takes whichever it finds first on the way to the root
        return f"<{self.in_short()}>"

    def __str__(self) -> str:
        """Return what the command prints, as wide as the terminal."""
        return self.display().text_of(self)

    def _repr_pretty_(self, printer: _Printer, cycle: bool) -> None:  # noqa: ARG002 - IPython calls it
        printer.text(str(self))

    def _repr_html_(self) -> str:
        return self.display().html_of(self)
