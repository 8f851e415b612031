"""`hush broker config`, `add` and `remove`: a mosquitto that serves hush, and who may use it."""

import getpass
import os
import re
import sys
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated

from hush_aggregator.ops.mosquitto import (
    BrokerCertificate,
    BrokerDirectory,
    Listener,
    MosquittoVersion,
    Role,
    closed_above,
    configuration,
    control_of,
    make_certificate,
    use_certificate,
)
from hush_common.broker_url import password_in
from hush_common.errors import OptionError
from hush_common.options import Argument, Option
from hush_common.output import print_done
from hush_common.terminal import note

_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,252}[A-Za-z0-9])?")
_PLUGIN = "mosquitto_password_file.so"
_SYSTEM = "mosquitto"
"""The user that packages of mosquitto make."""

_Config = Annotated[
    Path,
    Option("--config", metavar="DIR", envvar="HUSH_BROKER_CONFIG", help="Directory that `hush broker config` made."),
]
_Name = Annotated[str, Argument(help="MQTT user, and sender of its reports.", show_default=False)]


def config(
    directory: Annotated[Path, Argument(metavar="DIR", help="Made; is not there yet, or empty.")],
    *,
    host: Annotated[list[str], Option(help="Name or address under which devices reach the broker; may be repeated.")],
    port: Annotated[int, Option(min=1, max=65535, help="TCP port.")] = 8883,
    websockets: Annotated[
        int | None, Option(min=1, max=65535, help="TCP port for browsers (wss://), with the same rules.")
    ] = None,
    listen: Annotated[str, Option(metavar="ADDRESS", help="Address to listen on; all of them without it.")] = "",
    cert: Annotated[Path | None, Option(help="Certificate of the broker, in PEM; else one is made.")] = None,
    key: Annotated[Path | None, Option(help="Its key, in PEM.")] = None,
    run_as: Annotated[str, Option(help="User that mosquitto runs as; for root `mosquitto`, else you.")] = "",
    queue: Annotated[int, Option(min=0, help="Messages that may wait for one client; 0 for no bound.")] = 1000000,
    mosquitto: Annotated[MosquittoVersion, Option(help="Version of mosquitto.")] = MosquittoVersion.V20,
    plugins: Annotated[
        Path | None, Option(metavar="DIR", help="Directory of the plugins of mosquitto 2.1, if they are not found.")
    ] = None,
    workers: Annotated[int, Option(min=0, max=1000, help="Let so many workers in, worker-1 and so on.")] = 0,
) -> None:
    """Write a configuration of mosquitto for hush: TLS, a password for everybody, rules, limits.

    Nothing that is there is overwritten. `hush broker add` lets users in.
    """
    path = _path(directory)
    for one in host:
        _check_host(one, "--host")
    if listen:
        _check_address(listen)
    if (cert is None) != (key is None):
        raise OptionError("--cert" if cert is None else "--key", "a certificate and its key are named together")
    if websockets == port:
        raise OptionError("--websockets", f"{port} is the port of --port; choose another one, such as 9443")
    user, owner = _owner(run_as)
    found = _plugins(plugins) if mosquitto is MosquittoVersion.V21 else None
    there = None if cert is None or key is None else use_certificate(cert, key)

    def fill(draft: Path) -> str:
        if there is None:
            make_certificate(draft, host)
        ours = there or BrokerCertificate(path / "broker.crt", path / "broker.key")
        listener = Listener(listen, port, ours.certificate, ours.key, user, websockets)
        return configuration(path, listener, queued=queue, plugins=found)

    home = BrokerDirectory.create(path, fill, owner)
    for name in (names := [f"worker-{number}" for number in range(1, workers + 1)]):
        home.add(name, Role.AGGREGATOR)
    authority = "" if there else f"?ca={path / 'ca.pem'}"
    first = names[0] if names else "aggregator"
    let_in = f"hush broker add --config {path} --role aggregator aggregator\n                 "
    login = f"--password-file {path / 'credentials' / first} --control-user {control_of(first)}"
    store = "--group NAME --worker 1 --store postgresql://…" if names else "--store FILE"
    print_done(
        f"wrote {path}, for mosquitto {mosquitto}\n"
        f"  let users in:  {'' if names else let_in}hush broker add --config {path} NAME-OF-A-DEVICE\n"
        f"  start it:      mosquitto -c {path / 'mosquitto.conf'}\n"
        f"  count:         hush serve --broker 'mqtts://{first}@{_in_url(host[0])}:{port}{authority}' "
        f"{login} {store} --task FILE"
    )
    if there is None:
        print_done(
            f"devices need {path / 'ca.pem'}; take {path / 'ca.key'} away from this machine: "
            "anyone who has it can impersonate the broker"
        )
    if owner is not None:
        _warn_of_what_is_closed(path, user, owner)


