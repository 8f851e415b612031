"""View: what there is to see of a task, from the document of its result and, where it is known, the task.

A document that another program published may have anything anywhere: what is not of its kind is left out.
"""

import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from hush_aggregator.charts import HEAVY, HEAVY_DOTTED, draw_interval
from hush_aggregator.estimate.estimates import ANYTIME, Intervals
from hush_aggregator.presentation import NumberFormat, Verdict, interval_name, report_problems
from hush_aggregator.result import ForeignResult, read_result, result_in
from hush_common.errors import TaskError, printable
from hush_common.formatting import exact, whole
from hush_common.task import Task, decode_task
from hush_common.terminal import Fact, Facts, Renderable, Screen, Sentence, plain, width_of

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text


Band: TypeAlias = tuple[float, float]
"""Lower and upper end."""

_SHARE: Band = (0.0, 1.0)


@dataclass(frozen=True, slots=True)
class Line:
    """An estimate with its bands.

    Args:
        name: of a category or a coordinate; empty for the one number of a task.
        value: the estimate; None where there is none yet.
        methods: how the intervals were made.
        bands: by their names in the document: those that may be watched, or the final ones.
        axis: from where to where it can lie; None where nobody knows.
        wording: of its numbers.
    """

    name: str
    value: float | None
    methods: Mapping[str, str]
    bands: Mapping[str, Band]
    axis: Band | None
    wording: NumberFormat

    def number(self, value: float) -> str:
        """Return the digits that the standard error justifies."""
        return self.wording.number(value)

    def between(self, band: Band) -> str:
        """Return an interval with its unit."""
        return self.wording.interval(*band)


@dataclass(frozen=True, slots=True)
class View:
    """All that is shown of a task.

    Args:
        id: of the task.
        title: what a person calls it; the id where nobody knows.
        n: reports counted; None where no estimate was seen.
        refused: reports refused, by reason.
        lines: the estimates, one or one for each part.
        joint: whether the bands are all right at once, with `confidence`.
        confidence: of the bands, inside (0, 1); None where it is not said.
        round: the round that this is about.
        rounds: how many there are; None where nobody knows.
        terms: mechanism and epsilon, in words.
        state: live, closed or final.
        warnings: what is wrong with the reports, so that nobody should rely on the estimate.
        remarks: what could not be made.
        updated_at: as the document has it.
    """

    id: str
    title: str
    n: int | None = None
    refused: Mapping[str, int] = field(default_factory=dict)
    lines: Sequence[Line] = ()
    joint: bool = False
    confidence: float | None = None
    round: int = 0
    rounds: int | None = None
    terms: str = ""
    state: str = "live"
    warnings: Sequence[Verdict] = ()
    remarks: Sequence[str] = ()
    updated_at: str = ""


def view_of(task_id: str, document: Mapping[str, object], task: Task | None) -> View:
    """What there is to see.

    Args:
        task_id: which task is watched.
        document: of its result; empty where none was seen.
        task: what was asked; None where it is not published, or cannot be read.
    """
    view = View(task_id, task.title if task is not None and task.title else task_id)
    if task is not None:
        view = replace(view, rounds=task.rounds)
    if not document:
        return view
    found = result_in(document)
    lines, joint = _lines(found, task)
    return replace(
        view,
        n=found.estimate.n,
        refused=found.refused,
        lines=lines,
        joint=joint,
        confidence=found.confidence,
        round=found.round,
        terms=", ".join(_terms(found)),
        state="final" if found.final else "closed" if found.closed else "live",
        warnings=report_problems(found.estimate.monitor, found.flags),
        remarks=[f"{target} could not be made: {reason}" for target, reason in found.failures.items()],
        updated_at=found.updated_at,
    )


def figures_of(view: View) -> str:
    """The figures in one line; of many parts the largest few."""
    shown = sorted(view.lines, key=lambda line: -(line.value or 0.0))[:5] if len(view.lines) > 5 else view.lines  # noqa: PLR2004
    words = [_in_words(line) for line in shown]
    more = len(view.lines) - len(shown)
    return ", ".join(words + ([f"and {more} more"] if more else []))


