# ruff: noqa: T201 - a script that prints a table
"""How fast data are read: `python tests/benchmarks/bench_reading.py [rows]`, a million if left out.

A column of a CSV file beside `csv.DictReader` and the conversion that a person would write, in processor time and in
turns; the ratio is that of the medians. Then data frames and Parquet, in seconds of processor time.
"""

import csv
import importlib
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from hush_common.domain import BitDomain, CategoryDomain, Domain, NumberDomain
from hush_simulations.scenarios.csv_file import read_answers, read_column
from hush_simulations.scenarios.csv_table import CsvRules
from hush_simulations.scenarios.python_data import observed

TURNS = 5
AGES = NumberDomain(0.0, 110.0, "years")
WAYS = CategoryDomain(("bus", "car", "train"))


def seconds(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def by_hand(file: Path, column: str, convert: Callable[[str], object], delimiter: str) -> list[object]:
    with file.open(newline="", encoding="utf-8") as opened:
        return [convert(row[column]) for row in csv.DictReader(opened, delimiter=delimiter)]


def compared(name: str, read: Callable[[], object], other: Callable[[], object]) -> None:
    pairs = [(seconds(read), seconds(other)) for _ in range(TURNS)]
    mine, theirs = (statistics.median(one) for one in zip(*pairs, strict=True))
    print(f"{name:28} {mine:6.2f} s {theirs:6.2f} s   {mine / theirs:.2f}")


def main(rows: int) -> None:
    source = np.random.default_rng(1)
    ages, ways = source.normal(40, 10, rows), source.choice(WAYS.labels, rows)
    lines = {
        "numbers": [f"{place},{age:.6f},{way}" for place, (age, way) in enumerate(zip(ages, ways, strict=True))],
        "commas": [f"{place};{age:.6f};bus".replace(".", ",") for place, age in enumerate(ages)],
        "thousands": [f'{place},"{int(age * 1e5):,}",bus' for place, age in enumerate(ages)],
    }
    with tempfile.TemporaryDirectory() as folder:
        files = {name: Path(folder) / f"{name}.csv" for name in lines}
        for name, text in lines.items():
            header = "id;age;way" if name == "commas" else "id,age,way"
            files[name].write_text("\n".join([header, *text]) + "\n", encoding="utf-8")
        print(f"{'a column of a CSV file':28} {'hush':>8} {'DictReader':>10}")
        plain, commas, thousands = files["numbers"], files["commas"], files["thousands"]
        compared("numbers", lambda: read_column(plain, "age"), lambda: by_hand(plain, "age", float, ","))
        compared(
            "decimal commas",
            lambda: read_column(commas, "age", rules=CsvRules(decimal=",")),
            lambda: by_hand(commas, "age", lambda text: float(text.replace(",", ".")), ";"),
        )
        compared(
            "thousands",
            lambda: read_column(thousands, "age", rules=CsvRules(decimal=".")),
            lambda: by_hand(thousands, "age", lambda text: float(text.replace(",", "")), ","),
        )
        compared(
            "labels", lambda: read_column(plain, "way", labels=WAYS.labels), lambda: by_hand(plain, "way", str, ",")
        )
        compared("yes", lambda: read_answers(plain, "way", "bus"), lambda: by_hand(plain, "way", "bus".__eq__, ","))

        frame = importlib.import_module("pandas").DataFrame({"age": ages, "way": ways, "is": ages > 40})
        parquet = Path(folder) / "people.parquet"
        frame.to_parquet(parquet)
        frames = {
            "pandas": frame,
            "polars": importlib.import_module("polars").from_pandas(frame),
            "pyarrow": importlib.import_module("pyarrow").Table.from_pandas(frame),
            "Parquet": parquet,
        }
        domains: dict[str, Domain] = {"age": AGES, "way": WAYS, "is": BitDomain()}
        for name, data in frames.items():
            found = {column: seconds(lambda: observed(data, domain, column)) for column, domain in domains.items()}  # noqa: B023
            print(f"{name:28} " + ", ".join(f"{column} {took:.2f} s" for column, took in found.items()))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
