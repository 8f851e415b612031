"""`hush.audit`: measure from samples of the code that runs on a device how much a mechanism gives away."""

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from pathlib import Path

from hush_common.epsilon import parse_epsilon
from hush_common.errors import OptionError
from hush_common.mechanisms.registry import known
from hush_common.rng import Rng, SystemRng
from hush_common.task import Task, read_task
from hush_simulations.api.simulate import Epsilon, confidence_of, epsilon_of, whole_of
from hush_simulations.auditing.audit import (
    Audit,
    Finding,
    Subject,
    default_samples,
    highest_bound,
    mechanism_subject,
    own_subject,
    task_subjects,
)
from hush_simulations.auditing.audit import (
    audit as measure,
)
from hush_simulations.engines.experiment import SEED, SeededRng, Whole

_BLOCK = 2000
_COINS = 1  # the stream of a seed that tosses the coins; the mechanism draws from another
_SAMPLES = Whole(100, 100_000_000, "how many reports of each input are drawn", default_samples(1))

Progress = Callable[[str, int, int], object]
"""Called with the mechanism, the number of its reports drawn so far, and that of all."""


def audit(
    mechanism: str | Callable[[object], object] | None = None,
    *,
    task: Task | str | Path | None = None,
    epsilon: Epsilon | None = None,
    inputs: tuple[object, object] | None = None,
    categories: int = 8,
    coordinates: int = 4,
    samples: int | None = None,
    confidence: float = 0.99,
    seed: int | None = None,
    progress: Progress | None = None,
) -> Audit:
    """Measure a lower bound of the epsilon of real reports, and compare it with the claimed one.

    Args:
        mechanism: a mechanism of hush by name, a function of your own from a value to a report, or the path of one,
            "module:function"; every mechanism of hush if left out.
        task: its mechanism instead; a task, or the path of a task file.
        epsilon: claimed, of one report; 1 for hush's own mechanisms if left out.
        inputs: two values for your own function.
        categories: number of categories, for subset_selection.
        coordinates: number of coordinates, for vector.
        samples: reports drawn for each of the two inputs, 100 to 10^8; chosen by epsilon if left out.
        confidence: the probability of a false violation, in all verdicts together, is at most 1 less this.
        seed: makes the draws of hush's own mechanisms repeatable.
        progress: called while reports are drawn.

    Raises:
        OptionError: an argument that cannot be used.
        HushError: your own function fails, or its reports cannot be compared.
    """
    confidence = confidence_of(confidence)
    drawn = None if samples is None else whole_of("samples", samples, _SAMPLES)
    seed = None if seed is None else whole_of("seed", seed, SEED)
    rng, coins = (SystemRng(), SystemRng()) if seed is None else (SeededRng(seed), SeededRng(seed, _COINS))
    claimed = None if epsilon is None else parse_epsilon(epsilon_of(epsilon))
    if task is None:
        subjects = _subjects(mechanism, claimed, inputs, (categories, coordinates), rng)
    elif mechanism is None and claimed is None and inputs is None:
        subjects = task_subjects(task if isinstance(task, Task) else read_task(Path(task)), rng)
    else:
        raise OptionError("task", "says mechanism, epsilon and inputs itself; leave those out")
    single = float(1 - (1 - Fraction(repr(confidence))) / len(subjects))  # Bonferroni: together at `confidence`
    findings = [_found(subject, drawn or _usual(subject), single, coins, progress) for subject in subjects]
    return Audit(findings=tuple(findings), confidence=confidence)


def _subjects(
    mechanism: str | Callable[[object], object] | None,
    claimed: Fraction | None,
    inputs: tuple[object, object] | None,
    sizes: tuple[int, int],
    rng: Rng,
) -> list[Subject]:
    own = mechanism if callable(mechanism) or (mechanism is not None and ":" in mechanism) else None
    if own is not None and inputs is None:
        raise OptionError("inputs", "is missing; pass two values for your own function, as in inputs=(0, 1)")
    if inputs is not None and own is None:
        raise OptionError("inputs", "is for your own module:function; hush's mechanisms are audited at their extremes")
    if own is not None and inputs is not None:
        return [own_subject(own, inputs, claimed)]
    names = [kind.name for kind in known()] if mechanism is None else [str(mechanism)]
    return list(_by_name(names, claimed or Fraction(1), sizes, rng))


def _by_name(names: Sequence[str], epsilon: Fraction, sizes: tuple[int, int], rng: Rng) -> Iterator[Subject]:
    for name in names:
        try:
            yield mechanism_subject(name, epsilon, *sizes, rng)
        except OptionError:
            if len(names) == 1:
                raise  # among all, one that there is not at this epsilon is left out


def _usual(subject: Subject) -> int:
    return default_samples(1.0 if subject.declared is None else float(subject.declared))


def _found(subject: Subject, samples: int, confidence: float, coins: Rng, progress: Progress | None) -> Finding:
    sides, reports = _draw(subject, samples, coins, progress)
    return Finding(
        name=subject.name,
        samples=samples,
        declared=subject.declared,
        inputs=subject.inputs,
        measured=measure(sides, reports, subject.views(reports), confidence),
        highest_bound=highest_bound(samples, confidence),
    )


def _draw(subject: Subject, samples: int, coins: Rng, progress: Progress | None) -> tuple[list[int], list[object]]:
    """Draw `samples` reports of each input on average, each of the input that a fair coin chose."""
    sides: list[int] = []
    reports: list[object] = []
    for start in range(0, 2 * samples, _BLOCK):
        count = min(_BLOCK, 2 * samples - start)
        tossed = coins.randbelow(1 << count)
        block = [tossed >> place & 1 for place in range(count)]
        reports.extend(map(subject.draw, block))
        sides += block
        if progress is not None:
            progress(subject.name, len(sides), 2 * samples)
    return sides, reports