def _in_words(line: Line) -> str:
    if line.value is None:
        return f"{line.name}: no estimate yet" if line.name else "no estimate yet"
    bands = "".join(
        f" [{interval_name(name, line.methods.get(name, ''))} {line.wording.bare_interval(*ends)}]"
        for name, ends in line.bands.items()
    )
    return f"{line.name or 'mean'} {line.wording.value(line.value)}{bands}"


def _lines(found: ForeignResult, task: Task | None) -> tuple[Sequence[Line], bool]:
    """The parts with the intervals to show, and whether those hold for all parts at once."""
    known = {} if task is None else {part.name: part for part in task.domain.parts}
    is_share = found.is_share if task is None else task.domain.is_share
    parts = found.estimate.parts
    joint = is_share and any(_bands(part.joint_intervals, final=found.final) for part in parts)
    return [
        Line(
            part.name,
            part.mean,
            part.methods,
            _bands(part.joint_intervals if joint else part.intervals, final=found.final),
            known[part.name].axis if part.name in known else _SHARE if is_share else None,
            NumberFormat.of_part(part, is_share=is_share),
        )
        for part in parts
    ], joint


def _bands(intervals: Intervals, *, final: bool) -> dict[str, Band]:
    """While reports arrive those that hold at any time; the others are for one look, at the end."""
    return {target: ends for target, ends in intervals.items() if target.startswith(ANYTIME) is not final}


def _terms(found: ForeignResult) -> Iterator[str]:
    if found.mechanism:
        yield found.mechanism
    if found.epsilon:
        yield f"epsilon {found.epsilon}"


_OF_NO_MATTER = {"updated_at", "term", "store", "taken_from"}


class News(Enum):
    """What is heard."""

    TASK = "the task as it is published, empty where it was cleared"
    ESTIMATE = "the document of a result, empty where it was cleared"
    THERE = "connected; what is retained has been heard"
    LOST = "the connection was lost"


@dataclass(frozen=True, slots=True)
class Heard:
    """Something that was heard.

    Args:
        news: what.
        payload: of the message; of a lost connection why.
    """

    news: News
    payload: bytes = b""


@dataclass(slots=True)
class Watched:
    """What has been heard of a task.

    Args:
        id: of the task.

    Attributes:
        task: what is asked; None where it is not published, or this version cannot read it.
        published: whether it is published, whether it can be read or not.
        document: the last result; empty for none.
        told: what a person should know about the connection or the task; empty for nothing.
    """

    id: str
    task: Task | None = None
    published: bool = False
    document: Mapping[str, object] = field(default_factory=dict)
    told: str = ""
    _rounds: int | None = None

    def hear(self, heard: Heard) -> bool:
        """Take something in; return whether what is seen has changed."""
        before = self.told, self.published, _seen(self.document)
        match heard.news:
            case News.THERE:
                self.told = ""
            case News.LOST:
                self.told = heard.payload.decode()
            case News.TASK:
                self._hear_task(heard.payload)
            case News.ESTIMATE:
                self._hear_estimate(heard.payload)
        return before != (self.told, self.published, _seen(self.document))

    @property
    def nothing(self) -> bool:
        """Whether neither a task nor a result is there."""
        return not self.published and not self.document

    @property
    def is_over(self) -> bool:
        """Whether nothing more can come: the result is final, and of the last round or of a task that is gone."""
        if self.document.get("final") is not True:
            return False
        if not self.published or self.task is None:
            return True
        closed = self.task.closes is not None and datetime.now(UTC) >= self.task.closes
        return closed or self.document.get("round") == self.task.rounds - 1

    @property
    def result(self) -> ForeignResult:
        """The last result; that of an empty document for none."""
        found = result_in(self.document)
        return found if self.task is None else replace(found, is_share=self.task.domain.is_share)

    @property
    def view(self) -> View:
        """What there is to see."""
        return view_of(self.id, self.document, self.task)

    def _hear_task(self, payload: bytes) -> None:
        was_there = self.published
        self.published = bool(payload)
        if not payload:
            if was_there and self.document.get("final") is not True:
                self.told = "withdrawn or closed: nobody is asked any more"
            return
        self.told = ""
        try:
            task = decode_task(payload)
        except TaskError as error:
            self.task, self.told = None, f"what is published as this task cannot be read ({error})"
        else:
            self.task = task if task.id == self.id else None

    def _hear_estimate(self, payload: bytes) -> None:
        if not payload:
            self.document = {}
            return
        found = read_result(payload)
        if found is None:
            self.told = "what is published as its estimate is none"
            return
        self.document = found.document


