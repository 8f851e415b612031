"""The directory of a broker: whole or not there, private, and nothing in it overwritten unsaid."""

import errno
import os
import re
import stat
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from certificates import Authority
from hardened import Hardened, hush
from servers import need

from hush_aggregator.broker.mosquitto import (
    BrokerDirectory,
    Listener,
    Role,
    closed_above,
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


@pytest.mark.parametrize(
    "name", ["", "a:b", "x\ny", "a/b", "+", "#", "%u", "$SYS", "a b", "-x", "é", "x" * 129, "a\0", "user x", "..", "."]
)
def test_a_name_that_cannot_be_a_sender_is_refused_and_changes_nothing(home: Path, name: str) -> None:
    before = files(home)
    with pytest.raises(OptionError, match=r"cannot be a sender; use letters, digits and \. _ @ - \(at most 128\)$"):
        BrokerDirectory(home).add(name, Role.DEVICE)
    assert files(home) == before


def test_a_name_is_given_once(home: Path) -> None:
    BrokerDirectory(home).add("kitchen", Role.AGGREGATOR)
    before = files(home)
    with pytest.raises(OptionError, match="kitchen exists already; `hush broker remove kitchen` removes it"):
        BrokerDirectory(home).add("kitchen", Role.DEVICE)
    assert files(home) == before
    BrokerDirectory(home).remove("kitchen")
    with pytest.raises(OptionError, match="there is no user 'kitchen'"):
        BrokerDirectory(home).remove("kitchen")
    BrokerDirectory(home).add("kitchen", Role.DEVICE)
    assert roles_of((home / "rules").read_text(encoding="utf-8")) == {}


def test_the_rules_of_others_stay_when_one_is_added_or_removed() -> None:
    roles = {"aggregator": Role.AGGREGATOR, "worker-2": Role.AGGREGATOR, "x@y": Role.PUBLISHER}
    assert roles_of(rules(roles | {"kitchen": Role.DEVICE})) == roles
    assert "kitchen" not in rules({"kitchen": Role.DEVICE})  # patterns are enough


def test_mosquitto_reads_the_passwords_that_were_hashed_here(home: Path) -> None:
    """Its own program takes the file as one of its making; that it lets them in is tested with the broker itself."""
    BrokerDirectory(home).add("kitchen", Role.DEVICE, PASSWORD)
    line = (home / "passwords").read_text(encoding="utf-8")
    kind, iterations, salt, key = line.removeprefix("kitchen:").strip().removeprefix("$").split("$")
    assert (kind, iterations, len(salt), len(key)) == ("7", "20000", 16, 88)
    subprocess.run([need("mosquitto_passwd"), "-b", str(home / "passwords"), "other", "x"], check=True)
    assert (home / "passwords").read_text(encoding="utf-8").startswith(line)


@pytest.mark.parametrize("there", ["file", "directory", "link", "configuration", "hidden"])
def test_what_is_there_already_stays_as_it_is(tmp_path: Path, there: str) -> None:
    path = tmp_path / "broker"
    if there == "file":
        path.write_text("mine")
    elif there == "link":
        path.symlink_to(tmp_path / "elsewhere")
    else:
        path.mkdir()
        (path / {"directory": "notes", "configuration": "mosquitto.conf", "hidden": ".git"}[there]).write_text("mine")
    before = files(tmp_path)
    with pytest.raises(OptionError, match=r"^DIR: .* (is not empty; name|already has a configuration, which)"):
        made(path)
    assert files(tmp_path) == before
    assert [file.name for file in tmp_path.iterdir()] == ["broker"]


def test_an_empty_directory_is_taken(tmp_path: Path) -> None:
    (tmp_path / "broker").mkdir()
    made(tmp_path / "broker")


def test_everything_is_for_its_owner_alone(tmp_path: Path) -> None:
    mask = os.umask(0)
    try:
        broker = Hardened(tmp_path / "broker", {"kitchen": "device", "aggregator": "aggregator"})
        broker.set_up()
    finally:
        os.umask(mask)
    places = [tmp_path / "broker", *(tmp_path / "broker").rglob("*")]
    assert len(places) >= 13
    for place in places:
        assert stat.S_IMODE(place.stat().st_mode) == (0o700 if place.is_dir() else 0o600), place


@pytest.mark.parametrize("fails_at", range(1, 5))
def test_a_disk_that_is_full_leaves_nothing_half_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails_at: int
) -> None:
    """The n-th file that is written fails, in `create` and in `add`."""
    real, calls = os.fsync, 0

    def full(number: int) -> None:
        nonlocal calls
        calls += 1
        if calls == fails_at:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(number)

    monkeypatch.setattr(os, "fsync", full)
    path = tmp_path / "broker"
    if fails_at <= 3:  # configuration, rules, passwords
        with pytest.raises(SetupError, match=r"No space left on device; nothing was changed; make room"):
            made(path)
        assert list(tmp_path.iterdir()) == []
    calls = -3
    made(path)
    before = files(path)
    calls = 0
    if fails_at <= 3:  # credential, rules, passwords
        with pytest.raises(SetupError, match="No space left on device"):
            BrokerDirectory(path).add("kitchen", Role.AGGREGATOR)
        assert files(path)["passwords"] == before["passwords"]  # who has no password does not come in
    calls = 10
    BrokerDirectory(path).add("kitchen", Role.AGGREGATOR)
    assert (path / "passwords").read_text(encoding="utf-8").startswith("kitchen:$7$101$")
    assert not [name for name in files(path) if name.startswith(".")]


