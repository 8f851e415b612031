"""What `hush watch` shows of a task, as a picture on a terminal, as lines of text, or as JSON."""

# A document that another program published may hold anything: fields of another type than expected are left out.

import json
import os
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, TextIO, TypeAlias

from hush_aggregator.estimate.estimates import ANYTIME, Intervals
from hush_aggregator.estimate.result import ForeignResult, read_result, result_in
from hush_aggregator.publish.charts import HEAVY, HEAVY_DOTTED, draw_interval
from hush_aggregator.publish.explain import release_rule
from hush_aggregator.publish.presentation import NumberFormat, interval_name, report_problems
from hush_common.errors import TaskError, printable
from hush_common.formatting import exact, whole
from hush_common.task import Task, decode_task
from hush_common.terminal import Fact, Facts, Renderable, Screen, Sentence, plain, width_of

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text


Ends: TypeAlias = tuple[float, float]
"""Lower and upper end."""

_SHARE: Ends = (0.0, 1.0)
_MOST_IN_A_LINE = 5


@dataclass(frozen=True, slots=True)
class PartView:
    """A part of an estimate with the intervals to show: those that hold at any time, or the final ones."""

    name: str  # of a category or a coordinate; empty for the one number of a task
    value: float | None
    methods: Mapping[str, str]
    intervals: Mapping[str, Ends]
    axis: Ends | None  # the range of its values, if it is known
    wording: NumberFormat


@dataclass(frozen=True, slots=True)
class View:
    """All that is shown of a task."""

    id: str
    title: str
    rounds: int | None = None  # None if the task is not known
    result: ForeignResult | None = None
    parts: Sequence[PartView] = ()
    is_joint: bool = False  # whether the intervals hold simultaneously
    rule: str = ""  # when figures are published; empty without a rule, and if the task is not known

    @property
    def n(self) -> int | None:
        """Reports counted; None before the first estimate."""
        return None if self.result is None else self.result.estimate.n

    @property
    def state(self) -> str:
        if self.result is None or not (self.result.final or self.result.closed):
            return "live"
        return "final" if self.result.final else "closed"


def view_of(task_id: str, document: Mapping[str, object], task: Task | None) -> View:
    """Return the view of a result document, which is empty before the first, and of its task, if that is readable."""
    title, rounds = (task_id, None) if task is None else (task.title or task_id, task.rounds)
    rule = "" if task is None else release_rule(task)
    if not document:
        return View(task_id, title, rounds, rule=rule)
    found = result_in(document)
    parts, is_joint = _parts_of(found, task)
    return View(task_id, title, rounds, found, parts, is_joint, rule)


def figures_of(view: View) -> str:
    """The figures in one line; of many parts the largest few."""
    shown = view.parts if len(view.parts) <= _MOST_IN_A_LINE else _largest(view.parts)[:_MOST_IN_A_LINE]
    words = [_in_words(part) for part in shown]
    more = len(view.parts) - len(shown)
    return ", ".join(words + ([f"and {more} more"] if more else []))


def _largest(parts: Sequence[PartView]) -> list[PartView]:
    return sorted(parts, key=lambda part: -(part.value or 0.0))


def _in_words(part: PartView) -> str:
    if part.value is None:
        return f"{part.name}: no estimate yet" if part.name else "no estimate yet"
    intervals = "".join(
        f" [{interval_name(name, part.methods.get(name, ''))} {part.wording.bare_interval(*ends)}]"
        for name, ends in part.intervals.items()
    )
    return f"{part.name or 'mean'} {part.wording.value(part.value)}{intervals}"


def _parts_of(found: ForeignResult, task: Task | None) -> tuple[Sequence[PartView], bool]:
    """The parts with the intervals to show, and whether those hold simultaneously."""
    known = {} if task is None else {part.name: part for part in task.domain.parts}
    is_share = found.is_share if task is None else task.domain.is_share
    parts = found.estimate.parts
    is_joint = is_share and any(_shown(part.joint_intervals, final=found.final) for part in parts)
    return [
        PartView(
            part.name,
            part.mean,
            part.methods,
            _shown(part.joint_intervals if is_joint else part.intervals, final=found.final),
            known[part.name].axis if part.name in known else _SHARE if is_share else None,
            NumberFormat.of_part(part, is_share=is_share),
        )
        for part in parts
    ], is_joint


def _shown(intervals: Intervals, *, final: bool) -> dict[str, Ends]:
    """While reports arrive, the intervals that hold at any time; the others are for one look, at the end."""
    return {target: ends for target, ends in intervals.items() if target.startswith(ANYTIME) is not final}


_CHANGES_ALONE = {"updated_at", "term", "store", "taken_from"}  # fields that change while nothing is counted


