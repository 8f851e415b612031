"""Which tables are admitted, at the edges of their rules."""

from collections.abc import Sequence
from fractions import Fraction

import pytest

from hush_common.errors import TaskError
from hush_common.mechanisms import Channel
from hush_common.mechanisms.parameters import ChannelTable

BIG = 1 << 128


def made(
    positions: Sequence[int] = (-1, 4), unit: int = 3, weights: Sequence[Sequence[int]] = ((4, 1), (1, 4))
) -> Channel:
    """A bit whose odds are 4 : 1, where ln 4 is 1.386…"""
    return Channel(Fraction("1.39"), 1, tuple(positions), unit, tuple(map(tuple, weights)))


def scaled(factor: int) -> list[list[int]]:
    return [[4 * factor, factor], [factor, 4 * factor]]


def test_integers_up_to_2_to_the_128_are_admitted_and_no_larger() -> None:
    assert made(weights=scaled(BIG // 4)).total == BIG + BIG // 4
    assert made((-BIG // 4, BIG), 3 * (BIG // 4)).worst_variance == made().worst_variance
    with pytest.raises(TaskError, match="row 0"):
        made(weights=scaled(BIG // 4 + 1))
    with pytest.raises(TaskError, match="unit"):
        made((-BIG // 4 - 1, BIG + 4), 3 * (BIG // 4 + 1))


def test_an_output_that_nobody_sends_is_in_no_report() -> None:
    channel = made((-1, 7, 4), weights=[[4, 0, 1], [1, 0, 4]])
    assert list(channel.outputs()) == [(0,), (2,)]
    assert [channel.admits((y,)) for y in range(-1, 4)] == [False, True, False, True, False]
    with pytest.raises(TaskError, match="0"):
        made(weights=[[0, 0], [0, 0]])


@pytest.mark.parametrize(
    ("field", "table"),
    [
        ("table.positions", ((-1.0, 4), 3, ((4, 1), (1, 4)))),
        ("table.unit", ((-1, 4), 3.0, ((4, 1), (1, 4)))),
        ("table.weights", ((-1, 4), 3, ((4, 1), (True, 4)))),
        ("table.weights", ((-1, 4), 3, [(4, 1), (1, 4)])),
    ],
)
def test_another_type_than_integers_is_refused_by_its_field(field: str, table: tuple[object, ...]) -> None:
    with pytest.raises(TaskError) as caught:
        ChannelTable(*table)  # type: ignore[arg-type]  # as a program without types might
    assert caught.value.field == field