def test_a_certificate_that_cannot_be_made_leaves_no_directory(tmp_path: Path) -> None:
    ended = hush("broker", "config", str(tmp_path / "broker"), "--host", "h", PATH="/nowhere")
    assert ended.returncode == 2
    assert ended.stderr.startswith("hush: --cert: there is no openssl program to create a certificate; install it")
    assert list(tmp_path.iterdir()) == []


def test_a_certificate_of_one_s_own_must_fit_its_key(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.issue("broker", host="127.0.0.1")
    _, other = authority.issue("other")
    assert use_certificate(certificate, key).key == key
    for wrong in (other, certificate, tmp_path):
        with pytest.raises(OptionError, match=r"^--(cert|key): "):
            use_certificate(certificate, wrong)


def test_users_that_are_added_at_the_same_time_are_all_there_or_told_to_try_again(home: Path) -> None:
    def add(number: int) -> bool:
        try:
            BrokerDirectory(home).add(f"device-{number}", Role.DEVICE)
        except SetupError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        added = sum(pool.map(add, range(40)))
    assert added
    assert len((home / "passwords").read_text(encoding="utf-8").splitlines()) == added


@pytest.mark.large
@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("config", "broker"), "Missing option '--host'"),
        (("config", "x\ny", "--host", "h"), "DIR: its name has characters that no configuration can have"),
        (("config", "no/where", "--host", "h"), "no does not exist; create it"),
        (("config", "b", "--host", "h\nallow_anonymous true"), "is not a host name or an address"),
        (
            ("config", "b", "--host", "h", "--listen", "lo"),
            "--listen: 'lo' is not an address; write for example 127.0.0.1",
        ),
        (("config", "b", "--host", "h", "--cert", "x"), "--key: a certificate and its key are named together"),
        (("config", "b", "--host", "h", "--cert", "x", "--key", "y"), "--cert: x cannot be read (No such file"),
        (("config", "b", "--host", "h", "--websockets", "8883"), "--websockets: 8883 is the port of --port"),
        (("config", "b", "--host", "h", "--run-as", "no-such-user"), "--run-as: "),
        (
            ("config", "b", "--host", "h", "--mosquitto", "2.1", "--plugins", "x"),
            "--plugins: mosquitto_password_file.so",
        ),
        (("add", "kitchen"), "--config: "),
        (("add", "kitchen", "hunter2"), "unexpected extra argument"),
    ],
)
def test_a_mistake_is_one_line_and_writes_nothing(tmp_path: Path, arguments: tuple[str, ...], told: str) -> None:
    ended = hush("broker", *arguments, cwd=tmp_path)
    assert ended.returncode == 2
    assert told in ended.stderr
    assert "hunter2" not in ended.stderr
    assert ended.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_for_version_2_1_the_plugins_are_named(tmp_path: Path) -> None:
    listener = Listener("", 8883, tmp_path / "c", tmp_path / "k", "mosquitto")
    old = configuration(tmp_path, listener)
    new = configuration(tmp_path, listener, plugins=Path("/usr/lib/plugins"))
    assert "acl_file" in old.split("\n", 1)[1]
    assert not [line for line in new.splitlines() if line.startswith(("acl_file", "password_file", "autosave"))]
    for name in ("password_file", "acl_file", "persist_sqlite"):
        assert f"global_plugin /usr/lib/plugins/mosquitto_{name}.so" in new
    assert "plugin_opt_flush_period 0\nplugin_opt_sync full" in new


@pytest.mark.parametrize(
    ("mode", "user", "groups", "closed"),
    [
        (0o700, 7, {7}, True),
        (0o701, 7, {7}, False),
        (0o770, 7, {7, 99}, False),
        (0o707, 7, {7, 99}, True),  # the group is asked before the others
        (0o700, 0, {0}, False),  # root enters everything
        (0o600, 98, {7}, True),  # its owner, who may not
        (0o100, 98, {7}, False),
    ],
)
def test_a_directory_above_that_mosquitto_cannot_enter_is_found(
    monkeypatch: pytest.MonkeyPatch, mode: int, user: int, groups: set[int], *, closed: bool
) -> None:
    inner = Path("/all/inner")

    def status(path: Path) -> os.stat_result:
        """Of user 98 and group 99; everybody enters all but one."""
        bits = mode if path == inner else 0o755
        return os.stat_result((stat.S_IFDIR | bits, 0, 0, 1, 98, 99, 0, 0, 0, 0))

    with monkeypatch.context() as patched:
        patched.setattr(Path, "stat", status)
        found = closed_above(inner / "more" / "broker", user, groups)
    assert found == (inner if closed else None)


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root gives files to another user")
def test_whoever_makes_a_broker_where_it_cannot_start_is_warned(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    made = hush("broker", "config", str(closed / "broker"), "--host", "localhost", "--run-as", "nobody")
    assert made.returncode == 0
    assert "hush: WARNING: mosquitto runs as nobody, who cannot enter /" in made.stderr
    assert re.search(
        r"; name a directory elsewhere, such as /var/lib/hush-broker, or run chmod o\+x /\S+\n", made.stderr
    )
