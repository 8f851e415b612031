"""What a message may say, whatever stands in the names that it repeats."""

import pytest

from hush import HushError
from hush_common.errors import OptionError, TaskError, printable


def test_a_message_is_one_line_that_moves_no_cursor() -> None:
    for hostile in ("\x1b[2J", "\x9b", "\r", "a\nhush: all is well", "\u202e", "\u2066", "\u2028", "\udcff"):
        for error in (HushError(hostile), OptionError(hostile, hostile), TaskError(hostile, hostile)):
            assert str(error).isprintable()
    assert printable("a\x1b[2J\tb\n\u202e") == r"a\x1b[2J\tb\n\u202e"


def test_a_text_that_only_resembles_a_login_stays() -> None:
    text = "Zürich/Größe (5 °C), 'наука' 木: mqtt://alice@[::1]:1883/a?ca=/b%20c"
    assert printable(text) == text == str(HushError(text))
    for text in ("Pizza at 18:30@home?", "a: b@c", "mqtts://alice@host:1", "alice@host:1883", "a = b"):
        assert printable(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("'mqtt://alice:s3cret@host:1' is bad", "'mqtt://…@host:1' is bad"),
        ("mqtt:/alice:s3cret@host is bad", "mqtt:/…@host is bad"),
        ("ws://:a/b@c@host/d", "ws://…@host/d"),
        ("postgres://alice:/s3cret@host", "postgres://…@host"),
        ("alice:s3cret@host:1 is bad", "…@host:1 is bad"),
        ("'alice:s3c@ret@host' is bad", "'…@host' is bad"),
        ("18:30:s3cret@host", "…@host"),
        ("http://host/?token=s3cret&a=b", "http://host/?token=…&a=b"),
        ("Server=h;Pwd = s3cret;a=b", "Server=h;Pwd = …;a=b"),
        ("'host=h password=s3c\"ret' is bad", "'host=h password=… is bad"),
        ("'SECRET=s3cret'", "'SECRET=…"),
    ],
)
def test_a_login_in_the_wrong_place_is_left_out(text: str, shown: str) -> None:
    assert str(TaskError("task", text)) == f"task: {shown}"
