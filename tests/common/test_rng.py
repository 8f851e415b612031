"""Uniform integers from the bytes of the operating system: every byte that is drawn decides which."""

import pytest

import hush_common.rng
from hush_common.rng import SpareRng, SystemRng


@pytest.mark.parametrize(
    ("n", "drawn", "given"),
    [
        (1, [b"\x12\x34"], 0),
        (2, [b"\x00\x03"], 1),
        (3, [b"\x00\x05"], 2),
        (3, [b"\xff\xff", b"\x00\x04"], 1),  # 2^16 = 1 modulo 3: the last of 2^16 draws is one too many
        (3, [b"\xff\xfe"], 2),
        (256, [b"\xff\xff\xff"], 255),
        (257, [b"\xff\xff\x00", b"\x00\x01\x00"], 256),  # 2^24 = 256 modulo 257: the last 256 are too many
        (257, [b"\xff\xfe\xff"], 256),
        ((1 << 128) + 1, [b"\x00" * 17 + b"\x05"], 5),
    ],
)
def test_a_draw_is_uniform_whatever_the_bytes(
    monkeypatch: pytest.MonkeyPatch, n: int, drawn: list[bytes], given: int
) -> None:
    waiting = list(drawn)

    def token_bytes(size: int) -> bytes:
        piece = waiting.pop(0)
        assert len(piece) == size
        return piece

    monkeypatch.setattr(hush_common.rng, "token_bytes", token_bytes)
    assert SystemRng().randbelow(n) == given
    assert waiting == []


def test_a_spare_draw_takes_none_of_the_bytes_of_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hush_common.rng, "token_bytes", None)
    for n in (1, 2, 3, 257, (1 << 20) + 1):
        drawn = [SpareRng().randbelow(n) for _ in range(200)]
        assert 0 <= min(drawn) <= max(drawn) < n
        assert len(set(drawn)) > min(n, 100) // 2 or n == 1  # of 200: fewer happen once in 1e50


@pytest.mark.parametrize("n", [0, -1])
def test_a_draw_below_nothing_is_refused(n: int) -> None:
    with pytest.raises(ValueError, match=str(n)):
        SystemRng().randbelow(n)
