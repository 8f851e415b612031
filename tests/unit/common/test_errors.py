"""What a message may say, whatever stands in the names that it repeats."""

import pytest

from hush_common.errors import HushError, OptionError, TaskError, printable


@pytest.mark.parametrize(
    "hostile", ["\x1b[2J", "\x9b", "\r", "a\nhush: all is well", "\u202e", "\u2066", "\u2028", "\udcff"]
)
def test_a_message_is_one_line_that_moves_no_cursor(hostile: str) -> None:
    for error in (HushError(hostile), OptionError(hostile, hostile), TaskError(hostile, hostile)):
        assert str(error).isprintable()


def test_what_can_be_printed_stays() -> None:
    text = "Zürich/Größe (5 °C), 'наука' 木: mqtt://alice@[::1]:1883/a?ca=/b%20c"
    assert printable(text) == text == str(HushError(text))


def test_what_cannot_is_written_as_python_would() -> None:
    assert printable("a\x1b[2J\tb\n\u202e") == r"a\x1b[2J\tb\n\u202e"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("'mqtt://alice:s3cret@host:1' is none", "'mqtt://…@host:1' is none"),
        ("mqtt:/alice:s3cret@host cannot be read", "mqtt:/…@host cannot be read"),
        ("ws://:a/b@c@host/d", "ws://…@host/d"),
    ],
)
def test_the_login_of_an_address_in_the_wrong_place_is_left_out(text: str, shown: str) -> None:
    assert str(TaskError("task", text)) == f"task: {shown}"
