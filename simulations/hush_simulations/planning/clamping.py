"""What bounds do to values: a device moves a value beyond a bound to the bound."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hush_common.domain import Domain, DomainPart

_HALVINGS = 64


@dataclass(frozen=True, slots=True)
class Clamping:
    """What the bounds of a number, or of one coordinate, do to some values of people."""

    part: DomainPart
    share: float  #: of the values, those that a device moves to the nearer bound
    mean: float  #: of the values as they are
    mean_moved: float  #: of the values as devices report on them

    @property
    def error(self) -> float:
        """What that alone adds to the mean: no interval has it."""
        return self.mean_moved - self.mean

    def to_document(self) -> dict[str, object]:
        """Return the share and the error, without the means."""
        return {**({"name": self.part.name} if self.part.name else {}), "share": self.share, "error": self.error}


def clampings(domain: Domain, values: Sequence[object]) -> tuple[Clamping, ...]:
    """Return the numbers or coordinates of which a value is beyond a bound; those of shares are none."""
    if domain.is_share:
        return ()
    rows = [value if isinstance(value, tuple) else (value,) for value in values if value is not None]
    found = []
    for place, part in enumerate(domain.parts):
        numbers = np.array([row[place] for row in rows if row[place] is not None], dtype=np.float64)
        inside = np.clip(numbers, part.lower, part.upper)
        if share := float((numbers != inside).mean()) if len(numbers) else 0.0:
            found.append(Clamping(part, share, _mean(numbers), _mean(inside)))
    return tuple(found)


def _mean(numbers: NDArray[np.float64]) -> float:
    """The mean, of numbers whose sum may overflow: a power of two changes no digit."""
    return float(np.ldexp(np.ldexp(numbers, -_HALVINGS).mean(), _HALVINGS))
