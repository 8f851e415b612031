"""hush for devices that run MicroPython: from a published task and a private value to the payload of one report.

It imports only `os`, `struct`, `hashlib` and `binascii`, and runs on CPython too. Integers only: bounds and values are
read from their text, because the floats of a microcontroller may have 32 bits and round differently. The interpreter
needs long integers (MICROPY_LONGINT_IMPL_MPZ, the default of every port with more than a few KB). Tables, labels and
coordinates stay in the payload of the task, and are read again where they are needed.

WHAT THIS FILE DOES NOT DO: it has no ledger and no outbox. Each call of `answer` is a new draw and spends epsilon
again. `hush_device.py` has both: it stores charge and report before the first network byte, sends the same bytes until
the broker acknowledges, and answers no round twice. Use that, unless you have a ledger already.
"""
# ruff: noqa: INP001, PLR2004 - copied to a device as one file; the numbers of the wire are where they are read
# ruff: noqa: RUF005, SIM905, PLR0917 - MicroPython has no stars in lists, and no keywords for its own functions
# ruff: noqa: SIM113 - enumerate would make a tuple for each number of a table

import binascii
import hashlib
import os
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:  # never on a device
    from collections.abc import Iterator

STEPS = 1 << 20
MOST_LEVELS = 1024
MOST_REPORTS = 4096
MOST_WIDTH = 1024
TRUTH = 1 << 128
_TASK_BYTES = 64 * 1024
_PRECISION = 512
_BEYOND = 1024
_SPACE = b" \t\r\n"
# Illegal characters: controls, formats, white space but the space, private use; docs/wire.md has the list.
_UNPRINTABLE = (
    (0x7F, 0xA0),
    (0xAD, 0xAD),
    (0x600, 0x605),
    (0x61C, 0x61C),
    (0x6DD, 0x6DD),
    (0x70F, 0x70F),
    (0x890, 0x891),
    (0x8E2, 0x8E2),
    (0x1680, 0x1680),
    (0x180E, 0x180E),
    (0x2000, 0x200F),
    (0x2028, 0x202F),
    (0x205F, 0x206F),
    (0x3000, 0x3000),
    (0xD800, 0xF8FF),
    (0xFDD0, 0xFDEF),
    (0xFEFF, 0xFEFF),
    (0xFFF0, 0xFFFB),
    (0x110BD, 0x110BD),
    (0x110CD, 0x110CD),
    (0x13430, 0x1343F),
    (0x1BCA0, 0x1BCA3),
    (0x1D173, 0x1D17A),
    (0xE0000, 0xE00FF),
    (0xE01F0, 0xE0FFF),
    (0xF0000, 0x10FFFF),
)
_DIGITS = "0123456789"
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_TASK_FIELDS = tuple(
    (
        "id title purpose epsilon mechanism domain rounds levels enrolled opens closes release_from release_every "
        "retention size sampled table coins round_every repeat offers"
    ).split()
)
_DOMAIN_FIELDS = ("kind", "lower", "upper", "outside", "unit", "labels", "other", "coordinates")
_PARTS = {  # of a domain, by its kind: the fields that it has, and those that it may have
    "number": (("kind", "lower", "upper", "outside"), ("unit",)),
    "bit": (("kind",), ()),
    "category": (("kind", "labels"), ("other",)),
    "vector": (("kind", "coordinates"), ()),
}
_COORDINATE_FIELDS = ("name", "lower", "upper", "outside", "unit")
_MECHANISMS = {  # the kind of value, the parameters that a task has, and those that it may have
    "laplace": ("number", (), ()),
    "multilevel": ("number", ("levels",), ()),
    "table": ("number", ("table",), ()),
    "randomized_response": ("bit", (), ("coins",)),
    "subset_selection": ("category", ("size",), ()),
    "vector": ("vector", ("levels", "sampled"), ()),
}
_PARAMETERS = ("levels", "size", "sampled", "table", "coins")
_MOST_ROUNDS = 1_000_000
_MOST_OFFERS = 8
_MOST_PARTS = 1024  # labels or coordinates
_MOST_CELLS = 16_384
_MOST_SAMPLED = 511
_LAST_SECOND = 253402300799  # of the year 9999
_LONGEST_ROUND = 999_999_999 * 86400 + 86399
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_LONGEST_POLICY = 3650 * 86400
_BROKEN = "the source of randomness is not random; nothing was answered"
_RECALL_FIELDS = ("v", "task", "digest", "id", "over")
RECALL_BYTES = 512
RECALL_EVERY = 3600
KEEP_SECONDS = 7 * 86400
_SKEW, _LONGEST_SPREAD = 300, 86400
_NEEDED = ("id", "epsilon", "mechanism", "domain", "rounds")


class HushError(Exception):
    """What went wrong, in one line that never contains a value. `status` is one of the words below.

    argument · random (the source failed) · malformed (not a JSON object of printable UTF-8) · task (a field is missing,
    unknown or illegal) · mechanism (this code does not have it) · too_large (it does not fit into the memory) · epsilon
    (not exact, out of range, above the device's limit) · not_open · closed. `hush_device` has more. None is about a
    value: a task is answered for every value, or silence would reveal it.
    """

    def __init__(self, status: str, message: str) -> None:
        super().__init__(status + ": " + message)
        self.status = status


class SystemRandom:
    """The randomness of the machine. There is no seed: a seed gives no privacy.

    Look up where your microcontroller's `os.urandom` comes from: on some it is random only while the radio is on.
    """

    def token_bytes(self, count: int) -> bytes:
        if not hasattr(os, "urandom"):
            raise HushError("random", "this MicroPython has no os.urandom; override token_bytes")
        return os.urandom(count)

    def below(self, n: int) -> int:
        """Return a uniform integer in [0, n), exactly, by rejection; at most one try in 256 is rejected."""
        size = (_bits(n) + 15) >> 3
        span = 1 << (size << 3)
        limit = span - span % n  # a multiple of n: below it every remainder is equally likely
        for _ in range(64):
            draw = int.from_bytes(self.token_bytes(size), "big")
            if draw < limit:
                return draw % n
        raise HushError("random", _BROKEN)


def _bits(n: int) -> int:
    """`int.bit_length`, which MicroPython lacks."""
    bits = 0
    while n >> 32:
        n, bits = n >> 32, bits + 32
    while n:
        n, bits = n >> 1, bits + 1
    return bits


# ---- binary64 numbers as (integer, exponent of two), correctly rounded from decimal text, without a float


def _nearest(numerator: int, denominator: int) -> tuple[int, int] | None:
    """Return the binary64 nearest to a fraction ≥ 0, ties to even; None if that is infinite."""
    if numerator == 0:
        return 0, 0
    exponent = max(_bits(numerator) - _bits(denominator) - 53, -1074)
    while True:
        unit = denominator << max(exponent, 0)
        mantissa, rest = divmod(numerator << max(-exponent, 0), unit)
        if mantissa >> 53 == 0:
            break
        exponent += 1  # one bit too many: the next exponent has 53
    if 2 * rest > unit or (2 * rest == unit and mantissa & 1):
        mantissa += 1
    return None if _bits(mantissa) + exponent > 1024 else (mantissa, exponent)


def _split(text: str, marks: str) -> tuple[str, str]:
    """Split a text before the first of `marks`."""
    place = 0
    while place < len(text) and text[place] not in marks:
        place += 1
    return text[:place], text[place:]


def _are_digits(text: str) -> bool:
    return all(c in _DIGITS for c in text)