class EventKind(Enum):
    """What a watcher receives."""

    TASK = "the published task, empty once it is cleared"
    ESTIMATE = "a result document, empty once it is cleared"
    CONNECTED = "connected; everything retained has been received"
    LOST = "the connection was lost; the payload is the reason"


class Event(NamedTuple):
    """Something that a watcher received."""

    kind: EventKind
    payload: bytes = b""


@dataclass(slots=True)
class WatchedTask:
    """What has been received about a task."""

    id: str
    task: Task | None = None  # None if it is not published, or this version cannot read it
    published: bool = False  # whether it is published, readable or not
    document: Mapping[str, object] = field(default_factory=dict)  # the last result; empty for none
    notice: str = ""  # what a person should know about the connection or the task

    def update(self, event: Event) -> bool:
        """Apply an event; return whether what is shown has changed."""
        before = self._state()
        match event.kind:
            case EventKind.CONNECTED:
                self.notice = ""
            case EventKind.LOST:
                self.notice = event.payload.decode()
            case EventKind.TASK:
                self._update_task(event.payload)
            case EventKind.ESTIMATE:
                self._update_estimate(event.payload)
        return before != self._state()

    @property
    def nothing(self) -> bool:
        """Whether there is neither a task nor a result."""
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
        return view_of(self.id, self.document, self.task)

    def _state(self) -> object:
        shown = {name: value for name, value in self.document.items() if name not in _CHANGES_ALONE}
        return self.notice, self.published, shown

    def _update_task(self, payload: bytes) -> None:
        was_published, self.published = self.published, bool(payload)
        if not payload:
            if was_published and self.document.get("final") is not True:
                self.notice = "withdrawn or closed: devices no longer answer"
            return
        self.notice = ""
        try:
            task = decode_task(payload)
        except TaskError as error:
            self.task, self.notice = None, f"the published task cannot be read ({error})"
        else:
            self.task = task if task.id == self.id else None

    def _update_estimate(self, payload: bytes) -> None:
        found = read_result(payload)
        if payload and found is None:
            self.notice = "the published estimate is not valid"
        else:
            self.document = {} if found is None else found.document


_MOST_ROUNDS, _MOST_INTERVALS = 4, 6
_SHRUNK = 0.75  # of the interval before: an earlier interval is shown if it is this much narrower
_NARROWEST_BAR, _WIDEST_BAR = 4, 120
_ROOMY_BAR = 10  # with less there are no words next to it
_NOTES = 2  # lines below the parts
_LEAST_PARTS = _NOTES + 3
_INDENT = 2


class PastInterval(NamedTuple):
    """An interval shown before."""

    label: str
    ends: Ends
    value: float | None  # the estimate of an earlier round; None for this one


class PastIntervals:
    """Earlier intervals of a task with one number: the last of each round, and some of the current round.

    Of the current round each is clearly narrower than the one before it.
    """

    def __init__(self) -> None:
        self._rounds: list[PastInterval] = []
        self._this_round: list[tuple[int, Ends]] = []
        self._last: tuple[int, Ends, float | None] | None = None

    def add(self, view: View) -> None:
        if (
            view.result is None
            or len(view.parts) != 1
            or view.parts[0].name
            or not (view.n and view.parts[0].intervals)
        ):
            return
        (part,) = view.parts
        ends = next(iter(part.intervals.values()))
        if self._last is not None and self._last[0] != view.result.round:
            number, last, value = self._last
            self._rounds = [*self._rounds, PastInterval(f"round {whole(number)}", last, value)][-_MOST_ROUNDS:]
            self._this_round = []
        self._last = view.result.round, ends, part.value
        if not self._this_round or _width(ends) < _SHRUNK * _width(self._this_round[-1][1]):
            self._this_round = [*self._this_round, (view.n, ends)][-_MOST_INTERVALS:]

    def before(self, n: int) -> Sequence[PastInterval]:
        """Earlier rounds, then the intervals of fewer reports than `n`."""
        this_round = (PastInterval(_reports(number), ends, None) for number, ends in self._this_round if number < n)
        return [*self._rounds, *this_round]


def picture(view: View, past: PastIntervals, screen: Screen, height: int, notice: str = "") -> list[str]:
    """Draw a view in at most `height` lines, if possible: of many parts as many as fit."""
    head = [*_block(_heading(view, notice), screen)]
    foot = ["", *_block([Facts([*_facts(view)])], screen)]
    room = height - len(head) - len(foot) - 1
    if view.result is None:
        body = _block([Sentence(view.rule or "no estimate yet")], screen)
    elif len(view.parts) == 1 and not view.parts[0].name:
        body = [*_one(view, view.parts[0], past, screen)][: max(room, 1)]
    else:
        body = [*_parts(view, screen, max(room, _LEAST_PARTS))]
    return [*head, "", *body, *foot]


