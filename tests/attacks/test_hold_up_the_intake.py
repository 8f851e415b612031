"""Whoever wants honest reports to wait sends what takes long to refuse."""

import json

import pytest

from hush_common.codec import decode, unique_object
from hush_common.refusal import Refusal


class _Key(str):
    """A key that counts how often it is compared."""

    __slots__ = ()
    compared = 0

    def __eq__(self, other: object) -> bool:
        _Key.compared += 1
        return super().__eq__(other)

    __hash__ = str.__hash__


def test_a_key_that_stands_twice_is_found_with_few_comparisons() -> None:
    names = [_Key(f"k{number}") for number in range(4000)]
    _Key.compared = 0
    with pytest.raises(ValueError, match="'k3999' stands twice"):
        unique_object([(name, 0) for name in [*names, _Key("k3999")]])
    assert _Key.compared < 4 * len(names)  # it was half of 4000 squared


def test_such_a_report_is_malformed() -> None:
    text = json.dumps({f"k{number}": 0 for number in range(1000)})[:-1] + ',"k999":0}'
    assert decode(text.encode()) is Refusal.MALFORMED
