import asyncio
import ssl
from pathlib import Path

import pytest

from hush_aggregator import MqttBroker
from hush_common.broker_url import BrokerUrl
from hush_common.errors import BrokerError


def test_a_certificate_authority_that_is_not_there_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(BrokerError, match=r"mqtts://h:8883\S*: cannot read ca=\S*none.pem \(No such file"):
        MqttBroker(BrokerUrl.parse(f"mqtts://h?ca={tmp_path / 'none.pem'}"), "x")
    (tmp_path / "text.pem").write_text("no certificate", encoding="utf-8")
    with pytest.raises(BrokerError, match="cannot read ca=") as caught:
        MqttBroker(BrokerUrl.parse(f"mqtts://h?ca={tmp_path / 'text.pem'}"), "x")
    assert isinstance(caught.value.__cause__, ssl.SSLError)


async def test_a_broker_that_accepts_and_says_nothing_is_a_timeout_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hush_common.mqtt.connection._CONNECT_SECONDS", 0.2)
    held: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
    server = await asyncio.start_server(lambda reader, writer: held.append((reader, writer)), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    bus = MqttBroker(BrokerUrl.parse(f"mqtt://127.0.0.1:{port}"), "x")
    with pytest.raises(BrokerError, match=r"cannot connect \(Operation timed out\); start the broker"):
        async with bus.connect(["hush/v1/tasks/+"]):
            pass
    for reader, writer in held:
        await asyncio.wait_for(reader.read(), 60)  # to the end: the other side has closed its socket
        writer.close()
    server.close()
