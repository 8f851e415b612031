"""Certificates for tests, made with the openssl command: nothing is signed that outlives a test."""

import subprocess
from pathlib import Path

from servers import need

__all__ = ["AUTHORITY", "BROKER", "Authority"]

_CURVE = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
AUTHORITY = {
    "basicConstraints": "critical, CA:TRUE",
    "keyUsage": "critical, keyCertSign, cRLSign",
    "subjectKeyIdentifier": "hash",
}
BROKER = {"subjectKeyIdentifier": "hash", "authorityKeyIdentifier": "keyid"}


class Authority:
    """A certificate authority in a directory: `pem` is what others trust, `key` what it signs with.

    Args:
        extensions: of its own certificate; fewer than `AUTHORITY` break RFC 5280.
        days: for which that is valid, from now; negative for one that has expired.
    """

    def __init__(
        self, directory: Path, name: str = "authority", extensions: dict[str, str] = AUTHORITY, *, days: int = 30
    ) -> None:
        self._directory = directory
        self._name = name
        self.pem = directory / f"{name}.pem"
        self.key = self._key(name)
        given = ["-config", str(self._section(name, extensions)), "-extensions", "given"]
        self._run(
            *("req", "-x509", *given, *_CURVE, "-keyout", str(self.key), "-out", str(self.pem)),
            *self._subject(name),
        )
        self._run("x509", "-in", str(self.pem), "-signkey", str(self.key), "-days", str(days), "-out", str(self.pem))

    def issue(
        self, name: str, *, host: str = "", extensions: dict[str, str] = BROKER, days: int = 2
    ) -> tuple[Path, Path]:
        """A certificate and its key for `name`; `host` is the address it is good for as a server's."""
        request, certificate = self._directory / f"{name}.csr", self._directory / f"{name}.crt"
        self._run("req", "-new", *_CURVE, "-keyout", str(self._key(name)), "-out", str(request), *self._subject(name))
        use = {"subjectAltName": f"IP:{host}"} if host else {"basicConstraints": "CA:FALSE"}
        given = ["-extfile", str(self._section(name, use | extensions)), "-extensions", "given"]
        sign = ["x509", "-req", "-in", str(request), "-out", str(certificate), "-days", str(days), "-CAcreateserial"]
        self._run(*sign, "-CA", str(self.pem), "-CAkey", str(self.key), *given)
        return certificate, self._key(name)

    def _key(self, name: str) -> Path:
        return self._directory / f"{name}.key"

    def _section(self, name: str, extensions: dict[str, str]) -> Path:
        file = self._directory / f"{name}.cnf"
        lines = ["[req]", "distinguished_name = subject", "[subject]", "[given]"]
        file.write_text("\n".join([*lines, *(f"{key} = {value}" for key, value in extensions.items()), ""]), "utf-8")
        return file

    def _subject(self, name: str) -> tuple[str, str]:
        return "-subj", f"/O=hush {self._name}/CN={name}"

    def _run(self, *arguments: str) -> None:
        subprocess.run([need("openssl"), *arguments], check=True, capture_output=True)
