"""`hush report` reads a value as the domain of the task asks for it."""

import pytest

from hush_common.domain import BitDomain, CategoryDomain, Coordinate, Domain, NumberDomain, VectorDomain

NUMBER = NumberDomain(-10.0, 10.0)
COLOURS = CategoryDomain(("red", "green", "light blue", "1"))
BODY = VectorDomain((Coordinate(0.0, 1.0, name="height"), Coordinate(-5.0, 5.0, name="weight")))


@pytest.mark.parametrize(
    ("domain", "text", "value"),
    [
        (NUMBER, "-1.5e0", -1.5),
        (BitDomain(), "Yes", True),
        (BitDomain(), "0", False),
        (COLOURS, "light blue", "light blue"),
        (COLOURS, "1", "1"),
        (BODY, "0.5,-3", [0.5, -3.0]),
        (BODY, " 1 , 2 ", [1.0, 2.0]),
    ],
)
def test_a_value_is_read_and_admitted(domain: Domain, text: str, value: object) -> None:
    assert domain.parse(text) == value
    assert domain.check(value) == "used"


@pytest.mark.parametrize(
    ("domain", "text"),
    [
        (NUMBER, "1,5"),
        (NUMBER, "nan"),
        (NUMBER, "1" * 101),
        (NUMBER, ""),
        (BitDomain(), "maybe"),
        (COLOURS, "Red"),
        (COLOURS, ""),
        (BODY, "1"),
        (BODY, "1,2,3"),
        (BODY, "1,"),
        (BODY, "1,nan"),
    ],
)
def test_a_text_that_is_no_value_is_answered_by_a_drawn_one(domain: Domain, text: str) -> None:
    assert domain.check(domain.parse(text)) == "replaced"


@pytest.mark.parametrize(("text", "end"), [("inf", 1 << 20), ("-Infinity", 0), ("1e999999999", 1 << 20), ("-9e999", 0)])
def test_a_number_beyond_all_floats_is_moved_to_the_bound(text: str, end: int) -> None:
    reading = NUMBER.read(NUMBER.parse(text))
    assert (reading.parts, reading.coercion) == ((end,), "moved")


@pytest.mark.parametrize(
    ("domain", "names"),
    [
        (CategoryDomain(tuple(f"l{place}" for place in range(1000))), "l0, l1, l2, l3, l4, l5, …"),
        (CategoryDomain(tuple(f"l{place}" for place in range(6))), "l0, l1, l2, l3, l4, l5"),
        (BODY, "height, weight"),
    ],
)
def test_a_message_names_a_few_of_what_could_be_typed(domain: Domain, names: str) -> None:
    assert domain.typing_hint.endswith(names)