def refusals(refused: Mapping[str, int]) -> str:
    """The number of refused reports, by reason."""
    why = ", ".join(f"{whole(count)} {reason}" for reason, count in refused.items())
    return f"{whole(sum(refused.values()))} refused" + (f": {why}" if why else "")


def _block(blocks: Iterable[Renderable], screen: Screen) -> list[str]:
    return [line for block in blocks for line in block.lines(screen)]


def _heading(view: View, notice: str) -> Iterator[Renderable]:
    yield Sentence(view.title if view.title == view.id else f"{view.title} ({view.id})", "bold")
    found = view.result or result_in({})
    of = f" of 0 to {whole(view.rounds - 1)}" if view.rounds is not None else ""
    rounds = f"round {whole(found.round)}{of}" if view.rounds != 1 else ""
    epsilon = f"epsilon {found.epsilon}" if found.epsilon else ""
    yield Sentence(", ".join(filter(None, (rounds, found.mechanism, epsilon, view.state))), "dim")
    if notice:
        yield Sentence(notice, "red")
    if warnings := report_problems(found.estimate.monitor, found.flags):
        words = " ".join(f"{one.word}. {one.sentence}".strip() for one in warnings)
        yield Sentence(f"Do not rely on this. {words}", "red")


def _facts(view: View) -> Iterator[Fact]:
    if view.result is None:
        return
    if view.rule and not view.n:
        yield Fact("reports", "none published yet")
    else:
        yield Fact("reports", f"{whole(view.result.estimate.n)} counted, {refusals(view.result.refused)}")
    for target, reason in view.result.failures.items():
        yield Fact("note", f"{target} could not be computed: {reason}")
    if view.result.updated_at:
        yield Fact("updated", view.result.updated_at)


def _one(view: View, part: PartView, past: PastIntervals, screen: Screen) -> Iterator[str]:
    """The one number of a task: in words, then its interval below the earlier ones."""
    if part.value is None:
        yield from Sentence(view.rule or "no estimate yet" if not view.n else "no estimate").lines(screen)
        return
    facts = [Fact("estimate", _value(part))]
    facts += [Fact(_label(name, part, view), part.wording.interval(*ends)) for name, ends in part.intervals.items()]
    yield from Facts(facts).lines(screen)
    axis = part.axis or _hull([*part.intervals.values(), *(row.ends for row in past.before(1 << 62))])
    if part.intervals and axis is not None:
        yield ""
        yield from _shrinking(view, part, past, axis, screen)


def _shrinking(view: View, part: PartView, past: PastIntervals, axis: Ends, screen: Screen) -> Iterator[str]:
    """The earlier intervals, the current one with its estimate, and the axis."""
    now = PastInterval(_reports(view.n or 0), next(iter(part.intervals.values())), part.value)
    before, margin = past.before(view.n or 0), " " * _INDENT
    left = max(width_of(row.label) for row in (now, *before))
    width = _bar_width(screen, left)
    for row in before:
        drawn = draw_interval(row.ends, axis, width, value=row.value, signs=HEAVY_DOTTED)
        yield f"{margin}{row.label:>{left}}  {screen.paint(drawn, 'dim')}"
    yield f"{margin}{now.label:>{left}}  {draw_interval(now.ends, axis, width, value=now.value, signs=HEAVY)}"
    low, high = (exact(end, scale=part.wording.factor) for end in axis)
    high = plain(f"{high} {part.wording.unit}".rstrip())
    gap = max(width - width_of(low) - width_of(high), 1)
    yield f"{margin}{'':{left}}  {low}{' ' * gap}{high}"


def _reports(n: int) -> str:
    return f"n = {whole(n)}"