def _decimal(text: str) -> tuple[int, int] | None:
    """Parse [+-] digits [. digits] [e [+-] digits], or [+-] inf or infinity, as a signed binary64; else return None.

    A number beyond all binary64 numbers has the exponent _BEYOND.
    """
    negative = text[:1] == "-"
    beyond = (-1, _BEYOND) if negative else (1, _BEYOND)
    bare = text[1:] if text[:1] in ("+", "-") else text
    if bare.lower() in ("inf", "infinity"):
        return beyond
    head, tail = _split(bare, "eE")
    whole, fraction = _split(head, ".")
    fraction = fraction[1:]
    down = tail[1:2] == "-"
    power = tail[2:] if tail[1:2] in ("+", "-") else tail[1:]
    legal = _are_digits(whole + fraction + power) and whole + fraction != ""
    if not legal or len(text) > 100 or (tail != "" and power == ""):
        return None
    digits = int(whole + fraction)
    exponent = (-int(power or "0") if down else int(power or "0")) - len(fraction)
    size = len(str(digits)) + exponent
    if digits == 0 or size < -330:
        return 0, 0
    found = None if size > 310 else _nearest(digits * 10 ** max(exponent, 0), 10 ** max(-exponent, 0))
    if found is None:
        return beyond
    return (-found[0], found[1]) if negative else found


def _aligned(numbers: list[tuple[int, int]]) -> tuple[list[int], int]:
    """Return the numbers as integers in units of one power of two, and its exponent."""
    least = min(exponent for _, exponent in numbers)
    return [mantissa << (exponent - least) for mantissa, exponent in numbers], least


# ---- epsilon


def exact(text: object) -> tuple[int, int] | None:
    """Parse 1 to 3 digits [. 1 to 18 digits] [e [-] digit] as (numerator, power of ten); None if it is not exact."""
    if not isinstance(text, str):
        return None
    head, tail = _split(text, "eE")
    whole, fraction = _split(head, ".")
    down = tail[1:2] == "-"
    power = tail[2:] if down else tail[1:]
    legal = _are_digits(whole + fraction[1:] + power) and 1 <= len(whole) <= 3 and len(fraction) <= 19
    if not legal or fraction == "." or (len(power) != 1 if tail else False):
        return None
    shift = int(power or "0")
    return int(whole + fraction[1:]) * 10 ** (0 if down else shift), 10 ** (len(fraction[1:]) + (shift if down else 0))


def _epsilon(text: str) -> tuple[int, int]:
    """Return an exact epsilon in [0.000001, 50]."""
    found = exact(text)
    if found is None:
        raise HushError("epsilon", "the task's epsilon is not an exact decimal number")
    numerator, denominator = found
    if numerator * 10**6 < denominator or numerator > 50 * denominator:
        raise HushError("epsilon", "the task's epsilon is outside 0.000001 to 50")
    return numerator, denominator


