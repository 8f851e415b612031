"""The rate of work and the time left, by a clock of the test."""

import pytest

from hush_simulations.display.time_left import TimeLeft


class Work:
    """Work whose progress is a function of time; tells what is said of the time left, every tenth of a second."""

    def __init__(self, total: int, parts: list[tuple[float, float]]) -> None:
        self.total, self.parts = total, parts
        self.now = 0.0
        self.pace = TimeLeft(lambda: self.now)

    def done(self, time: float) -> int:
        """What is done after some seconds: each part has a length in seconds and a rate."""
        done = 0.0
        for length, rate in self.parts:
            done += rate * min(time, length)
            time -= min(time, length)
        return min(int(done), self.total)

    def said(self) -> list[tuple[float, str]]:
        """Each time at which a time left was said, and what."""
        found = []
        self.pace.add(0)
        for tenth in range(1, 100_000):
            self.now = tenth / 10
            done = self.done(self.now)
            self.pace.add(done)
            if left := self.pace.left(self.total - done):
                found.append((self.now, left))
            if done == self.total:
                break
        return found


def seconds_of(left: str) -> int:
    units = {"h": 3600, "min": 60, "s": 1}
    words = left.removesuffix(" left").split()
    return sum(int(number) * units[unit] for number, unit in zip(words[::2], words[1::2], strict=True))


@pytest.mark.parametrize(
    "parts",
    [
        [(3.0, 0.0), (100.0, 500.0)],
        [(1.3, 0.0), (1.5, 60.0), (100.0, 500.0)],  # as a run over MQTT begins
        [(9.0, 0.0), (1000.0, 20.0)],
        [(5.0, 800.0), (100.0, 250.0)],  # it becomes slower
    ],
)
def test_the_time_left_is_nearly_right_from_the_first_word_on(parts: list[tuple[float, float]]) -> None:
    work = Work(5_000, parts)
    said = work.said()
    end = work.now
    assert said
    assert said[0][0] < 0.6 * end  # while it is of use
    for now, left in said:
        actual = end - now
        if now > sum(length for length, _ in parts[:-1]) + 3:  # the rate is that of the last three seconds
            assert actual / 2 - 1 <= seconds_of(left) <= 2 * actual + 10, (now, left)


def test_a_rate_from_the_start_would_be_far_off() -> None:
    """The planted wrong: what was said before of a run that prepares for 9 seconds."""
    work = Work(5_000, [(9.0, 0.0), (100.0, 500.0)])
    now, _ = work.said()[0]
    done = work.done(now)
    wrong = (5_000 - done) / (done / now)
    assert wrong > 3 * (19.0 - now)


def test_nothing_is_said_of_two_steps_or_of_a_moment() -> None:
    now = 0.0
    pace = TimeLeft(lambda: now)
    for now in (0.0, 10.0, 20.0):
        pace.add(int(now))
        assert (pace.rate_in_words(), pace.left(5)) == ("", "")
    now = 30.0
    pace.add(30)
    assert (pace.rate_in_words(), pace.left(5)) == ("1 a second", "5 s left")


def test_what_was_done_before_does_not_count() -> None:
    now = 0.0
    pace = TimeLeft(lambda: now)
    for now in (0.0, 40.0, 80.0, 120.0):
        pace.add(100 + int(now / 40))
    assert (pace.rate_in_words(), pace.left(6)) == ("40 s each", "4 min left")


@pytest.mark.parametrize(("missing", "left"), [(59, "59 s left"), (172, "2 min 50 s left"), (5_000, "1 h 23 min left")])
def test_a_long_time_is_rounded(missing: int, left: str) -> None:
    now = 0.0
    pace = TimeLeft(lambda: now)
    for now in range(0, 2_000, 10):
        pace.add(now)
    assert pace.left(missing) == left
