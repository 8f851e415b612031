"""The directory of a broker: complete or absent, private, and nothing in it overwritten."""

import errno
import os
import stat
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from certificates import Authority
from commands import run
from hardened import Hardened, hush
from servers import need

from hush_aggregator.ops.mosquitto import (
    BrokerDirectory,
    Listener,
    Role,
    configuration,
    roles_of,
    rules,
    use_certificate,
)
from hush_common.errors import OptionError, SetupError

PASSWORD = "hunter2 ü:$7$"  # noqa: S105 - of tests


def made(path: Path, fill: Callable[[Path], str] = lambda _: "") -> BrokerDirectory:
    return BrokerDirectory.create(path, fill, None)


def files(path: Path) -> dict[str, bytes]:
    return {
        str(file.relative_to(path)): file.read_bytes()
        for file in sorted(path.rglob("*"))
        if file.is_file() and file.name != "lock"
    }


@pytest.fixture
def home(tmp_path: Path) -> Path:
    made(tmp_path / "broker")
    return tmp_path / "broker"


def test_a_name_that_cannot_be_a_sender_changes_nothing(home: Path) -> None:
    before = files(home)
    names = ["", "a:b", "x\ny", "a/b", "+", "#", "%u", "$SYS", "a b", "-x", "é", "x" * 129, "a\0", "user x", "..", "."]
    for name in names:
        with pytest.raises(OptionError, match="128"):
            BrokerDirectory(home).add(name, Role.DEVICE)
    assert files(home) == before


def test_a_name_has_one_user_until_it_is_removed(home: Path) -> None:
    BrokerDirectory(home).add("kitchen", Role.AGGREGATOR)
    before = files(home)
    with pytest.raises(OptionError, match="hush broker remove kitchen"):
        BrokerDirectory(home).add("kitchen", Role.DEVICE)
    assert files(home) == before
    BrokerDirectory(home).remove("kitchen")
    with pytest.raises(OptionError, match="'kitchen'"):
        BrokerDirectory(home).remove("kitchen")
    BrokerDirectory(home).add("kitchen", Role.DEVICE)
    assert roles_of((home / "rules").read_text(encoding="utf-8")) == {}


def test_the_rules_of_others_stay_when_one_is_added() -> None:
    roles = {"aggregator": Role.AGGREGATOR, "worker-2": Role.AGGREGATOR, "x@y": Role.PUBLISHER}
    assert roles_of(rules(roles | {"kitchen": Role.DEVICE})) == roles
    assert "kitchen" not in rules({"kitchen": Role.DEVICE})  # patterns are enough


@pytest.mark.medium
def test_mosquitto_accepts_the_file_of_passwords(home: Path) -> None:
    BrokerDirectory(home).add("kitchen", Role.DEVICE, PASSWORD)
    line = (home / "passwords").read_text(encoding="utf-8")
    kind, iterations, salt, key = line.removeprefix("kitchen:").strip().removeprefix("$").split("$")
    assert (kind, iterations, len(salt), len(key)) == ("7", "20000", 16, 88)
    subprocess.run([need("mosquitto_passwd"), "-b", str(home / "passwords"), "other", "x"], check=True)
    assert (home / "passwords").read_text(encoding="utf-8").startswith(line)


@pytest.mark.parametrize("there", ["file", "directory", "link", "configuration", "hidden"])
def test_a_directory_with_something_in_it_stays_as_it_is(tmp_path: Path, there: str) -> None:
    path = tmp_path / "broker"
    if there == "file":
        path.write_text("mine")
    elif there == "link":
        path.symlink_to(tmp_path / "elsewhere")
    else:
        path.mkdir()
        (path / {"directory": "notes", "configuration": "mosquitto.conf", "hidden": ".git"}[there]).write_text("mine")
    before = files(tmp_path)
    with pytest.raises(OptionError, match="DIR: "):
        made(path)
    assert files(tmp_path) == before
    assert [file.name for file in tmp_path.iterdir()] == ["broker"]


@pytest.mark.medium
def test_every_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    mask = os.umask(0)
    try:
        Hardened(tmp_path / "broker", {"kitchen": "device", "aggregator": "aggregator"}).set_up()
    finally:
        os.umask(mask)
    places = [tmp_path / "broker", *(tmp_path / "broker").rglob("*")]
    assert len(places) >= 13
    for place in places:
        assert stat.S_IMODE(place.stat().st_mode) == (0o700 if place.is_dir() else 0o600), place


