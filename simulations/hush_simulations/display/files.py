"""The files that a simulation writes: `result.json`, `reports.csv`, `result.png` and `result.svg`.

`reports.csv` holds what an aggregator sees, and never the true value next to a report: such a table would undo the
privacy of every row, and a file that looks like the output of a private system must be one. The reports are in the
order of their random ids, so that their position says nothing about a row of the input either. For the same reason
neither the ledgers of the devices nor the aggregator's store are kept. Where the noise is from a seed, the reports are
sorted, and their ids, which never are from one, are left out: the same seed gives the same file.
"""

import csv
import io
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

from hush_common.epsilon import decimal_text
from hush_common.errors import OptionError
from hush_common.files import Writer, replace_files
from hush_simulations.display.style import Theme, picture_files
from hush_simulations.engines.experiment import in_words, offers_of
from hush_simulations.results.run import Run


def prepare(directory: Path) -> Path:
    """Create the directory and check that it can be written, before a long run."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            pass
    except FileExistsError:
        raise OptionError("--out", f"{directory} is a file; name a directory") from None
    except OSError as error:
        remedy = "name a directory that you may write to"
        raise OptionError("--out", f"{directory} cannot be written ({error.strerror}); {remedy}") from error
    return directory


def write_files(
    directory: Path, run: Run, theme: Theme = "light", more: Mapping[str, bytes] | None = None
) -> list[Path]:
    """Write the files of a run, and `more`, all or none; return their paths. A run in bulk has no reports."""
    from hush_simulations.display.run_figure import picture_of  # noqa: PLC0415 - most runs write no picture

    files: dict[str, Writer] = {"result.json": _of((to_json(run) + "\n").encode())}
    if run.drawing is None:
        files["reports.csv"] = lambda file: _write_reports(file, run)
    contents = {**picture_files(picture_of(run), "result", theme), **(more or {})}
    try:
        return replace_files(directory, {**files, **{name: _of(content) for name, content in contents.items()}})
    except OSError as error:
        raise OptionError("--out", f"{directory} cannot be written ({error.strerror}); make room there") from error


def _of(content: bytes) -> Writer:
    return lambda file: file.write(content)


def to_json(run: Run) -> str:
    """Return the document of a run as JSON text, which has no NaN."""
    return json.dumps(run.to_document(), indent=2, ensure_ascii=False, allow_nan=False)


def _write_reports(out: BinaryIO, run: Run) -> None:
    file = io.TextIOWrapper(out, encoding="utf-8", newline="")
    try:
        writer = csv.writer(file, lineterminator="\n")
        repeatable = run.experiment.noise_seed is not None
        writer.writerow(("round", *(() if repeatable else ("report_id",)), "epsilon", "body", "decoded"))
        for number, done in enumerate(run.rounds):
            parts, offers, rest = offers_of(run.task, done.received.bodies)
            epsilons = [decimal_text(parts[offer].epsilon) for offer in offers.tolist()]
            bodies = [" ".join(map(str, body)) for body in rest.tolist()]
            words = in_words(run.task, done.received.bodies)
            if repeatable:
                order = sorted(range(len(bodies)), key=done.received.bodies.tolist().__getitem__)
                writer.writerows((number, epsilons[k], bodies[k], words[k]) for k in order)
            else:
                writer.writerows((number, *row) for row in zip(done.received.ids, epsilons, bodies, words, strict=True))
        file.flush()
    finally:
        file.detach()
