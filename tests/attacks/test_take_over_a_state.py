"""Whoever has another account on the machine of a device wants its ledger replaced, or its lock to write elsewhere."""

import os
from pathlib import Path

import pytest

from hush_client.state.database import State
from hush_client.state.lock import LOCK_NAME, Lock
from hush_common.errors import StateError


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o1777])
async def test_a_directory_that_others_may_write_to_holds_no_state(tmp_path: Path, mode: int) -> None:
    directory = tmp_path / "state"
    directory.mkdir()
    directory.chmod(mode)
    for attempt in (State.open, Lock.acquire):
        with pytest.raises(StateError, match=r"others may write to it.*chmod 700"):
            await attempt(directory)
    assert list(directory.iterdir()) == []


async def test_what_is_made_above_a_state_is_for_its_owner_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        state = await State.open(tmp_path / "a" / "b" / "c")
        await state.close()
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "a", tmp_path / "a" / "b", tmp_path / "a/b/c")} == {
        0o700
    }


async def test_a_lock_follows_no_link(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir(mode=0o700)
    (tmp_path / "state" / LOCK_NAME).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StateError, match="cannot hold the state"):
        await Lock.acquire(tmp_path / "state")
    assert not (tmp_path / "elsewhere").exists()
