"""Every figure of README.md is recomputed, or known as a quote: alter any digit, and a test fails."""

from documented.readme_page import page


def test_every_digit_is_recomputed_or_known_as_a_quote() -> None:
    assert page().ledger().faults == []


def test_altering_any_digit_is_found() -> None:
    section = page()
    altered = list(section.altered())
    assert len(altered) > 20
    for place, label, text in altered:
        assert section.ledger(text).faults, (label, text[max(0, place - 40) : place + 20])
