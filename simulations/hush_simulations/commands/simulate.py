"""`hush simulate`: a population of devices, a broker and an aggregator; one table at the end."""

import asyncio
import hashlib
import json
import math
import platform
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, TextIO, get_args

import numpy as np
import typer
from pydantic import BaseModel, ConfigDict, ValidationError

from hush_common.domain import NumberDomain
from hush_common.epsilon import decimal_text, parse_epsilon
from hush_common.errors import BrokerError, OptionError
from hush_common.mechanisms.registry import known
from hush_common.options import OUTPUT, Argument, Commands, Option
from hush_common.output import files_first, print_json
from hush_common.terminal import Renderable, note, show
from hush_simulations.api.simulate import LostReportsWarning, SimulationOptions, SimulationWarning, simulate_async
from hush_simulations.brokers.choice import is_external, parse_broker
from hush_simulations.commands.options import (
    INTERRUPTED,
    MECHANISMS,
    OWN_DATA,
    SIMULATED,
    JsonOption,
    PlotOption,
    ThemeOption,
    check_theme,
    in_words_of_the_command,
    parse_confidence,
    parse_connections,
    parse_count,
    parse_drawing,
    parse_engine,
    parse_rounds,
    parse_seed,
    parse_shares,
    parse_workers,
    run_to_end,
    stopped_in_words,
    with_options,
)
from hush_simulations.commands.own_data import CsvFields, OwnData, scenario_of_file
from hush_simulations.display.files import prepare, to_json, write_files
from hush_simulations.display.progress import Tick, show_progress
from hush_simulations.display.style import Theme
from hush_simulations.display.table import every_figure, run_blocks
from hush_simulations.engines.experiment import SYSTEM, Drawing, Engine, Experiment, StoppedError
from hush_simulations.results.run import Run
from hush_simulations.scenarios.scenario import Scenario
from hush_simulations.scenarios.scenario_file import SCENARIOS, find_scenario, text_of

_OF_THE_CLOCK = frozenset(("elapsed_s", "reports_per_s", "updated_at", "digest"))
"""What no run has in common with another: a task that opens now has another digest than one that opened then."""

_WITHOUT_NOISE = frozenset(("clients", "truth", "clamped", "chosen", "data", "engine", "seed", "epsilon_spent"))
"""What of a run does not depend on its noise."""

_TOLERANCE = 1e-12


def is_repeatable(document: object) -> bool:
    """Whether the noise of a run follows from its seed."""
    return isinstance(document, dict) and document.get("noise") != SYSTEM


def differences(before: object, after: object) -> list[str]:
    """List each figure that differs, as `name: then, now`; with system noise only what does not depend on it."""
    if not is_repeatable(before) or not is_repeatable(after):
        before, after = _without_noise(before), _without_noise(after)
    return list(_differing("", before, after))


def _without_noise(document: object) -> object:
    if not isinstance(document, dict):
        return document
    return {name: value for name, value in document.items() if name in _WITHOUT_NOISE}


def _differing(name: str, before: object, after: object) -> Iterator[str]:
    if isinstance(before, dict) and isinstance(after, dict):
        for key in dict.fromkeys((*before, *after)):
            if key not in _OF_THE_CLOCK:
                yield from _differing(f"{name}.{key}".lstrip("."), before.get(key), after.get(key))
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for place, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from _differing(f"{name}[{place}]", one, other)
    elif not _same(before, after):
        yield f"{name}: {_said(before)}, now {_said(after)}"


def _same(before: object, after: object) -> bool:
    if isinstance(before, float) and isinstance(after, float):
        return math.isclose(before, after, rel_tol=_TOLERANCE, abs_tol=0.0)
    return type(before) is type(after) and before == after


def _said(value: object) -> str:
    return "nothing" if value is None else str(value)[:60]


