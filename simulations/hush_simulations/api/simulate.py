"""`hush.simulate`: devices, a broker and an aggregator from a program or a notebook."""

import logging
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path

from hush_common.aio import run_blocking
from hush_common.domain import Domain
from hush_common.epsilon import WEAK_ABOVE, decimal_text
from hush_simulations.api.arguments import Epsilon, experiment_of
from hush_simulations.api.run import Run
from hush_simulations.engines import live
from hush_simulations.engines.bulk import engine as bulk
from hush_simulations.scenarios.population import Observed
from hush_simulations.scenarios.scenario import Scenario
from hush_simulations.scenarios.sentinels import hints

__all__ = ["Progress", "simulate", "simulate_async"]

Progress = Callable[[int, int], object]
"""Called with the number of answers that are counted, refused or declined so far, and with that of all."""


def simulate(
    scenario: str | Path | Scenario = "heights",
    *,
    data: object = None,
    column: str | None = None,
    domain: Mapping[str, object] | Domain | None = None,
    missing: str | None = None,
    csv: Mapping[str, str] | None = None,
    epsilon: Epsilon | None = None,
    mechanism: str | None = None,
    clients: int | None = None,
    rounds: int | None = None,
    engine: str = "mqtt",
    broker: str = "embedded",
    draw: str = "auto",
    workers: int = 1,
    dask: str | None = None,
    seed: int | None = None,
    confidence: float = 0.95,
    progress: Progress | None = None,
) -> Run:
    """Simulate devices that answer a question under local differential privacy, and compare with the truth.

    What runs is what is deployed: the real client and the real aggregator. Where an event loop runs already, as in a
    notebook, the simulation has a thread of its own, in which `progress` is called. Ctrl-C ends it.

    Args:
        scenario: a name in `hush.SCENARIOS`, the path of a TOML file, or a `hush.Scenario`.
        data: values of your own, one device each: a list, a numpy array, a series or a data frame (pandas, polars,
            pyarrow), or the path of a CSV or Parquet file, read as the command reads it. With a `domain` they are a
            question of their own, without one the people of another `scenario`.
        column: which column of a data frame or a file; a vector takes those that are named as its coordinates.
        domain: the legal values of `data`, as in a task file or as an object, from public knowledge.
        missing: what becomes of rows of `data` without a value (None, NaN): "drop" leaves them out, "replace" asks
            devices without a value; the result counts them. Without it they are refused.
        csv: of a CSV file what is not certain: "delimiter", "encoding", "header", "decimal"; and for a yes/no question
            the text that means "yes".
        epsilon: privacy loss over all rounds; smaller is more private.
        mechanism: how a device perturbs, by its name in a task file; "auto" for the best there is.
        clients: how many devices report; with `data`, each row is one, or this many are drawn from the rows, with
            replacement.
        rounds: how often every device is asked.
        engine: "mqtt" (real sockets), "memory", or "bulk": no devices and no broker, but numbers drawn from the same
            law; for up to 10^9 devices.
        broker: "embedded", "mosquitto", or the address of one that runs.
        draw: in bulk, "tally" draws the sums of all reports at once, "devices" every report; "auto" the former where
            that says everything, or there are many.
        workers: in bulk, how many draw devices at a time. The result is the same with any number.
        dask: in bulk, the scheduler of a Dask cluster whose workers draw devices instead, "tcp://scheduler:8786".
        seed: fixes the population, not the noise; in bulk the noise too.
        confidence: coverage of the error bars.
        progress: called as the answers are counted; what it raises ends the simulation.

    Raises:
        OptionError: an argument that cannot be used; it is named, with the remedy.
        TaskError: the question is no legal task.
        BrokerError: no broker, a login refused, or a connection that stays lost.
    """
    return run_blocking(
        simulate_async(
            scenario,
            data=data,
            column=column,
            domain=domain,
            missing=missing,
            csv=csv,
            epsilon=epsilon,
            mechanism=mechanism,
            clients=clients,
            rounds=rounds,
            engine=engine,
            broker=broker,
            draw=draw,
            workers=workers,
            dask=dask,
            seed=seed,
            confidence=confidence,
            progress=progress,
        )
    )


async def simulate_async(
    scenario: str | Path | Scenario = "heights",
    *,
    data: object = None,
    column: str | None = None,
    domain: Mapping[str, object] | Domain | None = None,
    missing: str | None = None,
    csv: Mapping[str, str] | None = None,
    epsilon: Epsilon | None = None,
    mechanism: str | None = None,
    clients: int | None = None,
    rounds: int | None = None,
    engine: str = "mqtt",
    broker: str = "embedded",
    draw: str = "auto",
    workers: int = 1,
    dask: str | None = None,
    seed: int | None = None,
    confidence: float = 0.95,
    progress: Progress | None = None,
) -> Run:
    """As `simulate`, in the event loop of the caller."""
    experiment = experiment_of(
        scenario,
        data=data,
        column=column,
        domain=domain,
        missing=missing,
        csv=csv,
        epsilon=epsilon,
        mechanism=mechanism,
        clients=clients,
        rounds=rounds,
        engine=engine,
        broker=broker,
        draw=draw,
        workers=workers,
        dask=dask,
        seed=seed,
        confidence=confidence,
    )
    for name in ("hush", "hush_client"):  # an outage that lasts is an error, and told once
        logging.getLogger(name).addHandler(logging.NullHandler())
    if isinstance(people := experiment.scenario.population, Observed):
        for hint in hints(people, experiment.task.domain):
            text = f'{hint}; if that is a code for a missing value, pass None in its place, and missing="drop"'
            warnings.warn(text, UserWarning, stacklevel=2)
    total = experiment.clients * experiment.task.rounds

    raised: list[Exception] = []

    def told(counted: int) -> None:
        try:
            if progress is not None:
                progress(counted, total)
        except Exception as error:
            raised.append(error)
            raise

    try:
        outcome = await (bulk if experiment.engine == "bulk" else live).simulate(experiment, told)
    except ExceptionGroup as errors:
        raise (raised or [errors])[0] from None
    run = Run.of(experiment, outcome)
    _warn(run)
    return run


def _warn(run: Run) -> None:
    if run.task.epsilon > WEAK_ABOVE:
        shown = decimal_text(run.task.epsilon)
        text = f"epsilon {shown} protects little; a real device refuses it unless its owner agrees"
        warnings.warn(text, UserWarning, stacklevel=2)
    if run.lost and not run.experiment.scenario.faults.forgotten:
        text = f"the broker acknowledged {run.lost} reports that never reached the aggregator; try broker='mosquitto'"
        warnings.warn(text, RuntimeWarning, stacklevel=2)
