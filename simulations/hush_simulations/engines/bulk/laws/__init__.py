"""The law of each mechanism, as the bulk engine draws from it: a module for each, and one line here."""

from hush_common.errors import OptionError
from hush_common.mechanisms import (
    Channel,
    Laplace,
    Mechanism,
    Multilevel,
    RandomizedResponse,
    SubsetSelection,
    Vector,
)
from hush_simulations.engines.bulk.laws import finite, laplace, randomized_response, subset_selection, vector
from hush_simulations.engines.bulk.laws.law import Law

__all__ = ["Law", "law_of"]

_LAWS: dict[type[Mechanism], Law] = {
    Laplace: laplace,
    Multilevel: finite,
    Channel: finite,
    RandomizedResponse: randomized_response,
    SubsetSelection: subset_selection,
    Vector: vector,
}


def law_of(mechanism: Mechanism) -> Law:
    """How reports of a mechanism are drawn in bulk.

    Raises:
        OptionError: nobody has written that down.
    """
    found = _LAWS.get(type(mechanism))
    if found is None:
        raise OptionError("engine", f"no bulk law of {mechanism.name!r} is known; choose mqtt or memory")
    return found
