"""What is printed first if bounds cut off values."""

from collections.abc import Iterator, Sequence

from hush_common.formatting import exact, significant
from hush_common.terminal import Sentence
from hush_simulations.planning.clamping import Clamping

_NAMED = 3  # coordinates


_LARGE = 0.01  # of the range


def clamping_blocks(found: Sequence[Clamping], *, with_means: bool = False) -> Iterator[Sentence]:
    """Yield what the bounds do, worst coordinate first; `with_means` where the truth is shown anyway."""
    worst = sorted(found, key=_share_of_range, reverse=True)
    for one in worst[:_NAMED]:
        lower, upper = (exact(bound) for bound in one.part.axis)
        name = f"{one.part.name}: " if one.part.name else ""
        values = f"{significant(one.share, scale=100)} % of the values"
        words = (
            f"{name}{values} are beyond the bounds, {_of(f'{lower} to {upper}', one)}, and devices move them to the "
            f"nearer one. That alone makes the mean {clamping_error(one)}{_means(one) if with_means else ''}, which no "
            "interval includes. Widen the bounds if such values are legal."
        )
        yield Sentence(words, "red" if _share_of_range(one) > _LARGE else "", hanging=2)
    if rest := len(worst[_NAMED:]):
        yield Sentence(f"The bounds of {rest} more coordinate{'s' if rest > 1 else ''} move the mean less.")


def _share_of_range(one: Clamping) -> float:
    return abs(one.error) / (one.part.upper - one.part.lower)


def clamping_error(one: Clamping) -> str:
    """Return how far the mean is moved, and to which side."""
    if not one.error:
        return "no other, by chance"
    return f"{_of(significant(abs(one.error)), one)} too {'high' if one.error > 0 else 'low'}"


def _means(one: Clamping) -> str:
    return f" ({_of(significant(one.mean_moved, 4), one)} in place of {significant(one.mean, 4)})"


def _of(number: str, one: Clamping) -> str:
    return f"{number} {one.part.unit}".rstrip()
