"""What a block of the terminal looks like, at a width."""

from collections.abc import Iterable

from hush_common.terminal import Renderable, Screen

__all__ = ["rendered", "squeezed"]


def rendered(blocks: Iterable[Renderable], width: int = 100, *, wraps: bool = False) -> str:
    """The lines, as in a pipe where nobody says how wide it is; or with sentences broken, as on a terminal."""
    screen = Screen(width, wraps=wraps)
    return "".join(f"{line}\n" for block in blocks for line in block.lines(screen))


def squeezed(text: str) -> str:
    """The same with one blank where there are several: a test of words need not know how wide a column is."""
    return "\n".join(" ".join(line.split()) for line in text.splitlines())
