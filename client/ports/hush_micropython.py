"""hush for devices that run MicroPython: from a published task and a private value to the payload of one report.

One file; it imports only `os`, `struct`, `hashlib` and `binascii`, and runs on CPython too. Integers only: bounds and
values are read from their text, because the floats of a microcontroller may have 32 bits and round differently. The
interpreter needs long integers (MICROPY_LONGINT_IMPL_MPZ, the default of every port with more than a few KB).

WHAT THIS CODE DOES NOT DO: it keeps no ledger and no outbox. Each call of `answer` is a new draw and spends epsilon
again. The caller must store the payload AND the charge durably before the first network byte, must send those same
bytes until the broker acknowledges, and must never answer a task twice. docs/wire.md shows how.
"""
# ruff: noqa: INP001, PLR2004 - copied to a device as one file; the numbers of the wire are where they are read

import binascii
import hashlib
import os
import struct

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
_TASK_FIELDS = (
    "id",
    "title",
    "purpose",
    "epsilon",
    "mechanism",
    "domain",
    "rounds",
    "levels",
    "enrolled",
    "opens",
    "closes",
    "release_from",
    "release_every",
    "retention",
)
_DOMAIN_FIELDS = ("kind", "lower", "upper", "outside", "unit")
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
    unknown, illegal, or requires what this code cannot do) · epsilon (not exact, out of range, above the device's
    limit) · not_open · closed. None is about a value: a task is answered for every value, or silence would reveal it.
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


def _exact(text: object) -> tuple[int, int] | None:
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


def _epsilon(text: str, limit: tuple[int, int]) -> tuple[int, int]:
    """Return an exact epsilon in [0.000001, 50], at most `limit`."""
    found = _exact(text)
    if found is None:
        raise HushError("epsilon", "the task's epsilon is not an exact decimal number")
    numerator, denominator = found
    if numerator * 10**6 < denominator or numerator > 50 * denominator:
        raise HushError("epsilon", "the task's epsilon is outside 0.000001 to 50")
    if numerator * limit[1] > limit[0] * denominator:
        raise HushError("epsilon", "the task's epsilon is above the limit of this device")
    return numerator, denominator


