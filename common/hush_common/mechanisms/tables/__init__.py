"""The tables that hush ships, and the rule by which `mechanism = "auto"` decides.

Made by `python -m hush_simulations.table_design`, checked in integers whenever one is used (`Channel.check`).
"""

import json
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from importlib.resources import files

from hush_common.domain import Domain, NumberDomain
from hush_common.epsilon import decimal_text
from hush_common.errors import TaskError
from hush_common.mechanisms.parameters import MechanismName, Table

__all__ = ["SHIPPED", "choose", "shipped", "shipped_at"]

SHIPPED: dict[Fraction, str] = {Fraction(1): "epsilon-1", Fraction(2): "epsilon-2", Fraction(4): "epsilon-4"}
"""Names of the shipped tables by the epsilon of one report."""


def choose(domain: Domain, epsilons: Sequence[Fraction]) -> tuple[MechanismName, Table | None]:
    """What `mechanism = "auto"` means: decided by public parameters alone, never by data.

    A bit, a category and a vector have one mechanism each. A number has the least worst-case variance by a shipped
    table where there is one for its epsilon, and else by `multilevel`; both also bound what a lying device can do.

    Args:
        domain: the domain.
        epsilons: loss of one report under each offer.
    """
    from hush_common.mechanisms.build import fitting  # noqa: PLC0415 - `build` is the module above this one

    if not isinstance(domain, NumberDomain):
        return fitting(domain)[0], None
    if len(epsilons) == 1 and epsilons[0] in SHIPPED:
        return "table", shipped_at(epsilons[0])
    return "multilevel", None


def shipped_at(epsilon: Fraction) -> Table:
    """The shipped table at the epsilon of one report.

    Raises:
        TaskError: none is shipped for it.
    """
    if epsilon not in SHIPPED:
        epsilons = ", ".join(map(decimal_text, SHIPPED))
        raise TaskError(
            "table",
            f"none is shipped for epsilon {decimal_text(epsilon)} a report, only for {epsilons}; use multilevel",
        )
    return shipped(SHIPPED[epsilon])


@lru_cache(maxsize=len(SHIPPED))
def shipped(name: str) -> Table:
    """A shipped table by name.

    Raises:
        TaskError: there is no such table.
    """
    if name not in SHIPPED.values():
        raise TaskError(
            "table", f"{name[:40]!r} is not shipped; choose of {', '.join(SHIPPED.values())}, or write it out"
        )
    document = json.loads(files(__package__).joinpath(f"{name}.json").read_text(encoding="utf-8"))
    return Table(tuple(document["positions"]), document["unit"], tuple(tuple(row) for row in document["weights"]))
