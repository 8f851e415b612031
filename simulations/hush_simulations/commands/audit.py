"""`hush audit`: how much a mechanism gives away, measured on samples of the code that runs on a device."""

import json
from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from hush_common.epsilon import parse_epsilon
from hush_common.errors import HushError, OptionError
from hush_common.mechanisms.registry import known
from hush_common.rng import Rng, SystemRng
from hush_common.task import read_task
from hush_common.terminal import show
from hush_simulations.auditing.audit import (
    Finding,
    Subject,
    audit,
    default_samples,
    highest_bound,
    mechanism_subject,
    own_subject,
    task_subjects,
)
from hush_simulations.commands.options import parse_confidence, parse_seed, value_option
from hush_simulations.display.plan_table import audit_blocks
from hush_simulations.display.progress import progress_lines
from hush_simulations.engines.experiment import SeededRng

_FEWEST, _MOST = 100, 100_000_000
_BLOCK = 2000
_COINS = 1  # the stream of a seed that tosses the coins; the mechanism draws from another

app: typer.Typer = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


class ViolationError(HushError):
    """A mechanism gives away more than it declares."""


@app.command()
def run(
    mechanism: Annotated[
        str | None, typer.Argument(metavar="[MECHANISM|module:function]", help="All mechanisms of hush if left out.")
    ] = None,
    *,
    task: Annotated[Path | None, value_option("FILE", "The mechanism of a task file instead.")] = None,
    epsilon: Annotated[
        str | None, value_option("EPS", "Claimed epsilon of one report; 1 for hush's own mechanisms.")
    ] = None,
    inputs: Annotated[
        tuple[str, str] | None, value_option("A B", "Two values for your own function, as JSON or text.")
    ] = None,
    categories: Annotated[
        int, typer.Option(metavar="K", min=2, max=1024, help="Number of categories, for subset_selection.")
    ] = 8,
    coordinates: Annotated[
        int, typer.Option(metavar="D", min=1, max=1024, help="Number of coordinates, for vector.")
    ] = 4,
    samples: Annotated[
        int | None, value_option("N", "Reports drawn for each of the two inputs; chosen by epsilon if not given.")
    ] = None,
    confidence: Annotated[
        float, typer.Option(parser=parse_confidence, help="The false-alarm probability is at most 1 - P.")
    ] = 0.99,
    seed: Annotated[int | None, typer.Option(parser=parse_seed, help="Repeatable draws of hush's mechanisms.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """Measure a lower bound of epsilon on real reports, and compare it with the claimed epsilon. Exit 1: violation."""
    if samples is not None and not _FEWEST <= samples <= _MOST:
        raise OptionError("--samples", f"{samples} is outside {_FEWEST} to {_MOST}; {default_samples(1)} is usual")
    rng, coins = (SystemRng(), SystemRng()) if seed is None else (SeededRng(seed), SeededRng(seed, _COINS))
    subjects = _subjects(mechanism, task=task, epsilon=epsilon, inputs=inputs, sizes=(categories, coordinates), rng=rng)
    single = float(1 - (1 - Fraction(repr(confidence))) / len(subjects))  # Bonferroni: together at `confidence`
    findings = [_audited(subject, samples or _usual(subject), single, coins) for subject in subjects]
    if as_json:
        document = {"confidence": confidence, "audits": [one.to_document() for one in findings]}
        print(json.dumps(document, indent=2, ensure_ascii=False))
    else:
        show(audit_blocks(findings, confidence))
    guilty = [one.name for one in findings if one.is_violation]
    if guilty:
        raise ViolationError(f"VIOLATION: the claimed epsilon is exceeded by {'; '.join(guilty)}")


def _subjects(
    mechanism: str | None,
    *,
    task: Path | None,
    epsilon: str | None,
    inputs: tuple[str, str] | None,
    sizes: tuple[int, int],
    rng: Rng,
) -> list[Subject]:
    own = mechanism is not None and ":" in mechanism
    if own and inputs is None:
        raise OptionError("--inputs", f"is missing; write two values for {mechanism}, as in --inputs 0 1")
    if inputs is not None and not own:
        raise OptionError(
            "--inputs", "is for your own module:function; hush's mechanisms are audited at their extremes"
        )
    if task is not None:
        if mechanism is not None or epsilon is not None:
            raise OptionError("--task", "says mechanism and epsilon itself; leave out MECHANISM and --epsilon")
        return task_subjects(read_task(task), rng)
    declared = None if epsilon is None else parse_epsilon(epsilon, field="--epsilon")
    if mechanism is not None and inputs is not None:
        return [own_subject(mechanism, (_value(inputs[0]), _value(inputs[1])), declared)]
    names = [kind.name for kind in known()] if mechanism is None else [mechanism]
    return list(_by_name(names, declared or Fraction(1), sizes, rng))


def _by_name(names: Sequence[str], epsilon: Fraction, sizes: tuple[int, int], rng: Rng) -> Iterator[Subject]:
    for name in names:
        try:
            yield mechanism_subject(name, epsilon, *sizes, rng)
        except OptionError:
            if len(names) == 1:
                raise  # among all, one that there is not at this epsilon is left out


def _value(text: str) -> object:
    """Return a JSON value, a list as a tuple; other text as it is."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return tuple(value) if isinstance(value, list) else value


def _usual(subject: Subject) -> int:
    return default_samples(1.0 if subject.declared is None else float(subject.declared))


def _audited(subject: Subject, samples: int, confidence: float, coins: Rng) -> Finding:
    sides, reports = _draw(subject, samples, coins)
    return Finding(
        name=subject.name,
        samples=samples,
        declared=subject.declared,
        inputs=subject.inputs,
        measured=audit(sides, reports, subject.views(reports), confidence),
        highest_bound=highest_bound(samples, confidence),
    )


def _draw(subject: Subject, samples: int, coins: Rng) -> tuple[list[int], list[object]]:
    """Draw `samples` reports of each input on average, each of the input that a fair coin chose."""
    sides: list[int] = []
    reports: list[object] = []
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    tick = (lambda _: None) if console.is_terminal else progress_lines(f"reports of {subject.name} drawn", 2 * samples)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        bar = progress.add_task(subject.name, total=2 * samples)
        for start in range(0, 2 * samples, _BLOCK):
            count = min(_BLOCK, 2 * samples - start)
            tossed = coins.randbelow(1 << count)
            block = [tossed >> place & 1 for place in range(count)]
            reports.extend(map(subject.draw, block))
            sides += block
            progress.advance(bar, count)
            tick(len(sides))
    return sides, reports
