"""The plan of docs/operations.md is what its assumptions give."""

import re
from pathlib import Path

import pytest

TEXT = (Path(__file__).parents[2] / "docs/operations.md").read_text(encoding="utf-8")
PLAN = TEXT.partition("\n## Capacity\n")[2].partition("\nWhat follows from it:")[0]
DAY = 86_400
PEAK, ALONE_US, FRAMED_US, STORED, PACKET, FRAMED = 5, 9.9, 3.7, 37, 100, 25
CONNECTION_BYTES, CONNECTION_S, BROKER, WAITING = 5000, 0.002, 7000, 400
UNITS = {"": 1, "million": 1e6, "MB": 1e6, "GB": 1e9, "TB": 1e12, "min": 60, "h": 3600}
SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789")


def numbers(cell: str) -> list[float]:
    """Its numbers, in bytes and seconds."""
    cell = re.sub("10([⁰-⁹¹²³]+)", lambda found: f"1e{found[1].translate(SUPERSCRIPTS)}", cell)
    cell = re.sub(r"(?<=\d) (?=\d{3}\b)", "", cell)
    found = re.findall(r"(\d+(?:\.\d+)?(?:e\d+)?) ?(million|[MGT]B|min\b|h\b|)", cell)
    return [float(number) * UNITS[unit] for number, unit in found]


def cells(beginning: str, place: int = 0) -> list[list[float]]:
    """The numbers of the columns of a row: of those with this beginning, the one in this place."""
    rows = [line for line in PLAN.splitlines() if line.startswith(f"| {beginning}")]
    return [numbers(cell) for cell in rows[place].split("|")[2:-1]]


@pytest.mark.parametrize(
    ("row", "place", "expected"),
    [
        ("reports a second", 0, lambda n: [n / DAY, PEAK * n / DAY]),
        ("connections in the busiest", 0, lambda n: [PEAK * n / DAY, PEAK * n / DAY * CONNECTION_S]),
        ("network", 0, lambda n: [PACKET * n, CONNECTION_BYTES * n]),
        ("messages that wait after an hour without", 0, lambda n: [n / 24, n / 24 * WAITING]),
        ("`hush serve`", 0, lambda n: [PEAK * n / DAY * ALONE_US / 1e6]),
        ("messages a second", 0, lambda n: [n / 100 / DAY, PEAK * n / 100 / DAY]),
        ("connections, if", 0, lambda n: [n / 100]),
        ("network", 1, lambda n: [FRAMED * n]),
        ("messages that wait after an hour (", 0, lambda n: [n / 24 / 100]),
        ("`hush serve`", 1, lambda n: [PEAK * n / DAY * FRAMED_US / 1e6]),
        ("store: a day", 0, lambda n: [STORED * n, STORED * n * 365]),
        ("store of 14", 0, lambda n: [STORED * n * 14]),
        ("after a broker", 0, lambda n: [min(n / 500, DAY), *([n / DAY] if n / 500 > DAY else [])]),
    ],
)
def test_a_row_follows_from_the_assumptions(row: str, place: int, expected: object) -> None:
    assert callable(expected)
    for devices, found in zip((1e6, 1e8, 1e9), cells(row, place), strict=True):
        assert found == pytest.approx(expected(devices), rel=0.05), row


def test_the_assumptions_are_those_of_the_document() -> None:
    given = PLAN.partition("| a day |")[0]
    quoted = "five times", "9.9 µs", "3.7 µs", "37 bytes", "100 bytes", "25 bytes", "5 KB", "2 ms", "7000", "400 bytes"
    assert [text for text in quoted if text not in given] == []
    peak = PEAK * 1e9 / DAY
    assert f"{peak / 67_600:.0%}".replace("%", " %") in TEXT
    assert -(-peak // BROKER) == 9
    assert "| 9 for the messages, 116 cores" in PLAN


def test_a_wrong_number_is_found() -> None:
    assert numbers("1160, 5800") != pytest.approx([1e8 / DAY, 4 * 1e8 / DAY], rel=0.05)
