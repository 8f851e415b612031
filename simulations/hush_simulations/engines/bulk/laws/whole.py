"""What is the same for most mechanisms: the whole tally can be drawn at once, and the value is no vector."""

from collections.abc import Sequence

import numpy as np

from hush_aggregator.estimate import Estimate
from hush_common.mechanisms import Mechanism
from hush_simulations.engines.bulk.cells import Cells
from hush_simulations.engines.bulk.laws.law import Held
from hush_simulations.engines.bulk.scatter import Counts

__all__ = ["WHOLE", "completed", "known", "levels", "of_coordinates"]

WHOLE = True


def completed(_: Mechanism, __: int, sums: tuple[int, ...]) -> tuple[int, ...]:
    return sums


def known(estimate: Estimate) -> Estimate:
    return estimate


def levels(_: Mechanism) -> None:
    return None


def of_coordinates(
    mechanism: Mechanism, _: Sequence[Cells], __: Counts, ___: np.random.Generator
) -> tuple[Counts, Held]:
    raise TypeError(f"{mechanism.name} asks for no vector")
