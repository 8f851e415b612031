"""Quantiles of sums of Laplace noise of mixed scales, by a method that shares nothing with hush's.

`python tests/tools/laplace_mixes.py` writes `laplace_mixes.csv` beside it, in ten minutes or so. Each line has the
scales and counts (`scale*count`, joined by `+`), the confidence, and the h with P(|X| ≤ h) = confidence, to 15 digits.

Method, in arbitrary precision. By inversion P(X > h) = (1/2πi) ∫ e^(-sh)/(s·Π (1 - b^2 s^2)^n) ds along a straight
vertical line, and moving the line to the right past the poles 1/b of some scales leaves their residues behind: exact
numbers, from the power series of the other factors. Of the gaps between poles that at most `_RESIDUES` reports are
left of, the line takes the one where the integrand is least at its saddle point: what is left then cancels nothing.
To the right of all poles that is the sum over partial fractions, no integral at all; in the first gap no residues.
"""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import mpmath as mp
import numpy as np

__all__ = ["TABLE", "Mix", "mixes", "read", "tail_and_density"]

TABLE = Path(__file__).with_suffix(".csv")
CONFIDENCES = (0.5, 0.8, 0.95, 0.99, 0.999, 1 - 1e-6, 1 - 1e-9)
ENTRIES = 2100
_RESIDUES = 24
_DIGITS = 30
_NOTHING = 200  # a line whose integrand is e^-200 of the residues adds nothing

Mix = tuple[tuple[float, int], ...]


def tail_and_density(mix: Mix, h: mp.mpf) -> tuple[mp.mpf, mp.mpf]:
    """P(X > h) and the density of X at h > 0."""
    merged: dict[float, int] = {}
    for b, n in mix:
        merged[b] = merged.get(b, 0) + n
    scales = sorted(merged.items(), reverse=True)
    few = min(_gaps(scales), key=lambda gap: _height(scales, gap, h))
    with mp.workdps(_digits(scales[:few])):
        exact = [(mp.mpf(b), n) for b, n in scales]
        tail = density = mp.mpf(0)
        for place in range(few):
            more = _residue(exact, place, h)
            tail, density = tail + more[0], density + more[1]
        if few < len(exact) and not (few and _height(scales, few, h) < mp.log(abs(tail)) - _NOTHING):
            more = _line(exact, few, h)
            tail, density = tail + more[0], density + more[1]
        return +tail, +density


def _digits(scales: Sequence[tuple[float, int]]) -> int:
    """Enough for the cancellation between the residues of poles that nearly coincide."""
    close = mp.mpf(0)
    for i, (b, n) in enumerate(scales):
        for a, k in scales[i + 1 :]:
            close += (n + k) * max(mp.log10(b / (mp.mpf(b) - a)), 0)
    return _DIGITS + int(close) + sum(n for _, n in scales)


def _residue(scales: Sequence[tuple[mp.mpf, int]], place: int, h: mp.mpf) -> tuple[mp.mpf, mp.mpf]:
    """What passing the pole 1/b of a scale adds to tail and density."""
    b, n = scales[place]
    pole = 1 / b
    # The logarithm of all other factors as a power series around the pole, then its exponential.
    order = n
    logs = [-h * pole - n * mp.log(2)] + [mp.mpf(0)] * (order - 1)
    if order > 1:
        logs[1] -= h
    for k in range(1, order):
        logs[k] += n * (-b / 2) ** k / k
    factor = mp.mpf(1)
    for other, (a, m) in enumerate(scales):
        if other == place:
            continue
        left, right = 1 - a * pole, 1 + a * pole
        factor *= (left * right) ** -m
        for k in range(1, order):
            logs[k] += m * ((a / left) ** k + (-a / right) ** k) / k
    series = [mp.exp(logs[0]) * factor]
    for k in range(1, order):
        series.append(sum((j * logs[j] * series[k - j] for j in range(1, k + 1)), mp.mpf(0)) / k)
    sign = -((-1 / b) ** n)
    density = sign * series[n - 1]
    # 1/s = b·Σ (-b t)^k
    tail = sign * sum((series[k] * b * (-b) ** (n - 1 - k) for k in range(n)), mp.mpf(0))
    return tail, density


def _gaps(scales: Sequence[tuple[float, int]]) -> list[int]:
    """How many scales may be taken as residues."""
    return [few for few in range(len(scales) + 1) if sum(n for _, n in scales[:few]) <= _RESIDUES]


def _height(scales: Sequence[tuple[float, int]], few: int, h: mp.mpf) -> mp.mpf:
    """The logarithm of the integrand at its saddle point in the gap right of `few` poles."""
    if few == len(scales):
        return -mp.inf
    c = _saddle(scales, few, h)
    return -h * c - mp.log(c) - sum((n * mp.log(abs(1 - (b * c) ** 2)) for b, n in scales), mp.mpf(0))


def _saddle(scales: Sequence[tuple[mp.mpf | float, int]], few: int, h: mp.mpf) -> mp.mpf:
    left, right = mp.mpf(1) / scales[few - 1][0] if few else mp.mpf(0), mp.mpf(1) / scales[few][0]
    for _ in range(60):
        c = (left + right) / 2
        slope = sum((2 * n * b**2 * c / (1 - (b * c) ** 2) for b, n in scales), mp.mpf(0)) - h - 1 / c
        left, right = (c, right) if slope < 0 else (left, c)
    return c


