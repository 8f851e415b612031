"""Certificates for tests, made with the openssl command: nothing is signed that outlives a test."""

import subprocess
from pathlib import Path

from servers import need

__all__ = ["Authority"]

_CURVE = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


class Authority:
    """A certificate authority in a directory: `pem` is what others trust."""

    def __init__(self, directory: Path, name: str = "authority") -> None:
        self._directory = directory
        self._name = name
        self.pem = directory / f"{name}.pem"
        self._run("req", "-x509", *_CURVE, "-keyout", str(self._key(name)), "-out", str(self.pem), *self._subject(name))

    def issue(self, name: str, *, host: str = "") -> tuple[Path, Path]:
        """A certificate and its key for `name`; `host` is the address it is good for as a server's."""
        request, certificate = self._directory / f"{name}.csr", self._directory / f"{name}.crt"
        self._run("req", "-new", *_CURVE, "-keyout", str(self._key(name)), "-out", str(request), *self._subject(name))
        extensions = self._directory / f"{name}.ext"
        extensions.write_text(f"subjectAltName = IP:{host}\n" if host else "basicConstraints = CA:FALSE\n", "utf-8")
        sign = ["x509", "-req", "-in", str(request), "-out", str(certificate), "-days", "2", "-CAcreateserial"]
        sign += ["-CA", str(self.pem), "-CAkey", str(self._key(self._name)), "-extfile", str(extensions)]
        self._run(*sign)
        return certificate, self._key(name)

    def _key(self, name: str) -> Path:
        return self._directory / f"{name}.key"

    def _subject(self, name: str) -> tuple[str, str]:
        return "-subj", f"/O=hush {self._name}/CN={name}"

    def _run(self, *arguments: str) -> None:
        subprocess.run([need("openssl"), *arguments], check=True, capture_output=True)
