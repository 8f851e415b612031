"""The link under lock and key: TLS, certificates of devices, WebSockets and passwords, against a real mosquitto."""

import asyncio
import os
import ssl
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import aiomqtt
import pytest
from certificates import Authority
from heights import HEIGHTS
from servers import Mosquitto, free_port, need

from hush_aggregator import MqttBroker
from hush_client import Client, Gateway, MqttTransport, Receipt
from hush_common.broker_url import BrokerUrl
from hush_common.errors import BrokerError, OptionError
from hush_common.topics import ALL_REPORTS, task_topic

pytestmark = [pytest.mark.medium, pytest.mark.face]

HOST = "127.0.0.1"
WAYS = ("tls", "certificate", "socket", "secure socket")


@dataclass(frozen=True)
class Secured:
    """A broker with a port for each way in, and what a device needs for it."""

    broker: Mosquitto
    urls: dict[str, BrokerUrl]
    stranger: Authority

    def url(self, way: str, **changes: object) -> BrokerUrl:
        return replace(self.urls[way], **changes)  # type: ignore[arg-type]  # a test names fields of the address


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    directory = tmp_path_factory.mktemp("secured")
    authority, stranger = Authority(directory), Authority(directory, "stranger")
    certificate, key = authority.issue("broker", host=HOST)
    shown, its_key = authority.issue("sensor-17")
    passwords = directory / "passwords"
    passwords.touch()
    subprocess.run([need("mosquitto_passwd"), "-b", str(passwords), "alice", "p@ss/word"], check=True)
    passwords.chmod(0o644)
    tls = f"certfile {certificate}\nkeyfile {key}\n"
    ports = {way: free_port() for way in WAYS}
    broker = Mosquitto(directory, access=f"allow_anonymous true\npassword_file {passwords}")
    broker.listeners = {
        ports["tls"]: tls,
        ports["certificate"]: f"{tls}cafile {authority.pem}\nrequire_certificate true\n",
        ports["socket"]: "protocol websockets\n",
        ports["secure socket"]: f"protocol websockets\n{tls}",
    }
    ca = str(authority.pem)
    urls = {
        "tls": BrokerUrl(HOST, ports["tls"], tls=True, ca=ca),
        "certificate": BrokerUrl(HOST, ports["certificate"], tls=True, ca=ca, cert=str(shown), key=str(its_key)),
        "socket": BrokerUrl(HOST, ports["socket"], path="/mqtt"),
        "secure socket": BrokerUrl(HOST, ports["secure socket"], tls=True, ca=ca, path="/hush"),
    }
    with broker.running():
        yield Secured(broker, urls, stranger)


@pytest.mark.parametrize("way", ["certificate", "secure socket"])
async def test_a_context_and_a_client_id_of_ones_own_are_used(secured: Secured, tmp_path: Path, way: str) -> None:
    context = ssl.create_default_context(cafile=secured.urls["tls"].ca)
    context.load_cert_chain(str(secured.urls["certificate"].cert), secured.urls["certificate"].key)
    url = replace(secured.urls[way], ca=None, cert=None, key=None)
    name, told = f"thing {way}", list[Receipt]()
    async with aiomqtt.Client(HOST, secured.broker.port) as administrator:
        await administrator.publish(task_topic("heights"), HEIGHTS, qos=1, retain=True)
        await administrator.subscribe(ALL_REPORTS, qos=1)
        async with Client(
            url, device="d", state=tmp_path, spread=0, tls=context, client_id=name, on_delivery=told.append
        ) as client:
            receipt = await client.report("heights", 172.0, timeout=60)
            assert (receipt.status, told) == ("sent", [receipt])
    assert f" as {name} (" in (secured.broker.directory / "mosquitto.log").read_text()


def test_a_context_that_cannot_be_used_is_refused_with_the_remedy() -> None:
    lax = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    lax.check_hostname = False
    good = ssl.create_default_context()
    for url, context, words in (("mqtts://h", lax, "check_hostname"), ("mqtt://h", good, "mqtts://")):
        with pytest.raises(OptionError, match=f"^tls: .*{words}"):
            Client(url, device="d", state="s", tls=context)
    for name in ("x" * 129, "a\nb"):
        with pytest.raises(OptionError, match=r"^client_id: "):
            Client("mqtt://h", device="d", state="s", client_id=name)


@pytest.mark.parametrize("way", WAYS)
async def test_a_report_goes_every_way_in_as_the_address_says(secured: Secured, tmp_path: Path, way: str) -> None:
    async with aiomqtt.Client(HOST, secured.broker.port) as administrator:
        await administrator.publish(task_topic("heights"), HEIGHTS, qos=1, retain=True)
        await administrator.subscribe(ALL_REPORTS, qos=1)
        url = replace(secured.urls[way], user="alice", password="p@ss/word")  # noqa: S106 - made for this test
        text = str(url).replace("alice@", "alice:p%40ss%2Fword@")
        assert BrokerUrl.parse(text) == url
        async with Client(text, device="d", state=tmp_path, spread=0) as client:
            receipt = await client.report("heights", 172.0)
        assert receipt.status == "sent"
        message = await asyncio.wait_for(anext(administrator.messages), 60)
        assert message.topic.value == "hush/v1/reports/heights/alice"