def _line(scales: Sequence[tuple[mp.mpf, int]], few: int, h: mp.mpf) -> tuple[mp.mpf, mp.mpf]:
    """The integral along the vertical line between the poles of `scales[:few]` and those of the others."""
    low = 1 / scales[few - 1][0] if few else mp.mpf(0)
    high = 1 / scales[few][0]
    c = _saddle(scales, few, h)
    curved = sum((2 * n * b**2 * (1 + (b * c) ** 2) / (1 - (b * c) ** 2) ** 2 for b, n in scales), 1 / c**2)
    spacing = min(1 / mp.sqrt(curved) / 2, min(c - low, high - c) / 10)

    def integrand(y: mp.mpf) -> mp.mpc:
        s = mp.mpc(c, y)
        square = s * s
        exponent = -h * s
        for b, n in scales:
            exponent -= n * mp.log(1 - b * b * square)
        return mp.exp(exponent)

    with mp.workdps(max(mp.mp.dps, _DIGITS)):
        first = integrand(mp.mpf(0)).real
        tail, density = first / c / 2, first / 2
        k = 0
        while True:
            k += 1
            value = integrand(k * spacing)
            tail += (value / mp.mpc(c, k * spacing)).real
            density += value.real
            if abs(value) * (1 + k) < mp.mpf(10) ** -22 * abs(first):
                break
        return tail * spacing / mp.pi, density * spacing / mp.pi


def quantile(mix: Mix, confidence: float) -> mp.mpf:
    """Newton's method from the normal quantile; it cannot diverge, because the logarithm of the tail is concave."""
    target = mp.log((1 - mp.mpf(confidence)) / 2)
    h = mp.sqrt(2) * mp.erfinv(confidence) * mp.sqrt(2 * sum(n * mp.mpf(b) ** 2 for b, n in mix))
    for _ in range(50):
        tail, density = tail_and_density(mix, h)
        step = (mp.log(tail) - target) * tail / density
        h += step
        if abs(step) < mp.mpf(10) ** -10 * h:  # the next error is of the order of its square
            return h
    raise ArithmeticError(f"no quantile of {mix} at {confidence}")


def mixes() -> Iterator[tuple[Mix, float]]:
    """What the table asks: the hostile ones first, then drawn with a fixed seed."""
    for mix in _hostile():
        for confidence in CONFIDENCES:
            yield mix, confidence
    rng = np.random.default_rng(8)
    for _ in range(ENTRIES - len(CONFIDENCES) * sum(1 for _ in _hostile())):
        groups = int(rng.integers(1, 9))
        widest = float(rng.choice([1.0, 3.0, 10.0, 100.0, 5e7]))
        scales = [float(f"{b:.6g}") for b in widest ** rng.random(groups) * 0.02]
        counts = [int(c) for c in np.floor(10 ** (rng.random(groups) * rng.choice([0.7, 2.0, 4.0, 9.0])))]
        confidence = float(rng.choice(CONFIDENCES)) if rng.random() < 0.5 else round(0.5 + 0.5 * float(rng.random()), 6)
        yield tuple(zip(scales, counts, strict=True)), min(confidence, CONFIDENCES[-1])


def _hostile() -> Iterator[Mix]:
    """One noisy report among many that are not, and the reverse; ratios to 5e7; scales that are all but equal."""
    yield from (((1.0, n),) for n in (1, 2, 3, 24, 25, 1000, 10**6, 10**9))
    for ratio in (1.5, 2.0, 4.0, 8.0, 10.0, 40.0, 200.0, 1e4, 5e7):
        for many in (1, 192, 1600, 10**6, 10**9):
            yield (1.0, 1), (1 / ratio, many)
        yield (1.0, 10**9), (1 / ratio, 1)
        yield (1.0, 30), (1 / ratio, round(30 * min(ratio, 1e4) ** 2))
    yield (1.0, 110), (1 / 10, 1)
    yield (1.0, 300), (1 / 10, 1)
    for apart in (1e-3, 1e-8, 1e-12):
        yield (1.0, 1), (1 + apart, 1)
        yield (1.0, 3), (1 + apart, 2), (0.5, 40)
        yield (1.0, 10**9), (1 + apart, 10**9)
    yield tuple((2.0**-k, 1) for k in range(8))
    yield tuple((2.0**-k, 4**k) for k in range(8))
    yield tuple((12.5**-k, 1 if k < 4 else 10**9) for k in range(8))


def read() -> list[tuple[Mix, float, float]]:
    """The table: mix, confidence, quantile."""
    entries: list[tuple[Mix, float, float]] = []
    for line in TABLE.read_text(encoding="ascii").splitlines()[1:]:
        mix, confidence, found = line.split(",")
        pairs = (part.split("*") for part in mix.split("+"))
        entries.append((tuple((float(b), int(n)) for b, n in pairs), float(confidence), float(found)))
    return entries


def _line_of(mix: Mix, confidence: float, found: mp.mpf) -> str:
    written = "+".join(f"{b!r}*{n}".replace("e+", "e") for b, n in mix)
    return f"{written},{confidence!r},{mp.nstr(found, 15, min_fixed=-99, max_fixed=99)}"


def main() -> None:
    lines = ["mix,confidence,quantile"]
    for mix, confidence in mixes():
        lines.append(_line_of(mix, confidence, quantile(mix, confidence)))
        if len(lines) % 100 == 0:
            print(len(lines), file=sys.stderr, flush=True)
    TABLE.write_text("\n".join(lines) + "\n", encoding="ascii")


if __name__ == "__main__":
    main()