def _seen(document: Mapping[str, object]) -> Mapping[str, object]:
    """Without what changes while nothing is counted."""
    return {name: value for name, value in document.items() if name not in _OF_NO_MATTER}


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


class Show(Protocol):
    """Where what is watched is shown."""

    def __call__(self, watched: Watched) -> None:
        """It has changed."""
        ...


@contextmanager
def drawn() -> Iterator[Show]:
    """On the terminal that is standard output, until the block ends: then what was drawn is taken away."""
    from rich.console import Console  # noqa: PLC0415 - a pipe needs none
    from rich.live import Live  # noqa: PLC0415 - as above

    console = Console(highlight=False, markup=False, emoji=False)
    seen: list[Watched] = []
    past = Past()

    def draw() -> "Text":
        return _text(console, seen[-1], past) if seen else _text(console, Watched(""), past)

    with Live(get_renderable=draw, console=console, transient=True, refresh_per_second=4) as live:

        def show(watched: Watched) -> None:
            seen[:] = [watched]
            past.add(watched.view)
            live.refresh()

        yield show


def _text(console: "Console", watched: Watched, past: Past) -> "Text":
    """As wide and as high as the terminal is at this moment."""
    from rich.text import Text  # noqa: PLC0415 - as above

    width, height = console.size
    screen = replace(Screen.of(sys.stdout), width=max(width, 20), wraps=True)
    found = picture(watched.view, past, screen, height - 1, watched.told) if watched.id else []
    return Text.from_ansi("\n".join(found), no_wrap=True, overflow="crop")


@contextmanager
def lines() -> Iterator[Show]:
    """A line for each change."""
    told = ""

    def show(watched: Watched) -> None:
        nonlocal told
        if watched.told != told:
            told = watched.told
            if told:
                _write(f"{watched.id}: {told}")
        if watched.document:
            _write(_in_a_line(watched.view))

    yield show


@contextmanager
def as_json() -> Iterator[Show]:
    """Each document as a line, as it was published; what else there is to say on standard error."""
    told, document = "", ""

    def show(watched: Watched) -> None:
        nonlocal told, document
        if watched.told != told:
            told = watched.told
            if told:
                sys.stderr.write(printable(f"hush: {watched.id}: {told}") + "\n")
        text = _dumped(watched.document)
        if watched.document and text != document:
            document = text
            _write(text)

    yield show


def is_drawn() -> bool:
    """Whether standard output is a terminal on which something can be drawn again in its place."""
    return sys.stdout.isatty() and os.environ.get("TERM") not in ("dumb", "unknown")


def _dumped(document: Mapping[str, object]) -> str:
    """In one line of ASCII, so that it cannot write to a terminal."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"))


def _in_a_line(view: View) -> str:
    rounds = "" if view.rounds == 1 else f" round {whole(view.round)},"
    figures = f" {figures_of(view)}," if view.n else ""
    return f"{view.id}:{rounds} {whole(view.n or 0)} counted,{figures} {refusals(view.refused)}, {view.state}"


def _write(text: str) -> None:
    sys.stdout.write(printable(text) + "\n")
    sys.stdout.flush()