def _exp(numerator: int, denominator: int) -> tuple[int, int]:
    """Enclose 2^512 · e^epsilon by Taylor's series, every term rounded down and up."""
    one = 1 << _PRECISION
    low_term = high_term = low = high = one
    j = 0
    while high_term > 1 or j * denominator <= 2 * numerator:
        j += 1
        low_term = low_term * numerator // (denominator * j)
        high_term = -(-high_term * numerator // (denominator * j))
        low, high = low + low_term, high + high_term
    return low, high + high_term


def weight_of_lie(numerator: int, denominator: int) -> int:
    """floor(2^128 · e^-epsilon) + 1 for epsilon = numerator/denominator ≤ 50, certified: both bounds give it."""
    low, high = _exp(numerator, denominator)
    above, below = (TRUTH << _PRECISION) // low, (TRUTH << _PRECISION) // high
    if above != below:  # cannot happen: e^epsilon is irrational, and there are 300 spare bits
        raise HushError("epsilon", "too little precision for this epsilon")
    return below + 1


def add(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    """Return the sum of two fractions in lowest terms."""
    return _reduced(one[0] * other[1] + other[0] * one[1], one[1] * other[1])


def _reduced(numerator: int, denominator: int) -> tuple[int, int]:
    """Return a fraction in lowest terms."""
    a, b = numerator, denominator
    while b:
        a, b = b, a % b
    return numerator // a, denominator // a


# ---- draws, in the order of the Python client


def _bernoulli_exp(numerator: int, denominator: int, rng: SystemRandom) -> bool:
    """True with probability exactly e^(-numerator/denominator) (Canonne, Kamath and Steinke 2020, algorithm 1)."""
    k = 2 if numerator == denominator else 1  # a draw below 1 out of 1 is certain
    while k < 1000:  # reached with probability 1/1000!
        if rng.below(denominator * k) >= numerator:
            return k & 1 == 1
        k += 1
    raise HushError("random", _BROKEN)


def _discrete_laplace(s: int, t: int, rng: SystemRandom) -> int:
    """Exact discrete Laplace noise of scale t/s (same source, algorithm 2)."""
    for _ in range(1000):
        draw = rng.below(2 * t)
        residue, negative = draw >> 1, draw & 1
        if not _bernoulli_exp(residue, t, rng):
            continue
        quotient = 0
        while quotient < 10_000 and _bernoulli_exp(1, 1, rng):
            quotient += 1
        if quotient == 10_000:  # reached with probability e^-10000
            break
        magnitude = (residue + t * quotient) // s
        if not (negative and magnitude == 0):  # zero has one sign
            return -magnitude if negative else magnitude
    raise HushError("random", _BROKEN)


def _laplace(numerator: int, denominator: int, index: int, rng: SystemRandom) -> int:
    s, t = _reduced(numerator, STEPS * denominator)
    window = -(-40 * t // s)
    return min(max(index + _discrete_laplace(s, t, rng), -window), STEPS + window)


def _randomized_response(ones: tuple[int, int], total: int, bit: int, rng: SystemRandom) -> int:
    return 1 if rng.below(total) < ones[bit] else 0


def _multilevel(lie: int, levels: int, index: int, draw: int) -> int:
    """Return the level reported for an index by a uniform integer below STEPS · (TRUTH + levels · lie)."""
    level, rest = divmod(index * levels, STEPS)
    rounding, draw = divmod(draw, TRUTH + levels * lie)
    return _lied(lie, level + (1 if rounding < rest else 0), draw)


def _lied(lie: int, level: int, draw: int) -> int:
    if draw < TRUTH:
        return level
    other = (draw - TRUTH) // lie
    return other + 1 if other >= level else other


def _table(task: "Task", index: int, rng: SystemRandom) -> int:
    level, rest = divmod(index * (task.rows - 1), STEPS)
    rounding, draw = divmod(rng.below(STEPS * task.total), task.total)
    level += 1 if rounding < rest else 0
    reader, found, row = _Reader(task.payload, task.weights_at), 0, 0
    for _ in reader.items():
        output = 0
        for _ in reader.items():
            weight = reader.integer()
            if row == level and draw >= 0:  # every row is read, so that the time does not tell which it was
                found, draw = output, draw - weight
            output += 1
        row += 1
    return found


def _subset_selection(lie: int, count: int, size: int, index: int, rng: SystemRandom) -> list[int]:
    true = TRUTH * size
    draw = rng.below(true + lie * (count - size))
    if draw < true:
        bits, bit = _subset(count - 1, size - 1, rng), 1
    elif size == 1:
        bits, bit = 1 << (draw - true) // lie, 0
    else:
        bits, bit = _subset(count - 1, size, rng), 0
    above = bits >> index  # from the index on each stands for one more
    bits = bits ^ (above << index) | (above << 1 | bit) << index
    return [bits >> 32 * word & 0xFFFFFFFF for word in range((count + 31) >> 5)]


def _subset(n: int, size: int, rng: SystemRandom) -> int:
    """Return a uniform subset of `size` of n elements, as bits."""
    if size == 1:
        return 1 << rng.below(n)
    if 2 * size > n:
        return (1 << n) - 1 ^ _subset(n, n - size, rng)
    if size > 8:
        return _by_coins(n, size, rng)
    bits = 0
    for element in _floyd(rng.below(_sequences(n, size)), n, size):
        bits |= 1 << element
    return bits


def _sequences(n: int, size: int) -> int:
    """Return n · (n - 1) · … · (n - size + 1)."""
    product = 1
    for factor in range(n - size + 1, n + 1):
        product *= factor
    return product


def _floyd(draw: int, n: int, size: int) -> list[int]:
    chosen: list[int] = []
    for last in range(n - size, n):
        draw, digit = divmod(draw, last + 1)
        chosen.append(last if digit in chosen else digit)
    return chosen


def _by_coins(n: int, size: int, rng: SystemRandom) -> int:
    """Flip coins of the plan's probability, then draw single elements until there are `size`."""
    places, share, words = _plan(n, size)
    length = (n * places + 7) >> 3
    data = rng.token_bytes(length + 2 * words)
    flips = int.from_bytes(data[:length], "little")
    every, bits, limit = (1 << n) - 1, 0, 65536 - 65536 % n
    for place in range(places):
        bits = bits | flips & every if share >> place & 1 else bits & flips
        flips >>= n
    lack, rest = size, bits
    while rest:
        rest &= rest - 1
        lack -= 1
    for _ in range(1000):
        for at in range(length, length + 2 * words, 2):
            word = data[at] | data[at + 1] << 8
            bit = 1 << word % n
            if lack != 0 and word < limit and (bits & bit == 0) == (lack > 0):
                bits, lack = bits ^ bit, lack + (-1 if lack > 0 else 1)
        if lack == 0:
            return bits
        data = rng.token_bytes(length + 2 * words)
    raise HushError("random", _BROKEN)


def _plan(n: int, size: int) -> tuple[int, int, int]:
    """Return the places, the share and the words of the plan of least cost; docs/wire.md has its terms."""
    found, least = (0, 0, 0), -1
    for places in range(7):
        unit = 1 << places
        for share in range(1 if places else 0, unit, 2):
            lack = (size * unit - n * share) // unit
            root = _square_root(lack * lack + n * share * (unit - share) * 16 // (25 * unit * unit))
            tried = (root + lack) * n // (2 * (n - size)) + (root - lack) * n // (2 * size) + 1
            words = 3 * tried // 2 + 2
            cost = 220 * tried + 40 * words + places * (n + 180)
            if least < 0 or cost < least:
                found, least = (places, share, words), cost
    return found


def _square_root(n: int) -> int:
    """The largest integer whose square is not above n."""
    root = 1 << ((_bits(n) + 1) >> 1)
    while root * root > n:
        root = (root + n // root) >> 1
    return root


def _vector(task: "Task", lie: int, levels: int, index: list[int], rng: SystemRandom) -> list[int]:
    part, body = STEPS * (TRUTH + levels * lie), []
    if task.sampled > 8:
        drawn = _subset(task.parts, task.sampled, rng)
        for place in range(task.parts):
            if drawn >> place & 1:
                body += [place, _multilevel(lie, levels, index[place], rng.below(part))]
        return body
    subsets = _sequences(task.parts, task.sampled)
    every = subsets
    for _ in range(task.sampled):
        every *= part
    draw, subset = divmod(rng.below(every), subsets)
    for place in sorted(_floyd(subset, task.parts, task.sampled)):
        draw, one = divmod(draw, part)
        body += [place, _multilevel(lie, levels, index[place], one)]
    return body


# ---- reading a task: anything that is not understood completely is refused


class _Reader:
    """Parses a JSON text from left to right.

    It compares bytes as integers: a slice of one byte would be 32 bytes of garbage for each byte of a table.
    """

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data, self.at = data, at

    def peek(self) -> int:
        """Return the next byte after white space; -1 at the end."""
        data, at, end = self.data, self.at, len(self.data)
        while at < end and data[at] in _SPACE:
            at += 1
        self.at = at
        return data[at] if at < end else -1

    def take(self, symbol: bytes) -> bool:
        found = self.peek() == symbol[0]
        self.at += 1 if found else 0
        return found

    def line(self, most: int) -> bytes:
        """Return a line for people of at most `most` characters, which may escape only quotes and backslashes."""
        if not self.take(b'"'):
            raise HushError("task", "text is missing")
        data, at, end, characters = self.data, self.at, len(self.data), 0
        while at < end and data[at] != 0x22:
            byte = data[at]
            characters += 0 if byte & 0xC0 == 0x80 else 1
            if byte < 0x20:
                raise HushError("malformed", "text with a control character")
            if byte == 0x5C:
                at += 1
                if at == end or data[at] not in b'"\\':
                    raise HushError("task", "text with an escape that hush does not publish")
            at += 1
        text, self.at = data[self.at : at], at
        if not self.take(b'"'):
            raise HushError("malformed", "text without an end")
        if characters > most:
            raise HushError("task", "text is too long")
        return text

    def word(self, most: int) -> str:
        """Return a string of at most `most` bytes without any escape."""
        text = self.line(_TASK_BYTES)
        if len(text) > most or b"\\" in text:
            raise HushError("task", "a word that no task has")
        return text.decode()

    def number(self, most: int) -> str:
        """Return the text of a JSON number of at most `most` bytes."""
        self.peek()
        data, start, end = self.data, self.at, len(self.data)
        while self.at < end and data[self.at] in b"+-.0123456789eE":
            self.at += 1
        text = data[start : self.at].decode()
        if not 1 <= len(text) <= most:
            raise HushError("task", "a number is missing, or is too long")
        digits, rest = _split(text[1:] if text[0] == "-" else text, "+-.eE")
        zero = digits[:1] == "0" and len(digits) > 1
        if digits == "" or zero or (rest[:1] == "." and rest[1:2] not in tuple(_DIGITS)):
            raise HushError("malformed", "a number that is not JSON")
        return text

    def integer(self) -> int:
        """Return a JSON integer. Up to nine digits, which is most weights of a table, leave no garbage."""
        negative = self.peek() == 0x2D
        data, end, number = self.data, len(self.data), 0
        first = at = self.at + (1 if negative else 0)
        while at < end and at - first < 9 and 0x30 <= data[at] <= 0x39:
            number = 10 * number + data[at] - 0x30
            at += 1
        legal = at == first + 1 or (at > first and data[first] != 0x30)
        if legal and not (at < end and data[at] in b"+-.0123456789eE"):
            self.at = at
            return -number if negative else number
        text = self.number(100)
        if not _are_digits(text[1:] if text[0] == "-" else text):
            raise HushError("task", "a number that is not an integer")
        return int(text)

    def items(self) -> "Iterator[None]":
        """Yield once for each item of a list, which the caller then reads."""
        if not self.take(b"["):
            raise HushError("task", "a list is missing")
        if self.take(b"]"):
            return
        while True:
            yield
            if not self.take(b","):
                break
        if not self.take(b"]"):
            raise HushError("malformed", "a list without an end")

    def counts(self, most: int) -> list[int]:
        """Return an integer from 1 to `most`, or up to 8 of them in a list."""
        if self.peek() != 0x5B:
            return [self.count(most)]
        found: list[int] = []
        for _ in self.items():
            if len(found) == _MOST_OFFERS:
                raise HushError("task", "more numbers than a task has offers")
            found.append(self.count(most))
        return found

    def bound(self) -> tuple[int, int]:
        found = _decimal(self.number(100))
        if found is None or found[1] == _BEYOND:
            raise HushError("task", "a bound is not a finite number")
        return found

    def count(self, most: int) -> int:
        """Return an integer from 1 to `most`."""
        text = self.number(17)
        if not _are_digits(text) or not 1 <= int(text) <= most:
            raise HushError("task", "a number that is not an integer, or more than this program can do")
        return int(text)

    def epsilon(self) -> str:
        if self.peek() == 0x22:
            return self.word(31)
        text = self.number(31)
        if not _are_digits(text):
            raise HushError("epsilon", "the task's epsilon is a float, which is not exact")
        return text

    def name(self, names: tuple[str, ...], seen: dict[str, bool]) -> str:
        name = self.word(15)
        if name not in names or name in seen:
            raise HushError("task", "a field is unknown, or appears twice")
        if not self.take(b":"):
            raise HushError("malformed", "a field without a value")
        seen[name] = True
        return name

    def length(self, most: int) -> int:
        """Return a length of time as hush publishes it, `30d`, of at most so many seconds."""
        text = self.word(10)
        digits, unit = text[:-1], text[-1:]
        if digits == "" or not _are_digits(digits) or digits[0] == "0" or unit not in _SECONDS:
            raise HushError("task", "a length of time that is not in the form that hush publishes")
        seconds = int(digits) * _SECONDS[unit]
        if seconds > most:
            raise HushError("task", "a length of time that is too long")
        return seconds

    def moment(self) -> int:
        """Return a time as hush publishes it, `2026-01-31T23:00:00Z`, in Unix seconds."""
        text = self.word(23)
        parts = [text[0:4], text[5:7], text[8:10], text[11:13], text[14:16], text[17:19]]
        marks = [text[place : place + 1] for place in (4, 7, 10, 13, 16, 19)]
        if len(text) != 20 or marks != ["-", "-", "T", ":", ":", "Z"] or not _are_digits("".join(parts)):
            raise HushError("task", "a time that is not in the form that hush publishes")
        year, month, day, hour, minute, second = (int(part) for part in parts)
        leap = (year % 4 == 0 and year % 100 != 0) or year % 400 == 0
        lengths = (31, 29 if leap else 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
        if year < 1 or not 1 <= month <= 12 or not 1 <= day <= lengths[month - 1]:
            raise HushError("task", "a day that does not exist")
        if hour > 23 or minute > 59 or second > 59:
            raise HushError("task", "a time that does not exist")
        past = year - 1
        days = 365 * past + past // 4 - past // 100 + past // 400 + sum(lengths[: month - 1]) + day - 1 - 719162
        return ((days * 24 + hour) * 60 + minute) * 60 + second


class Task:
    """A task from `read_task`: `id`, `digest` (32 bytes), `purpose` (raw JSON), `rounds`, `repeat`, `opens`, `closes`.

    It has no weight, probability or scale: every answer computes them from the epsilon of the task, so that none can
    disagree with it. It refers to the payload, which must not change.
    """

    def __init__(self, payload: bytes) -> None:
        self.payload = payload
        self.id = self.mechanism = self.kind = ""
        self.digest = self.purpose = b""
        self.epsilon = (0, 1)  # for all rounds together, exact: numerator and denominator
        self.offers: list[tuple[int, int]] = []  # the epsilons among which a device chooses, ascending
        self.limit = (0, 1)
        self.levels: list[int] = []
        self.size: list[int] = []
        self.sampled = self.parts = 0  # coordinates of a report; labels or coordinates of the task
        self.coins = ((0, 1), (0, 1))
        self.lower = self.upper = (0, 0)
        self.rounds, self.round_every, self.repeat = 1, 0, "fresh"
        self.opens = self.closes = 0
        self.parts_at = self.other_at = self.positions_at = self.weights_at = -1  # places in the payload
        self.unit = self.rows = self.total = 0  # of a table; `total` is the sum of each row
        self.seen: dict[str, bool] = {}
        self.domain_seen: dict[str, bool] = {}


def read_task(payload: bytes, max_epsilon: str) -> Task:
    """Read a published task.

    Args:
        payload: the retained message, byte for byte.
        max_epsilon: the device's own limit of a task, decimal text.

    Raises:
        HushError: it is not a task, or one that this code cannot answer.
    """
    limit = exact(max_epsilon)
    if limit is None:
        raise HushError("argument", 'max_epsilon is not decimal text; write for example "4"')
    if len(payload) > _TASK_BYTES:
        raise HushError("task", "is too long")
    try:
        return _task(payload, limit)
    except MemoryError:
        raise HushError("too_large", "the task does not fit into the memory of this device") from None


def _task(payload: bytes, limit: tuple[int, int]) -> Task:
    if not _is_text(payload):
        raise HushError("malformed", "is not UTF-8, or has a character that is not printable")
    task, reader = Task(payload), _Reader(payload)
    task.limit = limit
    if not reader.take(b"{"):
        raise HushError("malformed", "is not a JSON object")
    while True:
        _read_field(reader, reader.name(_TASK_FIELDS, task.seen), task)
        if not reader.take(b","):
            break
    if not reader.take(b"}") or reader.peek() >= 0:
        raise HushError("malformed", "is not a JSON object")
    for name, numbers in (("levels", task.levels), ("size", task.size)):
        if not numbers:
            task.seen.pop(name, None)  # an empty list is as none
    _check(task)
    task.digest = hashlib.sha256(payload).digest()
    return task


def _is_text(payload: bytes) -> bool:
    """Whether it is printable UTF-8; not every MicroPython checks UTF-8.

    Characters below the space are white space between words; `_Reader.line` refuses them in texts.
    """
    at, end = 0, len(payload)
    while at < end:
        lead = payload[at]
        if lead < 0x7F:
            at += 1
            continue
        more = 0 if lead < 0x80 else 1 if 0xC2 <= lead < 0xE0 else 2 if 0xE0 <= lead < 0xF0 else 3
        tail = payload[at + 1 : at + 1 + more]
        if 0x80 <= lead < 0xC2 or lead > 0xF4 or len(tail) < more or any(byte & 0xC0 != 0x80 for byte in tail):
            return False
        second = tail[0] if more else 0
        if (lead == 0xE0 and second < 0xA0) or (lead == 0xED and second > 0x9F):
            return False
        if (lead == 0xF0 and second < 0x90) or (lead == 0xF4 and second > 0x8F):
            return False
        point = lead & (0x7F if more == 0 else 0x3F >> more)
        for byte in tail:
            point = point << 6 | byte & 0x3F
        if not _is_printable(point):
            return False
        at += 1 + more
    return True


def _is_printable(point: int) -> bool:
    for low, high in _UNPRINTABLE:
        if low <= point <= high:
            return False
    return point & 0xFFFE != 0xFFFE  # the last two of each plane are no characters


def _read_field(reader: _Reader, field: str, task: Task) -> None:  # noqa: C901, PLR0912 - one branch a field
    if field == "id":
        task.id = reader.word(64)
        if not is_task_id(task.id):
            raise HushError("task", "the id is not a task id")
    elif field == "title":
        reader.line(500)
    elif field == "purpose":
        task.purpose = reader.line(500)
    elif field == "epsilon":
        task.epsilon = _epsilon(reader.epsilon())
    elif field == "offers":
        _read_offers(reader, task)
    elif field == "mechanism":
        task.mechanism = reader.word(23)
        if task.mechanism not in _MECHANISMS:
            raise HushError("mechanism", "a mechanism that this program does not have")
    elif field == "domain":
        _read_domain(reader, task)
    elif field == "rounds":
        task.rounds = reader.count(_MOST_ROUNDS)
    elif field == "round_every":
        task.round_every = reader.length(_LONGEST_ROUND)
    elif field == "repeat":
        task.repeat = _one_of(reader, ("fresh", "sticky"))
    elif field == "levels":
        task.levels = reader.counts(MOST_LEVELS)
    elif field == "size":
        task.size = reader.counts(_MOST_PARTS)
    elif field == "sampled":
        task.sampled = reader.count(_MOST_SAMPLED)
    elif field == "table":
        _read_table(reader, task)
    elif field == "coins":
        _read_coins(reader, task)
    elif field in ("enrolled", "release_from"):
        reader.count((1 << 53) - 1)
    elif field == "opens":
        task.opens = reader.moment()
    elif field == "closes":
        task.closes = reader.moment()
    else:
        reader.length(_LONGEST_POLICY)


def _fields(reader: _Reader, names: tuple[str, ...], seen: dict[str, bool]) -> "Iterator[str]":
    """Yield each field of an object, whose value the caller then reads."""
    if not reader.take(b"{"):
        raise HushError("task", "an object is missing")
    while True:
        yield reader.name(names, seen)
        if not reader.take(b","):
            break
    if not reader.take(b"}"):
        raise HushError("malformed", "an object without an end")


def _has(seen: dict[str, bool], needed: tuple[str, ...], optional: tuple[str, ...] = ()) -> bool:
    """Whether all needed fields were seen, and no others than the optional ones."""
    return all(name in seen for name in needed) and all(name in needed or name in optional for name in seen)


def _read_offers(reader: _Reader, task: Task) -> None:
    for _ in reader.items():
        if len(task.offers) == _MOST_OFFERS:
            raise HushError("task", "more than 8 offers")
        offer = _epsilon(reader.epsilon())
        if task.offers and not _is_below(task.offers[-1], offer):
            raise HushError("task", "offers that do not ascend")
        task.offers.append(offer)
    if len(task.offers) == 1:
        raise HushError("task", "offers that leave no choice")


def _read_coins(reader: _Reader, task: Task) -> None:
    seen: dict[str, bool] = {}
    truth = yes = (0, 1)
    for name in _fields(reader, ("truth", "yes"), seen):
        text = reader.word(20)
        chance = exact(text) if _split(text, "eE")[1] == "" and text[1:2] in ("", ".") else None
        if chance is None or chance[0] > chance[1]:
            raise HushError("task", "a coin that is not an exact probability")
        if name == "truth":
            truth = chance
        else:
            yes = chance
    if len(seen) < 2:
        raise HushError("task", "a coin is missing")
    task.coins = truth, yes


def _read_table(reader: _Reader, task: Task) -> None:
    """Note where the table is; `_check_table` reads it, once the epsilon is known."""
    seen: dict[str, bool] = {}
    for name in _fields(reader, ("positions", "unit", "weights"), seen):
        reader.peek()
        if name == "unit":
            task.unit = reader.integer()
        elif name == "positions":
            task.positions_at = reader.at
            _skip_integers(reader)
        else:
            task.weights_at = reader.at
            for _ in reader.items():
                task.rows += 1
                _skip_integers(reader)
    if len(seen) < 3:
        raise HushError("task", "a part of the table is missing")


def _skip_integers(reader: _Reader) -> None:
    for _ in reader.items():
        reader.integer()


def _read_domain(reader: _Reader, task: Task) -> None:  # noqa: C901 - one branch a field
    seen = task.domain_seen
    for field in _fields(reader, _DOMAIN_FIELDS, seen):
        if field == "lower":
            task.lower = reader.bound()
        elif field == "upper":
            task.upper = reader.bound()
        elif field == "unit":
            reader.line(40)
        elif field == "kind":
            task.kind = _one_of(reader, tuple(_PARTS))
        elif field == "other":
            reader.peek()
            task.other_at = reader.at
            _name(reader)
        elif field == "labels":
            reader.peek()
            task.parts_at = reader.at
            _read_labels(reader, task)
        elif field == "coordinates":
            reader.peek()
            task.parts_at = reader.at
            _read_coordinates(reader, task)
        else:
            _one_of(reader, ("clamp",))  # not "refuse": silence would reveal the value
    if task.kind == "" or not _has(seen, _PARTS[task.kind][0], _PARTS[task.kind][1]):
        raise HushError("task", "the domain has a field too many, or too few")
    if task.kind == "number":
        _check_bounds(task.lower, task.upper)


def _name(reader: _Reader) -> bytes:
    """Return a label or the name of a coordinate, as it is in JSON."""
    text = reader.line(100)
    if text.strip() == b"":
        raise HushError("task", "a name without a letter")
    return text


def _read_labels(reader: _Reader, task: Task) -> None:
    hashes: list[int] = []
    for _ in reader.items():
        hashes.append(_short_hash(_name(reader)))
        _count_part(task)
    if task.parts < 2:
        raise HushError("task", "a category has 2 or more labels")
    for twice in _twice(hashes):
        _check_distinct(_labels(task), twice)


def _count_part(task: Task) -> None:
    task.parts += 1
    if task.parts > _MOST_PARTS:
        raise HushError("task", "more than 1024 labels or coordinates")


def _short_hash(name: bytes) -> int:
    """Return a small integer: 1024 of them need 4 KB, where the names themselves may need 100 KB."""
    return int.from_bytes(hashlib.sha256(name).digest()[:3], "big")


def _twice(hashes: list[int]) -> list[int]:
    hashes.sort()
    return [hashes[at] for at in range(1, len(hashes)) if hashes[at] == hashes[at - 1]]


def _check_distinct(names: "Iterator[bytes]", twice: int) -> None:
    """Refuse equal names among those of one hash."""
    alike = [name for name in names if _short_hash(name) == twice]
    for at in range(len(alike)):
        if alike[at] in alike[:at]:
            raise HushError("task", "a name appears twice")


def _labels(task: Task) -> "Iterator[bytes]":
    reader = _Reader(task.payload, task.parts_at)
    for _ in reader.items():
        yield reader.line(100)


def _read_coordinates(reader: _Reader, task: Task) -> None:
    hashes: list[int] = []
    for _ in reader.items():
        name, lower, upper = _coordinate(reader)
        _check_bounds(lower, upper)
        hashes.append(_short_hash(name))
        _count_part(task)
    if task.parts < 1:
        raise HushError("task", "a vector has 1 or more coordinates")
    for twice in _twice(hashes):
        _check_distinct((one[0] for one in _coordinates(task)), twice)


def _coordinates(task: Task) -> "Iterator[tuple[bytes, tuple[int, int], tuple[int, int]]]":
    reader = _Reader(task.payload, task.parts_at)
    for _ in reader.items():
        yield _coordinate(reader)


def _coordinate(reader: _Reader) -> tuple[bytes, tuple[int, int], tuple[int, int]]:
    seen: dict[str, bool] = {}
    name, lower, upper = b"", (0, 0), (0, 0)
    for field in _fields(reader, _COORDINATE_FIELDS, seen):
        if field == "name":
            name = _name(reader)
        elif field == "lower":
            lower = reader.bound()
        elif field == "upper":
            upper = reader.bound()
        elif field == "unit":
            reader.line(40)
        else:
            _one_of(reader, ("clamp",))
    if not _has(seen, ("name", "lower", "upper", "outside"), ("unit",)):
        raise HushError("task", "a coordinate has a field too few")
    return name, lower, upper


def _one_of(reader: _Reader, words: tuple[str, ...]) -> str:
    word = reader.word(15)
    if word not in words:
        raise HushError("task", "a word that this program does not know")
    return word


# ---- checking a task as a whole


def _check(task: Task) -> None:
    if not all(name in task.seen for name in _NEEDED):
        raise HushError("task", "a field is missing")
    kind, needed, optional = _MECHANISMS[task.mechanism]
    given = {name: True for name in _PARAMETERS if name in task.seen}
    if task.kind != kind or not _has(given, needed, optional):
        raise HushError("task", "the mechanism does not fit the domain, or has other parameters")
    _check_parameters(task)
    _check_times(task)
    if task.repeat == "sticky":
        _check_sticky(task)
    if not is_within(_offers(task)[0], task.limit):
        raise HushError("epsilon", "the task's epsilon is above the limit of this device")
    least = _reduced(_offers(task)[0][0], _offers(task)[0][1] * draws(task))
    if least[0] * 10**6 < least[1]:
        raise HushError("epsilon", "an answer costs less than 0.000001")
    if task.mechanism == "table":
        _check_table(task)
    if "coins" in task.seen:
        _check_coins(task)
    if task.other_at >= 0 and not any(label == _other(task) for label in _labels(task)):
        raise HushError("task", "other is not one of the labels")


def _offers(task: Task) -> list[tuple[int, int]]:
    return task.offers or [task.epsilon]


def draws(task: Task) -> int:
    """Return the number of draws that share the epsilon: one a round, or those of a sticky memory."""
    if task.repeat != "sticky":
        return task.rounds
    return 2 if task.kind == "bit" else 1 + task.levels[0]


def _other(task: Task) -> bytes:
    return _Reader(task.payload, task.other_at).line(100)


def _is_below(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return one[0] * other[1] < other[0] * one[1]


def is_within(one: tuple[int, int], limit: tuple[int, int]) -> bool:
    """Whether a fraction is not above a limit."""
    return not _is_below(limit, one)


def _check_bounds(low: tuple[int, int], high: tuple[int, int]) -> None:
    (lower, upper), exponent = _aligned([low, high])
    if lower >= upper or _nearest((upper - lower) << max(exponent, 0), 1 << max(-exponent, 0)) is None:
        raise HushError("task", "the bounds are not in order, or too far apart")


def _check_parameters(task: Task) -> None:
    count = len(_offers(task))
    for given in (task.levels, task.size):
        if len(given) not in (0, count):
            raise HushError("task", "not one number for each offer")
    if any(size >= task.parts for size in task.size) or task.sampled > task.parts:
        raise HushError("task", "more categories or coordinates than the task has")
    if task.offers and (task.offers[-1][0] * task.epsilon[1] != task.epsilon[0] * task.offers[-1][1]):
        raise HushError("task", "the last offer is not epsilon")
    if task.offers and ("coins" in task.seen or "table" in task.seen):
        raise HushError("task", "coins and tables have one epsilon")


def _check_times(task: Task) -> None:
    if "opens" in task.seen and "closes" in task.seen and task.closes <= task.opens:
        raise HushError("task", "closes before it opens")
    timed = "opens" in task.seen and "round_every" in task.seen
    if task.rounds > 1 and not timed:
        raise HushError("task", "rounds need opens and round_every")
    if timed and task.opens + (task.rounds - 1) * task.round_every > _LAST_SECOND:
        raise HushError("task", "the last round lies beyond the year 9999")


def _check_sticky(task: Task) -> None:
    if task.mechanism not in ("multilevel", "randomized_response") or task.offers or task.rounds <= draws(task):
        raise HushError("task", "sticky answers do not fit this task")


def _check_table(task: Task) -> None:
    """Check that the table proves its epsilon and is unbiased, in integers."""
    numerator, denominator = report_epsilon(task, 0)
    low = _exp(numerator, denominator)[0]
    outputs = sum(1 for _ in _integers(task, task.positions_at))
    most = 1 << 128
    if task.rows < 2 or outputs < 2 or task.rows * outputs > _MOST_CELLS or not 1 <= task.unit <= most:
        raise HushError("task", "a table of another size, or a unit out of range")
    least, largest = [0] * outputs, [0] * outputs
    reader, row = _Reader(task.payload, task.weights_at), 0
    for _ in reader.items():
        total, moment = _read_row(reader, task, row, least, largest)
        task.total = task.total or total
        if total != task.total or moment * (task.rows - 1) != total * task.unit * row:
            raise HushError("task", "a row of the table has another sum, or is biased")
        row += 1
    for output in range(outputs):
        if largest[output] << _PRECISION > least[output] * low:
            raise HushError("task", "the table does not keep to its epsilon")


def _read_row(reader: _Reader, task: Task, row: int, least: list[int], largest: list[int]) -> tuple[int, int]:
    """Return the sum and the moment of a row, and update the least and the largest weight of each output."""
    total = moment = output = 0
    positions, most, lowest = _integers(task, task.positions_at), 1 << 128, -1 << 128
    for _ in reader.items():
        weight = reader.integer()
        if output == len(least) or not 0 <= weight <= most:
            raise HushError("task", "a row of another length, or a weight out of range")
        position = next(positions)
        if not lowest <= position <= most:
            raise HushError("task", "a position out of range")
        total, moment = total + weight, moment + weight * position
        least[output] = weight if row == 0 else min(least[output], weight)
        largest[output] = max(largest[output], weight)
        output += 1
    if output < len(least) or total == 0:
        raise HushError("task", "a row of another length, or without a weight")
    return total, moment


def _integers(task: Task, at: int) -> "Iterator[int]":
    reader = _Reader(task.payload, at)
    for _ in reader.items():
        yield reader.integer()


def _check_coins(task: Task) -> None:
    """Check that the epsilon is what the coins cost: ln of their largest ratio, rounded up to six decimals."""
    (zero, one), total = _ones(task)
    weights = [zero, one, total - zero, total - one]
    if task.coins[0][0] == 0 or min(weights) == 0:
        raise HushError("task", "an answer reveals the bit, or nothing")
    above, below = one, zero
    if (total - zero) * below > above * (total - one):  # the largest ratio is one of the two, for truth > 0
        above, below = total - zero, total - one
    numerator, denominator = report_epsilon(task, 0)
    enough = _exp(numerator, denominator)[0] * below >= above << _PRECISION
    less = (numerator * 10**6 - denominator, denominator * 10**6)
    if not enough or 10**6 % denominator != 0 or _exp(less[0], less[1])[0] * below >= above << _PRECISION:
        raise HushError("epsilon", "the epsilon is not what the coins cost")


def _ones(task: Task) -> tuple[tuple[int, int], int]:
    """Return the weights of reporting 1 for a 0 and for a 1 with two coins, and of all."""
    (truth, whole), (yes, every) = task.coins
    lie = _reduced((whole - truth) * yes, whole * every)
    truth, whole = _reduced(truth, whole)
    total = lie[1] * whole // _greatest_divisor(lie[1], whole)
    ones = lie[0] * (total // lie[1])
    return (ones, ones + truth * (total // whole)), total


def _greatest_divisor(a: int, b: int) -> int:
    return a // _reduced(a, b)[0]


# ---- an answer


class Report:
    """One perturbed answer: `digest` (the first 16 bytes of the task's), `round`, `id`, `body` (integers) and `value`.

    `value` says how the value was used: "used", "moved" into the domain, or "replaced" if there was none. It is only
    for the person and the maker of the device: never send, store or show it to others.
    """

    def __init__(self, digest: bytes, round_: int, report_id: bytes, body: list[int], became: str) -> None:
        self.digest, self.round, self.id, self.body, self.value = digest, round_, report_id, body, became


class Memory:
    """All that a device ever draws for a sticky task: secret, stored with the first charge, and never drawn again."""

    def __init__(self, threshold: int, reports: list[int], substitute: int) -> None:
        self.threshold, self.reports, self.substitute = threshold, reports, substitute


# ---- what is decided without a value


def current_round(task: Task, now: int) -> int:
    """Return the round that is open at `now` (Unix seconds); HushError `not_open` or `closed` if there is none."""
    if "opens" in task.seen and now < task.opens:
        raise HushError("not_open", "the task opens in " + str(task.opens - now) + " s")
    if "closes" in task.seen and now >= task.closes:
        raise HushError("closed", "the task closed " + str(now - task.closes) + " s ago")
    if task.rounds == 1 or "opens" not in task.seen:
        return 0
    return min((now - task.opens) // task.round_every, task.rounds - 1)


def round_ends(task: Task, round_: int) -> int:
    """Return when the round after this one opens, in Unix seconds; the end of the year 9999 for the last one."""
    if round_ + 1 >= task.rounds:
        return _LAST_SECOND
    return task.opens + (round_ + 1) * task.round_every


def largest_offer(task: Task) -> int:
    """Return the number of the largest epsilon that the device's limit of a task allows."""
    allowed = [place for place, offer in enumerate(_offers(task)) if is_within(offer, task.limit)]
    return allowed[-1]


def offer_cost(task: Task, offer: int) -> tuple[int, int]:
    """Return what an answer costs under an offer, a fraction in lowest terms. A sticky task costs all of it at once."""
    numerator, denominator = _offers(task)[offer]
    return _reduced(numerator, denominator * (1 if task.repeat == "sticky" else task.rounds))


def report_epsilon(task: Task, offer: int) -> tuple[int, int]:
    """Return the epsilon of one draw, a fraction in lowest terms."""
    numerator, denominator = _offers(task)[offer]
    return _reduced(numerator, denominator * draws(task))


# ---- from a value to an index


def check_type(value: object) -> None:
    """Raise TypeError unless a value is text or None: a mistake of the program, found by the type alone."""
    if value is not None and not isinstance(value, str):
        kind = type(value).__name__
        raise TypeError("value is of type " + kind + '; pass text such as "172.5" or "yes", or None if there is none')


def index_of(task: Task, value: str | None) -> tuple[list[int | None], str]:
    """Return the integers that the mechanism sees, each None where there is no value; and how the value was used.

    A task has one of them, and of a vector one for each coordinate.

    Args:
        task: what is asked.
        value: decimal text of a number (on a microcontroller make it of integers, not of a float); one of yes, no,
            true, false, 1 and 0; a label of the task; for a vector numbers separated by commas, a number that is
            missing left empty: "21.5,,40". Any other text, and None, is a missing value.

    Raises:
        TypeError: the value is neither text nor None: a mistake of the program. The type must not depend on the value.
    """
    check_type(value)
    if task.kind == "bit":
        known = value in ("yes", "true", "1", "no", "false", "0")
        return [(1 if value in ("yes", "true", "1") else 0) if known else None], "used" if known else "replaced"
    if task.kind == "category":
        return _label_index(task, value)
    if task.kind == "number":
        index, became = _grid_index(task.lower, task.upper, value)
        return [index], became
    return _vector_index(task, value)


def _grid_index(low: tuple[int, int], high: tuple[int, int], value: str | None) -> tuple[int | None, str]:
    number = None if value is None else _decimal(value)
    if number is None:
        return None, "replaced"
    (lower, upper, exact), _ = _aligned([low, high, number])
    inside = min(max(exact, lower), upper)
    index, rest = divmod((inside - lower) * STEPS, upper - lower)
    if 2 * rest > upper - lower or (2 * rest == upper - lower and index & 1):  # ties to the even index
        index += 1
    return index, "used" if inside == exact else "moved"


def _label_index(task: Task, value: str | None) -> tuple[list[int | None], str]:
    wanted, other, found, fallback = _in_json(value), b"", -1, -1
    if task.other_at >= 0:
        other = _other(task)
    for place, label in enumerate(_labels(task)):
        if label == wanted:
            found = place
        if label == other:
            fallback = place
    if found >= 0:
        return [found], "used"
    return ([None], "replaced") if value is None or fallback < 0 else ([fallback], "moved")


def _in_json(value: str | None) -> bytes | None:
    """Return a text as a published task has it, between the quotes; None if it has none."""
    try:
        return None if value is None else value.replace("\\", "\\\\").replace('"', '\\"').encode()
    except ValueError:  # half of a pair, which is no character
        return None


def _vector_index(task: Task, value: str | None) -> tuple[list[int | None], str]:
    texts = [] if value is None else value.split(",")
    indices: list[int | None] = []
    became = "used"
    for _, lower, upper in _coordinates(task):
        text = texts[len(indices)].strip(" \t") if len(texts) == task.parts else None
        index, one = _grid_index(lower, upper, text)
        indices.append(index)
        became = one if became == "used" or one == "replaced" else became
    return indices, became


# ---- the draw: the only place where a value meets randomness


def sizes_of(task: Task) -> int:
    """Return how many indices each number of a value can have."""
    return 2 if task.kind == "bit" else task.parts if task.kind == "category" else STEPS + 1


def perturb(task: Task, index: list[int], offer: int, rng: SystemRandom) -> list[int]:
    """Return the body of a report."""
    if len(index) != (task.parts if task.kind == "vector" else 1) or not all(0 <= i < sizes_of(task) for i in index):
        raise HushError("argument", "the index is outside the domain")
    body = _drawn(task, index, offer, rng)
    return [offer] + body if task.offers else body


def _drawn(task: Task, index: list[int], offer: int, rng: SystemRandom) -> list[int]:
    numerator, denominator = report_epsilon(task, offer)
    if task.mechanism == "laplace":
        return [_laplace(numerator, denominator, index[0], rng)]
    if task.mechanism == "table":
        return [_table(task, index[0], rng)]
    if task.mechanism == "randomized_response":
        ones, total = _bit_weights(task, numerator, denominator)
        return [_randomized_response(ones, total, index[0], rng)]
    if task.mechanism == "vector":
        lie = weight_of_lie(numerator, denominator * task.sampled)
        return _vector(task, lie, task.levels[offer], index, rng)
    lie = weight_of_lie(numerator, denominator)
    if task.mechanism == "multilevel":
        levels = task.levels[offer]
        return [_multilevel(lie, levels, index[0], rng.below(STEPS * (TRUTH + levels * lie)))]
    return _subset_selection(lie, task.parts, task.size[offer], index[0], rng)


def _bit_weights(task: Task, numerator: int, denominator: int) -> tuple[tuple[int, int], int]:
    if "coins" in task.seen:
        return _ones(task)
    lie = weight_of_lie(numerator, denominator)
    return (lie, TRUTH), TRUTH + lie


def draw_memory(task: Task, rng: SystemRandom) -> Memory:
    """Return a new memory of a sticky task. It needs no value, so nothing about it can depend on one."""
    numerator, denominator = report_epsilon(task, 0)
    if task.kind == "bit":
        ones, total = _bit_weights(task, numerator, denominator)
        reports = [_randomized_response(ones, total, bit, rng) for bit in (0, 1)]
        return Memory(rng.below(1), reports, rng.below(2))
    lie, levels = weight_of_lie(numerator, denominator), task.levels[0]
    total = TRUTH + levels * lie
    reports = [_lied(lie, level, rng.below(levels * total) % total) for level in range(levels + 1)]
    return Memory(rng.below(STEPS), reports, rng.below(STEPS + 1))


def remembered(task: Task, memory: Memory, index: int | None) -> list[int]:
    """Return the body of a report from a memory; nothing is drawn."""
    steps, levels = (1, 1) if task.kind == "bit" else (STEPS, task.levels[0])
    level, rest = divmod((memory.substitute if index is None else index) * levels, steps)
    return [memory.reports[level + (1 if memory.threshold < rest else 0)]]


def answer(
    task: Task, value: str | None, now: int, rng: SystemRandom, offer: int = -1, memory: Memory | None = None
) -> Report:
    """Return one perturbed answer to the open round with a fresh id: ONE CHARGE of `offer_cost`.

    Whether and when you call this must not depend on the value: if it is missing, pass None. An index is then drawn
    uniformly over the domain, and answered like any other.

    Args:
        task: what is asked.
        value: see `index_of`.
        now: Unix seconds. (Some ports of MicroPython count from the year 2000: add 946684800.)
        rng: `SystemRandom()`.
        offer: the number of the epsilon that is taken; -1 takes `largest_offer`.
        memory: of a sticky task, from `draw_memory`; only its first answer is a charge.

    Raises:
        TypeError: see `index_of`; nothing was answered.
        HushError: see above; nothing was answered.
    """
    check_type(value)
    round_ = current_round(task, now)
    offer = largest_offer(task) if offer < 0 else offer
    if not 0 <= offer < len(_offers(task)) or not is_within(_offers(task)[offer], task.limit):
        raise HushError("epsilon", "the task does not offer this epsilon, or the device's limit is below it")
    if (memory is None) == (task.repeat == "sticky"):
        raise HushError("argument", "a sticky task is answered from its memory, and no other one")
    return draw(task, value, round_, offer, rng, memory)


def draw(task: Task, value: str | None, round_: int, offer: int, rng: SystemRandom, memory: Memory | None) -> Report:
    """Return a report, once everything but the value is decided; see `answer`, which checks it."""
    given, became = index_of(task, value)
    if memory is not None:
        body = remembered(task, memory, given[0])
    else:
        body = perturb(task, [rng.below(sizes_of(task)) if i is None else i for i in given], offer, rng)
    return Report(task.digest[:16], round_, rng.token_bytes(16), body, became)


# ---- the wire


def encode_frame(digest: bytes, round_: int, reports: list[tuple[bytes, list[int]]]) -> bytes:
    """Return one binary frame of reports, each an id and a body, of one task, round and body length."""
    width = len(reports[0][1]) if reports else 0
    if not 1 <= len(reports) <= MOST_REPORTS or not 1 <= width <= MOST_WIDTH:
        raise HushError("argument", "a frame holds 1 to 4096 reports of 1 to 1024 integers")
    if len(digest) != 16 or not 0 <= round_ < 1 << 32:
        raise HushError("argument", "a report has 16 bytes of digest, a round has 32 bits")
    parts = [struct.pack(">BBH", 2, 0, 8 * width), digest, struct.pack(">I", round_)]
    for report_id, body in reports:
        if len(report_id) != 16 or len(body) != width:
            raise HushError("argument", "an id has 16 bytes, and all bodies have one length")
        parts.append(report_id)
        for k in body:
            if not -(1 << 63) <= k < 1 << 63:
                raise HushError("argument", "a body is made of signed 64-bit integers")
            parts.append((k & ((1 << 64) - 1)).to_bytes(8, "big"))
    return b"".join(parts)


def encode_json(task_id: str, digest: bytes, round_: int, report_id: bytes, body: list[int]) -> bytes:
    """Return the JSON form of one report, as one line."""
    encode_frame(digest, round_, [(report_id, body)])  # for its checks
    if not is_task_id(task_id):
        raise HushError("argument", "the id of the task is not one")
    names = (task_id, binascii.hexlify(digest).decode(), round_, binascii.hexlify(report_id).decode())
    head = '{"v":2,"task":"%s","digest":"%s","round":%d,"id":"%s","body":[' % names  # noqa: UP031 - old MicroPython
    return (head + ",".join([str(k) for k in body]) + "]}").encode()


def is_task_id(text: str) -> bool:
    letters = _LETTERS + _DIGITS + "-"
    return 1 <= len(text) <= 64 and all(c in letters for c in text) and text[0] != "-"


def report_topic(task_id: str, sender: str) -> str:
    """hush/v1/reports/{task}/{sender}: letters, digits and ._@:- make a sender, at most 128."""
    first = _LETTERS + _LETTERS.upper() + _DIGITS
    legal = 1 <= len(sender) <= 128 and all(c in first + "._@:-" for c in sender)
    if not is_task_id(task_id) or not legal or sender[0] not in first:
        raise HushError("argument", "the task's id or the sender cannot be part of a topic")
    return "hush/v1/reports/" + task_id + "/" + sender


# ---- recalls: a broker may have lost what it acknowledged. The caller keeps the frames, and the ids of applied recalls


class Recall:
    """A recall: `task`, `digest` (32 bytes), `id`, and `spread`: frames are spread over 1 to 86400 seconds."""

    def __init__(self) -> None:
        self.task, self.digest, self.id, self.spread = "", b"", b"", 0


def read_recall(payload: bytes) -> Recall | None:
    """Return the recall in a message on its topic; None if it is invalid: ignore that message."""
    try:
        return _recall(payload)
    except HushError:
        return None


def _recall(payload: bytes) -> Recall:
    seen: dict[str, bool] = {}
    reader, recall = _Reader(payload), Recall()
    if len(payload) > RECALL_BYTES or not _is_text(payload) or not reader.take(b"{"):
        raise HushError("malformed", "is not a recall")
    while True:
        field = reader.name(_RECALL_FIELDS, seen)
        if field == "v":
            reader.count(1)
        elif field == "task":
            recall.task = reader.word(64)
        elif field == "digest":
            recall.digest = _hexadecimal(reader.word(64), 32)
        elif field == "id":
            recall.id = _hexadecimal(reader.word(32), 16)
        else:
            text = reader.number(17)
            if not _are_digits(text) or int(text) >> 53:
                raise HushError("task", "a time that is none")
            recall.spread = min(max(int(text), 1), _LONGEST_SPREAD)
        if not reader.take(b","):
            break
    if not reader.take(b"}") or reader.peek() >= 0 or len(seen) != len(_RECALL_FIELDS) or not is_task_id(recall.task):
        raise HushError("malformed", "is not a recall")
    return recall


def _hexadecimal(text: str, count: int) -> bytes:
    if len(text) != 2 * count or not all(c in _DIGITS + "abcdefABCDEF" for c in text):
        raise HushError("task", "bytes that are none")
    return binascii.unhexlify(text)


def recall_topic(task_id: str) -> str:
    """hush/v1/recalls/{task}."""
    if not is_task_id(task_id):
        raise HushError("argument", "the task's id cannot be part of a topic")
    return "hush/v1/recalls/" + task_id


def is_recalled(recall: Recall, task_id: str, frame: bytes) -> bool:
    """Whether a recall asks for a frame of this task."""
    return recall.task == task_id and len(frame) >= 24 and frame[4:20] == recall.digest[:16]


def recall_delay(recall: Recall, rng: SystemRandom) -> int:
    """Return the milliseconds after which to send a frame: uniform, one draw for each frame."""
    return rng.below(1000 * recall.spread + 1)


def kept_until(acknowledged: int, closes: int | None, keep: int, scheduled: Recall | None = None) -> int | None:
    """Return when to delete an acknowledged frame, in Unix seconds; None if only its sending ends it.

    Args:
        acknowledged: when the broker acknowledged it.
        closes: when the task closes, or None.
        keep: seconds, at most `KEEP_SECONDS`; 0 keeps nothing.
        scheduled: the recall for which the frame is not sent yet, if any.
    """
    if keep <= 0:
        return acknowledged
    if scheduled is not None:
        return None if closes is None else closes + _SKEW + 2 * scheduled.spread
    by_age = acknowledged + min(keep, KEEP_SECONDS)
    return by_age if closes is None else min(closes + _SKEW, by_age)
