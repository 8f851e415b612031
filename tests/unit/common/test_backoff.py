from unittest.mock import patch

from hush_common.aio import Backoff
from hush_common.errors import leaves


def test_delays_double_up_to_half_a_minute_and_are_cut_by_half_at_most() -> None:
    backoff = Backoff()
    for usual in (0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30, 30):
        assert backoff.longest == (usual == 30)
        assert usual / 2 <= backoff.next() < usual


def test_a_connection_that_held_lets_it_begin_anew() -> None:
    backoff = Backoff()
    for _ in range(12):
        backoff.next()
    backoff.reset()
    assert not backoff.longest
    assert backoff.next() < 0.1


def test_clients_that_lost_one_broker_come_back_at_different_times() -> None:
    delays = {Backoff().next() for _ in range(100)}
    assert len(delays) > 50  # of 1000: fewer would happen once in 1e38
    with patch("hush_common.rng.token_bytes", return_value=bytes(3)):
        assert Backoff().next() == 0.05


def test_the_leaves_of_a_group_are_those_of_the_groups_in_it_in_order() -> None:
    a, b, c = ValueError("a"), KeyError("b"), SystemExit("c")
    assert leaves(BaseExceptionGroup("", [ExceptionGroup("", [a, b]), c])) == [a, b, c]
    assert leaves(a) == [a]
