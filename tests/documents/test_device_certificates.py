"""The certificates that docs/device.md makes with openssl are accepted, by the rules of Python 3.13 too."""

import re
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from certificates import AUTHORITY, BROKER, Authority
from servers import Mosquitto, free_port, need

from hush_aggregator import MqttBroker
from hush_client import MqttTransport
from hush_common.broker_url import BrokerUrl

pytestmark = pytest.mark.large

GUIDE = (Path(__file__).parents[2] / "docs" / "device.md").read_text(encoding="utf-8")
CHAPTER = GUIDE.split("### Certificates of your own\n")[1]
BLOCKS = re.findall(r"^```(?:conf|sh)\n(.*?)^```", CHAPTER, re.DOTALL | re.MULTILINE)
LOCALHOST = {**BROKER, "subjectAltName": "DNS:localhost"}


@contextmanager
def strict(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What Python asks of certificates from 3.13 on."""
    default = ssl.create_default_context

    def context(cafile: str | None = None) -> ssl.SSLContext:
        made = default(cafile=cafile)
        made.verify_flags |= ssl.VERIFY_X509_STRICT
        return made

    with monkeypatch.context() as patch:
        patch.setattr("ssl.create_default_context", context)
        yield


async def assert_accepted(directory: Path, certificate: Path, key: Path, ca: Path) -> None:
    port = free_port()
    server = Mosquitto(directory, listeners={port: f"certfile {certificate}\nkeyfile {key}\n"})
    server.start()
    try:
        url = BrokerUrl("localhost", port, tls=True, ca=str(ca))
        async with MqttTransport(url, "d").connect(), MqttBroker(url, "a").connect([]):
            pass
    finally:
        server.stop()


async def test_an_authority_of_the_guide_signs_accepted_certificates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, _ = commands(tmp_path)
    run(make, tmp_path)
    with strict(monkeypatch):
        await assert_accepted(tmp_path, *(tmp_path / name for name in ("broker.crt", "broker.key", "ca.pem")))


async def test_an_old_authority_that_is_mended_by_the_guide_is_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, mend = commands(tmp_path)
    old = {name: value for name, value in AUTHORITY.items() if name != "keyUsage"}
    certificate, key = Authority(tmp_path, "ca", extensions=old).issue("broker", extensions=LOCALHOST)
    run(mend, tmp_path)
    with strict(monkeypatch):
        await assert_accepted(tmp_path, certificate, key, tmp_path / "mended.pem")


def commands(directory: Path) -> list[str]:
    """The commands of the guide, next to its file, for a broker that is called localhost."""
    need("openssl")
    file, *found = [text.replace("broker.local", "localhost") for text in BLOCKS]
    (directory / "certificates.cnf").write_text(file, encoding="utf-8")
    return found


def run(commands: str, directory: Path) -> None:
    subprocess.run(["sh", "-ec", commands], cwd=directory, check=True, capture_output=True)
