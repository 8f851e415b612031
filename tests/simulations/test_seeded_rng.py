"""Noise of a seed: always the same integers, and never an id."""

import random

from hush_common.rng import REPORT_ID_BYTES
from hush_common.wire import Report
from hush_simulations.engines.experiment import SeededRng


def test_the_integers_of_a_seed_are_what_they_were_when_ids_came_from_it_too() -> None:
    source, rng = random.Random("5/3"), SeededRng(5, 3)  # noqa: S311 - the law that is pinned here
    for _ in range(100):
        expected = source.randrange(10**9), source.randbytes(40)
        report_id = source.randbytes(REPORT_ID_BYTES)
        assert (rng.randbelow(10**9), rng.token_bytes(40)) == expected
        assert Report.new(bytes(16), 0, (1,), rng).id != report_id


def test_no_two_runs_of_a_seed_have_an_id_in_common() -> None:
    first, second = [{SeededRng(5).report_id() for _ in range(100)} for _ in range(2)]
    assert len(first | second) == 200
    assert {len(one) for one in first} == {REPORT_ID_BYTES}
