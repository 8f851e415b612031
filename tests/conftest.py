"""Fixtures that need the outside world."""

import asyncio
import gc
import os
import random
import re
import secrets
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import settings
from servers import Mosquitto, Postgres, need
from stores import StorePlace, in_postgres
from virtual_time import VirtualLoop

from hush_common import rng

# A run that was started in the background ignores Ctrl-C, and so would the commands that tests start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

# What commands print must not depend on the terminal of who tests, nor on the width that a test runner assumes.
for _variable in ("COLUMNS", "NO_COLOR"):
    os.environ.pop(_variable, None)

# Which draws the tests see: those of "0" in each run, so that none fails by chance; others to look for more.
_SEED = os.environ.get("HUSH_TEST_SEED", "0")

# A slow machine is not an error of the code.
settings.register_profile("hush", deadline=None, derandomize=_SEED == "0")
settings.load_profile("hush")

# Devices draw from the operating system. In the process of the tests they draw from a generator that each test seeds.
_drawn = random.Random()  # noqa: S311 - repeatable
_OF_THE_SYSTEM = rng.token_bytes, secrets.randbelow


def _randbelow(exclusive_upper_bound: int) -> int:
    return _drawn.randrange(exclusive_upper_bound)


def _restore() -> None:
    rng.token_bytes, secrets.randbelow = _OF_THE_SYSTEM


rng.token_bytes, secrets.randbelow = _drawn.randbytes, _randbelow
os.register_at_fork(after_in_child=_restore)  # two processes must not draw the same


# What a test without a size must not do: each of these waits for another process, or for the system.
_OF_LARGER_TESTS = {"os.fork", "os.posix_spawn", "os.system", "socket.bind", "socket.connect", "subprocess.Popen"}
_small: list[str] = []  # the small test that runs, if any


def _watch(event: str, _arguments: object) -> None:
    if _small and event in _OF_LARGER_TESTS:
        raise AssertionError(f"{_small[0]} uses {event}: mark it medium or large")


sys.addaudithook(_watch)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Start a test with draws of its own, also in its fixtures."""
    _drawn.seed(f"{_SEED} {item.nodeid}")
    if not {"medium", "large", "soak"} & {m.name for m in item.iter_markers()}:
        _small[:] = [item.nodeid]


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    _small.clear()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import no file whose tests are all too large for this run: that took a quarter of the time of `make quick`."""
    if not collection_path.name.startswith("test_") or collection_path.suffix != ".py":
        return None
    size = re.search(r"^pytestmark = \[?pytest\.mark\.(\w+)", collection_path.read_text("utf-8"), re.MULTILINE)
    run = config.getoption("markexpr")
    return True if size is not None and f"not {size[1]} " in f"{run} " and "face" not in run else None


_LONGEST = ("tests/simulations/conform/test_conform.py", "tests/simulations/commands/test_lost_output.py")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that take minutes: a process that began one at the end would run alone."""
    items.sort(key=lambda item: not item.nodeid.startswith(_LONGEST))


def pytest_collection_finish() -> None:
    """Let no later collection of garbage look through the thousands of collected tests and imported modules."""
    gc.collect()
    gc.freeze()


def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The event loop of an asynchronous test."""
    marker = item.get_closest_marker("virtual_time")
    return (
        {"virtual": VirtualLoop}
        if marker is not None and False not in marker.args
        else {"real": asyncio.SelectorEventLoop}
    )


@contextmanager
def _in_memory() -> Iterator[Path]:
    memory = Path("/dev/shm")  # noqa: S108 - the directory in it is made safely
    with TemporaryDirectory(prefix="hush-", dir=memory if memory.is_dir() else None) as directory:
        yield Path(directory)


@pytest.fixture
def memory_path() -> Iterator[Path]:
    """A directory in memory where there is one, for tests of thousands of commits that are not about the disk."""
    with _in_memory() as directory:
        yield directory


@pytest.fixture(scope="module")
def temporary_in_memory() -> Iterator[None]:
    """Temporary files in memory, for modules whose hundreds of simulations are not about the disk."""
    with _in_memory() as directory, pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(directory))
        yield


@pytest.fixture
def unrendered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures are drawn, but not turned into pixels, which takes seconds: for hundreds of commands that write some."""
    from hush_simulations.display import style  # noqa: PLC0415 - most tests need nothing of the laboratory

    for kind in ("png", "svg"):
        monkeypatch.setattr(style, kind, lambda _figure, title, shows: f"{title}\n{shows}".encode())


@pytest.fixture
def mosquitto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mosquitto]:
    """An open broker."""
    with Mosquitto(tmp_path_factory.mktemp("mosquitto")).running() as server:
        yield server


@pytest.fixture
def bare(memory_path: Path) -> Iterator[Mosquitto]:
    """A broker with nothing that tells it to lose less when it is killed."""
    (memory_path / "broker").mkdir()
    with Mosquitto(memory_path / "broker", settings="").running() as server:
        yield server


@pytest.fixture
def guarded_mosquitto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mosquitto]:
    """A broker that admits only the user `alice` with the password `right`."""
    directory = tmp_path_factory.mktemp("mosquitto")
    passwords = directory / "passwords"
    passwords.touch()
    subprocess.run([need("mosquitto_passwd"), "-b", str(passwords), "alice", "right"], check=True)
    passwords.chmod(0o644)
    with Mosquitto(directory, access=f"allow_anonymous false\npassword_file {passwords}").running() as server:
        yield server


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Postgres]:
    """A server with no memory of its own beyond the run."""
    with _in_memory() as directory:
        directory.chmod(0o755)
        server = Postgres(directory / "postgres")
        server.start()
        yield server
        server.stop("immediate")


@pytest.fixture
def own_postgres_server() -> Iterator[Postgres]:
    """A server that a test may kill."""
    with _in_memory() as directory:
        directory.chmod(0o755)
        server = Postgres(directory / "postgres")
        server.start()
        yield server
        server.stop("immediate")


@pytest.fixture
def postgres(postgres_server: Postgres) -> Iterator[StorePlace]:
    """A store in PostgreSQL."""
    with in_postgres(postgres_server) as place:
        yield place


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.large)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> StorePlace:
    """A store of each kind, for what both promise."""
    if request.param == "sqlite":
        return StorePlace(tmp_path / "hush.sqlite")
    place: StorePlace = request.getfixturevalue("postgres")
    return place