_ARGUMENTS = frozenset(field.name for field in fields(SimulationOptions))
_OF_NUMBERS = ", ".join(kind.name for kind in known() if kind.fits is NumberDomain)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request(CsvFields):
    """The options as given; None if left out. Those that need no other are parsed."""

    scenario: Annotated[
        str | None,
        Argument(
            values=SCENARIOS,
            metavar="[SCENARIO|FILE.toml]",
            help=f"{', '.join(SCENARIOS)}; or a file. heights if left out.",
        ),
    ] = None
    clients: Annotated[int | None, Option(metavar="N", help="Devices that report.", parser=parse_count)] = None
    epsilon: Annotated[str | None, Option(metavar="X", help="Epsilon over all rounds, as a decimal number.")] = None
    mechanism: Annotated[
        str | None, Option(values=MECHANISMS, metavar="NAME", help=f"{_OF_NUMBERS} or auto for numbers.")
    ] = None
    rounds: Annotated[
        int | None, Option(metavar="N", help="Number of rounds: how often every device is asked.", parser=parse_rounds)
    ] = None
    seed: Annotated[
        int | None,
        Option(group=SIMULATED, metavar="N", help="Seed of the population; the noise stays random.", parser=parse_seed),
    ] = None
    connections: Annotated[
        int | None,
        Option(
            group=SIMULATED,
            metavar="N",
            help="Gateways that share the devices; 20 if not given.",
            parser=parse_connections,
        ),
    ] = None
    confidence: Annotated[
        float, Option(metavar="X", help="Confidence level of the intervals.", parser=parse_confidence)
    ] = 0.95
    broker: Annotated[
        str | None,
        Option(group=SIMULATED, metavar="BROKER", help="embedded, mosquitto or mqtt://host:port.", parser=parse_broker),
    ] = None
    engine: Annotated[
        Engine | None,
        Option(
            group=SIMULATED,
            values=get_args(Engine),
            metavar="NAME",
            help="mqtt (real sockets), memory, or bulk, as for over 20 000 devices.",
            parser=parse_engine,
        ),
    ] = None
    draw: Annotated[
        Drawing | None,
        Option(
            group=SIMULATED,
            values=["tally", "devices"],
            metavar="WHAT",
            help="In bulk: tally (at once) or devices (one by one).",
            parser=parse_drawing,
        ),
    ] = None
    workers: Annotated[
        int | None,
        Option(group=SIMULATED, metavar="N", help="In bulk: how many draw devices at a time.", parser=parse_workers),
    ] = None
    dask: Annotated[
        str | None,
        Option(group=SIMULATED, metavar="ADDRESS", help="In bulk: a Dask cluster draws devices, tcp://host:8786."),
    ] = None
    lower: Annotated[
        str | None, Option(group=OWN_DATA, metavar="X", help="Smallest legal value, from public knowledge.")
    ] = None
    upper: Annotated[
        str | None, Option(group=OWN_DATA, metavar="X", help="Largest legal value, from public knowledge.")
    ] = None
    unit: Annotated[str | None, Option(group=OWN_DATA, metavar="TEXT", help="Unit of your own data.")] = None
    shares: Annotated[
        str | None,
        Option(metavar="S,S,…", help="Shares of devices that take each epsilon on offer; equal if left out."),
    ] = None
    deterministic_noise: Annotated[
        bool, Option("--deterministic-noise", group=SIMULATED, help="Noise from the seed: repeatable and NOT private.")
    ] = False


def options_of(request: Request) -> dict[str, Any]:
    """Return the arguments of `hush.simulate`."""
    names = _ARGUMENTS & {field.name for field in fields(Request)}
    given = {name: getattr(request, name) for name in names - {field.name for field in fields(OwnData)}}
    if request.epsilon is not None:
        given["epsilon"] = decimal_text(parse_epsilon(request.epsilon, field="--epsilon"))
    if request.shares is not None:
        given["shares"] = parse_shares(request.shares)
    return {**given, "scenario": _scenario(request)}


def _scenario(request: Request) -> Scenario:
    own = OwnData(**{field.name: getattr(request, field.name) for field in fields(OwnData)})
    if own.csv is not None:
        return scenario_of_file(own, own.csv)
    own.check_unused()
    return find_scenario(request.scenario or "heights")


_FORMAT = 1
_RUN, _SCENARIO, _RESULT = "run.json", "scenario.toml", "result.json"
_OPTION = "--rerun"
_ELSEWHERE = frozenset(("workers", "dask", "broker"))
"""Options that say who does it, and change no result."""

_Value = str | int | float | bool | None


