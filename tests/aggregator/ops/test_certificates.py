"""Certificates under the rules of Python 3.13: which are refused, in which words, and that those of the guide hold."""

import asyncio
import gc
import re
import ssl
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from certificates import AUTHORITY, BROKER, Authority
from leftovers import collect_leftovers
from servers import Mosquitto, free_port, need

from hush_aggregator import MqttBroker
from hush_client import MqttTransport
from hush_common.broker_url import BrokerUrl
from hush_common.errors import BrokerError

GUIDE = (Path(__file__).parents[3] / "docs" / "device.md").read_text(encoding="utf-8")
HOST = "127.0.0.1"
CHAPTER = GUIDE.split("### Certificates of your own\n")[1]
FILE, *COMMANDS = re.findall(r"^```(?:conf|sh)\n(.*?)^```", CHAPTER, re.DOTALL | re.MULTILINE)
STRICT = ssl.VERIFY_X509_STRICT

# paho drops a socket whose TLS fails, and Python complains when it is collected
dropped_sockets = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture(params=[ssl.VERIFY_DEFAULT, STRICT], ids=["until 3.12", "from 3.13 on"])
def rules(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ssl.VerifyFlags:
    """What Python asks of certificates by default, the one and the other, whichever Python runs this."""
    flags: ssl.VerifyFlags = request.param
    default = ssl.create_default_context

    def context(cafile: str | None = None) -> ssl.SSLContext:
        made = default(cafile=cafile)
        made.verify_flags = (made.verify_flags & ~STRICT) | flags
        return made

    monkeypatch.setattr("ssl.create_default_context", context)
    return flags


@contextmanager
def broker(directory: Path, certificate: Path, key: Path, ca: Path) -> Iterator[BrokerUrl]:
    """A mosquitto that shows this certificate, and its address for who trusts `ca`."""
    port = free_port()
    server = Mosquitto(directory, listeners={port: f"certfile {certificate}\nkeyfile {key}\n"})
    server.start()
    yield BrokerUrl("localhost", port, tls=True, ca=str(ca))
    server.stop()


def without(extensions: dict[str, str], name: str) -> dict[str, str]:
    return {key: value for key, value in extensions.items() if key != name}


CERTIFY = "basicConstraints = critical, CA:TRUE and keyUsage = critical, keyCertSign, cRLSign in the authority's"
CASES: dict[str, tuple[dict[str, str], dict[str, str], str | None]] = {
    "no usage": (
        without(AUTHORITY, "keyUsage"),
        BROKER,
        "keyUsage = critical, keyCertSign, cRLSign in the authority's",
    ),
    "not critical": (
        AUTHORITY | {"basicConstraints": "CA:TRUE"},
        BROKER,
        "basicConstraints = critical, CA:TRUE in the",
    ),
    "no constraints": (without(AUTHORITY, "basicConstraints"), BROKER, CERTIFY),
    "may not sign": (AUTHORITY | {"keyUsage": "critical, cRLSign"}, BROKER, CERTIFY),
    "no issuer": (
        AUTHORITY,
        BROKER | {"authorityKeyIdentifier": "none"},
        "authorityKeyIdentifier = keyid in the broker's",
    ),
    "sound": (AUTHORITY, BROKER, None),
}


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, BrokerUrl]]:
    """A broker that shows the certificate of each case, and where; each address trusts the authority of its case."""
    directory = tmp_path_factory.mktemp("shown")
    urls, listeners = {}, {}
    for case, (authority, broker, _) in CASES.items():
        made = Authority(directory, case, authority)
        certificate, key = made.issue(f"broker of {case}", host=HOST, extensions=broker)
        port = free_port()
        listeners[port] = f"certfile {certificate}\nkeyfile {key}\n"
        urls[case] = BrokerUrl(HOST, port, tls=True, ca=str(made.pem))
    server = Mosquitto(directory, listeners=listeners)
    server.start()
    yield urls
    server.stop()


@dropped_sockets
@pytest.mark.parametrize("case", CASES)
async def test_a_certificate_that_breaks_the_rules_is_refused_with_what_it_lacks(
    shown: dict[str, BrokerUrl], rules: ssl.VerifyFlags, case: str
) -> None:
    _, _, words = CASES[case]
    told = [await trouble(shown[case], way) for way in (as_device, as_aggregator)]
    if words is None or (rules != STRICT and case != "may not sign"):  # no Python has ever admitted the latter
        assert told == [None, None]
        return
    for text in told:
        assert text is not None
        assert f"; the certificates lack {words}" in text
        assert "certificate verify failed: " in text
        assert 'docs/device.md shows with openssl under "Certificates of your own"' in text
        assert "\n" not in text


