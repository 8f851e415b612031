"""Which ports of the client can answer a task, and why the others cannot.

The ports answer every mechanism, several epsilons, rounds and sticky answers. What remains is memory: that of the C
port is reserved when it is compiled, and a device in C or MicroPython holds the whole task.
"""

from collections.abc import Iterator

from hush_common.formatting import exact
from hush_common.task import Task

__all__ = ["C_COORDINATES", "C_LEVELS", "C_WIDTH", "PORTS", "answered_by", "memory_words", "refusals_of"]

PORTS = ("Python", "C", "JavaScript", "MicroPython")
C_WIDTH, C_COORDINATES, C_LEVELS = 41, 64, 127
"""HUSH_WIDTH, HUSH_COORDINATES and HUSH_MEMORY_LEVELS of hush.h, where a build does not define them."""
_SMALL = 4096  # bytes of a task that are not worth a word


def refusals_of(task: Task) -> dict[str, str]:
    """Return why a port cannot answer a task, by the name of the port."""
    if any(moment is not None and moment.microsecond for moment in (task.opens, task.closes)):
        return dict.fromkeys(PORTS[1:], "opens or closes has decimals of a second")
    over = list(_too_large_for_c(task))
    if not over:
        return {}
    what, options = " and ".join(words for words, _ in over), " ".join(option for _, option in over)
    return {"C": f"{what}: compile it with {options}"}


def _too_large_for_c(task: Task) -> Iterator[tuple[str, str]]:
    """Yield what is beyond a limit of the C port, and the option of the compiler that raises it."""
    width, parts = task.randomizer.width, len(task.domain.numbers)
    if width > C_WIDTH:
        yield f"a body of {width} integers", f"-DHUSH_WIDTH={width}"
    if parts > C_COORDINATES:
        yield f"{parts} coordinates", f"-DHUSH_COORDINATES={parts}"
    if task.memoized_mechanism is not None and task.memoized_mechanism.grid[1] > C_LEVELS:
        levels = task.memoized_mechanism.grid[1]
        yield f"{levels} sticky levels", f"-DHUSH_MEMORY_LEVELS={levels}"


def answered_by(task: Task) -> str:
    """Return the ports that can answer a task, and why the others cannot, for a person."""
    refusals = refusals_of(task)
    able = ", ".join(port for port in PORTS if port not in refusals)
    alike = {reason: [port for port in refusals if refusals[port] == reason] for reason in refusals.values()}
    return "; ".join([able, *(f"not {', '.join(ports)} ({reason})" for reason, ports in alike.items())])


def memory_words(task: Task) -> str:
    """Return how much memory the task takes on a small device; empty where that is little."""
    size = len(task.payload)
    return "" if size <= _SMALL else f"{exact(-(-size // 1024))} KB of RAM for the task on a device in C or MicroPython"