class _Versions(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    hush: str
    numpy: str
    python: str


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    format: int
    versions: _Versions
    options: dict[str, _Value]
    data_sha256: str | None = None


@dataclass(frozen=True, slots=True)
class Record:
    """A stored run: its options with their seed, its document, and remarks on what has changed since."""

    request: Request
    result: object
    remarks: tuple[str, ...]


def record_of(request: Request, experiment: Experiment) -> dict[str, bytes]:
    """Return the content of the files that a run can be repeated from, by their names."""
    options = asdict(replace(request, seed=experiment.seed))
    options.pop("dask")
    if request.broker is not None and is_external(request.broker):
        del options["broker"]
    if request.csv is not None:
        from hush_simulations.scenarios.csv_table import STANDARD_INPUT  # noqa: PLC0415 - for a person's own data alone

        options["csv"] = "-" if request.csv == STANDARD_INPUT else str(request.csv.resolve())
    elif request.scenario not in {None, *SCENARIOS}:
        options["scenario"] = str(Path(str(request.scenario)).resolve())
    kept = {name: value for name, value in options.items() if value is not None}
    document = _File(format=_FORMAT, versions=_versions(), options=kept, data_sha256=_digest(request.csv))
    files = {_RUN: (document.model_dump_json(indent=2) + "\n").encode()}
    if request.csv is None:
        name = request.scenario or "heights"
        try:
            files[_SCENARIO] = text_of(name).encode()
        except OSError as error:
            remedy = "leave it there until the run is kept"
            raise OptionError("SCENARIO", f"{name} cannot be read any more ({error.strerror}); {remedy}") from error
    return files


def read_record(directory: Path, given: Request) -> Record:
    """Read what a directory of `--out` stores, to repeat it.

    Options that change no result, `--workers` and addresses, are taken from `given`; others must not be given.
    """
    _check_alone(given)
    try:
        text = (directory / _RUN).read_text(encoding="utf-8")
        found: object = json.loads((directory / _RESULT).read_text(encoding="utf-8"))
        document: object = json.loads(text)
        _check_format(directory, document)
        kept = _File.model_validate(document)
        request = _request(directory, kept, given)
    except OSError as error:
        remedy = "name a directory that --out made"
        raise OptionError(_OPTION, f"{error.filename} cannot be read ({error.strerror}); {remedy}") from error
    except (ValidationError, ValueError, TypeError, RecursionError) as error:
        raise OptionError(_OPTION, f"{directory / _RUN} or its {_RESULT} is damaged; run it again") from error
    return Record(request, found, tuple(_remarks(kept, request)))


def _check_format(directory: Path, document: object) -> None:
    """Check the format before anything else is read: another version may have fields of any name."""
    found = document.get("format") if isinstance(document, dict) else None
    if type(found) is int and found != _FORMAT:
        remedy = "repeat it with the hush that kept it"
        raise OptionError(_OPTION, f"{directory} is of format {found}, this hush reads {_FORMAT}; {remedy}")


def _request(directory: Path, kept: _File, given: Request) -> Request:
    options = dict(kept.options)
    if given.broker is not None:
        options["broker"] = given.broker
    if given.workers is not None:
        options["workers"] = given.workers
    if given.dask is not None:
        options["dask"] = given.dask
        options.pop("workers", None)
    csv = options.pop("csv", None)
    request = Request(**options, csv=None if csv is None else Path(str(csv)))  # type: ignore[arg-type]  # checked below
    unknown = options.keys() - {field.name for field in fields(Request)}
    if unknown:
        raise ValueError(unknown)
    if csv is None and (directory / _SCENARIO).read_text(encoding="utf-8") != _text_now(request.scenario):
        return replace(request, scenario=str(directory / _SCENARIO))
    return request


def _text_now(scenario: str | None) -> str | None:
    """Return the text of the scenario that has this name today; a file may be deleted."""
    try:
        return text_of(scenario or "heights")
    except OSError:
        return None


def _check_alone(given: Request) -> None:
    changed = [
        field.name
        for field in fields(Request)
        if getattr(given, field.name) != field.default and field.name not in _ELSEWHERE
    ]
    if changed:
        name = "SCENARIO" if changed[0] == "scenario" else f"--{changed[0].replace('_', '-')}"
        raise OptionError(name, f"would change what is repeated; leave it out, or leave out {_OPTION}")


def _remarks(kept: _File, request: Request) -> list[str]:
    now = _versions().model_dump()
    remarks = [
        f"{name} is {now[name]}, was {was}" for name, was in kept.versions.model_dump().items() if now[name] != was
    ]
    if request.csv is not None and _digest(request.csv) != kept.data_sha256:
        remarks.append(f"{request.csv} is not the file that it was")
    if request.scenario is not None and request.scenario.endswith(_SCENARIO) and request.scenario not in SCENARIOS:
        remarks.append(f"the scenario has been changed; repeated as it was, from {request.scenario}")
    return remarks


def _versions() -> _Versions:
    return _Versions(hush=version("hush-ldp"), numpy=np.__version__, python=platform.python_version())


def _digest(file: Path | None) -> str | None:
    return None if file is None or not file.is_file() else hashlib.sha256(file.read_bytes()).hexdigest()


_MOST_NAMED = 5

app: Commands = Commands()


@app.command()
def run(
    request: Request,
    *,
    out: Annotated[
        Path | None,
        Option(group=OUTPUT, metavar="DIR", help="Directory to write result.json, reports.csv and the picture to."),
    ] = None,
    theme: ThemeOption = None,
    plot: PlotOption = None,
    rerun: Annotated[
        Path | None,
        Option(group=SIMULATED, metavar="DIR", help="Repeat the run that --out DIR kept, and name what differs."),
    ] = None,
    as_json: JsonOption = False,
    in_full: Annotated[
        bool, Option("--all", group=OUTPUT, help="Print every figure of --json below the table.")
    ] = False,
) -> None:
    """Simulate devices that answer a question under local differential privacy, and compare with the truth."""
    with stopped_in_words():
        record = None if rerun is None else read_record(rerun, request)
        if record is not None:
            request = record.request
        check_theme(theme, out)
        directory = None if out is None else prepare(out)
        done = _simulate(options_of(request))
        if done.stopped and not done.accepted:
            note("stopped")
            raise typer.Exit(INTERRUPTED)
        with files_first(directory, lambda place: _write(place, done, request, theme)):
            if as_json:
                print_json(done.to_document())
            else:
                charts = () if plot is None else _charts(done)
                show((*run_blocks(done), *charts, *(every_figure(done.to_document()) if in_full else ())))
        _complain_of_losses(done)
        if done.stopped:
            note("interrupted")
            raise typer.Exit(INTERRUPTED)
        if record is not None:
            _compare(record, done)


def _write(directory: Path, done: Run, request: Request, theme: Theme | None) -> list[Path]:
    return write_files(directory, done, theme or "light", record_of(request, done.experiment))


def _charts(done: Run) -> Iterable[Renderable]:
    from hush_aggregator.publish.charts import shows_signs  # noqa: PLC0415 - most runs have a table alone
    from hush_simulations.display.charts import charts_of  # noqa: PLC0415

    return charts_of(done, signs=shows_signs())


def _compare(record: Record, done: Run) -> None:
    for remark in record.remarks:
        note(remark)
    now: object = json.loads(to_json(done))
    differing = differences(record.result, now)
    if not is_repeatable(now):
        note("the noise came from the operating system, and is another; only the people were repeated")
    if not differing:
        note("nothing else differs" if record.remarks else "nothing differs")
        return
    more = f", and {len(differing) - _MOST_NAMED} more" if len(differing) > _MOST_NAMED else ""
    note(f"differs: {'; '.join(differing[:_MOST_NAMED])}{more}")
    raise typer.Exit(1)


def _counted(tick: Tick, total: int, counted: int, _: int) -> None:
    tick("reports counted", counted, total)


def _simulate(options: dict[str, Any]) -> Run:
    scenario: Scenario = options["scenario"]
    total, stop = (options["clients"] or scenario.clients) * (options["rounds"] or scenario.rounds), asyncio.Event()
    with show_progress() as (tick, look), in_words_of_the_command(_ARGUMENTS), _warnings_said():
        tick("reports counted", 0, total)
        try:
            counted = partial(_counted, tick, total)
            return run_to_end(simulate_async(**options, progress=counted, look=look, stop=stop), stop)
        except StoppedError:
            note("stopped")
            raise typer.Exit(INTERRUPTED) from None


@contextmanager
def _warnings_said() -> Iterator[None]:
    """Print warnings of `hush.simulate` as lines; a loss of reports is an error, reported at the end."""
    with warnings.catch_warnings():
        shown = warnings.showwarning

        def show(  # noqa: PLR0917 - the signature is that of warnings.showwarning
            message: Warning | str,
            category: type[Warning],
            filename: str,
            lineno: int,
            file: TextIO | None = None,
            line: str | None = None,
        ) -> None:
            if issubclass(category, SimulationWarning):
                from hush_simulations.scenarios.python_data import MARK_IN_A_COMMAND, MARK_IN_PYTHON  # noqa: PLC0415 - see own_data

                text = str(message).replace(MARK_IN_PYTHON, MARK_IN_A_COMMAND)
                note(f"WARNING: {with_options(text)}")
            elif not issubclass(category, LostReportsWarning):
                shown(message, category, filename, lineno, file, line)

        warnings.filterwarnings("always", category=SimulationWarning)
        warnings.filterwarnings("always", category=LostReportsWarning)
        warnings.showwarning = show
        yield


def _complain_of_losses(done: Run) -> None:
    if done.lost and not done.experiment.scenario.faults.forgotten:
        external = is_external(done.experiment.broker)
        remedy = "see its access rules and queue limits" if external else "try --broker mosquitto"
        raise BrokerError(done.broker, f"acknowledged {done.lost} reports that never reached the aggregator; {remedy}")
