"""`hush report` reads a value as the domain of the task asks for it."""

import io

import pytest

from hush_client.commands.report import _is_typed_by_a_person, _is_watched, _read_line
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


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("error", [None, io.StringIO(), Terminal()])
@pytest.mark.parametrize("typed", [None, io.StringIO(), Terminal()])
def test_a_person_is_where_both_streams_are_a_terminal(
    monkeypatch: pytest.MonkeyPatch, error: io.StringIO | None, typed: io.StringIO | None
) -> None:
    monkeypatch.setattr("sys.stderr", error)
    monkeypatch.setattr("sys.stdin", typed)
    assert _is_watched() == isinstance(error, Terminal)
    assert _is_typed_by_a_person() == (isinstance(error, Terminal) and isinstance(typed, Terminal))


@pytest.mark.parametrize(
    ("typed", "text"),
    [(b" 172.5 \nmore", "172.5"), (b"\xff1\n", "\ufffd1"), (b"", ""), (b"1" * 3_000_000, "1" * (1 << 20))],
    ids=["a line", "no text", "nothing", "no end"],
)
def test_what_is_typed_is_a_line_whatever_bytes_it_has(
    monkeypatch: pytest.MonkeyPatch, typed: bytes, text: str
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(typed)))
    assert _read_line() == text


@pytest.mark.parametrize(
    ("domain", "names"),
    [
        (CategoryDomain(tuple(f"l{place}" for place in range(1000))), "one of l0, l1, l2, l3, l4, l5, …"),
        (CategoryDomain(tuple(f"l{place}" for place in range(6))), "one of l0, l1, l2, l3, l4, l5"),
        (BODY, "height, weight"),
    ],
)
def test_a_message_names_a_few_of_what_could_be_typed(domain: Domain, names: str) -> None:
    assert domain.typing_hint.endswith(f"; write {names}")
