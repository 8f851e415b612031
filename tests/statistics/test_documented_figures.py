"""Every figure of docs/statistics.md is recomputed: alter any digit, and a test fails."""

import pytest
from documented.figures import COMPUTED, GIVEN, Section, computed, given
from documented.statistics_page import CLAIMED, NAMES
from documented.statistics_page import section as section_of


@pytest.mark.large
@pytest.mark.parametrize("name", NAMES)
def test_every_digit_is_recomputed_or_known_as_a_quote(name: str) -> None:
    assert section_of(name).ledger().faults == []


@pytest.mark.large
@pytest.mark.parametrize("name", NAMES)
def test_altering_any_digit_is_found(name: str) -> None:
    section = section_of(name)
    assert not section.ledger().faults
    for place, label, text in section.altered():
        assert section.ledger(text).faults, (label, text[max(0, place - 40) : place + 20])


def test_most_digits_are_recomputed() -> None:
    labels = [label for one in map(section_of, NAMES) for label in one.ledger().labels.values()]
    assert len(CLAIMED) > 1
    assert sum(label in {COMPUTED, GIVEN} for label in labels) > len(labels) / 2


def test_a_figure_that_is_wrong_in_its_last_digit_is_found() -> None:
    def faults(value: float) -> int:
        claim = f"The half-width is {computed(value, '.3f')} at n = {given(1)}."
        return len(Section("t", "The half-width is 2.996 at n = 1.", [claim], {}, {}).ledger().faults)

    assert faults(2.9957) == 0
    assert faults(2.9944) > 0


def test_a_figure_that_no_claim_speaks_of_is_found() -> None:
    text = "At 95 % it is 3.00, and 4.61 at 99 %."
    claim = f"At {given(95)} % it is {computed(2.9957, '.2f')}"
    assert len(Section("t", text, [claim], {}, {}).ledger().faults) == len("46199")
