"""Whoever has another account on the machine of a device wants its ledger replaced, or its lock to write elsewhere."""

import os
from pathlib import Path

import pytest
from scripted_broker import ScriptedBroker

from hush_aggregator import SqliteStore
from hush_client import Gateway
from hush_common.errors import StateError


async def open_state(directory: Path) -> None:
    async with Gateway(ScriptedBroker(), name="g", state=directory):
        pass


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o1777])
async def test_a_directory_that_others_may_write_to_holds_no_state(tmp_path: Path, mode: int) -> None:
    directory = tmp_path / "state"
    directory.mkdir()
    directory.chmod(mode)
    with pytest.raises(StateError, match="chmod 700"):
        await open_state(directory)
    assert list(directory.iterdir()) == []


async def test_a_directory_that_everybody_may_write_to_holds_no_state_below_it(tmp_path: Path) -> None:
    """They could rename what is below, and put a ledger that has spent nothing in its place."""
    above = tmp_path / "above"
    (above / "between" / "state").mkdir(mode=0o700, parents=True)
    (tmp_path / "link").symlink_to(above / "between")
    above.chmod(0o777)
    for state in (above / "between" / "state", above / "new", tmp_path / "link" / "state"):
        with pytest.raises(StateError, match=f"chmod o-w {above}"):
            await open_state(state)
    assert list((above / "between" / "state").iterdir()) == []


@pytest.mark.parametrize("mode", [0o1777, 0o775, 0o755])
async def test_one_where_nobody_can_replace_it_does(tmp_path: Path, mode: int) -> None:
    """As /tmp, and as the home of somebody who has a group to himself."""
    home = tmp_path / "home"
    home.mkdir()
    home.chmod(mode)
    await open_state(home / "state")


@pytest.mark.parametrize("mode", [0o666, 0o602])
def test_a_store_that_everybody_could_change_is_told_and_closed_to_them(
    tmp_path: Path, mode: int, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "hush.sqlite3"
    with SqliteStore(path):
        pass
    assert caplog.text == ""
    path.chmod(mode)
    with SqliteStore(path):
        pass
    assert str(path) in caplog.text
    assert path.stat().st_mode & 0o007 == 0


def test_a_store_in_a_directory_of_everybody_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "below").mkdir()
    tmp_path.chmod(0o777)
    with SqliteStore(tmp_path / "below" / "hush.sqlite3"):
        pass
    assert f"{tmp_path}, " in caplog.text


async def test_what_is_made_above_a_state_is_for_its_owner_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        await open_state(tmp_path / "a" / "b" / "c")
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "a", tmp_path / "a" / "b", tmp_path / "a/b/c")} == {
        0o700
    }


async def test_a_lock_follows_no_link(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir(mode=0o700)
    (tmp_path / "state" / "hush.lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StateError, match="state"):
        await open_state(tmp_path / "state")
    assert not (tmp_path / "elsewhere").exists()
