"""`hush audit`: how much a mechanism gives away, measured on samples of the code that runs on a device."""

import json
from pathlib import Path
from typing import Annotated

from hush_common.epsilon import parse_epsilon
from hush_common.errors import HushError
from hush_common.options import Argument, Commands, Option
from hush_common.output import print_json
from hush_common.terminal import show
from hush_simulations.api.audit import audit
from hush_simulations.commands.options import (
    MECHANISMS,
    SIMULATED,
    JsonOption,
    in_words_of_the_command,
    parse_confidence,
    parse_seed,
)
from hush_simulations.display.plan_table import audit_blocks
from hush_simulations.display.progress import show_progress

_ARGUMENTS = ("task", "epsilon", "inputs", "samples", "seed", "confidence")

app: Commands = Commands()


class ViolationError(HushError):
    """A mechanism gives away more than it declares."""


@app.command()
def run(
    mechanism: Annotated[
        str | None,
        Argument(values=MECHANISMS, metavar="[MECHANISM|module:function]", help="All mechanisms of hush if left out."),
    ] = None,
    *,
    task: Annotated[Path | None, Option(metavar="FILE", help="The mechanism of a task file instead.")] = None,
    epsilon: Annotated[
        str | None, Option(metavar="EPS", help="Claimed epsilon of one report; 1 for hush's own mechanisms.")
    ] = None,
    inputs: Annotated[
        tuple[str, str] | None, Option(metavar="A B", help="Two values for your own function, as JSON or text.")
    ] = None,
    categories: Annotated[
        int, Option(metavar="K", min=2, max=1024, help="Number of categories, for subset_selection.")
    ] = 8,
    coordinates: Annotated[int, Option(metavar="D", min=1, max=1024, help="Number of coordinates, for vector.")] = 4,
    samples: Annotated[
        int | None,
        Option(metavar="N", help="Reports drawn for each of the two inputs; chosen by epsilon if not given."),
    ] = None,
    confidence: Annotated[
        float, Option(metavar="X", parser=parse_confidence, help="The false-alarm probability is at most 1 - X.")
    ] = 0.99,
    seed: Annotated[
        int | None,
        Option(group=SIMULATED, metavar="N", parser=parse_seed, help="Repeatable draws of hush's mechanisms."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Measure a lower bound of epsilon on real reports, and compare it with the claimed epsilon. Exit 1: violation."""
    given = None if inputs is None else (_value(inputs[0]), _value(inputs[1]))
    with in_words_of_the_command(_ARGUMENTS), show_progress() as (tick, _):
        done = audit(
            mechanism,
            task=task,
            epsilon=None if epsilon is None else parse_epsilon(epsilon, field="--epsilon"),
            inputs=given,
            categories=categories,
            coordinates=coordinates,
            samples=samples,
            confidence=confidence,
            seed=seed,
            progress=lambda name, done, total: tick(f"reports of {name} drawn", done, total),
        )
    if as_json:
        print_json(done.to_document())
    else:
        show(audit_blocks(done.findings, done.confidence))
    if done.violations:
        guilty = "; ".join(one.name for one in done.violations)
        raise ViolationError(f"VIOLATION: the claimed epsilon is exceeded by {guilty}")


def _value(text: str) -> object:
    """Return a JSON value, a list as a tuple; other text as it is."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return tuple(value) if isinstance(value, list) else value
