"""The logins of a poll: each browser has its own, and keeps it."""

from pathlib import Path

import pytest

from hush_common.errors import OptionError
from hush_poll.logins import Login, Logins

FIRST, SECOND, THIRD = (digit * 32 for digit in "abc")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "logins"
    path.write_text("phone-1:one\n\nphone-2:t:w o\n", encoding="utf-8")
    return path


def test_each_browser_gets_its_own_login_until_none_is_left(file: Path) -> None:
    logins = Logins(file)
    assert logins.of(FIRST) == Login("phone-1", "one")
    assert logins.of(SECOND) == Login("phone-2", "t:w o")
    assert logins.of(THIRD) is None
    assert logins.of(FIRST) == Login("phone-1", "one")
    assert logins.free == []


def test_a_browser_keeps_its_login_over_a_restart(file: Path) -> None:
    before = Logins(file)
    before.of(FIRST)
    before.close()
    after = Logins(file)
    assert after.of(SECOND) == Login("phone-2", "t:w o")
    assert after.of(FIRST) == Login("phone-1", "one")


def test_a_login_that_was_removed_is_given_to_nobody(file: Path) -> None:
    before = Logins(file)
    before.of(FIRST)
    before.close()
    file.write_text("phone-2:two\n", encoding="utf-8")
    assert Logins(file).of(FIRST) == Login("phone-2", "two")


def test_two_polls_cannot_share_a_file(file: Path) -> None:
    first = Logins(file)
    with pytest.raises(OptionError, match=r"^--logins: "):
        Logins(file)
    first.close()
    Logins(file).close()


@pytest.mark.parametrize("browser", ["", "x", "A" * 32, "a" * 33, f"{'a' * 31}\n", "a b" * 11])
def test_another_name_gets_none(file: Path, browser: str) -> None:
    logins = Logins(file)
    with pytest.raises(ValueError, match="browser"):
        logins.of(browser)
    assert len(logins.free) == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "10000"),
        ("phone-1:a\nsecret\n", "line 2"),
        ("phone-1:\n", "line 1"),
        ("a b:secret\n", "line 1"),
        ("phone-1:secret\nphone-1:secret\n", "line 2"),
    ],
)
def test_a_file_with_a_mistake_is_one_line_without_the_password(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "logins"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(OptionError, match=f"--logins: .*{message}") as raised:
        Logins(file)
    assert "secret" not in str(raised.value)


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"^--logins: .*missing"):
        Logins(tmp_path / "missing")
