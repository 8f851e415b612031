"""Where HTTP is served, who may ask there, and what the token may be."""

import secrets
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from http_world import TOKEN
from servers import free_port

from hush_aggregator.commands.serve import HttpServer
from hush_aggregator.http.listen import Address, HttpListener, HttpOptions
from hush_aggregator.http.service import TOKEN_VARIABLE, Token, find_token
from hush_aggregator.logs import LogFormat
from hush_common.errors import OptionError

STORE = Path("hush.sqlite")


@pytest.fixture(autouse=True)
def _no_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n", encoding="utf-8")
    file.chmod(0o600)
    return file


@contextmanager
def opened(host: str = "127.0.0.1", **options: object) -> Iterator[HttpListener]:
    found = HttpListener.open(HttpOptions("--bind", f"{host}:{free_port()}", "--", **options), STORE)  # type: ignore[arg-type]
    with closing(found.listener):
        yield found


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [("127.0.0.1:8080", "127.0.0.1", 8080), ("[::1]:0", "::1", 0), ("Hush.Example:65535", "Hush.Example", 65535)],
)
def test_an_address_is_read(text: str, host: str, port: int) -> None:
    assert Address.parse("--http", text) == Address(host, port)


@pytest.mark.parametrize(
    "text", ["", "8080", ":8080", "127.0.0.1", "127.0.0.1:", "::1:8080", "[::1]", "[host]:1", "a:65536", "a:-1", "a:²"]
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(OptionError, match="HOST:PORT"):
        Address.parse("--http", text)


def test_on_the_loopback_everybody_reads_and_nobody_writes() -> None:
    with opened() as access:
        assert (access.service.guarded, access.service.write, access.service.any_address) == (False, False, False)
        assert access.service.hosts == {"localhost", "127.0.0.1", "[::1]"}
        assert access.meaning == "anyone who can reach it may read, nobody may write"


def test_elsewhere_only_with_a_token_or_an_explicit_word(file: Path) -> None:
    with pytest.raises(OptionError, match="set a token with --token-file, or let everybody read with --open"):
        HttpListener.open(HttpOptions("--bind", f"0.0.0.0:{free_port()}", "--"), STORE)
    with opened("0.0.0.0", token_file=file) as access:  # noqa: S104 - what is tested
        assert (access.service.guarded, access.service.any_address) == (True, True)
    with opened("0.0.0.0", open=True) as access:  # noqa: S104
        assert (access.service.guarded, access.service.any_address) == (False, True)
    with opened("0.0.0.0", open=True, token_file=file) as access:  # noqa: S104
        assert not access.service.guarded


def test_writing_needs_a_token(file: Path) -> None:
    with pytest.raises(OptionError, match="needs a token"):
        HttpListener.open(HttpOptions("--bind", "127.0.0.1:0", "--", write=True), STORE)
    with opened(write=True, token_file=file) as access:
        assert access.meaning.endswith("writing needs the token")


def test_further_names_are_hosts_and_nothing_else_is() -> None:
    with opened(hosts=("Hush.Example", "hush_1")) as access:
        assert {"hush.example", "hush_1"} <= access.service.hosts
    for name in ("http://hush.example", "hush.example:80", "*", "", "a/b", "a b"):
        with pytest.raises(OptionError, match="not a valid host name"):
            HttpListener.open(HttpOptions("--bind", "127.0.0.1:0", "--", hosts=(name,)), STORE)


def test_a_port_that_is_taken_is_told_before_anything_starts() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", free_port()))
        other.listen()
        with pytest.raises(OptionError, match=r"cannot listen on 127\.0\.0\.1:.*use another port"):
            HttpListener.open(HttpOptions("--http", f"127.0.0.1:{other.getsockname()[1]}", "--http-"), STORE)
    for host in ("no.such.name.invalid", "192.0.2.1"):
        with pytest.raises(OptionError, match=r"not an address of this machine|use another port"):
            HttpListener.open(HttpOptions("--http", f"{host}:0", "--http-", open=True), STORE)


def test_options_about_http_need_an_address(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="--http-write: is about HTTP"):
        HttpServer(
            "",
            token_file=None,
            write=True,
            open_=False,
            hosts=(),
            store=tmp_path / "store",
            confidence=0.9,
            log_format=LogFormat.TEXT,
        )


def test_a_token_comes_from_a_file_or_else_from_the_environment(file: Path) -> None:
    for found in (
        find_token("--token-file", file, {}),
        find_token("--token-file", None, {TOKEN_VARIABLE: TOKEN}),
        find_token("--token-file", file, {TOKEN_VARIABLE: "another"}),
    ):
        assert found is not None
        assert found.fits(TOKEN)
        assert not found.fits(TOKEN[:-1])
        assert TOKEN not in repr(found)
    assert find_token("--token-file", None, {}) is None


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o666])
def test_a_file_that_others_can_read_or_change_holds_no_token(file: Path, mode: int) -> None:
    file.chmod(mode)
    with pytest.raises(OptionError, match="chmod 600"):
        find_token("--token-file", file, {})


@pytest.mark.parametrize(
    ("text", "words"),
    [("", "shorter"), ("x" * 31, "shorter"), ("a" * 513, "at most 512"), ("ä" * 40, "digits"), ("a b" * 20, "digits")]
    + [(text, "repeats itself") for text in ("x" * 32, "ab12" * 8, "5f1d7a9c" * 4 + "5f1", "01234" * 9)],
)
def test_what_is_no_token_is_not_repeated(file: Path, text: str, words: str) -> None:
    file.write_text(text, encoding="utf-8")
    with pytest.raises(OptionError, match=words) as caught:
        find_token("--token-file", file, {})
    assert not text or text not in str(caught.value)
    if text:
        with pytest.raises(OptionError, match=words):
            find_token("--token-file", None, {TOKEN_VARIABLE: text})


def test_a_file_that_is_not_there_or_no_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "raw").write_bytes(b"\xff" * 40)
    (tmp_path / "raw").chmod(0o600)
    for name in ("nothing", "raw", "."):
        with pytest.raises(OptionError, match=r"cannot be read|can read"):
            find_token("--token-file", tmp_path / name, {})


def test_what_a_program_draws_is_a_token() -> None:
    for _ in range(1000):
        for text in (secrets.token_hex(16), secrets.token_urlsafe(24), str(10**39 + secrets.randbelow(10**39))):
            assert Token(text).fits(text)


def test_comparing_takes_the_hash_of_anything() -> None:
    assert not any(Token(TOKEN).fits(text) for text in ("", "x", "\udcff", "a" * 10_000, TOKEN.upper()))
