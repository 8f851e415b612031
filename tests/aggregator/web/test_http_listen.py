"""Where HTTP listens, who may ask there, and which tokens are accepted."""

import secrets
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from commands import run
from http_world import TOKEN, Token

from hush_aggregator.web.listen import Address, HttpListener
from hush_aggregator.web.options import HttpOptions
from hush_aggregator.web.service import find_administrators, find_token
from hush_common.errors import OptionError

STORE = Path("hush.sqlite")
VARIABLE = "HUSH_HTTP_TOKEN"
ANNA, BERT = "9d3c51f07ab84e6c2d19f5a8b7c6034e1f2a", "77e0c4b95a1d4f83a6b20e9c8d1f5a37642b"
Open = Callable[..., HttpListener]


def private(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    path.chmod(0o600)
    return path


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with the token."""
    monkeypatch.delenv(VARIABLE, raising=False)
    return private(tmp_path / "token", f"{TOKEN}\n")


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Iterator[Open]:
    monkeypatch.delenv(VARIABLE, raising=False)
    found: list[HttpListener] = []

    def open_(at: str = "127.0.0.1:0", **options: Any) -> HttpListener:  # noqa: ANN401 - of HttpOptions
        found.append(HttpListener.open(at, HttpOptions(**options), STORE))
        return found[-1]

    yield open_
    for one in found:
        one.listener.close()


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [("127.0.0.1:8080", "127.0.0.1", 8080), ("[::1]:0", "::1", 0), ("Hush.Example:65535", "Hush.Example", 65535)],
)
def test_an_address_has_a_host_and_a_port(text: str, host: str, port: int) -> None:
    assert Address.parse("--http", text) == Address(host, port)


def test_a_text_without_host_or_port_is_refused() -> None:
    wrong = ["", "8080", ":8080", "127.0.0.1", "127.0.0.1:", "::1:8080", "[::1]", "[host]:1", "a:65536", "a:-1", "a:²"]
    for text in wrong:
        with pytest.raises(OptionError, match=r"--http: .*HOST:PORT"):
            Address.parse("--http", text)


@pytest.mark.medium
def test_on_the_loopback_everybody_reads_and_nobody_writes(opened: Open) -> None:
    service = opened().service
    assert (service.guarded, service.write, service.any_address) == (False, False, False)
    assert service.hosts == {"localhost", "127.0.0.1", "[::1]"}


@pytest.mark.medium
def test_elsewhere_reading_needs_a_token_or_an_explicit_option(opened: Open, file: Path) -> None:
    anywhere = "0.0.0.0:0"
    with pytest.raises(OptionError, match=r"--token-file.* --open"):
        opened(anywhere)
    for options, guarded in (
        ({"token_file": file}, True),
        ({"open": True}, False),
        ({"open": True, "token_file": file}, False),
    ):
        service = opened(anywhere, **options).service
        assert (service.guarded, service.any_address) == (guarded, True)


@pytest.mark.medium
def test_writing_needs_a_token(opened: Open, file: Path) -> None:
    with pytest.raises(OptionError, match=r"--write.*token"):
        opened(write=True)
    assert opened(write=True, token_file=file).service.write


@pytest.mark.medium
def test_further_host_names_are_names_alone(opened: Open) -> None:
    assert {"hush.example", "hush_1"} <= opened(host=("Hush.Example", "hush_1")).service.hosts
    for name in ("http://hush.example", "hush.example:80", "*", "", "a/b", "a b"):
        with pytest.raises(OptionError, match=r"--host"):
            opened(host=(name,))


@pytest.mark.medium
def test_an_origin_for_frames_is_a_scheme_and_a_host(opened: Open) -> None:
    for wrong in ("*", "'self'", "example.org", "https://a/b", "https://a;script-src *", "ftp://a", "https://a\nb", ""):
        with pytest.raises(OptionError, match=r"--frame-ancestors"):
            opened(frame_ancestors=(wrong,))
    named = opened(frame_ancestors=("https://Example.org:8443",)).service
    assert named.frame_ancestors == ("https://example.org:8443",)


@pytest.mark.medium
def test_an_address_that_is_taken_or_elsewhere_is_named_at_the_start(opened: Open) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = f"127.0.0.1:{other.getsockname()[1]}"
        with pytest.raises(OptionError, match=rf"--bind: .*{taken}"):
            opened(taken)
    for host in ("no.such.name.invalid", "192.0.2.1"):
        with pytest.raises(OptionError, match=host):
            opened(f"{host}:0", open=True)


@pytest.mark.medium
def test_an_audit_log_that_cannot_be_written_is_named_at_the_start(opened: Open, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"--audit-log: .*missing"):
        opened(audit_log=tmp_path / "missing" / "audit")


def test_a_token_is_read_from_a_file_before_the_environment(file: Path) -> None:
    for given, variables in (
        (file, {}),
        (None, {VARIABLE: TOKEN}),
        (file, {VARIABLE: ANNA}),
    ):
        found = find_token("--token-file", given, variables)
        assert found is not None
        assert found.fits(TOKEN)
        assert TOKEN not in repr(found)
    assert find_token("--token-file", None, {}) is None


def test_a_token_fits_itself_alone() -> None:
    token = Token(TOKEN)
    for text in ("", "x", TOKEN[:-1], f"{TOKEN}0", TOKEN.upper(), "\udcff", "a" * 10_000):
        assert not token.fits(text)
    for _ in range(100):
        for text in (secrets.token_hex(16), secrets.token_urlsafe(24), str(10**39 + secrets.randbelow(10**39))):
            assert Token(text).fits(text)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o666])
def test_a_token_file_that_others_can_open_is_refused(file: Path, mode: int) -> None:
    file.chmod(mode)
    with pytest.raises(OptionError, match=r"chmod 600"):
        find_token("--token-file", file, {})


@pytest.mark.parametrize(
    "text",
    ["", "x" * 31, "a" * 513, "ä" * 40, "a b" * 20, "x" * 32, "ab12" * 8, "5f1d7a9c" * 4 + "5f1", "01234" * 9],
)
def test_a_token_that_can_be_guessed_is_refused_and_not_repeated(file: Path, text: str) -> None:
    private(file, text)
    with pytest.raises(OptionError, match=r"openssl rand") as caught:
        find_token("--token-file", file, {})
    assert not text or text not in str(caught.value)
    with suppress(OptionError):
        assert find_token("--token-file", None, {VARIABLE: text}) is None


def test_a_token_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "raw").write_bytes(b"\xff" * 40)
    (tmp_path / "raw").chmod(0o600)
    for name in ("nothing", "raw", "."):
        with pytest.raises(OptionError, match=r"--token-file: "):
            find_token("--token-file", tmp_path / name, {})


@pytest.mark.parametrize(
    "text",
    ["", f"{ANNA}\n", f"anna {ANNA}\nanna {BERT}\n", f"anna {ANNA}\nbert {ANNA}\n", "anna short\n", f"an/na {ANNA}\n"],
)
def test_each_administrator_has_a_name_and_a_token_alone(tmp_path: Path, text: str) -> None:
    with pytest.raises(OptionError, match=r"--admin-token-file: ") as caught:
        find_administrators("--admin-token-file", private(tmp_path / "administrators", text))
    assert ANNA not in str(caught.value)
    good = private(tmp_path / "good", f"anna {ANNA}\n\nbert {BERT}\n")
    (anna, token), (bert, _) = find_administrators("--admin-token-file", good)
    assert (anna, bert, token.fits(ANNA), token.fits(BERT)) == ("anna", "bert", True, False)


@pytest.mark.medium
def test_a_token_is_for_readers_or_for_an_administrator(opened: Open, tmp_path: Path) -> None:
    readers = private(tmp_path / "readers", ANNA)
    administrators = private(tmp_path / "administrators", f"anna {ANNA}")
    with pytest.raises(OptionError, match=r"--admin-token-file") as caught:
        opened(token_file=readers, admin_token_file=administrators)
    assert ANNA not in str(caught.value)


def test_options_of_http_need_its_address(tmp_path: Path) -> None:
    shown = run(["serve", "--broker", "mqtt://127.0.0.1:9", "--store", "store", "--http-write"], tmp_path)
    assert (shown.code, "--http-write" in shown.err) == (2, True)
    assert not (tmp_path / "store").exists()
