"""The broker's certificate: one that is there already, or one that an authority of one's own signs.

Making them takes the `openssl` program, which comes with every system that has mosquitto: a library that signs
certificates is a dozen megabytes beside hush, for one command that runs once.
"""

import shutil
import ssl
import subprocess
import tempfile
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from hush_common.errors import OptionError, SetupError

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
class Certificate:
    """A certificate of a broker, and its key."""

    certificate: Path
    key: Path


def given(certificate: Path, key: Path) -> Certificate:
    """A certificate that is there, where it is: whoever renews it renews it there.

    Raises:
        OptionError: a file cannot be read, or the key is not that of the certificate.
    """
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
            f"{certificate} and {key} do not fit together ({reason}); name a certificate in PEM and its own key, which "
            "needs no password",
        ) from error
    return Certificate(certificate.resolve(), key.resolve())


def make(home: Path, hosts: list[str]) -> Certificate:
    """Make an authority in `home`, and let it sign a certificate for these names and addresses.

    Raises:
        OptionError: the `openssl` program is not there.
        SetupError: it failed.
        OSError: a file cannot be written.
    """
    program = shutil.which("openssl")
    if program is None:
        raise OptionError(
            "--cert", "there is no openssl program here to make a certificate; install it, or name one of your own"
        )
    made = Certificate(home / "broker.crt", home / "broker.key")
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
        raise SetupError(f"openssl could not make a certificate ({said[-1] if said else error})") from error
