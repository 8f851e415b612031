"""People drawn from a stated law: their means, their shares, and refusals of impossible laws."""

import math

import numpy as np
import pytest

from hush import SCENARIOS
from hush_common.errors import OptionError
from hush_simulations.scenarios.population import Bernoulli, Frequencies, Independent, Mixture, Normal, Observed


def draw(population: Mixture | Bernoulli, count: int, seed: int) -> list[float]:
    values = population.draw(count, np.random.default_rng(seed))
    return [value for value in values if isinstance(value, float | int)]


def test_a_seed_gives_the_same_people_and_another_seed_others() -> None:
    heights = SCENARIOS["heights"].population
    assert isinstance(heights, Mixture)
    assert draw(heights, 50, 7) == draw(heights, 50, 7)
    assert draw(heights, 50, 7) != draw(heights, 50, 8)


def test_a_mixture_has_its_mean_and_spread() -> None:
    heights = SCENARIOS["heights"].population
    assert isinstance(heights, Mixture)
    values = np.array(draw(heights, 200_000, 1))
    # sigma of the mixture: sqrt((7^2 + 6.5^2)/2 + (178 - 162)^2/4) = 10.4702
    assert heights.mean == 170.0
    assert values.mean() == pytest.approx(170.0, abs=6 * 10.4702 / math.sqrt(200_000))
    assert values.std() == pytest.approx(10.4702, abs=0.08)


def test_weights_are_shares_of_their_sum() -> None:
    population = Mixture((Normal(3, 10.0, 0.0), Normal(1, 30.0, 0.0)))
    assert population.mean == 15.0
    values = draw(population, 10_000, 2)
    assert set(values) == {10.0, 30.0}
    assert values.count(30.0) / 10_000 == pytest.approx(0.25, abs=6 * math.sqrt(0.25 * 0.75 / 10_000))


def test_answers_are_integers_in_the_stated_proportion() -> None:
    answers = draw(Bernoulli(0.3), 10_000, 3)
    assert {type(answer) for answer in answers} == {int}
    assert sum(answers) / 10_000 == pytest.approx(0.3, abs=6 * math.sqrt(0.21 / 10_000))


def test_categories_come_in_the_stated_shares() -> None:
    population = Frequencies(("a", "b", "c"), (3.0, 1.0, 0.0))
    values = population.draw(10_000, np.random.default_rng(4))
    assert population.mean == (0.75, 0.25, 0.0)
    assert set(values) == {"a", "b"}
    assert values.count("b") / 10_000 == pytest.approx(0.25, abs=6 * math.sqrt(0.1875 / 10_000))


def test_independent_coordinates_are_not_correlated() -> None:
    population = Independent((Mixture((Normal(1, 5.0, 1.0),)), Mixture((Normal(1, -3.0, 2.0),))))
    values = np.array(population.draw(10_000, np.random.default_rng(5)))
    assert population.mean == (5.0, -3.0)
    assert values.mean(axis=0) == pytest.approx([5.0, -3.0], abs=6 * 2 / 100)
    assert np.corrcoef(values.T)[0, 1] == pytest.approx(0, abs=6 / 100)


@pytest.mark.parametrize("name", SCENARIOS)
def test_each_drawn_value_is_one_that_the_task_admits(name: str) -> None:
    task = SCENARIOS[name].task()
    for value in SCENARIOS[name].population.draw(200, np.random.default_rng(1)):
        task.domain.index(value)


def test_observed_people_come_in_order_and_never_show() -> None:
    data = Observed((172.5, 181.25), "height")
    assert data.draw(2, np.random.default_rng(0)) == (172.5, 181.25)
    assert data.mean is None
    assert "172.5" not in repr(data)


def test_impossible_laws_are_refused() -> None:
    for weights in ((-1.0, 2.0), (math.nan, 1.0), (0.0, 0.0)):
        with pytest.raises(OptionError, match=r"population\.frequencies"):
            Frequencies(("a", "b"), weights)
    for proportion in (-0.1, 1.1, math.nan):
        with pytest.raises(OptionError, match=str(proportion)):
            Bernoulli(proportion)
    for part in ((-1.0, 0.0, 1.0), (1.0, math.nan, 1.0), (1.0, 0.0, -1.0), (1.0, 0.0, math.inf)):
        with pytest.raises(OptionError, match="population"):
            Normal(*part)
    with pytest.raises(OptionError, match="population"):
        Mixture((Normal(0.0, 1.0, 1.0),))
