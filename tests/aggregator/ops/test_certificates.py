"""Certificates of a broker: which are refused with which remedy, and how long one is still valid."""

import asyncio
import re
import ssl
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
from certificates import AUTHORITY, BROKER, Authority
from servers import Mosquitto, free_port
from waiting import PATIENCE_S, until

from hush_aggregator import MqttBroker
from hush_aggregator.delivery.certificate import CertificateWatch, certificate_end
from hush_client import MqttTransport
from hush_common.broker_url import BrokerUrl
from hush_common.errors import BrokerError

HOST = "127.0.0.1"
STRICT = ssl.VERIFY_X509_STRICT

pytestmark = pytest.mark.medium


@pytest.fixture(params=[ssl.VERIFY_DEFAULT, STRICT], ids=["until 3.12", "from 3.13 on"])
def rules(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ssl.VerifyFlags:
    """What each Python checks in certificates by default, whichever Python runs this."""
    flags: ssl.VerifyFlags = request.param
    default = ssl.create_default_context

    def context(cafile: str | None = None) -> ssl.SSLContext:
        made = default(cafile=cafile)
        made.verify_flags = (made.verify_flags & ~STRICT) | flags
        return made

    monkeypatch.setattr("ssl.create_default_context", context)
    return flags


def without(extensions: dict[str, str], name: str) -> dict[str, str]:
    return {key: value for key, value in extensions.items() if key != name}


CASES: dict[str, tuple[dict[str, str], dict[str, str], tuple[str, ...]]] = {
    "no usage": (without(AUTHORITY, "keyUsage"), BROKER, ("keyUsage", "keyCertSign")),
    "not critical": (AUTHORITY | {"basicConstraints": "CA:TRUE"}, BROKER, ("basicConstraints", "critical")),
    "no constraints": (without(AUTHORITY, "basicConstraints"), BROKER, ("basicConstraints", "keyUsage")),
    "may not sign": (AUTHORITY | {"keyUsage": "critical, cRLSign"}, BROKER, ("basicConstraints", "keyUsage")),
    "no issuer": (AUTHORITY, BROKER | {"authorityKeyIdentifier": "none"}, ("authorityKeyIdentifier", "broker")),
    "sound": (AUTHORITY, BROKER, ()),
}
"""Extensions of the authority and of the broker, and what a refusal says is missing."""


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, BrokerUrl]]:
    """The address of each case on one broker, with trust in the authority of that case."""
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


async def as_device(url: BrokerUrl) -> None:
    async with MqttTransport(url, "d").connect():
        pass


async def as_aggregator(url: BrokerUrl) -> None:
    async with MqttBroker(url, "a").connect([]):
        pass


async def trouble(url: BrokerUrl, way: Callable[[BrokerUrl], Awaitable[None]] = as_device) -> str:
    """Why no connection is made; empty if one is."""
    try:
        await way(url)
    except BrokerError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("case", CASES)
async def test_a_certificate_that_breaks_the_rules_is_refused_with_what_it_lacks(
    shown: dict[str, BrokerUrl], rules: ssl.VerifyFlags, case: str
) -> None:
    _, _, words = CASES[case]
    refused = words and (rules == STRICT or case == "may not sign")  # no Python has ever accepted the latter
    for way in (as_device, as_aggregator):
        text = await trouble(shown[case], way)
        if not refused:
            assert text == ""
            continue
        for word in (*words, "certificate verify failed", "docs/device.md"):
            assert word in text
        assert "\n" not in text


@pytest.mark.usefixtures("rules")
async def test_other_troubles_have_their_own_remedies(shown: dict[str, BrokerUrl]) -> None:
    other = shown["no usage"].ca
    for url, words in (
        (replace(shown["sound"], ca=other), (str(other), "authority")),
        (replace(shown["sound"], ca=None), ("ca=FILE",)),
        (replace(shown["sound"], port=free_port()), ("start the broker",)),
        (replace(shown["sound"], host="localhost"), ("sign one for localhost",)),
    ):
        text = await trouble(url)
        assert [word for word in words if word not in text] == [], text
        assert "keyUsage" not in text


@contextmanager
def broker(directory: Path, certificate: Path, key: Path) -> Iterator[int]:
    """The port of a mosquitto that shows this certificate."""
    port = free_port()
    server = Mosquitto(directory, listeners={port: f"certfile {certificate}\nkeyfile {key}\n"})
    server.start()
    yield port
    server.stop()


@pytest.mark.parametrize(("authority", "issued"), [(-1, 2), (30, -1)], ids=["authority", "broker"])
async def test_the_certificate_that_has_expired_is_named(tmp_path: Path, authority: int, issued: int) -> None:
    made = Authority(tmp_path, "ca", days=authority)
    certificate, key = made.issue("broker", host=HOST, days=issued)
    with broker(tmp_path, certificate, key) as port:
        url = BrokerUrl(HOST, port, tls=True, ca=str(made.pem))
        for way in (as_device, as_aggregator):
            text = (await trouble(url, way)).partition(";")[2]
            assert "has expired" in text
            assert (str(made.pem) in text) is (authority < 0)
            assert re.search(r"\b2\d{3}\b", text)  # when


# How long it is valid


async def test_the_end_of_a_certificate_is_read_from_the_broker(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.issue("broker", host=HOST, days=9)
    with broker(tmp_path, certificate, key) as port:
        url = BrokerUrl.parse(f"mqtts://{HOST}:{port}?ca={authority.pem}")
        end = await certificate_end(url)
        assert end is not None
        assert abs(end - datetime.now(UTC) - timedelta(days=9)) < timedelta(minutes=5)
        watch = CertificateWatch(url)
        watching = asyncio.create_task(watch.run())
        await until(lambda: watch.until is not None)
        watching.cancel()
        assert watch.until == end
        with pytest.raises(BrokerError, match="certificate"):
            await certificate_end(BrokerUrl.parse(f"mqtts://{HOST}:{port}"))
    with pytest.raises(BrokerError, match="start the broker"):
        await certificate_end(url)
    assert await certificate_end(BrokerUrl.parse(f"mqtt://{HOST}:{port}")) is None


@pytest.mark.large
async def test_the_metrics_of_a_service_have_the_end_of_the_certificate(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.issue("broker", host=HOST, days=9)
    name, text, page = "hush_broker_certificate_expiry_timestamp_seconds", "", free_port()
    with broker(tmp_path, certificate, key) as port:
        command = [sys.executable, "-m", "hush", "serve", "--store", str(tmp_path / "store")]
        command += ["--broker", f"mqtts://{HOST}:{port}?ca={authority.pem}", "--http", f"{HOST}:{page}"]
        service = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.DEVNULL)
        try:
            async with asyncio.timeout(PATIENCE_S), httpx.AsyncClient(timeout=PATIENCE_S) as client:
                while name not in text:
                    await asyncio.sleep(0.2)
                    with suppress(httpx.TransportError):
                        text = (await client.get(f"http://{HOST}:{page}/metrics")).text
        finally:
            service.terminate()
            assert await service.wait() == 0
    (value,) = (line.split()[1] for line in text.splitlines() if line.startswith(f"{name} "))
    assert abs(float(value) - datetime.now(UTC).timestamp() - 9 * 86400) < 300
