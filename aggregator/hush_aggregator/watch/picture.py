"""Picture: a view of a task as lines of text, as wide and as high as the screen."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from hush_aggregator.charts import HEAVY, HEAVY_DOTTED, draw_interval
from hush_aggregator.presentation import interval_name
from hush_aggregator.watch.view import Band, Line, View
from hush_common.formatting import exact, whole
from hush_common.terminal import Fact, Facts, Renderable, Screen, Sentence, plain, width_of

_MOST_ROUNDS, _MOST_BANDS = 4, 6
_SHRUNK = 0.75
"""A band of the past is kept where it had become this much narrower than the one before it."""
_NARROWEST_BAR, _WIDEST_BAR = 4, 120
_ROOMY_BAR = 10  # with less there are no words beside it
_NOTES = 2  # lines below the parts
_LEAST_PARTS = _NOTES + 3
_INDENT = 2


class Row(NamedTuple):
    """A band of before.

    Args:
        label: when it was.
        band: its ends.
        value: the estimate, of a round that is over; None of the same round.
    """

    label: str
    band: Band
    value: float | None


class Past:
    """What was seen before, of tasks with one number: the last of each round, and the bands of this one.

    Of those a few are kept, each clearly narrower than the one before it.
    """

    def __init__(self) -> None:
        self._rounds: list[Row] = []
        self._bands: list[tuple[int, Band]] = []
        self._last: tuple[int, Band, float | None] | None = None

    def add(self, view: View) -> None:
        """Take in what is seen now."""
        if len(view.lines) != 1 or view.lines[0].name or not view.n or not view.lines[0].bands:
            return
        (line,) = view.lines
        band = next(iter(line.bands.values()))
        if self._last is not None and self._last[0] != view.round:
            number, last, value = self._last
            self._rounds = [*self._rounds, Row(f"round {whole(number)}", last, value)][-_MOST_ROUNDS:]
            self._bands = []
        self._last = view.round, band, line.value
        if not self._bands or _width(band) < _SHRUNK * _width(self._bands[-1][1]):
            self._bands = [*self._bands, (view.n, band)][-_MOST_BANDS:]

    def before(self, n: int) -> Sequence[Row]:
        """Earlier rounds, then the bands of fewer reports than `n`."""
        return [*self._rounds, *(Row(_reports(number), band, None) for number, band in self._bands if number < n)]


def picture(view: View, past: Past, screen: Screen, height: int, told: str = "") -> list[str]:
    """The lines.

    Args:
        view: what there is to see.
        past: the bands of before.
        screen: how wide, and whether it shows colours.
        height: how many lines there is room for; with many parts as many of them as fit.
        told: what happened to the connection or the task; empty for nothing.
    """
    head = [*_block(_heading(view, told), screen)]
    foot = ["", *_block([Facts([*_facts(view)])], screen)]
    room = height - len(head) - len(foot) - 1
    if view.n is None:
        body = _block([Sentence("no estimate yet")], screen)
    elif len(view.lines) == 1 and not view.lines[0].name:
        body = [*_one(view, view.lines[0], past, screen)][: max(room, 1)]
    else:
        body = [*_parts(view, screen, max(room, _LEAST_PARTS))]
    return [*head, "", *body, *foot]


def refusals(refused: Mapping[str, int]) -> str:
    """How many were refused, and why."""
    why = ", ".join(f"{whole(count)} {reason}" for reason, count in refused.items())
    return f"{whole(sum(refused.values()))} refused" + (f": {why}" if why else "")


def _block(blocks: Iterable[Renderable], screen: Screen) -> list[str]:
    return [line for block in blocks for line in block.lines(screen)]


def _heading(view: View, told: str) -> Iterator[Renderable]:
    yield Sentence(view.title if view.title == view.id else f"{view.title} ({view.id})", "bold")
    of = f" of 0 to {whole(view.rounds - 1)}" if view.rounds is not None else ""
    rounds = [f"round {whole(view.round)}{of}"] if view.rounds != 1 else []
    yield Sentence(", ".join([*rounds, *([view.terms] if view.terms else []), view.state]), "dim")
    if told:
        yield Sentence(told, "red")
    if view.warnings:
        told = " ".join(f"{one.word}. {one.sentence}".strip() for one in view.warnings)
        yield Sentence(f"Do not rely on this. {told}", "red")


def _facts(view: View) -> Iterator[Fact]:
    if view.n is not None:
        yield Fact("reports", f"{whole(view.n)} counted, {refusals(view.refused)}")
    for remark in view.remarks:
        yield Fact("look at", remark)
    if view.updated_at:
        yield Fact("updated", view.updated_at)


def _one(view: View, line: Line, past: Past, screen: Screen) -> Iterator[str]:
    """The one number of a task: in words, then its band with those of before above it."""
    if line.value is None:
        yield from Sentence("no estimate yet" if not view.n else "no estimate").lines(screen)
        return
    facts = [Fact("estimate", _value(line))]
    facts += [Fact(_called(name, line, view), line.between(ends)) for name, ends in line.bands.items()]
    yield from Facts(facts).lines(screen)
    axis = line.axis or _hull(line, past)
    if line.bands and axis is not None:
        yield ""
        yield from _shrinking(view, line, past, axis, screen)


def _shrinking(view: View, line: Line, past: Past, axis: Band, screen: Screen) -> Iterator[str]:
    """The bands of before, the one of now with its estimate, and the axis."""
    now = Row(_reports(view.n or 0), next(iter(line.bands.values())), line.value)
    before, margin = past.before(view.n or 0), " " * _INDENT
    left = max(width_of(row.label) for row in (now, *before))
    width = _bar_width(screen, left)
    for row in before:
        drawn = draw_interval(row.band, axis, width, value=row.value, signs=HEAVY_DOTTED)
        yield f"{margin}{row.label:>{left}}  {screen.paint(drawn, 'dim')}"
    yield f"{margin}{now.label:>{left}}  {draw_interval(now.band, axis, width, value=now.value, signs=HEAVY)}"
    ends = (
        exact(axis[0], scale=line.wording.factor),
        plain(f"{exact(axis[1], scale=line.wording.factor)} {line.wording.unit}".rstrip()),
    )
    gap = max(width - sum(map(width_of, ends)), 1)
    yield f"{margin}{'':{left}}  {ends[0]}{' ' * gap}{ends[1]}"


def _reports(n: int) -> str:
    return f"n = {whole(n)}"


def _parts(view: View, screen: Screen, room: int) -> Iterator[str]:
    """A line for each part: its name, its estimate, its band in words where there is room, and a bar."""
    shown = _chosen(view, room)
    names = [_cut(plain(line.name), screen.width // 3) for line in shown]
    values = [plain(_value(line)) for line in shown]
    words = [_band_words(line) for line in shown]
    left, middle, right = (max(map(width_of, cells), default=0) for cells in (names, values, words))
    width = _bar_width(screen, left + 2 + middle)
    beside = width - right - 2 >= _ROOMY_BAR
    width -= right + 2 if beside else 0
    for name, value, band, line in zip(names, values, words, shown, strict=True):
        axis, drawn = line.axis or _hull(line), ""
        if line.bands and axis is not None:
            drawn = draw_interval(next(iter(line.bands.values())), axis, width, value=line.value, signs=HEAVY)
        text = f"{_padded(name, left)}  {' ' * (middle - width_of(value))}{value}  "
        yield " " * _INDENT + (text + (f"{_padded(band, right)}  " if beside else "") + drawn).rstrip()
    if len(shown) < len(view.lines):
        which = f"the {'largest' if view.joint else 'first'} {whole(len(shown))} of {whole(len(view.lines))}"
        yield from Sentence(which, "dim").lines(screen)
    named = {name: line for line in reversed(view.lines) for name in list(line.bands)[:1]}
    for name, line in named.items():
        at_once = ", all of them at once" if view.joint else ""
        yield from Sentence(f"{_called(name, line, view)}{at_once}", "dim").lines(screen)


def _chosen(view: View, room: int) -> Sequence[Line]:
    """All parts, or as many as there is room for."""
    if len(view.lines) < room:
        return view.lines
    if not view.joint:  # to pick the largest is to look at all, for which each band alone is not made
        return view.lines[: room - _NOTES]
    return sorted(view.lines, key=lambda line: -(line.value or 0.0))[: room - _NOTES]


def _value(line: Line) -> str:
    return "none yet" if line.value is None else line.wording.value(line.value)


def _band_words(line: Line) -> str:
    band = next(iter(line.bands.values()), None)
    return "" if band is None else line.wording.bare_interval(*band)


def _called(name: str, line: Line, view: View) -> str:
    confidence = f"{exact(view.confidence, scale=100)} % " if view.confidence is not None else ""
    return plain(f"{confidence}{interval_name(name, line.methods.get(name, ''))}")


def _bar_width(screen: Screen, left: int) -> int:
    return min(max(screen.width - _INDENT - left - 2 - 1, _NARROWEST_BAR), _WIDEST_BAR)


def _hull(line: Line, past: Past | None = None) -> Band | None:
    """Of a task that is not published any more: from the least to the largest that was seen."""
    bands = [*line.bands.values(), *(row.band for row in (past.before(1 << 62) if past is not None else ()))]
    if not bands:
        return None
    return min(low for low, _ in bands), max(high for _, high in bands)


def _width(band: Band) -> float:
    return band[1] - band[0]


def _cut(text: str, width: int) -> str:
    """A name that leaves room for its bar."""
    while width_of(text) > width and len(text) > 1:
        text = text[:-2] + "…"
    return text


def _padded(text: str, width: int) -> str:
    return text + " " * (width - width_of(text))
