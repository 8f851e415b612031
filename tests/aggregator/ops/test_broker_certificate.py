"""How long a broker's certificate is valid is read from the broker, as a client sees it."""

import asyncio
import sys
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
from certificates import Authority
from servers import Mosquitto, free_port

from hush_aggregator.broker.certificate import CertificateWatch, certificate_end
from hush_common.broker_url import BrokerUrl
from hush_common.errors import BrokerError


async def test_the_end_of_a_certificate_is_that_of_the_one_that_the_broker_shows(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.issue("broker", host="127.0.0.1", days=9)
    port = free_port()
    broker = Mosquitto(tmp_path, listeners={port: f"certfile {certificate}\nkeyfile {key}"})
    broker.start()
    try:
        url = BrokerUrl.parse(f"mqtts://127.0.0.1:{port}?ca={authority.pem}")
        until = await certificate_end(url)
        assert until is not None
        assert abs(until - datetime.now(UTC) - timedelta(days=9)) < timedelta(minutes=5)
        watch = CertificateWatch(url)
        watching = asyncio.create_task(watch.run())
        async with asyncio.timeout(60):
            while watch.until is None:  # noqa: ASYNC110 - nothing tells
                await asyncio.sleep(0.01)
        watching.cancel()
        assert watch.until == until
        with pytest.raises(BrokerError, match="unable to get local issuer certificate"):
            await certificate_end(BrokerUrl.parse(f"mqtts://127.0.0.1:{port}"))
        assert await certificate_end(BrokerUrl.parse(broker.url)) is None
    finally:
        broker.stop()


async def test_a_broker_that_is_not_there_is_told_with_the_remedy() -> None:
    with pytest.raises(
        BrokerError, match=r"cannot connect \(Connection refused\); start the broker, or correct the address"
    ):
        await certificate_end(BrokerUrl.parse(f"mqtts://127.0.0.1:{free_port()}"))


@pytest.mark.large
async def test_the_metrics_of_a_service_have_it(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.issue("broker", host="127.0.0.1", days=9)
    port, page = free_port(), free_port()
    broker = Mosquitto(tmp_path, listeners={port: f"certfile {certificate}\nkeyfile {key}"})
    broker.start()
    command = [sys.executable, "-m", "hush", "serve", "--store", str(tmp_path / "store")]
    command += ["--broker", f"mqtts://127.0.0.1:{port}?ca={authority.pem}", "--http", f"127.0.0.1:{page}"]
    service = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.DEVNULL)
    name, text = "hush_broker_certificate_expiry_timestamp_seconds", ""
    try:
        async with asyncio.timeout(60), httpx.AsyncClient(base_url=f"http://127.0.0.1:{page}", timeout=60) as client:
            while name not in text:
                await asyncio.sleep(0.2)
                with suppress(httpx.TransportError):
                    text = (await client.get("/metrics")).text
    finally:
        service.terminate()
        assert await service.wait() == 0
        broker.stop()
    (value,) = (line.split()[1] for line in text.splitlines() if line.startswith(f"{name} "))
    assert abs(float(value) - datetime.now(UTC).timestamp() - 9 * 86400) < 300