def weight_of_lie(numerator: int, denominator: int) -> int:
    """floor(2^128 · e^-epsilon) + 1 for epsilon = numerator/denominator ≤ 50, certified.

    e^epsilon is enclosed by Taylor's series over 2^512, every term rounded down and up; both bounds give this integer.
    """
    one = 1 << _PRECISION
    low_term = high_term = low = high = one
    j = 0
    while high_term > 1 or j * denominator <= 2 * numerator:
        j += 1
        low_term = low_term * numerator // (denominator * j)
        high_term = -(-high_term * numerator // (denominator * j))
        low, high = low + low_term, high + high_term
    above, below = TRUTH * one // low, TRUTH * one // (high + high_term)
    if above != below:  # cannot happen: e^epsilon is irrational, and there are 300 spare bits
        raise HushError("epsilon", "too little precision for this epsilon")
    return below + 1


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
    s, t = numerator, STEPS * denominator
    a, b = s, t
    while b:
        a, b = b, a % b
    s, t = s // a, t // a
    window = -(-40 * t // s)
    return min(max(index + _discrete_laplace(s, t, rng), -window), STEPS + window)


def _randomized_response(lie: int, bit: int, rng: SystemRandom) -> int:
    return 1 if rng.below(TRUTH + lie) < (TRUTH if bit else lie) else 0


def _multilevel(lie: int, levels: int, index: int, rng: SystemRandom) -> int:
    level, rest = divmod(index * levels, STEPS)
    total = TRUTH + levels * lie
    rounding, draw = divmod(rng.below(STEPS * total), total)
    level += 1 if rounding < rest else 0
    if draw < TRUTH:
        return level
    other = (draw - TRUTH) // lie
    return other + 1 if other >= level else other


# ---- reading a task: anything that is not understood completely is refused


class _Reader:
    """Parses a JSON text from left to right."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def peek(self) -> bytes:
        """Return the next byte after white space; empty at the end."""
        while self.at < len(self.data) and self.data[self.at] in _SPACE:
            self.at += 1
        return self.data[self.at : self.at + 1]

    def take(self, symbol: bytes) -> bool:
        found = self.peek() == symbol
        self.at += 1 if found else 0
        return found

    def line(self, most: int) -> bytes:
        """Return a line for people of at most `most` characters, which may escape only quotes and backslashes."""
        if not self.take(b'"'):
            raise HushError("task", "text is missing")
        start, characters = self.at, 0
        while self.data[self.at : self.at + 1] not in (b'"', b""):
            byte = self.data[self.at]
            characters += 0 if byte & 0xC0 == 0x80 else 1
            if byte < 0x20:
                raise HushError("malformed", "text with a control character")
            if byte == ord("\\"):
                self.at += 1
                if self.data[self.at : self.at + 1] not in (b'"', b"\\"):
                    raise HushError("task", "text with an escape that hush does not publish")
            self.at += 1
        text = self.data[start : self.at]
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
        start = self.at
        while self.data[self.at : self.at + 1] != b"" and self.data[self.at] in b"+-.0123456789eE":
            self.at += 1
        text = self.data[start : self.at].decode()
        if not 1 <= len(text) <= most:
            raise HushError("task", "a number is missing, or is too long")
        digits, rest = _split(text[1:] if text[0] == "-" else text, "+-.eE")
        zero = digits[:1] == "0" and len(digits) > 1
        if digits == "" or zero or (rest[:1] == "." and rest[1:2] not in tuple(_DIGITS)):
            raise HushError("malformed", "a number that is not JSON")
        return text

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
        if self.peek() == b'"':
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

    def length(self) -> None:
        """Skip a length of time as hush publishes it, `30d`, of at most 3650 days."""
        text = self.word(10)
        digits, unit = text[:-1], text[-1:]
        if digits == "" or not _are_digits(digits) or digits[0] == "0" or unit not in _SECONDS:
            raise HushError("task", "a length of time that is not in the form that hush publishes")
        if int(digits) * _SECONDS[unit] > _LONGEST_POLICY:
            raise HushError("task", "a length of time of more than 3650 days")

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
    """A task from `read_task`: `id`, `digest` (32 bytes), `epsilon` (text, what an answer costs), `purpose` (raw JSON).

    It has no weight, probability or scale: every answer computes them from the text of epsilon, so that none can
    disagree with it.
    """

    def __init__(self) -> None:
        self.id = self.epsilon = self.mechanism = self.kind = ""
        self.digest = self.purpose = b""
        self.limit = (0, 1)
        self.levels = 0
        self.lower = self.upper = (0, 0)
        self.opens = self.closes = 0
        self.seen: dict[str, bool] = {}


def read_task(payload: bytes, max_epsilon: str) -> Task:
    """Read a published task.

    Args:
        payload: the retained message, byte for byte.
        max_epsilon: the device's own limit, decimal text.

    Raises:
        HushError: it is not a task, or one that this code cannot answer.
    """
    limit = _exact(max_epsilon)
    if limit is None:
        raise HushError("argument", 'max_epsilon is not decimal text; write for example "4"')
    if len(payload) > _TASK_BYTES:
        raise HushError("task", "is too long")
    if not _is_text(payload):
        raise HushError("malformed", "is not UTF-8, or has a character that is not printable")
    task, reader = Task(), _Reader(payload)
    task.limit = limit
    if not reader.take(b"{"):
        raise HushError("malformed", "is not a JSON object")
    while True:
        _read_field(reader, reader.name(_TASK_FIELDS, task.seen), task)
        if not reader.take(b","):
            break
    if not reader.take(b"}") or reader.peek() != b"":
        raise HushError("malformed", "is not a JSON object")
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
        if lead > 0x7E and not _is_printable(point):
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
        task.epsilon = reader.epsilon()
    elif field == "mechanism":
        task.mechanism = reader.word(23)
        if task.mechanism not in ("laplace", "multilevel", "randomized_response"):
            raise HushError("task", "a mechanism that this program does not have")
    elif field == "domain":
        _read_domain(reader, task)
    elif field == "rounds":
        reader.count(1)  # more than one needs a durable memory of the rounds answered
    elif field == "levels":
        task.levels = reader.count(MOST_LEVELS)
    elif field in ("enrolled", "release_from"):
        reader.count((1 << 53) - 1)
    elif field == "opens":
        task.opens = reader.moment()
    elif field == "closes":
        task.closes = reader.moment()
    else:
        reader.length()


def _read_domain(reader: _Reader, task: Task) -> None:
    seen: dict[str, bool] = {}
    if not reader.take(b"{"):
        raise HushError("task", "the domain is not an object")
    while True:
        field = reader.name(_DOMAIN_FIELDS, seen)
        if field == "lower":
            task.lower = reader.bound()
        elif field == "upper":
            task.upper = reader.bound()
        elif field == "unit":
            reader.line(40)
        elif field == "kind":
            task.kind = _one_of(reader, ("number", "bit"))
        else:
            _one_of(reader, ("clamp",))  # not "refuse": silence would reveal the value
        if not reader.take(b","):
            break
    if not reader.take(b"}"):
        raise HushError("malformed", "the domain is not an object")
    bounds = all(name in seen for name in ("kind", "lower", "upper", "outside"))
    if not (bounds if task.kind == "number" else list(seen) == ["kind"]):
        raise HushError("task", "the domain has a field too many, or too few")


def _one_of(reader: _Reader, words: tuple[str, ...]) -> str:
    word = reader.word(15)
    if word not in words:
        raise HushError("task", "a word that this program does not know")
    return word


def _check(task: Task) -> None:
    fits = task.mechanism == "randomized_response" if task.kind == "bit" else task.mechanism != "randomized_response"
    if not all(name in task.seen for name in _NEEDED) or not fits:
        raise HushError("task", "a field is missing, or the mechanism does not fit the domain")
    if ("levels" in task.seen) != (task.mechanism == "multilevel"):
        raise HushError("task", "levels belong to multilevel, and to nothing else")
    if "opens" in task.seen and "closes" in task.seen and task.closes <= task.opens:
        raise HushError("task", "closes before it opens")
    _epsilon(task.epsilon, task.limit)
    if task.kind == "bit":
        return
    (lower, upper), exponent = _aligned([task.lower, task.upper])
    if lower >= upper or _nearest((upper - lower) << max(exponent, 0), 1 << max(-exponent, 0)) is None:
        raise HushError("task", "the bounds are not in order, or too far apart")


# ---- an answer


class Report:
    """One perturbed answer: `digest` (the first 16 bytes of the task's), `round`, `id`, `body` and `value`.

    `value` says how the value was used: "used", "moved" to a bound, or "replaced" if there was none. It is only for the
    person and the maker of the device: never send, store or show it to others.
    """

    def __init__(self, digest: bytes, report_id: bytes, body: int, became: str) -> None:
        self.digest, self.round, self.id, self.body, self.value = digest, 0, report_id, body, became


def _check_type(value: object) -> None:
    if value is not None and not isinstance(value, str):
        kind = type(value).__name__
        raise TypeError("value is of type " + kind + '; pass text such as "172.5" or "yes", or None if there is none')


def index_of(task: Task, value: str | None) -> tuple[int | None, str]:
    """Return the integer that the mechanism sees, None if there is no value; and how the value was used.

    Args:
        task: what is asked.
        value: decimal text of a number (on a microcontroller make it of integers, not of a float), or one of yes, no,
            true, false, 1 and 0. Any other text, and None, is a missing value.

    Raises:
        TypeError: the value is neither text nor None: a mistake of the program. The type must not depend on the value.
    """
    _check_type(value)
    if task.kind == "bit":
        known = value in ("yes", "true", "1", "no", "false", "0")
        return (1 if value in ("yes", "true", "1") else 0) if known else None, "used" if known else "replaced"
    number = None if value is None else _decimal(value)
    if number is None:
        return None, "replaced"
    (lower, upper, exact), _ = _aligned([task.lower, task.upper, number])
    inside = min(max(exact, lower), upper)
    index, rest = divmod((inside - lower) * STEPS, upper - lower)
    if 2 * rest > upper - lower or (2 * rest == upper - lower and index & 1):  # ties to the even index
        index += 1
    return index, "used" if inside == exact else "moved"


def perturb(task: Task, index: int, rng: SystemRandom) -> int:
    """Return the body of a report: the only place where a value meets randomness."""
    if not 0 <= index <= (1 if task.kind == "bit" else STEPS):
        raise HushError("argument", "the index is outside the domain")
    numerator, denominator = _epsilon(task.epsilon, task.limit)
    if task.mechanism == "laplace":
        return _laplace(numerator, denominator, index, rng)
    lie = weight_of_lie(numerator, denominator)
    if task.mechanism == "randomized_response":
        return _randomized_response(lie, index, rng)
    if task.mechanism == "multilevel" and 1 <= task.levels <= MOST_LEVELS:
        return _multilevel(lie, task.levels, index, rng)
    raise HushError("task", "a mechanism that this program does not have")


def answer(task: Task, value: str | None, now: int, rng: SystemRandom) -> Report:
    """Return one perturbed answer with a fresh id: ONE CHARGE of `task.epsilon`.

    Whether and when you call this must not depend on the value: if it is missing, pass None. An index is then drawn
    uniformly over the domain, and answered like any other.

    Args:
        task: what is asked.
        value: see `index_of`.
        now: Unix seconds. (Some ports of MicroPython count from the year 2000: add 946684800.)
        rng: `SystemRandom()`.

    Raises:
        TypeError: see `index_of`; nothing was answered.
        HushError: see above; nothing was answered.
    """
    _check_type(value)
    if "opens" in task.seen and now < task.opens:
        raise HushError("not_open", "the task opens in " + str(task.opens - now) + " s")
    if "closes" in task.seen and now >= task.closes:
        raise HushError("closed", "the task closed " + str(now - task.closes) + " s ago")
    index, became = index_of(task, value)
    if index is None:
        index = rng.below(2 if task.kind == "bit" else STEPS + 1)
    body = perturb(task, index, rng)
    return Report(task.digest[:16], rng.token_bytes(16), body, became)


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
    if not reader.take(b"}") or reader.peek() != b"" or len(seen) != len(_RECALL_FIELDS) or not is_task_id(recall.task):
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
