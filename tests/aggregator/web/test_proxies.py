"""The examples for nginx and Caddy in front of `hush http`, with the real programs."""

import getpass
import json
import re
import ssl
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import cast

import httpx
import pytest
from certificates import BROKER, Authority
from http_process import HttpProcess, running
from http_world import make_store
from servers import free_port, need
from waiting import wait_until

pytestmark = pytest.mark.large

EXAMPLES = Path(__file__).parents[3] / "aggregator/packaging/proxy"
NAME = "hush.example"
PREFIX = "/hush"
NGINX = """\
daemon off;
user {user};
pid nginx.pid;
error_log stderr;
events {{}}
http {{
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    include {example};
}}
"""
TO_NAME = {"sni_hostname": NAME}
CADDY = "{\n\tadmin off\n\tauto_https disable_redirects\n}\n"


@dataclass(frozen=True)
class Proxy:
    """A proxy with TLS.

    Args:
        port: of the proxy.
        trust: the authority that signed its certificate.
    """

    port: int
    trust: ssl.SSLContext

    @contextmanager
    def client(self) -> Iterator[httpx.Client]:
        """A client that finds the name of the proxy on the loopback."""
        headers = {"Host": f"{NAME}:{self.port}"}
        address = f"https://127.0.0.1:{self.port}"
        with httpx.Client(base_url=address, headers=headers, verify=self.trust, timeout=60) as client:
            yield client

    def get(self, path: str, **headers: str) -> httpx.Response:
        with self.client() as client:
            return client.get(path, headers=headers, extensions=TO_NAME)


def nginx(directory: Path, port: int, service: int, certificate: tuple[Path, Path]) -> list[str]:
    text = (EXAMPLES / "nginx.conf").read_text(encoding="utf-8")
    text = re.sub(r"listen \S*\b443", lambda found: found[0].replace("443", str(port)), text)
    for name, file in zip(("fullchain", "privkey"), certificate, strict=True):
        text = text.replace(f"/etc/ssl/{NAME}/{name}.pem", str(file))
    example = directory / "example.conf"
    example.write_text(text.replace("127.0.0.1:8080", f"127.0.0.1:{service}"), encoding="utf-8")
    (directory / "nginx.conf").write_text(NGINX.format(user=getpass.getuser(), example=example), encoding="utf-8")
    return [need("nginx"), "-p", str(directory), "-e", "stderr", "-c", "nginx.conf"]


def caddy(directory: Path, port: int, service: int, certificate: tuple[Path, Path]) -> list[str]:
    text = (EXAMPLES / "Caddyfile").read_text(encoding="utf-8").replace("127.0.0.1:8080", f"127.0.0.1:{service}")
    pair = " ".join(str(file) for file in certificate)
    text = text.replace(f"{NAME} {{", f"https://{NAME}:{port} {{\n\ttls {pair}", 1)
    (directory / "Caddyfile").write_text(CADDY + text, encoding="utf-8")
    return [need("caddy"), "run", "--config", str(directory / "Caddyfile"), "--adapter", "caddyfile"]


Write = Callable[[Path, int, int, tuple[Path, Path]], list[str]]


@contextmanager
def in_front(write: Write, directory: Path, service: int) -> Iterator[Proxy]:
    """The proxy in front of a port of the loopback, until the block ends."""
    authority = Authority(directory)
    certificate = authority.issue("proxy", extensions={**BROKER, "subjectAltName": f"DNS:{NAME}"})
    port = free_port()
    command = write(directory, port, service, certificate)
    home = {"HOME": str(directory), "PATH": "/usr/bin:/bin"}
    with (directory / "proxy.log").open("wb") as log:
        started = subprocess.Popen(command, cwd=directory, env=home, stdout=log, stderr=log)
    found = Proxy(port, ssl.create_default_context(cafile=str(authority.pem)))
    try:

        def answers() -> bool:
            assert started.poll() is None, (directory / "proxy.log").read_text(encoding="utf-8")
            with suppress(httpx.TransportError):
                return bool(found.get("/"))
            return False

        wait_until(answers)
        yield found
    finally:
        started.terminate()
        started.wait(60)


@pytest.fixture(params=[nginx, caddy], ids=["nginx", "caddy"])
def write(request: pytest.FixtureRequest) -> Write:
    return cast("Write", request.param)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[HttpProcess]:
    make_store(tmp_path / "hush.sqlite3")
    words = ["http", "--store", str(tmp_path / "hush.sqlite3"), "--host", NAME, "--trusted-proxy", "127.0.0.1"]
    with running(tmp_path, [*words, "--root-path", PREFIX]) as started:
        yield started


@pytest.fixture
def proxy(write: Write, tmp_path: Path, service: HttpProcess) -> Iterator[Proxy]:
    with in_front(write, tmp_path, service.port) as found:
        yield found


def test_it_passes_answers_and_streams_on_below_its_prefix(proxy: Proxy, service: HttpProcess) -> None:
    assert proxy.get(f"{PREFIX}/healthz").status_code == 200
    assert proxy.get(f"{PREFIX}/v1/tasks").json() == service.get("/v1/tasks").json()
    links = re.findall(r'(?:href|src|action|data-events)="(/[^"]*)"', proxy.get(f"{PREFIX}/").text)
    assert links
    assert [link for link in links if not link.startswith(f"{PREFIX}/")] == []
    moved = proxy.get(PREFIX)
    assert moved.status_code == 308
    assert moved.headers["location"].removeprefix(f"https://{NAME}:{proxy.port}") == f"{PREFIX}/"
    assert service.get("/metrics").status_code == 200
    assert proxy.get(f"{PREFIX}/metrics").status_code == 404
    with proxy.client() as client, client.stream("GET", f"{PREFIX}/v1/events", extensions=TO_NAME) as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        assert any(line.startswith("event: state") for line in stream.iter_lines())


def test_a_page_of_this_site_may_write_and_one_of_another_may_not(proxy: Proxy) -> None:
    with proxy.client() as client:
        for origin, kind in ((f"https://{NAME}:{proxy.port}", "read-only"), ("https://other.example", "other-origin")):
            headers = {"Origin": origin}
            answer = client.post(f"{PREFIX}/v1/tasks", json={}, headers=headers, extensions=TO_NAME)
            assert answer.json()["type"].endswith(f"#{kind}")


class Asked(BaseHTTPRequestHandler):
    """Answers with the path and the headers of the request."""

    def do_GET(self) -> None:
        body = json.dumps({"path": self.path, **{key.lower(): value for key, value in self.headers.items()}}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def test_a_client_cannot_choose_the_address_that_its_requests_count_for(write: Write, tmp_path: Path) -> None:
    with HTTPServer(("127.0.0.1", 0), Asked) as behind:
        thread = Thread(target=behind.serve_forever, daemon=True)
        thread.start()
        with in_front(write, tmp_path, behind.server_port) as proxy:
            forged = {"X-Forwarded-For": "203.0.113.9", "Forwarded": "for=203.0.113.9"}
            asked = proxy.get(f"{PREFIX}/v1/tasks?a=1", **forged).json()
        behind.shutdown()
        thread.join()
    assert (asked["path"], asked["host"]) == ("/v1/tasks?a=1", f"{NAME}:{proxy.port}")
    assert asked["x-forwarded-for"].split(", ")[-1] == "127.0.0.1"
    assert asked.get("forwarded") is None
