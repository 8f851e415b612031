"""The files that a simulation writes: `result.json`, `reports.csv`, `result.png` and `result.svg`.

`reports.csv` holds what an aggregator sees (`Run.reports`). Neither the ledgers of the devices nor the aggregator's
store are kept: they would say which row of the input sent which report.
"""

import csv
import io
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

from hush_common.errors import OptionError
from hush_common.files import Writer, replace_files
from hush_simulations.display.style import Picture, Theme, picture_files
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
    others = {name: _of(content) for name, content in (more or {}).items()}
    return _written(directory, {**files, **_pictures(picture_of(run), "result", theme), **others})


def write_all(directory: Path, picture: Picture, name: str, text: str, theme: Theme = "light") -> list[Path]:
    """Write a document as `name`.json and its picture, all or none; return their paths."""
    return _written(directory, {f"{name}.json": _of(f"{text}\n".encode()), **_pictures(picture, name, theme)})


def write_texts(directory: Path, texts: Mapping[str, str]) -> list[Path]:
    """Write texts by the names of their files, all or none; return their paths."""
    return _written(directory, {name: _of(text.encode()) for name, text in texts.items()})


def write_picture(directory: Path, picture: Picture, name: str, theme: Theme = "light") -> list[Path]:
    """Write the files of a picture, all or none; return their paths."""
    return _written(directory, _pictures(picture, name, theme))


def _pictures(picture: Picture, name: str, theme: Theme) -> dict[str, Writer]:
    return {file: _of(content) for file, content in picture_files(picture, name, theme).items()}


def _written(directory: Path, files: Mapping[str, Writer]) -> list[Path]:
    try:
        return replace_files(directory, files)
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
        columns = run.reports()
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
        file.flush()
    finally:
        file.detach()
