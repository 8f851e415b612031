"""From a task to the one parameter object that device and aggregator share."""

from functools import lru_cache

from hush_common.domain import NumberDomain
from hush_common.mechanisms.laplace import Laplace
from hush_common.mechanisms.randomized_response import RandomizedResponse
from hush_common.task import Task

__all__ = ["build"]


@lru_cache(maxsize=1024)
def build(task: Task) -> Laplace | RandomizedResponse:
    """The mechanism of one report of `task`, at the epsilon of one round."""
    epsilon = task.epsilon_per_round
    if isinstance(task.domain, NumberDomain):
        return Laplace(epsilon, task.domain.steps)
    if task.coins is not None:
        return RandomizedResponse.from_coins(epsilon, task.coins.truth, task.coins.yes)
    return RandomizedResponse.from_epsilon(epsilon)
