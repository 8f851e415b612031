"""The record of a run: what `hush simulate --out` keeps beside the result, so that `--rerun` repeats it.

`run.json` holds the options, the seed and the versions, `scenario.toml` the scenario as it was. Of somebody's own data
the path and a digest are kept, and never the data; of addresses nothing, since they may hold a password.
"""

import hashlib
import json
import platform
from dataclasses import asdict, dataclass, fields, replace
from importlib.metadata import version
from pathlib import Path

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

from hush_common.errors import OptionError
from hush_simulations.brokers.choice import is_external
from hush_simulations.commands.simulate_options import Request
from hush_simulations.engines.experiment import Experiment
from hush_simulations.scenarios.library import SCENARIOS, text_of

__all__ = ["Record", "read_record", "record_of"]

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
    """A run that was kept.

    Args:
        request: its options, with its seed.
        result: its document.
        remarks: what is not as it was, in words: versions, or a file of somebody's data.
    """

    request: Request
    result: object
    remarks: tuple[str, ...]


def record_of(request: Request, experiment: Experiment) -> dict[str, bytes]:
    """The content of the files that keep a run, by their names.

    Raises:
        OptionError: the file of the scenario is gone.
    """
    options = asdict(replace(request, seed=experiment.seed))
    options.pop("dask")
    if request.broker is not None and is_external(request.broker):
        del options["broker"]
    if request.csv is not None:
        options["csv"] = str(request.csv.resolve())
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
    """What a directory of `--out` keeps, to be repeated.

    Args:
        directory: that.
        given: the other options; those that change no result, `--workers` and addresses, are taken over.

    Raises:
        OptionError: it is no such directory, is damaged, or of another version; or an option is given that changes
            what is repeated.
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
        raise OptionError(_OPTION, f"{directory / _RUN} or its {_RESULT} is damaged; make the run anew") from error
    return Record(request, found, tuple(_remarks(kept, request)))


def _check_format(directory: Path, document: object) -> None:
    """Before anything else is read: what another version writes may have fields of any name."""
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
    """The scenario that has this name today; a file may be gone."""
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