@pytest.mark.parametrize("way", WAYS)
async def test_many_reports_come_through(secured: Secured, tmp_path: Path, way: str) -> None:
    async with aiomqtt.Client(HOST, secured.broker.port) as administrator:
        await administrator.publish(task_topic("heights"), HEIGHTS, qos=1, retain=True)
        await administrator.subscribe("hush/v1/reports/heights/many", qos=1)
        async with Gateway(MqttTransport(secured.url(way), "many"), name="many", state=tmp_path, spread=0) as gateway:
            receipts = await asyncio.gather(*(gateway.report(f"d{i}", "heights", 172.0) for i in range(300)))
        assert {receipt.status for receipt in receipts} == {"sent"}
        payloads = {bytes((await anext(administrator.messages)).payload) for _ in range(300)}
    assert len(payloads) == 300


@pytest.mark.parametrize("way", ["tls", "secure socket"])
async def test_a_broker_without_a_trusted_certificate_gets_nothing(secured: Secured, way: str) -> None:
    for url in (secured.url(way, ca=None), secured.url(way, ca=str(secured.stranger.pem))):
        await refused(url, "certificate verify failed")


async def test_a_certificate_for_another_name_is_not_accepted(secured: Secured) -> None:
    await refused(secured.url("tls", host="localhost"), "localhost")


async def test_a_device_needs_its_own_certificate(secured: Secured) -> None:
    cert, key = secured.stranger.issue("intruder")
    for change in ({"cert": None, "key": None}, {"cert": str(cert), "key": str(key)}):
        await refused(secured.url("certificate", **change), "cannot connect")


@pytest.mark.parametrize("way", WAYS)
async def test_a_wrong_password_is_refused_on_every_way(secured: Secured, way: str) -> None:
    text = await refused(secured.url(way, user="alice", password="wr0ng"), "refuses the login")  # noqa: S106
    assert "wr0ng" not in text


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"cert": "/no/such/cert", "key": None}, "cert=/no/such/cert"),
        ({"key": "{stranger}"}, "key="),
        ({"cert": "{text}", "key": None}, "cert="),
        ({"key": "{locked}"}, "encrypted"),
        ({"ca": "{text}"}, "ca="),
    ],
)
def test_files_that_cannot_be_used_are_named_with_the_remedy(
    secured: Secured, tmp_path: Path, files: dict[str, str | None], words: str
) -> None:
    text, locked = tmp_path / "text", tmp_path / "locked"
    text.write_text("no PEM at all", encoding="utf-8")
    source = str(secured.urls["certificate"].key)
    command = [need("openssl"), "ec", "-in", source, "-out", str(locked), "-aes128", "-passout", "pass:secret"]
    subprocess.run(command, check=True, capture_output=True)
    places = {"stranger": secured.stranger.issue("other")[1], "text": text, "locked": locked}
    url = secured.url("certificate", **{name: value and value.format(**places) for name, value in files.items()})
    with pytest.raises(BrokerError) as caught:
        asyncio.run(connect(url))
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


async def test_a_port_without_websockets_is_an_error(secured: Secured) -> None:
    await refused(BrokerUrl(HOST, secured.broker.port, path="/mqtt"), "cannot connect")


@pytest.mark.parametrize("way", WAYS)
async def test_an_aggregator_comes_in_every_way_as_well(secured: Secured, way: str) -> None:
    topic = f"hush/v1/reports/heights/{way.replace(' ', '-')}"
    bus = MqttBroker(secured.url(way), f"aggregator-{way}")
    async with bus.connect([topic]) as session, aiomqtt.Client(HOST, secured.broker.port) as device:
        for number in range(200):
            await device.publish(topic, b"%d" % number + b"x" * 300, qos=1)
        received: list[bytes] = []
        async with asyncio.timeout(60):
            while len(received) < 200:
                for delivery in await session.batch():
                    received.append(delivery.payload)
                    delivery.ack()
    assert len(set(received)) == 200


def test_the_command_takes_user_password_and_files_as_options(secured: Secured, tmp_path: Path) -> None:
    publish = [need("mosquitto_pub"), "-h", HOST, "-p", str(secured.broker.port), "-q", "1", "-r", "-s"]
    subprocess.run([*publish, "-t", task_topic("heights")], input=HEIGHTS, check=True)
    listen = [need("mosquitto_sub"), "-h", HOST, "-p", str(secured.broker.port), "-q", "1", "-c", "-i", "aggregator"]
    subprocess.run([*listen, "-E", "-t", ALL_REPORTS], check=True)
    password = tmp_path / "password"
    password.write_text("p@ss/word\n", encoding="utf-8")
    url = secured.urls["certificate"]
    options = ["--broker", f"mqtts://{HOST}:{url.port}", "--state", str(tmp_path / "state"), "--spread", "0"]
    options += ["--ca", str(url.ca), "--cert", str(url.cert), "--key", str(url.key), "--user", "alice"]
    done = report(*options, "--password-file", str(password))
    assert done.returncode == 0, done.stderr
    assert "sent" in done.stdout
    for extra, words in (
        (("--password-file", str(tmp_path / "none")), "--password-file: "),
        (("--broker", "mqtt://h"), "mqtt://"),
    ):
        done = report(*options, *extra)
        assert (done.returncode, done.stdout) == (2, "")
        assert words in done.stderr
        assert len(done.stderr.splitlines()) == 1


def report(*options: str) -> subprocess.CompletedProcess[str]:
    hush = str(Path(sys.executable).with_name("hush"))
    command = [hush, "report", "heights", "172", *options]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "COLUMNS": "200"}, timeout=60
    )


async def connect(url: BrokerUrl) -> None:
    async with MqttTransport(url, "d").connect():
        pass


async def refused(url: BrokerUrl, words: str) -> str:
    """Why no connection comes about; it must say `words`."""
    with pytest.raises(BrokerError, match=words) as caught:
        await connect(url)
    return str(caught.value)
