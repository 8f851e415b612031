import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hush_aggregator.tally import Tally

INT64 = st.integers(-(2**63), 2**63 - 1) | st.sampled_from([-(2**63), 2**63 - 1, -(2**31), 2**31, 0, -1])
REPORTED = st.lists(INT64, max_size=30)


def fold(reported: list[int]) -> Tally:
    return Tally().fold(np.array(reported, dtype=np.int64))


@given(REPORTED)
def test_a_fold_is_exact_at_the_ends_of_64_bits(reported: list[int]) -> None:
    assert fold(reported) == Tally(len(reported), sum(reported), sum(k * k for k in reported))


@given(REPORTED, REPORTED)
def test_fold_and_merge_commute(first: list[int], second: list[int]) -> None:
    together = fold(first + second)
    assert fold(first).merge(fold(second)) == together
    assert fold(second).fold(np.array(first, dtype=np.int64)) == together


@given(st.lists(REPORTED, max_size=5))
def test_shards_in_any_order_merge_to_the_same_tally(shards: list[list[int]]) -> None:
    forward, backward = Tally(), Tally()
    for shard in shards:
        forward = forward.merge(fold(shard))
    for shard in reversed(shards):
        backward = backward.merge(fold(shard))
    assert forward == backward == fold([k for shard in shards for k in shard])


def test_an_empty_batch_changes_nothing() -> None:
    assert Tally(3, 4, 5).fold(np.array([], dtype=np.int64)) == Tally(3, 4, 5)
