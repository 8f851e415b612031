"""`hush.simulate`: devices, a broker and an aggregator from a program or a notebook."""

import logging
import warnings
from collections.abc import Callable

from hush_common.aio import run_blocking
from hush_common.epsilon import WEAK_ABOVE, decimal_text
from hush_simulations.api.options import SimulationOptions, with_arguments_of
from hush_simulations.engines.experiment import Experiment, Outcome
from hush_simulations.results.run import Run
from hush_simulations.scenarios.population import Observed


class SimulationWarning(UserWarning):
    """Something about a simulation that a person should know before relying on it."""


class LostReportsWarning(RuntimeWarning):
    """The broker acknowledged reports that never reached the aggregator."""


@with_arguments_of(SimulationOptions)
def simulate(options: SimulationOptions) -> Run:  # noqa: D417 - its arguments are the fields of the options
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
        missing: what happens to rows of `data` without a value (None, NaN): "drop" leaves them out, "replace" asks
            devices without a value; the result counts them. Without it they are refused.
        csv: of a CSV file what is not certain: "delimiter", "encoding", "header", "decimal"; and for a yes/no question
            the text that means "yes".
        epsilon: privacy loss over all rounds; smaller is more private.
        mechanism: how a device perturbs, by its name in a task file; "auto" for the best there is.
        clients: how many devices report; with `data`, each row is one, or this many are drawn from the rows, with
            replacement.
        rounds: how often every device is asked.
        shares: of the devices that take each epsilon on offer, whatever they add up to; equal if left out.
        engine: "mqtt" (real sockets), "memory", or "bulk": no devices and no broker, but numbers drawn from the same
            law; for up to 10^9 devices.
        broker: with "mqtt": "embedded" if left out, "mosquitto", or the address of one that runs.
        connections: gateways that share the devices; 20 with "mqtt" if left out.
        draw: in bulk, "tally" draws the sums of all reports at once, "devices" every report; "auto" the former where
            that says everything, or there are many.
        workers: in bulk, how many draw devices at a time; 1 if left out. The result is the same with any number.
        dask: in bulk, the scheduler of a Dask cluster whose workers draw devices instead, "tcp://scheduler:8786".
        seed: fixes the population, not the noise; in bulk the noise too.
        deterministic_noise: draws the noise from the seed: repeatable, and NOT private.
        confidence: coverage of the error bars.
        progress: called as the answers are counted; what it raises ends the simulation.
        look: called with the result so far, a few times a second; not in bulk.
        stop: once it is set, by `progress` for example, no further device is asked, and what was sent is counted.

    Raises:
        OptionError: an argument that cannot be used; it is named, with the remedy.
        TaskError: the question is not a legal task.
        BrokerError: no broker, a login refused, or a connection that stays lost.
    """
    return run_blocking(_simulate(options))


@with_arguments_of(SimulationOptions)
async def simulate_async(options: SimulationOptions) -> Run:
    """As `simulate`, in the event loop of the caller."""
    return await _simulate(options)


async def _simulate(options: SimulationOptions) -> Run:
    experiment = options.experiment()
    for name in ("hush", "hush_client"):  # an outage that lasts is an error, reported once
        logging.getLogger(name).addHandler(logging.NullHandler())
    _warn(experiment)
    total, raised = experiment.clients * experiment.task.rounds, list[Exception]()

    def count(counted: int) -> None:
        try:
            if options.progress is not None:
                options.progress(counted, total)
        except Exception as error:
            raised.append(error)
            raise

    try:
        run = Run.of(experiment, await _outcome(experiment, count, options))
    except ExceptionGroup as errors:
        raise (raised or [errors])[0] from None
    if run.lost and not experiment.scenario.faults.forgotten:
        text = f"the broker acknowledged {run.lost} reports that never reached the aggregator; try broker='mosquitto'"
        warnings.warn(text, LostReportsWarning, stacklevel=2)
    return run


async def _outcome(experiment: Experiment, count: Callable[[int], None], options: SimulationOptions) -> Outcome:
    """Run the engine, which is loaded when it is used."""
    if experiment.engine == "bulk":
        from hush_simulations.engines.bulk import engine as bulk  # noqa: PLC0415

        return await bulk.simulate(experiment, count, options.stop)
    from hush_simulations.engines import live  # noqa: PLC0415

    return await live.simulate(experiment, count, options.look, options.stop)


def _warn(experiment: Experiment) -> None:
    """Warn before the simulation about what its result is not."""
    task, people = experiment.task, experiment.scenario.population
    found = []
    if experiment.noise_seed is not None:
        found.append("the noise is NOT private: anyone who knows the seed can subtract it")
    if task.epsilon > WEAK_ABOVE:
        shown = decimal_text(task.epsilon)
        found.append(f"epsilon {shown} protects little; a real device refuses it unless its owner agrees")
    if isinstance(people, Observed):
        from hush_simulations.scenarios.python_data import hints  # noqa: PLC0415 - for a person's own data alone

        remedy = 'if that is a code for a missing value, empty those cells (None) and set missing="drop"'
        found += [f"{hint}; {remedy}" for hint in hints(people, task.domain)]
    for text in found:
        warnings.warn(text, SimulationWarning, stacklevel=3)
