"""What stands beside the ticks of an axis: plain text, in the figures that hush prints everywhere.

matplotlib writes powers of ten in a small language of its own, for which it needs twenty fonts.
"""

from math import floor, log10

from matplotlib.ticker import LogFormatter

from hush_common.formatting import significant, whole

__all__ = ["LogTicks", "on_log_axis"]

_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_SMALLEST_PLAIN, _LARGEST_PLAIN = 1e-3, 1e5


class LogTicks(LogFormatter):
    """Labels of a logarithmic axis: of the ticks that matplotlib would label."""

    def __call__(self, x: float, pos: int | None = None) -> str:
        """The label of a tick, empty where it has none."""
        return on_log_axis(x) if super().__call__(x, pos) else ""


def on_log_axis(value: float) -> str:
    """A positive number in few letters: `"0.01"`, `"20 000"`, `"10⁶"`, `"2·10⁶"`."""
    if _SMALLEST_PLAIN <= value < _LARGEST_PLAIN:
        return whole(value) if value >= 1 and value == int(value) else significant(value)
    power = floor(log10(value) + 1e-9)
    ten = "10" + str(power).translate(_SUPERSCRIPTS)
    factor = significant(value / 10.0**power)
    return ten if factor == "1" else f"{factor}·{ten}"
