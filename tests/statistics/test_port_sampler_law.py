"""The samplers of the ports follow the law of the table, at the scale that is deployed.

The differential tests in tests/ports pin the same law exactly, under MicroPython too, which is slow to draw thousands;
this one would see a slip that the Python client shares.
The random bytes are a fixed seed's, so that a verdict is the same on every run; its false-alarm rate is that of `fits`.
"""

import random
from collections.abc import Callable
from fractions import Fraction
from math import exp
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import ArrayLike, NDArray
from port_programs import C_PORT, Port, compiled, hexadecimal, port_of

from hush import Task
from hush_common.domain import GRID_STEPS
from hush_common.mechanisms import Laplace, Multilevel, RandomizedResponse
from hush_common.task import make_task

pytestmark = pytest.mark.medium

Fits = Callable[[ArrayLike, ArrayLike], bool]
LANGUAGES = ["c", "node", "cpython"]
NUMBER = {"kind": "number", "lower": 0, "upper": 1}
DRAWS = 6_000


def draws(port: Port, task: Task, index: int, directory: Path, seed: int) -> NDArray[np.int64]:
    script = directory / "random"
    script.write_bytes(random.Random(seed).randbytes(4_000_000))  # noqa: S311 - a test wants the same draws every time
    words = port.ask([f"sample {DRAWS} {index} {hexadecimal(task.payload)}"], script)[0].split()
    assert words[0] == "ok"
    return np.array(list(map(int, words[1:])))


def noise_fits(fits: Fits, reports: NDArray[np.int64], mechanism: Laplace, index: int) -> bool:
    """Whether reports have the law of the table, in cells between integer edges."""
    scale = float(mechanism.scale)
    q = exp(-1 / scale)
    edges = np.unique(np.round(scale * np.linspace(-3, 3, 19)))
    below = np.where(edges <= 0, q ** (1 - edges), 1 + q - q**edges) / (1 + q)
    law = np.diff(np.concatenate([[0.0], below, [1.0]]))
    return fits(np.bincount(np.searchsorted(edges, reports - index, side="right"), minlength=len(law)), law)


@pytest.fixture(scope="module", params=LANGUAGES)
def port(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Port:
    return port_of(request.param, tmp_path_factory.mktemp(request.param))


@pytest.mark.large
@pytest.mark.parametrize(("epsilon", "index"), [("1", 0), ("2.333333", GRID_STEPS // 3)])
def test_noise_of_a_port_has_the_law_of_the_table(
    fits: Fits, port: Port, tmp_path: Path, epsilon: str, index: int
) -> None:
    task = make_task({"id": "n", "epsilon": epsilon, "domain": NUMBER})
    reports = draws(port, task, index, tmp_path, seed=40)
    assert noise_fits(fits, reports, Laplace(Fraction(epsilon), GRID_STEPS), index)
    assert not noise_fits(fits, reports, Laplace(Fraction(epsilon) * 5 / 6, GRID_STEPS), index), "another scale is seen"


def bits_fit(fits: Fits, reports: NDArray[np.int64], epsilon: Fraction, bit: int) -> bool:
    one = float(RandomizedResponse.from_epsilon(epsilon).probability_of_one[bit])
    return fits(np.bincount(reports, minlength=2), [1 - one, one])


@pytest.mark.large
@pytest.mark.parametrize("bit", [0, 1])
def test_bits_of_a_port_have_the_law_of_the_table(fits: Fits, port: Port, tmp_path: Path, bit: int) -> None:
    task = make_task({"id": "b", "epsilon": "1", "domain": {"kind": "bit"}})
    reports = draws(port, task, bit, tmp_path, seed=41)
    assert bits_fit(fits, reports, Fraction(1), bit)
    assert not bits_fit(fits, reports, Fraction(4, 3), bit), "another epsilon is seen"


@pytest.mark.large
def test_levels_of_a_port_have_the_law_of_the_table(fits: Fits, port: Port, tmp_path: Path) -> None:
    task = make_task({"id": "m", "epsilon": "2", "mechanism": "multilevel", "levels": 4, "domain": NUMBER})
    mechanism, index = Multilevel(Fraction(2), GRID_STEPS, 4), GRID_STEPS * 3 // 7
    counts = np.bincount(draws(port, task, index, tmp_path, seed=42), minlength=5)
    law, other = (np.array([float(mechanism.probability((z,), i)) for z in range(5)]) for i in (index, index * 6 // 7))
    assert fits(counts, law)
    assert not fits(counts, other), "a value elsewhere is seen"


SLIPS = {
    "noise of a scale wrong by a sixth": ("big_set(t, HUSH_STEPS);", "big_set(t, HUSH_STEPS / 6 * 5);"),
    "a lie that comes half as often": (
        "    *out = wide_of(&weight);\n",
        "    big_shift_right(&weight, 1);\n    *out = wide_of(&weight);\n",
    ),
}


@pytest.mark.large
@pytest.mark.parametrize("slip", SLIPS)
def test_a_law_that_is_wrong_in_the_c_source_is_seen(fits: Fits, tmp_path: Path, slip: str) -> None:
    source = (C_PORT / "hush.c").read_text(encoding="utf-8")
    assert source.count(SLIPS[slip][0]) == 1
    (tmp_path / "hush.c").write_text(source.replace(*SLIPS[slip]), encoding="utf-8")
    port = Port((str(compiled(tmp_path, library=tmp_path / "hush.c", sanitized=False)),))
    number = make_task({"id": "n", "epsilon": "1", "domain": NUMBER})
    bit = make_task({"id": "b", "epsilon": "1", "domain": {"kind": "bit"}})
    noise = noise_fits(fits, draws(port, number, 0, tmp_path, seed=43), Laplace(Fraction(1), GRID_STEPS), 0)
    bits = bits_fit(fits, draws(port, bit, 0, tmp_path, seed=44), Fraction(1), 0)
    assert [noise, bits] == [not slip.startswith("noise"), not slip.startswith("a lie")]