@dropped_sockets
@pytest.mark.usefixtures("rules")
async def test_the_remedy_for_a_refused_certificate_is_not_offered_for_other_troubles(
    shown: dict[str, BrokerUrl],
) -> None:
    other = shown["no usage"].ca
    told = await trouble(replace(shown["sound"], ca=other), as_device)
    assert told is not None
    assert "certificate verify failed" in told
    assert told.endswith(f"; {other} is another authority; name the one that signed the broker's certificate")
    nobody = await trouble(replace(shown["sound"], port=free_port()), as_device)
    assert nobody is not None
    assert nobody.endswith("; start the broker, or correct the address")


@dropped_sockets
@pytest.mark.parametrize(("authority", "broker_s"), [(-1, 2), (30, -1)], ids=["authority", "broker"])
async def test_the_certificate_that_has_expired_is_named(tmp_path: Path, authority: int, broker_s: int) -> None:
    made = Authority(tmp_path, "ca", days=authority)
    certificate, key = made.issue("broker", host=HOST, days=broker_s)
    with broker(tmp_path, certificate, key, made.pem) as address:
        url = BrokerUrl(HOST, address.port, tls=True, ca=address.ca)
        told = [await trouble(url, way) for way in (as_device, as_aggregator)]
    guide = 'as docs/device.md shows with openssl under "Certificates of your own"'
    for text in told:
        assert text is not None
        if authority < 0:
            assert re.search(
                f"; the authority in {made.pem} has expired on \\d{{4}}-\\d\\d-\\d\\d: renew it {guide}, and", text
            )
        else:
            assert "; the broker's certificate has expired, or the clock of this machine is wrong (2" in text
            assert text.endswith(f"; sign a new one {guide}")


@dropped_sockets
async def test_an_address_that_the_certificate_lacks_and_an_authority_that_nobody_named_have_their_remedies(
    shown: dict[str, BrokerUrl],
) -> None:
    elsewhere = await trouble(replace(shown["sound"], host="localhost"), as_device)
    assert elsewhere is not None
    assert elsewhere.endswith("; use an address that the broker's certificate has, or sign one for localhost")
    unnamed = await trouble(replace(shown["sound"], ca=None), as_device)
    assert unnamed is not None
    assert unnamed.endswith("; name the file of the authority (ca=FILE) that signed the broker's certificate")


@pytest.mark.usefixtures("rules")
async def test_the_certificates_of_the_guide_are_accepted(tmp_path: Path) -> None:
    make, _ = prepare(tmp_path)
    run(tmp_path, make)
    with broker(tmp_path, *(tmp_path / name for name in ("broker.crt", "broker.key", "ca.pem"))) as url:
        assert [await trouble(url, way) for way in (as_device, as_aggregator)] == [None, None]


@pytest.mark.usefixtures("rules")
async def test_an_authority_mended_by_the_guide_is_accepted_with_what_it_signed_before(tmp_path: Path) -> None:
    _, mend = prepare(tmp_path)
    made = Authority(tmp_path, "ca", extensions=without(AUTHORITY, "keyUsage"))
    certificate, key = made.issue("broker", host=HOST)
    run(tmp_path, mend)
    with broker(tmp_path, certificate, key, tmp_path / "mended.pem") as address:
        url = BrokerUrl(HOST, address.port, tls=True, ca=address.ca)
        assert [await trouble(url, way) for way in (as_device, as_aggregator)] == [None, None]


def prepare(directory: Path) -> list[str]:
    """The guide's file in `directory`, and its commands, for a broker that is called localhost."""
    need("openssl")
    here = [text.replace("broker.local", "localhost") for text in (FILE, *COMMANDS)]
    (directory / "certificates.cnf").write_text(here[0], encoding="utf-8")
    return here[1:]


def run(directory: Path, commands: str) -> None:
    subprocess.run(["sh", "-ec", commands], cwd=directory, check=True, capture_output=True)


async def as_device(url: BrokerUrl) -> None:
    async with MqttTransport(url, "d").connect():
        pass


async def as_aggregator(url: BrokerUrl) -> None:
    async with MqttBroker(url, "a").connect([]):
        pass


async def trouble(url: BrokerUrl, way: Callable[[BrokerUrl], Awaitable[None]]) -> str | None:
    """Why no connection comes about, or None where one does."""
    collect_leftovers()
    text = None
    try:
        await way(url)
    except BrokerError as error:
        text = str(error)
    await asyncio.sleep(0)  # until here the task that was woken holds on to its error
    gc.collect()
    return text
