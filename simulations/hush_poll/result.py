"""The result of a poll: in words for the terminal, and as pictures."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, NamedTuple

from hush_aggregator.estimate.estimates import Interval
from hush_aggregator.estimate.result import encode
from hush_aggregator.publish.explain import largest_loss
from hush_aggregator.publish.presentation import NumberFormat, interval_name, report_problems, with_minus
from hush_aggregator.web.page.figures import primary
from hush_common.epsilon import decimal_text
from hush_common.formatting import exact, whole
from hush_common.terminal import Fact, Facts, Renderable, Sentence
from hush_poll.questions import LARGEST_EPSILON, RELEASE_FROM
from hush_poll.session import Answered
from hush_simulations.display.files import write_picture, write_texts
from hush_simulations.display.style import Palette, Picture, Theme, canvas, finish, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure


_ROOM = 0.02  # of an axis


class _Row(NamedTuple):
    """A figure with its interval: the answer to a question, or one of its labels."""

    name: str
    value: float
    interval: Interval | None
    wording: NumberFormat
    whom: str

    @property
    def text(self) -> str:
        between = "" if self.interval is None else f", {self.wording.interval(*self.interval)}"
        return f"{self.wording.value(self.value)}{between}"


def _rows(answered: Answered) -> Iterator[_Row]:
    result = answered.result
    for part in result.parts if result.n else ():
        if part.mean is None:
            continue
        found = part.joint_intervals or part.intervals
        target = primary(found, part.methods, final=False)  # who ends a poll has watched it: n was not fixed before
        wording = NumberFormat.of_part(part, is_share=result.is_share, unit=result.task.unit)
        name = part.name or ("share of yes" if result.is_share else "average")
        whom = "" if target is None else interval_name(target, part.methods.get(target, ""))
        yield _Row(name, part.mean, found.get(target or ""), wording, whom)


def blocks(ended: Sequence[Answered]) -> list[Renderable]:
    """Return what is printed at the end: the results, and what each phone spent."""
    found: list[Renderable] = []
    for one in ended:
        rows = list(_rows(one))
        facts = [Fact("answers", whole(one.answers))]
        if rows:
            confidence = exact(one.result.confidence, scale=100)
            facts += [Fact(row.name, row.text) for row in rows]
            facts.append(Fact("intervals", f"{confidence} %, {rows[0].whom}"))
        else:
            facts.append(Fact("estimate", f"none: hush poll shows no estimate below {RELEASE_FROM} answers"))
        for problem in report_problems(one.result.estimate.monitor, one.result.flags) if rows else ():
            facts.append(Fact("WARNING", problem.word, problem.sentence))
        loss = largest_loss(one.result.task)
        facts.append(Fact("each phone spent", f"epsilon {decimal_text(loss.epsilon)}", loss.sentence))
        found += [Sentence(one.result.task.title, "bold"), Facts(facts, indent=4), Sentence("")]
    found.append(Sentence(_spent(ended)))
    return found


def _spent(ended: Sequence[Answered]) -> str:
    total = decimal_text(sum((one.result.task.epsilon for one in ended), start=0 * ended[0].result.task.epsilon))
    what = "the question" if len(ended) == 1 else f"all {len(ended)} questions"
    return (
        f"A phone that answered {what} spent epsilon {total}. Its limit is {LARGEST_EPSILON} for one purpose; its page "
        "shows what it has spent."
    )


def write_documents(ended: Sequence[Answered], directory: Path) -> list[Path]:
    """Write a document for each question; return their paths."""
    texts = {name: encode(one.result.to_document()).decode() for name, one in _named(ended)}
    return write_texts(directory, {f"{name}.json": f"{text}\n" for name, text in texts.items()})


def write_pictures(ended: Sequence[Answered], directory: Path, theme: Theme) -> list[Path]:
    """Write a picture for each question; return their paths."""
    return [path for name, one in _named(ended) for path in write_picture(directory, picture_of(one), name, theme)]


def _named(ended: Sequence[Answered]) -> Iterator[tuple[str, Answered]]:
    """Return each end with the name of its files."""
    for number, one in enumerate(ended, 1):
        yield "result" if len(ended) == 1 else f"question-{number}", one


def picture_of(answered: Answered) -> Picture:
    """Return the picture of a result: each figure with its interval."""
    rows = list(_rows(answered))
    title = answered.result.task.title
    said = "; ".join(f"{row.name}: {row.text}" for row in rows) or "no estimate"
    return Picture(title, f"{whole(answered.answers)} answers. {said}", lambda palette: _draw(answered, rows, palette))


def _draw(answered: Answered, rows: Sequence[_Row], palette: Palette) -> "Figure":
    result = answered.result
    domain = result.task.domain.parts[0]
    with styled(palette):
        figure = canvas(2.0 + 0.5 * max(len(rows), 1))
        axes = figure.subplots()
        for place, row in enumerate(rows):
            factor = row.wording.factor
            if row.interval is not None:
                ends = [factor * end for end in row.interval]
                axes.plot(ends, (place, place), "|-", color=palette.ink, lw=2.2, ms=12, mew=2.2)
            axes.plot(factor * row.value, place, "o", color=palette.noisy, ms=9, mec=palette.ink)
        names = [
            f"{row.name}\n{with_minus(row.wording.value(row.value))}" if len(rows) == 1 else fill(row.name, 24)
            for row in rows
        ]
        axes.set_yticks(range(len(rows)), names)
        axes.set_ylim(len(rows) - 0.4 if rows else 0.6, -0.6)
        factor, unit = (100, "%") if result.is_share else (1, result.task.unit)
        shown = [factor * end for end in (*domain.axis, *(row.value for row in rows))]  # noise may exceed the bounds
        room = _ROOM * (max(shown) - min(shown))  # for the ends of intervals at a bound
        axes.set_xlim(min(shown) - room, max(shown) + room)
        what = f"{'share' if result.is_share else 'average'}{f' ({unit})' if unit else ''}"
        confidence = exact(result.confidence, scale=100)
        many = "s" if len(rows) > 1 else ""
        axes.set_xlabel(f"{what}, {confidence} % interval{many}: {rows[0].whom}" if rows else what)
        count = f"{whole(answered.answers)} answer{'' if answered.answers == 1 else 's'}"
        axes.set_title(f"{fill(result.task.title, 60)}\n{count}{'' if rows else ', no estimate'}")
        finish(figure)
    return figure
