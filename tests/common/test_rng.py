"""Uniform integers from the bytes of the operating system: every byte that is drawn decides which."""

import pytest

import hush_common.rng
from hush_common.rng import SpareRng, SystemRng


@pytest.mark.parametrize("source", ["token_bytes", "_spare_bytes"])
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
def test_a_draw_is_the_remainder_of_the_first_bytes_that_leave_every_remainder_alike(
    monkeypatch: pytest.MonkeyPatch, source: str, n: int, drawn: list[bytes], given: int
) -> None:
    waiting = list(drawn)

    def token_bytes(size: int) -> bytes:
        piece = waiting.pop(0)
        assert len(piece) == size
        return piece

    monkeypatch.setattr(hush_common.rng, source, token_bytes)
    assert (SystemRng() if source == "token_bytes" else SpareRng()).randbelow(n) == given
    assert waiting == []


@pytest.mark.parametrize("n", [0, -1])
def test_no_integer_lies_below_nothing(n: int) -> None:
    with pytest.raises(ValueError, match="no integer lies in"):
        SystemRng().randbelow(n)