@pytest.mark.parametrize("fails_at", range(1, 4))
def test_a_full_disk_leaves_nothing_half_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails_at: int
) -> None:
    """The n-th of the three files that are written fails, in `create` and in `add`."""
    real, left = os.fsync, [fails_at]

    def full(number: int) -> None:
        left[0] -= 1
        if not left[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(number)

    monkeypatch.setattr(os, "fsync", full)
    path = tmp_path / "broker"
    with pytest.raises(SetupError, match="No space left"):
        made(path)
    assert list(tmp_path.iterdir()) == []
    made(path)
    before = files(path)
    left[0] = fails_at
    with pytest.raises(SetupError, match="No space left"):
        BrokerDirectory(path).add("kitchen", Role.AGGREGATOR)
    assert files(path)["passwords"] == before["passwords"]  # who has no password does not come in
    BrokerDirectory(path).add("kitchen", Role.AGGREGATOR)
    assert (path / "passwords").read_text(encoding="utf-8").startswith("kitchen:$7$")
    assert not [name for name in files(path) if name.startswith(".")]


@pytest.mark.medium
def test_a_certificate_must_fit_its_key(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.issue("broker", host="127.0.0.1")
    _, other = authority.issue("other")
    assert use_certificate(certificate, key).key == key
    for wrong in (other, certificate, tmp_path):
        with pytest.raises(OptionError, match=r"^--(cert|key): "):
            use_certificate(certificate, wrong)


def test_users_that_are_added_at_once_are_all_added_or_refused(home: Path) -> None:
    def add(number: int) -> bool:
        try:
            BrokerDirectory(home).add(f"device-{number}", Role.DEVICE)
        except SetupError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        added = sum(pool.map(add, range(16)))
    assert added
    assert len((home / "passwords").read_text(encoding="utf-8").splitlines()) == added


MISTAKES = [
    (("config", "broker"), "--host"),
    (("config", "x\ny", "--host", "h"), "DIR"),
    (("config", "no/where", "--host", "h"), "no "),
    (("config", "b", "--host", "h\nallow_anonymous true"), "--host"),
    (("config", "b", "--host", "h", "--listen", "lo"), "--listen"),
    (("config", "b", "--host", "h", "--cert", "x"), "--key"),
    (("config", "b", "--host", "h", "--cert", "x", "--key", "y"), "--cert"),
    (("config", "b", "--host", "h", "--websockets", "8883"), "--websockets"),
    (("config", "b", "--host", "h", "--run-as", "no-such-user"), "--run-as"),
    (("config", "b", "--host", "h", "--mosquitto", "2.1", "--plugins", "x"), "--plugins"),
    (("add", "kitchen"), "--config"),
    (("add", "kitchen", "hunter2"), "argument"),
]


@pytest.mark.parametrize(("arguments", "named"), MISTAKES)
def test_a_mistake_is_one_line_and_writes_nothing(tmp_path: Path, arguments: tuple[str, ...], named: str) -> None:
    shown = run(["broker", *arguments], tmp_path)
    assert (shown.code, shown.out, shown.err.count("\n")) == (2, "", 1)
    assert named in shown.err
    assert "hunter2" not in shown.err
    assert list(tmp_path.iterdir()) == []


def test_a_configuration_bounds_the_queue_and_names_plugins(tmp_path: Path) -> None:
    listener = Listener("", 8883, tmp_path / "c", tmp_path / "k", "mosquitto")
    old = configuration(tmp_path, listener)
    assert f"max_queued_bytes {1024**3}\n" in old  # half of the memory of its container
    assert "acl_file" in old.split("\n", 1)[1]
    new = configuration(tmp_path, listener, plugins=Path("/usr/lib/plugins"))  # from version 2.1 on
    assert not [line for line in new.splitlines() if line.startswith(("acl_file", "password_file"))]
    for name in ("password_file", "acl_file", "persist_sqlite"):
        assert f"global_plugin /usr/lib/plugins/mosquitto_{name}.so" in new


@pytest.mark.medium
@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root gives files to another user")
def test_a_broker_that_cannot_start_where_it_is_made_is_a_warning(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    ended = hush("broker", "config", str(closed / "broker"), "--host", "localhost", "--run-as", "nobody")
    assert ended.returncode == 0
    for word in ("WARNING", "nobody", "chmod o+x /"):
        assert word in ended.stderr
