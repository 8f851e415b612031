"""Files that are complete or absent."""

import os
import stat
from pathlib import Path

import pytest

from hush_common.files import draft_of, replace_file, replace_files


def contents(directory: Path) -> dict[str, str]:
    return {path.name: path.read_text(encoding="utf-8") for path in directory.iterdir()}


def full(_: object) -> None:
    raise OSError(28, "No space left on device")


def test_files_are_all_there_or_none(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old", encoding="utf-8")
    with pytest.raises(OSError, match="No space"):
        replace_files(tmp_path, {"a": lambda file: file.write(b"new"), "b": full})
    assert contents(tmp_path) == {"a": "old"}
    written = replace_files(tmp_path, {"a": lambda file: file.write(b"new"), "b": lambda file: file.write(b"too")})
    assert written == [tmp_path / "a", tmp_path / "b"]
    assert contents(tmp_path) == {"a": "new", "b": "too"}


def test_a_file_is_as_it_was_where_the_disk_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replace_file(tmp_path / "a", b"old")
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space"):
            replace_file(tmp_path / "a", b"new")
    assert contents(tmp_path) == {"a": "old"}
    replace_file(tmp_path / "a", b"new")
    assert contents(tmp_path) == {"a": "new"}
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o600


def test_a_draft_is_private_unless_it_is_asked_for_otherwise(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        with draft_of(tmp_path / "a") as one, draft_of(tmp_path / "a", private=False) as other:
            assert [stat.S_IMODE(path.stat().st_mode) for path in (one, other)] == [0o600, 0o644]
    finally:
        os.umask(before)
    assert contents(tmp_path) == {}
