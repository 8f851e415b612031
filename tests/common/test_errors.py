"""What a message may say, whatever stands in the names that it repeats."""

import pytest

from hush import HushError
from hush_common.errors import OptionError, TaskError, printable


@pytest.mark.parametrize(
    "hostile", ["\x1b[2J", "\x9b", "\r", "a\nhush: all is well", "\u202e", "\u2066", "\u2028", "\udcff"]
)
def test_a_message_is_one_line_that_moves_no_cursor(hostile: str) -> None:
    for error in (HushError(hostile), OptionError(hostile, hostile), TaskError(hostile, hostile)):
        assert str(error).isprintable()


def test_what_can_be_printed_stays() -> None:
    text = "Zürich/Größe (5 °C), 'наука' 木: mqtt://alice@[::1]:1883/a?ca=/b%20c"
    assert printable(text) == text == str(HushError(text))


@pytest.mark.parametrize("text", ["Pizza at 18:30@home?", "a: b@c", "mqtts://alice@host:1", "alice@host:1883", "a = b"])
def test_a_text_that_only_resembles_a_login_stays(text: str) -> None:
    assert printable(text) == text


def test_what_cannot_is_written_as_python_would() -> None:
    assert printable("a\x1b[2J\tb\n\u202e") == r"a\x1b[2J\tb\n\u202e"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("'mqtt://alice:s3cret@host:1' is none", "'mqtt://…@host:1' is none"),
        ("mqtt:/alice:s3cret@host cannot be read", "mqtt:/…@host cannot be read"),
        ("ws://:a/b@c@host/d", "ws://…@host/d"),
        ("postgres://alice:/s3cret@host", "postgres://…@host"),
        ("alice:s3cret@host:1 cannot be read", "…@host:1 cannot be read"),
        ("'alice:s3c@ret@host' is not a number", "'…@host' is not a number"),
        ("18:30:s3cret@host", "…@host"),
        ("http://host/?token=s3cret&a=b", "http://host/?token=…&a=b"),
        ("Server=h;Pwd = s3cret;a=b", "Server=h;Pwd = …;a=b"),
        ("'host=h password=s3c\"ret' is not a file", "'host=h password=… is not a file"),
        ("'SECRET=s3cret'", "'SECRET=…"),
    ],
)
def test_the_login_of_an_address_in_the_wrong_place_is_left_out(text: str, shown: str) -> None:
    assert str(TaskError("task", text)) == f"task: {shown}"
