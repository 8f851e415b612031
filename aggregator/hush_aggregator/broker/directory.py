"""The directory of one broker: made as a whole, then changed a file at a time, users with it."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from hush_aggregator.broker.files import replace_file, told
from hush_aggregator.broker.passwords import GIVEN_ITERATIONS, MADE_ITERATIONS, hashed, made
from hush_aggregator.broker.rules import Role, control_of, roles_of, rules
from hush_common.errors import OptionError, SetupError
from hush_common.files import FileLock
from hush_common.topics import is_sender

__all__ = ["CONFIGURATION", "Directory"]

CONFIGURATION = "mosquitto.conf"
_PASSWORDS, _RULES, _CREDENTIALS, _DATA, _LOCK = "passwords", "rules", "credentials", "data", "lock"
_KEPT_BY_ITS_MAKER = ("ca.key", _CREDENTIALS)  # mosquitto has no use for these


class Directory:
    """The directory of a broker that `create` made.

    Raises:
        OptionError: there is none at `path`.
    """

    def __init__(self, path: Path) -> None:
        if not all((path / name).is_file() for name in (CONFIGURATION, _PASSWORDS, _RULES)):
            raise OptionError(
                "--config", f"{path} is no directory of a broker; name the one that `hush broker config` made"
            )
        self._path = path

    @classmethod
    def create(cls, path: Path, fill: Callable[[Path], str], owner: tuple[int, int] | None) -> "Directory":
        """Make the directory of a broker without users, or nothing at all.

        Args:
            path: absolute; is not there yet, or empty.
            fill: writes certificates into the directory that it is given, and returns the text of the configuration.
            owner: whom mosquitto runs as (user and group), if not as whoever makes this.

        Raises:
            OptionError: something is there already.
            SetupError: it cannot be written.
        """
        with told(path):
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
        """Let a user in once mosquitto has read its files again; return the password.

        An aggregator becomes two users with one password: this one and `control_of` it.

        Args:
            name: of the user, who will be the sender in the topics of its reports.
            role: what it may do.
            password: None makes one.
            keep: whether to write the password into a file too (`credential`).

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
                    raise OptionError("NAME", f"{one} is there already; `hush broker remove {one}` ends it")
            iterations = MADE_ITERATIONS if password is None else GIVEN_ITERATIONS
            text = made() if password is None else password
            if keep:
                replace_file(self.credential(name), f"{text}\n".encode())
            for one in names:
                users[one] = hashed(text, iterations)
                roles[one] = role
        return text

    @property
    def process_file(self) -> Path:
        """Where mosquitto writes the number of its process."""
        return self._path / "mosquitto.pid"

    def credential(self, name: str) -> Path:
        """The file with the password of a user, for `--password-file`, if it was kept."""
        return self._path / _CREDENTIALS / name

    def remove(self, name: str) -> None:
        """Let a user in no more once mosquitto has read its files again; of an aggregator, both users.

        Raises:
            OptionError: there is no such user.
            SetupError: a file cannot be written; the user is still there.
        """
        with self._changing() as (users, roles):
            if name not in users:
                raise OptionError("NAME", f"{name[:80]!r} is no user here")
            role = roles.get(name, Role.DEVICE)
            for one in (name, control_of(name)) if role.has_control else (name,):
                users.pop(one, None)
                roles.pop(one, None)
        with told(self._path):
            self.credential(name).unlink(missing_ok=True)

    @contextmanager
    def _changing(self) -> Iterator[tuple[dict[str, str], dict[str, Role]]]:
        """Users with their hashed passwords, and roles. What becomes of them in the block is written at its end."""
        with told(self._path), self._alone():
            lines = (self._path / _PASSWORDS).read_text(encoding="utf-8").splitlines()
            users = {name: hash_ for name, _, hash_ in (line.partition(":") for line in lines) if name}
            roles = roles_of((self._path / _RULES).read_text(encoding="utf-8"))
            yield users, roles
            # Rules of a user without a password let nobody in; a password whose rules are missing would not do.
            replace_file(self._path / _RULES, rules(roles).encode())
            replace_file(
                self._path / _PASSWORDS, "".join(f"{name}:{hash_}\n" for name, hash_ in sorted(users.items())).encode()
            )

    @contextmanager
    def _alone(self) -> Iterator[None]:
        lock = FileLock.take(self._path / _LOCK)
        if lock is None:
            raise SetupError(f"{self._path}: another hush changes its users; try again")
        try:
            yield
        finally:
            lock.release()


def _refuse_what_is_there(path: Path) -> None:
    if (path / CONFIGURATION).exists():
        raise OptionError(
            "DIR", f"{path} has a configuration already, and nothing is overwritten; `hush broker add` adds users to it"
        )
    if path.is_symlink() or (path.exists() and (not path.is_dir() or any(path.iterdir()))):
        raise OptionError("DIR", f"{path} holds something else; name a directory that is empty, or not there yet")


def _make_private(home: Path, owner: tuple[int, int] | None) -> None:
    """Files 0600, directories 0700, those that mosquitto reads its own."""
    for place in [home, *home.rglob("*")]:
        place.chmod(0o700 if place.is_dir() else 0o600)
        if owner is not None and place.name not in _KEPT_BY_ITS_MAKER:
            os.chown(place, *owner)
