"""The directory of a mosquitto: configuration, rules and passwords."""

import base64
import hashlib
import os
import secrets
import shutil
import ssl
import stat
import subprocess
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import ip_address
from itertools import pairwise
from pathlib import Path

from hush_common.errors import OptionError, SetupError
from hush_common.files import FileLock, replace_file
from hush_common.topics import (
    ALL_ESTIMATES,
    ALL_RECALLS,
    ALL_REPORTS,
    ALL_TASKS,
    is_sender,
    status_topic,
)

AUTHORITY = "ca.pem"
"""The file that devices need."""

_DAYS_OF_THE_AUTHORITY, _DAYS = "3650", "825"  # no client trusts a server's for longer
_CURVE = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
_PATIENCE_S = 60
_EXTENSIONS = """\
[req]
distinguished_name = subject
[subject]
[authority]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash
[broker]
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = serverAuth
subjectAltName = {names}
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
"""


@dataclass(frozen=True, slots=True)
class BrokerCertificate:
    """A certificate of a broker, and its key."""

    certificate: Path
    key: Path


def use_certificate(certificate: Path, key: Path) -> BrokerCertificate:
    """Return an existing certificate, which is renewed where it is; raises `OptionError` if the files do not match."""
    for option, file in (("--cert", certificate), ("--key", key)):
        try:
            file.open("rb").close()
        except OSError as error:
            raise OptionError(option, f"{file} cannot be read ({error.strerror}); name a file in PEM") from error
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password=lambda: b"")
    except (ssl.SSLError, OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or "no certificate and key"
        raise OptionError(
            "--cert",
            f"{certificate} and {key} do not match ({reason}); name a PEM certificate and its key, without a password",
        ) from error
    return BrokerCertificate(certificate.resolve(), key.resolve())


def make_certificate(home: Path, hosts: list[str]) -> BrokerCertificate:
    """Create an authority in `home` that signs a certificate for these names and addresses.

    This takes the `openssl` program, which every system with mosquitto has: a library that signs certificates would be
    a dozen megabytes for a command that runs once.

    Raises:
        OptionError: there is no `openssl` program.
        SetupError: it failed.
        OSError: a file cannot be written.
    """
    program = shutil.which("openssl")
    if program is None:
        raise OptionError(
            "--cert", "there is no openssl program to create a certificate; install it, or name your own certificate"
        )
    made = BrokerCertificate(home / "broker.crt", home / "broker.key")
    with tempfile.TemporaryDirectory(dir=home) as scratch:
        names = Path(scratch) / "extensions"
        names.write_text(_EXTENSIONS.format(names=", ".join(map(_name, hosts))), encoding="ascii")
        request = Path(scratch) / "request"
        new = ("req", "-config", str(names), *_CURVE)
        authority = (
            "-x509",
            "-extensions",
            "authority",
            "-days",
            _DAYS_OF_THE_AUTHORITY,
            "-subj",
            "/CN=hush authority",
        )
        _run(program, *new, *authority, "-keyout", str(home / "ca.key"), "-out", str(home / AUTHORITY))
        _run(program, *new, "-new", "-subj", "/CN=hush broker", "-keyout", str(made.key), "-out", str(request))
        signer = ("-CA", str(home / AUTHORITY), "-CAkey", str(home / "ca.key"), "-CAserial", f"{scratch}/serial")
        extended = ("-CAcreateserial", "-days", _DAYS, "-extfile", str(names), "-extensions", "broker")
        _run(program, "x509", "-req", "-in", str(request), *signer, *extended, "-out", str(made.certificate))
    return made


def _name(host: str) -> str:
    try:
        return f"IP:{ip_address(host)}"
    except ValueError:
        return f"DNS:{host}"


def _run(program: str, *arguments: str) -> None:
    try:
        subprocess.run([program, *arguments], check=True, capture_output=True, timeout=_PATIENCE_S)  # noqa: S603 - no shell; names are checked
    except (subprocess.SubprocessError, OSError) as error:
        said = (getattr(error, "stderr", None) or b"").decode(errors="replace").strip().splitlines()
        raise SetupError(f"openssl could not create a certificate ({said[-1] if said else error})") from error


LARGEST_PACKET = 4 * 1024 * 1024
"""Most bytes of a packet: a gateway's longest frame has 2.1 million, and an estimate of 1024 coordinates half of it."""

QUEUED = 1_000_000
"""Messages that wait for an aggregator that is away. The broker drops further ones, and hush recalls them."""

_QUEUED_BYTES = 1024 * 1024 * 1024
_SAVED_EVERY_S = 60
_SESSIONS_END_AFTER = "2m"  # months, in the words of mosquitto: longer than any aggregator is away


class MosquittoVersion(StrEnum):
    """Versions with different configurations: 2.1 has plugins for what 2.0 has built in."""

    V20 = "2.0"
    V21 = "2.1"


@dataclass(frozen=True, slots=True)
class Listener:
    """Where a broker listens, and as whom."""

    address: str  # of the interface; empty for all of them
    port: int  # of TCP
    certificate: Path  # of the broker, with those that vouch for it
    key: Path  # of that certificate
    user: str  # that mosquitto runs as if root starts it
    websockets: int | None = None  # TCP port for browsers; None for none


def configuration(home: Path, listener: Listener, *, queued: int = QUEUED, plugins: Path | None = None) -> str:
    """Return the text of `mosquitto.conf`.

    At most `queued` messages wait for one client; 0 for no bound. Without `plugins`, the directory of the plugins of
    mosquitto 2.1, it is for 2.0.
    """
    passwords, rules = home / "passwords", home / "rules"
    access = [f"password_file {passwords}", f"acl_file {rules}"]
    memory = ["persistence true", f"autosave_interval {_SAVED_EVERY_S}"]
    if plugins is not None:
        access = [
            f"global_plugin {plugins / 'mosquitto_password_file.so'}",
            f"plugin_opt_password_file {passwords}",
            f"global_plugin {plugins / 'mosquitto_acl_file.so'}",
            f"plugin_opt_acl_file {rules}",
        ]
        memory = [
            f"global_plugin {plugins / 'mosquitto_persist_sqlite.so'}",
            "plugin_opt_flush_period 0",
            "plugin_opt_sync full",
        ]
    version = MosquittoVersion.V20 if plugins is None else MosquittoVersion.V21
    return "\n".join(
        [
            f"# mosquitto {version} for hush. docs/operations.md says why each line is here.",
            f"user {listener.user}",
            f"pid_file {home / 'mosquitto.pid'}",
            "",
            "# who may come in, and do what; the client id is the user, so that nobody takes another's session",
            "allow_anonymous false",
            *access,
            "",
            "# what waits for an aggregator that is away; 1000 in flight, because packet ids repeat past 65 535",
            "max_inflight_messages 1000",
            f"max_queued_messages {queued}",
            f"max_queued_bytes {_QUEUED_BYTES}",
            f"persistent_client_expiration {_SESSIONS_END_AFTER}",
            *memory,
            f"persistence_location {home / 'data'}/",
            "",
            "# what is longer is not dropped in silence: its sender is disconnected",
            f"max_packet_size {LARGEST_PACKET}",
            "",
            "# who connects when, and from where, is nobody's business",
            "log_dest stderr",
            "log_type error",
            "log_type warning",
            "connection_messages false",
            "",
            "# TLS alone: there is no listener without it",
            *_listener(listener, listener.port),
            *(() if listener.websockets is None else _listener(listener, listener.websockets, "protocol websockets")),
        ]
    )


def _listener(listener: Listener, port: int, *more: str) -> list[str]:
    return [
        f"listener {port} {listener.address}".rstrip(),
        *more,
        f"certfile {listener.certificate}",
        f"keyfile {listener.key}",
        "use_username_as_clientid true",
        "max_qos 1",
        "",
    ]


_TITLE = "# The rules of hush; `hush broker add` and `hush broker remove` rewrite this file."
_OWN_REPORTS = ALL_REPORTS.removesuffix("+") + "%u"  # %u is the user, who is the sender: no one else's name will do


class Role(StrEnum):
    """What a user may do, in addition to reading tasks, recalls and estimates, and reporting under its own name."""

    DEVICE = "device"
    AGGREGATOR = "aggregator"
    ANNOUNCER = "announcer"
    HOME_ASSISTANT = "home-assistant"
    PUBLISHER = "publisher"

    @property
    def has_control(self) -> bool:
        """Whether it is for an aggregator, which has two connections and so two users."""
        return self in (Role.AGGREGATOR, Role.ANNOUNCER)

    @property
    def meaning(self) -> str:
        return _MEANING[self]


_MEANING = {
    Role.DEVICE: "a device or a gateway",
    Role.AGGREGATOR: "`hush serve`, or one worker of it",
    Role.ANNOUNCER: "`hush serve --home-assistant`",
    Role.HOME_ASSISTANT: "Home Assistant",
    Role.PUBLISHER: "`hush task publish`",
}
_COUNTING = (
    f"read {ALL_REPORTS}",
    f"readwrite {ALL_TASKS}",
    f"readwrite {ALL_RECALLS}",
    f"readwrite {ALL_ESTIMATES}",
    f"readwrite {status_topic('+')}",
    "read $SYS/broker/#",  # whether the broker restarted, and what it dropped
)
_HOME_ASSISTANT = "homeassistant"  # the default discovery prefix
_RIGHTS = {
    Role.DEVICE: (),
    Role.AGGREGATOR: _COUNTING,
    Role.ANNOUNCER: (*_COUNTING, f"readwrite {_HOME_ASSISTANT}/device/+/config", f"read {_HOME_ASSISTANT}/status"),
    Role.HOME_ASSISTANT: (f"readwrite {_HOME_ASSISTANT}/#", f"read {status_topic('+')}"),
    Role.PUBLISHER: (f"readwrite {ALL_TASKS}",),
}


def control_of(user: str) -> str:
    """Return the second user of an aggregator: the client id is the user, and a client id has one connection."""
    return f"{user}-control"


def rules(roles: Mapping[str, Role]) -> str:
    """Return the text of the file of rules."""
    lines = [_TITLE, "", *(f"pattern read {topic}" for topic in (ALL_TASKS, ALL_RECALLS, ALL_ESTIMATES))]
    lines.append(f"pattern write {_OWN_REPORTS}")
    for user, role in sorted(roles.items()):
        if _RIGHTS[role]:
            lines += ["", f"# {role}", f"user {user}", *(f"topic {rule}" for rule in _RIGHTS[role])]
    return "\n".join([*lines, ""])


def roles_of(text: str) -> dict[str, Role]:
    """Return the users with own rights in a file of `rules`."""
    lines = text.splitlines()
    heads = {f"# {role}": role for role in Role}
    return {
        line.removeprefix("user "): heads.get(before, Role.DEVICE)
        for before, line in pairwise(lines)
        if line.startswith("user ")
    }


MADE_ITERATIONS = 101
"""As `mosquitto_passwd`: 192 random bits need no slow hash, and a broker hashes at each connection."""

GIVEN_ITERATIONS = 20_000
"""For a password that a person chose: 10 to 20 ms of the broker for each connection and each guess."""

_SALT_BYTES = 12  # mosquitto 2.0 reads no other length


def new_password() -> str:
    """Return 192 random bits as 32 letters, digits, `-` and `_`."""
    return secrets.token_urlsafe(24)


def hash_password(password: str, iterations: int) -> str:
    """Return what follows the name and a colon in the file of passwords."""
    salt = secrets.token_bytes(_SALT_BYTES)
    key = hashlib.pbkdf2_hmac("sha512", password.encode(), salt, iterations)
    return f"$7${iterations}${base64.b64encode(salt).decode()}${base64.b64encode(key).decode()}"


def closed_above(path: Path, user: int, groups: Collection[int]) -> Path | None:
    """Return the topmost directory above `path` that a user cannot enter by its mode, if any."""
    for directory in reversed(path.parents):
        found = directory.stat()
        enters = stat.S_IXUSR if found.st_uid == user else stat.S_IXGRP if found.st_gid in groups else stat.S_IXOTH
        if user != 0 and not found.st_mode & enters:
            return directory
    return None


@contextmanager
def setup_errors(path: Path) -> Iterator[None]:
    """Turn an `OSError` into a `SetupError` with a remedy."""
    try:
        yield
    except OSError as error:
        where = error.filename or path
        raise SetupError(
            f"{where}: {error.strerror or error}; nothing was changed; make room, or name another directory"
        ) from error


CONFIGURATION = "mosquitto.conf"
_PASSWORDS, _RULES, _CREDENTIALS, _DATA, _LOCK = "passwords", "rules", "credentials", "data", "lock"
_NOT_FOR_MOSQUITTO = ("ca.key", _CREDENTIALS)


class BrokerDirectory:
    """The directory of a broker that `create` made; raises `OptionError` if there is none at `path`."""

    def __init__(self, path: Path) -> None:
        if not all((path / name).is_file() for name in (CONFIGURATION, _PASSWORDS, _RULES)):
            raise OptionError(
                "--config", f"{path} is not the directory of a broker; name the one that `hush broker config` made"
            )
        self._path = path

    @classmethod
    def create(cls, path: Path, fill: Callable[[Path], str], owner: tuple[int, int] | None) -> "BrokerDirectory":
        """Create the directory of a broker without users, completely or not at all.

        Args:
            path: absolute; must not exist yet, or be empty.
            fill: writes certificates into the given directory, and returns the text of the configuration.
            owner: user and group that mosquitto runs as, if not those of this process.

        Raises:
            OptionError: the directory is in use.
            SetupError: it cannot be written.
        """
        with setup_errors(path):
            _refuse_what_is_there(path)
            draft = Path(tempfile.mkdtemp(prefix=".hush-broker-", dir=path.parent))
            try:
                for name in (_DATA, _CREDENTIALS):
                    (draft / name).mkdir(mode=0o700)
                text = fill(draft)
                for name, content in ((CONFIGURATION, text), (_RULES, rules({})), (_PASSWORDS, "")):
                    replace_file(draft / name, content.encode())
                _make_private(draft, owner)
                draft.rename(path)
            except BaseException:
                shutil.rmtree(draft, ignore_errors=True)
                raise
        return cls(path)

    def add(self, name: str, role: Role, password: str | None = None, *, keep: bool = True) -> str:
        """Add a user, who can log in once mosquitto has reloaded its files; return the password.

        The name is the sender in the topics of its reports. An aggregator becomes two users with one password: this one
        and `control_of` it. With `keep`, the password is also written into a file (`credential`).

        Raises:
            OptionError: the name cannot be that of a sender, or is taken.
            SetupError: a file cannot be written; nobody was added.
        """
        names = [name, control_of(name)] if role.has_control else [name]
        if not is_sender(names[-1]) or ":" in name:  # mosquitto has a colon between name and password
            raise OptionError(
                "NAME", f"{name[:80]!r} cannot be a sender; use letters, digits and . _ @ - (at most 128)"
            )
        with self._changing() as (users, roles):
            for one in names:
                if one in users:
                    raise OptionError("NAME", f"{one} exists already; `hush broker remove {one}` removes it")
            iterations = MADE_ITERATIONS if password is None else GIVEN_ITERATIONS
            text = new_password() if password is None else password
            if keep:
                replace_file(self.credential(name), f"{text}\n".encode())
            for one in names:
                users[one] = hash_password(text, iterations)
                roles[one] = role
        return text

    @property
    def process_file(self) -> Path:
        """Where mosquitto writes its process id."""
        return self._path / "mosquitto.pid"

    def credential(self, name: str) -> Path:
        """The file with the password of a user, if it was kept."""
        return self._path / _CREDENTIALS / name

    def remove(self, name: str) -> None:
        """Remove a user, of an aggregator both; mosquitto refuses them once it has reloaded its files.

        Raises:
            OptionError: there is no such user.
            SetupError: a file cannot be written; nobody was removed.
        """
        with self._changing() as (users, roles):
            if name not in users:
                raise OptionError("NAME", f"there is no user {name[:80]!r}")
            role = roles.get(name, Role.DEVICE)
            for one in (name, control_of(name)) if role.has_control else (name,):
                users.pop(one, None)
                roles.pop(one, None)
        with setup_errors(self._path):
            self.credential(name).unlink(missing_ok=True)

    @contextmanager
    def _changing(self) -> Iterator[tuple[dict[str, str], dict[str, Role]]]:
        """Yield users with their hashed passwords, and roles; changes are written at the end of the block."""
        with setup_errors(self._path), self._alone():
            lines = (self._path / _PASSWORDS).read_text(encoding="utf-8").splitlines()
            users = {name: hash_ for name, _, hash_ in (line.partition(":") for line in lines) if name}
            roles = roles_of((self._path / _RULES).read_text(encoding="utf-8"))
            yield users, roles
            # Rules first: rules without a password let nobody in, but a password needs its rules.
            replace_file(self._path / _RULES, rules(roles).encode())
            text = "".join(f"{name}:{hash_}\n" for name, hash_ in sorted(users.items()))
            replace_file(self._path / _PASSWORDS, text.encode())

    @contextmanager
    def _alone(self) -> Iterator[None]:
        lock = FileLock.take(self._path / _LOCK)
        if lock is None:
            raise SetupError(f"{self._path}: another hush is changing its users; try again")
        try:
            yield
        finally:
            lock.release()


def _refuse_what_is_there(path: Path) -> None:
    if (path / CONFIGURATION).exists():
        raise OptionError(
            "DIR", f"{path} already has a configuration, which is not overwritten; `hush broker add` adds users to it"
        )
    if path.is_symlink() or (path.exists() and (not path.is_dir() or any(path.iterdir()))):
        raise OptionError("DIR", f"{path} is not empty; name an empty or a new directory")


def _make_private(home: Path, owner: tuple[int, int] | None) -> None:
    """Set modes 0600 and 0700; what mosquitto reads belongs to it."""
    for place in [home, *home.rglob("*")]:
        place.chmod(0o700 if place.is_dir() else 0o600)
        if owner is not None and place.name not in _NOT_FOR_MOSQUITTO:
            os.chown(place, *owner)
