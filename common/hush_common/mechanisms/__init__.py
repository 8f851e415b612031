"""Local randomizers: the randomized maps from an index to the body of a report.

Each has one frozen parameter object, made once from the task (`Task.randomizer`), which both sides use: the device
perturbs with it, the aggregator estimates with it. Neither recomputes a probability or a scale.
"""

from hush_common.mechanisms.channel import Channel
from hush_common.mechanisms.laplace import Laplace
from hush_common.mechanisms.mechanism import Mechanism
from hush_common.mechanisms.multilevel import Multilevel
from hush_common.mechanisms.randomized_response import RandomizedResponse
from hush_common.mechanisms.registry import Offers
from hush_common.mechanisms.subset_selection import SubsetSelection
from hush_common.mechanisms.vector import Vector

__all__ = ["Channel", "Laplace", "Mechanism", "Multilevel", "Offers", "RandomizedResponse", "SubsetSelection", "Vector"]
