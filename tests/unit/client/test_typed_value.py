"""`hush report` reads a value as the domain of the task asks for it."""

from decimal import Decimal

import pytest

from hush_client.report_cli import parse_value
from hush_common.domain import BitDomain, CategoryDomain, Coordinate, Domain, NumberDomain, VectorDomain
from hush_common.errors import DomainError

NUMBER = NumberDomain(-10.0, 10.0)
COLOURS = CategoryDomain(("red", "green", "light blue", "1"))
BODY = VectorDomain((Coordinate(0.0, 1.0, name="height"), Coordinate(-5.0, 5.0, name="weight")))


@pytest.mark.parametrize(
    ("domain", "text", "value"),
    [
        (NUMBER, "-1.5e0", Decimal("-1.5")),
        (BitDomain(), "Yes", True),
        (BitDomain(), "0", False),
        (COLOURS, "light blue", "light blue"),
        (COLOURS, "1", "1"),
        (BODY, "0.5,-3", [Decimal("0.5"), Decimal(-3)]),
        (BODY, " 1 , 2 ", [Decimal(1), Decimal(2)]),
    ],
)
def test_a_value_is_read_and_admitted(domain: Domain, text: str, value: object) -> None:
    assert parse_value(domain, text) == value
    domain.index(value)


@pytest.mark.parametrize(
    ("domain", "text", "remedy"),
    [
        (NUMBER, "1,5", "write for example"),
        (NUMBER, "nan", "write for example"),
        (NUMBER, "1" * 101, "write for example"),
        (BitDomain(), "maybe", "write yes"),
        (COLOURS, "Red", "write one of red, green"),
        (COLOURS, "", "write one of red"),
        (BODY, "1", "holds 1 numbers, not 2; write height, weight"),
        (BODY, "1,2,3", "holds 3 numbers"),
        (BODY, "1,", "'' is no finite number"),
        (BODY, "1,inf", "'inf' is no finite number"),
    ],
)
def test_a_slip_is_told_with_the_remedy(domain: Domain, text: str, remedy: str) -> None:
    with pytest.raises(DomainError, match=remedy):
        parse_value(domain, text)


def test_a_message_names_a_few_of_many_labels() -> None:
    domain = CategoryDomain(tuple(f"label {place}" for place in range(1000)))
    with pytest.raises(DomainError, match=r"label 5, …$"):
        parse_value(domain, "label")