def _parts(view: View, screen: Screen, room: int) -> Iterator[str]:
    """A line for each part: its name, its estimate, its interval in words where there is room, and a bar."""
    shown = _chosen(view, room)
    names = [_cut(plain(part.name), screen.width // 3) for part in shown]
    values = [plain(_value(part)) for part in shown]
    firsts = [next(iter(part.intervals.values()), None) for part in shown]
    words = [
        "" if ends is None else part.wording.bare_interval(*ends) for part, ends in zip(shown, firsts, strict=True)
    ]
    left, middle, right = (max(map(width_of, cells), default=0) for cells in (names, values, words))
    width = _bar_width(screen, left + 2 + middle)
    has_words = width - right - 2 >= _ROOMY_BAR
    width -= right + 2 if has_words else 0
    for name, value, word, ends, part in zip(names, values, words, firsts, shown, strict=True):
        axis, drawn = part.axis or _hull(part.intervals.values()), ""
        if ends is not None and axis is not None:
            drawn = draw_interval(ends, axis, width, value=part.value, signs=HEAVY)
        text = f"{_padded(name, left)}  {' ' * (middle - width_of(value))}{value}  "
        yield " " * _INDENT + (text + (f"{_padded(word, right)}  " if has_words else "") + drawn).rstrip()
    if len(shown) < len(view.parts):
        which = f"the {'largest' if view.is_joint else 'first'} {whole(len(shown))} of {whole(len(view.parts))}"
        yield from Sentence(which, "dim").lines(screen)
    named = {name: part for part in reversed(view.parts) for name in list(part.intervals)[:1]}
    for name, part in named.items():
        yield from Sentence(_label(name, part, view) + (", simultaneous" if view.is_joint else ""), "dim").lines(screen)


def _chosen(view: View, room: int) -> Sequence[PartView]:
    """All parts, or as many as there is room for."""
    if len(view.parts) < room:
        return view.parts
    # To pick the largest is to look at all of them, which takes simultaneous intervals.
    return (_largest(view.parts) if view.is_joint else view.parts)[: room - _NOTES]


def _value(part: PartView) -> str:
    return "none yet" if part.value is None else part.wording.value(part.value)


def _label(name: str, part: PartView, view: View) -> str:
    confidence = None if view.result is None else view.result.confidence
    level = "" if confidence is None else f"{exact(confidence, scale=100)} % "
    return plain(f"{level}{interval_name(name, part.methods.get(name, ''))}")


def _bar_width(screen: Screen, left: int) -> int:
    return min(max(screen.width - _INDENT - left - 2 - 1, _NARROWEST_BAR), _WIDEST_BAR)


def _hull(intervals: Collection[Ends]) -> Ends | None:
    """The axis of a task that is no longer published: from the least to the largest end."""
    return (min(low for low, _ in intervals), max(high for _, high in intervals)) if intervals else None


def _width(ends: Ends) -> float:
    return ends[1] - ends[0]


def _cut(text: str, width: int) -> str:
    """A name that leaves room for its bar."""
    while width_of(text) > width and len(text) > 1:
        text = text[:-2] + "…"
    return text


def _padded(text: str, width: int) -> str:
    return text + " " * (width - width_of(text))


Display: TypeAlias = Callable[[WatchedTask], None]
"""Shows a task whenever it changed."""


@contextmanager
def live_display() -> Iterator[Display]:
    """Draw on the terminal that is standard output, and redraw in place; at the end of the block it is erased."""
    from rich.console import Console  # noqa: PLC0415 - a pipe needs none
    from rich.live import Live  # noqa: PLC0415 - as above

    console = Console(highlight=False, markup=False, emoji=False)
    shown = WatchedTask("")
    past = PastIntervals()

    def draw() -> "Text":
        return _text(console, shown, past)

    with Live(get_renderable=draw, console=console, transient=True, refresh_per_second=4) as live:

        def show(watched: WatchedTask) -> None:
            nonlocal shown
            shown = watched
            past.add(watched.view)
            live.refresh()

        yield show


def _text(console: "Console", watched: WatchedTask, past: PastIntervals) -> "Text":
    """The picture at the current size of the terminal."""
    from rich.text import Text  # noqa: PLC0415 - as above

    width, height = console.size
    screen = replace(Screen.of(sys.stdout), width=max(width, 20), wraps=True)
    found = picture(watched.view, past, screen, height - 1, watched.notice) if watched.id else []
    return Text.from_ansi("\n".join(found), no_wrap=True, overflow="crop")


def line_display(*, as_json: bool) -> Display:
    """Print a line for each change; as JSON each document as it was published, and notices on standard error."""
    notice = last = ""

    def show(watched: WatchedTask) -> None:
        nonlocal notice, last
        if watched.notice != notice:
            notice = watched.notice
            if notice and as_json:
                _write(f"hush: {watched.id}: {notice}", sys.stderr)
            elif notice:
                _write(f"{watched.id}: {notice}", sys.stdout)
        if not watched.document:
            return
        # ASCII, so that it cannot write to a terminal.
        text = json.dumps(watched.document, sort_keys=True, separators=(",", ":")) if as_json else _line(watched.view)
        if not as_json or text != last:
            last = text
            _write(text, sys.stdout)

    return show


def is_interactive() -> bool:
    """Whether standard output is a terminal that can redraw in place."""
    return sys.stdout.isatty() and os.environ.get("TERM") not in ("dumb", "unknown")


def _line(view: View) -> str:
    found = view.result or result_in({})
    rounds = "" if view.rounds == 1 else f" round {whole(found.round)},"
    if view.rule and not view.n:
        return f"{view.id}:{rounds} nothing published yet, {view.state}"
    figures = f" {figures_of(view)}," if view.n else ""
    return f"{view.id}:{rounds} {whole(view.n or 0)} counted,{figures} {refusals(found.refused)}, {view.state}"


def _write(text: str, stream: TextIO) -> None:
    stream.write(printable(text) + "\n")
    stream.flush()
