import math

import numpy as np
import pytest

from hush import SCENARIOS
from hush_common.errors import OptionError
from hush_simulations.engines.experiment import SeededRng
from hush_simulations.scenarios.population import Bernoulli, Frequencies, Independent, Mixture, Normal, Observed

HEIGHTS = SCENARIOS["heights"].population


def draw(population: Mixture | Bernoulli, count: int, seed: int) -> list[float]:
    values = population.draw(count, np.random.default_rng(seed))
    return [value for value in values if isinstance(value, float | int)]


def test_the_same_seed_gives_the_same_people_and_another_seed_others() -> None:
    assert isinstance(HEIGHTS, Mixture)
    assert draw(HEIGHTS, 50, 7) == draw(HEIGHTS, 50, 7)
    assert draw(HEIGHTS, 50, 7) != draw(HEIGHTS, 50, 8)


def test_heights_have_the_mean_and_spread_of_the_notebook() -> None:
    assert isinstance(HEIGHTS, Mixture)
    values = np.array(draw(HEIGHTS, 200_000, 1))
    # sigma of the mixture: sqrt((7^2 + 6.5^2)/2 + (178 - 162)^2/4) = 10.4702
    assert HEIGHTS.mean == 170.0
    assert values.mean() == pytest.approx(170.0, abs=6 * 10.4702 / math.sqrt(200_000))
    assert values.std() == pytest.approx(10.4702, abs=0.08)


def test_weights_are_shares_whatever_they_add_up_to() -> None:
    population = Mixture((Normal(3, 10.0, 0.0), Normal(1, 30.0, 0.0)))
    assert population.mean == 15.0
    values = draw(population, 10_000, 2)
    assert set(values) == {10.0, 30.0}
    assert values.count(30.0) / 10_000 == pytest.approx(0.25, abs=6 * math.sqrt(0.25 * 0.75 / 10_000))


def test_answers_of_a_survey_are_integers_in_the_stated_proportion() -> None:
    answers = draw(Bernoulli(0.3), 10_000, 3)
    assert {type(answer) for answer in answers} == {int}
    assert sum(answers) / 10_000 == pytest.approx(0.3, abs=6 * math.sqrt(0.21 / 10_000))


def test_categories_come_in_the_stated_shares_whatever_they_add_up_to() -> None:
    population = Frequencies(("a", "b", "c"), (3.0, 1.0, 0.0))
    values = population.draw(10_000, np.random.default_rng(4))
    assert population.mean == (0.75, 0.25, 0.0)
    assert set(values) == {"a", "b"}
    assert values.count("b") / 10_000 == pytest.approx(0.25, abs=6 * math.sqrt(0.1875 / 10_000))


def test_coordinates_have_their_own_means_and_know_nothing_of_each_other() -> None:
    population = Independent((Mixture((Normal(1, 5.0, 1.0),)), Mixture((Normal(1, -3.0, 2.0),))))
    values = np.array(population.draw(10_000, np.random.default_rng(5)))
    assert population.mean == (5.0, -3.0)
    assert values.mean(axis=0) == pytest.approx([5.0, -3.0], abs=6 * 2 / 100)
    assert np.corrcoef(values.T)[0, 1] == pytest.approx(0, abs=6 / 100)


@pytest.mark.parametrize("weights", [(-1.0, 2.0), (math.nan, 1.0), (0.0, 0.0)])
def test_impossible_shares_are_refused(weights: tuple[float, ...]) -> None:
    with pytest.raises(OptionError, match=r"population\.frequencies"):
        Frequencies(("a", "b"), weights)


def test_somebodys_data_come_in_order_and_never_show() -> None:
    data = Observed((172.5, 181.25), "height")
    assert data.draw(2, np.random.default_rng(0)) == (172.5, 181.25)
    assert data.mean is None
    assert "172.5" not in repr(data)


@pytest.mark.parametrize("proportion", [-0.1, 1.1, math.nan])
def test_a_proportion_outside_0_to_1_is_refused(proportion: float) -> None:
    with pytest.raises(OptionError, match="number from 0 to 1"):
        Bernoulli(proportion)


@pytest.mark.parametrize("part", [(-1.0, 0.0, 1.0), (1.0, math.nan, 1.0), (1.0, 0.0, -1.0), (1.0, 0.0, math.inf)])
def test_an_impossible_group_is_refused(part: tuple[float, float, float]) -> None:
    with pytest.raises(OptionError, match="population"):
        Normal(*part)


def test_a_mixture_needs_a_group_with_weight() -> None:
    with pytest.raises(OptionError, match="positive weight"):
        Mixture((Normal(0.0, 1.0, 1.0),))


def test_seeded_noise_repeats_and_its_streams_differ() -> None:
    def numbers(seed: int, stream: int) -> list[int]:
        rng = SeededRng(seed, stream)
        return [rng.randbelow(1 << 40) for _ in range(5)]

    assert numbers(1, 0) == numbers(1, 0)
    assert len({tuple(numbers(seed, stream)) for seed in range(3) for stream in range(3)}) == 9
    assert len(SeededRng(1).token_bytes(16)) == 16
