"""Whatever the width, nothing on a screen is cut, lost or broken in the middle, and no line ends in a blank."""

import io
import random
import sys
from itertools import product

import pytest
from rendered import rendered

from hush_common.terminal import Column, Fact, Facts, Row, Screen, Sentence, Styled, Table, note, show, wrapped

WIDTHS = (20, 33, 60, 61, 80, 120)
WORDS = ("a", "bus", "12", "1 234 567", "12.5 %", "± 0.599 cm", "underground", "randomized_response", "日本語", "")


def words_of(source: random.Random, most: int) -> str:
    return " ".join(source.choice(WORDS) for _ in range(source.randint(0, most))).strip()


def tables(count: int) -> list[Table]:
    source = random.Random(5)  # noqa: S311 - tables to print
    made = []
    for _ in range(count):
        width = source.randint(2, 7)
        grouped = source.choice((0, 0, 1, 2)) if width > 3 else 0
        columns = [Column(words_of(source, 3) or "t", right=source.random() < 0.5) for _ in range(width)]
        rows = []
        for number in range(source.randint(1, 5)):
            cells = [words_of(source, 5) for _ in range(width)]
            if number % 2:
                cells[:grouped] = [""] * grouped
            else:
                cells[0] = cells[0] or "name"
            rows.append(Row(cells if number != 3 else ()))
        made.append(Table(columns, rows, grouped=grouped))
    return made


def in_order(text: str, words: list[str]) -> bool:
    """Whether each of the words is there, as a whole: no tie and no word is broken."""
    lines = [" ".join(line.split()) for line in text.splitlines()]
    return all(any(word in line for line in lines) for word in words)


def tied(cell: str) -> list[str]:
    return [" ".join(line.split()) for line in wrapped(cell, 1)]


@pytest.mark.medium
def test_no_width_cuts_a_table() -> None:
    for width, made in product(WIDTHS, tables(40)):
        text = rendered([made], width, wraps=True)
        lines = text.splitlines()
        assert all(line == line.rstrip() for line in lines)
        assert "…" not in text
        cells = [cell for row in made.rows for cell in row.cells if isinstance(cell, str)]
        words = [word for cell in cells for word in tied(cell) if word]
        assert in_order(text, words), (text, words)
        if width >= 60:  # the longest word has 19 letters
            assert max(map(len, lines)) <= width, text


def test_a_number_of_a_table_is_never_broken_in_two_lines() -> None:
    made = Table(
        [Column("name"), Column("an interval of it", right=True)], [Row(["a long name", "1 234.5 to 6 789.0"])]
    )
    for width in WIDTHS[1:]:
        assert "1 234.5 to 6 789.0" in rendered([made], width, wraps=True)


def test_a_table_that_does_not_fit_is_stacked() -> None:
    columns = [Column("mechanism"), Column("reporters", right=True), Column("population", right=True)]
    made = Table(columns, [Row(["laplace", "± 12.4 cm", "± 14.2 cm"])])
    assert rendered([made], 60) == (
        "  mechanism   reporters   population\n"
        "  ──────────────────────────────────\n"
        "  laplace     ± 12.4 cm    ± 14.2 cm\n"
    )
    assert rendered([made], 30) == "  laplace\n      reporters   ± 12.4 cm\n      population  ± 14.2 cm\n"


def test_decimal_points_are_below_each_other() -> None:
    columns = [Column("epsilon", right=True, point=True, named=True), Column("±", right=True, point=True)]
    rows = [Row(["0.25", "1 234.5"]), Row(["10", Styled("0.0915", "red")]), Row(), Row(["2", "none"])]
    assert rendered([Table(columns, rows)], 40) == (
        "  epsilon            ±\n"
        "  ────────────────────\n"
        "     0.25   1 234.5\n"
        "    10          0.0915\n"
        "\n"
        "     2            none\n"
    )
    assert rendered([Table(columns, rows)], 18, wraps=True) == (
        "  epsilon 0.25\n      ±  1 234.5\n  epsilon 10\n      ±  0.0915\n\n  epsilon 2\n      ±  none\n"
    )
    grouped = Table([*columns, Column("interval", right=True)], [Row([*row.cells, "1 to 2"]) for row in rows[:2]], 1)
    assert [line.rstrip() for line in rendered([grouped], 28, wraps=True).splitlines() if "epsilon " in line] == [
        "  epsilon 0.25",
        "  epsilon 10",
    ]


@pytest.mark.medium
def test_no_width_cuts_a_list_of_facts_or_a_sentence() -> None:
    source = random.Random(6)  # noqa: S311 - lists to print
    for width, _ in product(WIDTHS, range(40)):
        facts = [Fact(words_of(source, 3), words_of(source, 6), words_of(source, 6)) for _ in range(4)]
        sentence = Sentence(words_of(source, 20))
        text = rendered([Facts(facts), sentence], width, wraps=True)
        assert all(line == line.rstrip() for line in text.splitlines())
        parts = [str(part) for fact in facts for part in (fact.label, fact.value, fact.remark)] + [sentence.text]
        assert in_order(text, [word for part in parts for word in tied(part) if word])
        if width >= 60:
            assert max(map(len, text.splitlines()), default=0) <= width


def test_per_cent_signs_and_thousands_stay_with_their_number() -> None:
    for width in range(1, 60):
        lines = wrapped("1 234 567 people or 12.5 % of them, at epsilon 0.5 and an error of ± 3 cm", width)
        text = "\n".join(lines)
        for whole in ("1 234 567", "12.5 %", "epsilon 0.5", "± 3 cm"):
            assert whole in text


def test_a_name_cannot_write_to_the_terminal() -> None:
    made = Table([Column("name")], [Row(["\x1b[2Jgone"])])
    assert "\x1b" not in rendered([made, Sentence("a\nb"), Facts([Fact("\r", "\x9b")])])


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_colours_are_for_terminals_and_take_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Table([Column("covers"), Column("n", right=True)], [Row([Styled("no", "red"), "3"])])
    painted = made.lines(Screen(60, painted=True))
    assert "\x1b[31mno\x1b[0m" in painted[-1]
    assert painted[-1].replace("\x1b[31m", "").replace("\x1b[0m", "") == made.lines(Screen(60))[-1]
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert Screen.of(Terminal()).painted
    monkeypatch.setenv("NO_COLOR", "1")
    assert not Screen.of(Terminal()).painted


@pytest.mark.parametrize(
    ("columns", "width", "wraps"), [(None, 100, False), ("72", 72, True), ("1", 20, True), ("wide", 100, False)]
)
def test_columns_says_how_wide_a_screen_is(
    monkeypatch: pytest.MonkeyPatch, columns: str | None, width: int, wraps: bool
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    if columns is not None:
        monkeypatch.setenv("COLUMNS", columns)
    assert Screen.of(io.StringIO()) == Screen(width, wraps=wraps)
    stream = io.StringIO()
    show([Sentence("word " * 60)], stream)
    assert (len(stream.getvalue().splitlines()) == 1) is not wraps


@pytest.mark.parametrize("columns", [40, 80])
def test_a_note_is_one_line_in_a_pipe(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    words = "some words that are longer than the narrow terminal is wide, and fit into the wide one"
    streams: tuple[io.StringIO, ...] = (Terminal(), io.StringIO())
    for stream in streams:
        monkeypatch.setattr(sys, "stderr", stream)
        note(words)
        lines = stream.getvalue().splitlines()
        assert " ".join(map(str.strip, lines)) == f"hush: {words}"
        assert len(lines) == 1 or (stream.isatty() and max(map(len, lines)) <= columns)
