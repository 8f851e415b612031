"""Files that are complete or absent, and locks between processes."""

import gc
import os
import stat
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hush_common.files import FileLock, draft_of, replace_file, replace_files


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


TAKE = """
import sys
from pathlib import Path
from hush_common.files import FileLock
print(sum(FileLock.take(Path(name)) is not None for name in sys.argv[1:]))
"""


def taken_elsewhere(*paths: Path) -> int:
    """How many of the locks another process can take."""
    done = subprocess.run([sys.executable, "-c", TAKE, *map(str, paths)], capture_output=True, check=True)
    return int(done.stdout)


def take(path: Path) -> FileLock:
    lock = FileLock.take(path)
    assert lock is not None
    return lock


@pytest.mark.medium
def test_one_process_holds_a_lock_at_a_time(tmp_path: Path) -> None:
    for _ in range(2):  # also after a release
        lock = take(tmp_path / "lock")
        assert FileLock.take(tmp_path / "lock") is None
        assert taken_elsewhere(tmp_path / "lock") == 0
        lock.release()
        lock.release()
        assert taken_elsewhere(tmp_path / "lock") == 1


@pytest.mark.medium
def test_one_of_many_threads_gets_a_new_lock(tmp_path: Path) -> None:
    paths = [tmp_path / str(number) for number in range(20)]
    together = threading.Barrier(8)

    def race(path: Path) -> FileLock | None:
        together.wait()
        return FileLock.take(path)

    held = []
    with ThreadPoolExecutor(8) as pool:
        for path in paths:
            taken = [lock for lock in pool.map(race, [path] * 8) if lock is not None]
            assert len(taken) == 1
            held += taken
    assert taken_elsewhere(*paths) == 0
    for lock in held:
        lock.release()


@pytest.mark.medium
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of forking where there are threads
def test_a_fork_that_releases_takes_the_lock_from_nobody(tmp_path: Path) -> None:
    lock = take(tmp_path / "lock")
    if (child := os.fork()) == 0:
        lock.release()
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert taken_elsewhere(tmp_path / "lock") == 0
    lock.release()


def test_a_lock_that_nobody_refers_to_is_released(tmp_path: Path) -> None:
    take(tmp_path / "lock")
    gc.collect()
    take(tmp_path / "lock").release()


@pytest.mark.parametrize(("found", "left"), [(None, 0o600), (0o644, 0o640), (0o600, 0o600)])
def test_nobody_else_may_open_the_file_of_a_lock(tmp_path: Path, found: int | None, left: int) -> None:
    path, before = tmp_path / "lock", os.umask(0)
    try:
        if found is not None:
            path.touch()
            path.chmod(found)
        lock = take(path)
        assert [file.stat().st_mode & 0o777 for file in tmp_path.iterdir()] == [left]
        lock.release()
    finally:
        os.umask(before)


@pytest.mark.parametrize("there", [True, False])
def test_a_lock_follows_no_link(tmp_path: Path, *, there: bool) -> None:
    if there:
        (tmp_path / "elsewhere").touch()
    (tmp_path / "lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic"):
        FileLock.take(tmp_path / "lock")
    assert (tmp_path / "elsewhere").exists() is there


UNWRITABLE = """
import os, sys
from pathlib import Path
from hush_common.files import FileLock
path = Path(sys.argv[1])
path.parent.chmod(0o755)
path.touch(0o444)
if os.geteuid() == 0:  # who may write anywhere
    os.setuid(65534)
try:
    FileLock.take(path)
except OSError as error:
    print(error.strerror)
"""


@pytest.mark.medium
def test_a_file_that_may_not_be_written_is_not_a_lock(memory_path: Path) -> None:
    command = [sys.executable, "-c", UNWRITABLE, str(memory_path / "lock")]
    done = subprocess.run(command, capture_output=True, check=True, text=True)
    assert done.stdout == "Permission denied\n"


def test_a_file_that_is_something_else_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "lock").write_bytes(b"a letter" * 100)
    with pytest.raises(OSError, match="database"):
        FileLock.take(tmp_path / "lock")
    assert (tmp_path / "lock").read_bytes() == b"a letter" * 100