def _warn_of_what_is_closed(path: Path, user: str, owner: tuple[int, int]) -> None:
    """Mosquitto that cannot enter a directory above its own says only that it cannot write a file there."""
    closed = closed_above(path, owner[0], os.getgrouplist(user, owner[1]))
    if closed is not None:
        trouble = f"mosquitto runs as {user}, who cannot enter {closed}, and will not start"
        remedy = f"name a directory elsewhere, such as /var/lib/hush-broker, or run chmod o+x {closed}"
        note(f"WARNING: {trouble}; {remedy}")


def add(
    name: _Name,
    *,
    directory: _Config = Path(),
    role: Annotated[Role, Option(help="; ".join(f"{role}: {role.meaning}" for role in Role) + ".")] = Role.DEVICE,
    password_file: Annotated[
        Path | None, Option(help="File whose first line is the password; else one is made.")
    ] = None,
    show: Annotated[bool, Option("--print", help="Print the password instead of keeping it in a file.")] = False,
) -> None:
    """Let a device, a gateway or a worker in, with its own name and password."""
    home = BrokerDirectory(_path(directory))
    password = None if password_file is None else password_in(password_file)
    if password == "":
        raise OptionError("--password-file", f"{password_file} has no password in its first line")
    made = home.add(name, role, password, keep=not show and password is None)
    if show:
        print(made)
    else:
        second = f", and {control_of(name)} for its second connection" if role.has_control else ""
        print_done(f"added {name} ({role}){second}" + ("" if password else f"; password in {home.credential(name)}"))
    _tell_to_reload(home)


def remove(name: _Name, *, directory: _Config = Path()) -> None:
    """Let a user in no more."""
    home = BrokerDirectory(_path(directory))
    home.remove(name)
    print_done(f"removed {name}")
    _tell_to_reload(home)


def _tell_to_reload(home: BrokerDirectory) -> None:
    note(f"a mosquitto that runs reads this after: kill -HUP $(cat {home.process_file})")


def _path(directory: Path) -> Path:
    """Absolute, and such as can stand in a line of a configuration."""
    path = directory.absolute()
    if not str(path).isprintable():
        raise OptionError("DIR", "its name has characters that no configuration can have; choose another")
    if not path.parent.is_dir():
        raise OptionError("DIR", f"the directory {path.parent} does not exist; create it")
    return path


def _check_host(host: str, option: str) -> None:
    try:
        ip_address(host)
    except ValueError:
        if not _HOST.fullmatch(host):
            raise OptionError(
                option, f"{host[:80]!r} is not a host name or an address; write for example broker.local"
            ) from None


def _check_address(address: str) -> None:
    try:
        ip_address(address)
    except ValueError:
        raise OptionError("--listen", f"{address[:80]!r} is not an address; write for example 127.0.0.1") from None


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _owner(name: str) -> tuple[str, tuple[int, int] | None]:
    """Return the user of mosquitto, and its numeric ids if files have to be given to it."""
    me = getpass.getuser()
    if sys.platform == "win32":  # files belong to the user who creates them
        return me, None
    import pwd  # noqa: PLC0415 - Windows has none

    root = me == "root"
    wanted = name or (_SYSTEM if root else me)
    if wanted != me and not root:
        raise OptionError("--run-as", f"only root can give files to {wanted!r}; leave the option out, or become root")
    try:
        found = pwd.getpwnam(wanted)
    except KeyError:
        if name:
            raise OptionError("--run-as", f"there is no user {name[:80]!r} here") from None
        return me, None  # where no package made that user, mosquitto is somebody's own
    return wanted, None if wanted == me else (found.pw_uid, found.pw_gid)


def _plugins(given_: Path | None) -> Path:
    """The directory of the plugins of mosquitto 2.1."""
    if given_ is not None:
        found = [given_ / _PLUGIN]
    else:
        places = ("*/", "", "mosquitto/", "*/mosquitto/")
        found = [
            file for top in ("/usr/lib", "/usr/local/lib") for at in places for file in Path(top).glob(at + _PLUGIN)
        ]
    if not found or not found[0].is_file():
        raise OptionError("--plugins", f"{_PLUGIN} is not in {given_ or '/usr/lib'}; name the directory where it is")
    return found[0].parent.absolute()
