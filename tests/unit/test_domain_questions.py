"""Few places ask which kind of domain they have: a domain answers for its kind."""

import pytest
from product import ROOT
from tools.domain_questions import count, questions

MOST = 59


@pytest.mark.parametrize(
    ("code", "places"),
    [
        ("isinstance(domain, NumberDomain | BitDomain)", 1),
        ("match domain:\n    case BitDomain(): pass\n    case CategoryDomain(labels=some): pass", 2),
        ("domain.kind == 'number'", 1),
        ("type(domain) is VectorDomain", 1),
        ("cast('NumberDomain', domain)", 1),
        ("ROWS = {NumberDomain: 1, BitDomain.kind: 2}", 2),
        ("@show.register\ndef _(domain: CategoryDomain): pass", 1),
        ("show.register(CategoryDomain, words)", 1),
        ("domain = NumberDomain(0.0, 1.0)\ndef f(domain: NumberDomain): return domain.numbers", 0),
    ],
)
def test_every_way_to_ask_counts(code: str, places: int) -> None:
    assert sum(1 for _ in questions(code)) == places


@pytest.mark.long
def test_few_places_of_the_product_ask() -> None:
    assert 0 < count(ROOT).total() <= MOST
