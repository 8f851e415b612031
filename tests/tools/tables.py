"""Tables of facts in the documents: `python tests/tools/tables.py` writes their facts again from the code.

Facts are the names in backticks in the first column, and the cells right of it that the code knows: a type, a default,
a status. All other cells are prose, and stay as they are. A new fact gets a row at the end with empty cells to fill in.
"""

import copy
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from hush import Task
from hush_aggregator.count.intake import IntakeStatus
from hush_aggregator.ops.metrics import BatchFigures, MetricValues, families
from hush_aggregator.ops.service_metrics import ProcessFigures, ServiceValues
from hush_aggregator.publish.status import EstimateStatus
from hush_aggregator.store.disk import StoreDisk
from hush_attacks.catalogue import ATTACKS
from hush_common import topics
from hush_common.errors import TaskError
from hush_common.task import decode_task
from hush_common.wire import Refusal
from hush_conform.conform import CHECKS
from hush_simulations.scenarios.scenario_file import KINDS

__all__ = ["TABLES", "Facts", "Table"]

ROOT = Path(__file__).resolve().parents[2]
Facts = Mapping[str, Sequence[str]]
"""Name of each row, and the cells next to it that come from the code."""


@dataclass(frozen=True)
class Table:
    """A table in a document.

    Args:
        document: its path in the repository.
        head: the row of its headings.
        facts: from the code.
    """

    document: str
    head: str
    facts: Callable[[], Facts]

    def documented(self) -> Facts:
        """The facts in the document."""
        width = max(map(len, self.facts().values()))
        return {name: cells[1 : 1 + width] for cells in map(_cells, self._rows()) for name in _names(cells[0])}

    def write(self) -> None:
        """Write the facts into the document."""
        facts, rows = self.facts(), self._rows()
        known = {name for row in rows for name in _names(_cells(row)[0])}
        width = len(_cells(self.head))
        written = [new for row in rows if (new := _written(row, facts))]
        for name, cells in facts.items():
            if name not in known:
                written.append(_row([f"`{name}`", *cells, *[""] * (width - 1 - len(cells))]))
        path = ROOT / self.document
        text = path.read_text(encoding="utf-8")
        path.write_text(text.replace("\n".join(rows), "\n".join(written)), encoding="utf-8")

    def _rows(self) -> list[str]:
        lines = (ROOT / self.document).read_text(encoding="utf-8").splitlines()
        start = lines.index(self.head) + 2
        return lines[start : [*lines, ""].index("", start)]


def _cells(row: str) -> list[str]:
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]]


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _names(cell: str) -> list[str]:
    """The names in a cell, without the labels of metrics."""
    return [re.sub(r"(?<=\w)\{\w+\}$", "", name) for name in re.findall(r"`([^`]+)`", cell)]


def _written(row: str, facts: Facts) -> str:
    """A row with its facts; empty if none of its names is one any more. A row without names is prose."""
    first, *others = _cells(row)
    there = [name for name in _names(first) if name in facts]
    if not _names(first) or there == _names(first):
        fixed = facts[there[0]] if there else ()
        return _row([first, *fixed, *others[len(fixed) :]]) if there else row
    return _row([", ".join(f"`{name}`" for name in there), *others]) if there else ""


def _problems() -> Facts:
    from hush_aggregator.web.service import ProblemType  # noqa: PLC0415 - it brings the web framework

    return {problem.slug: (str(problem.status),) for problem in ProblemType}


def _alarms() -> Facts:
    rules = (ROOT / "docs/operations/prometheus-rules.yml").read_text(encoding="utf-8")
    return dict.fromkeys(re.findall(r"- alert: (\w+)", rules), ())


def _metrics() -> Facts:
    """The metrics of a service that has everything that a metric is about."""
    now, process = datetime.now(UTC), ProcessFigures(1, 1.0, 1, 1)
    intake = IntakeStatus([], connected=True, waiting=0, dropped=0, stored=0)
    service = ServiceValues(process, StoreDisk(1, 1), now, EstimateStatus(1, 1, 1.0), now, notifications=1)
    everything = MetricValues({}, {}, BatchFigures(), intake, 0, service, {}, process, silent_s=0.0)
    found = families(everything, version="1")
    return {f"{one.name}_total" if one.type == "counter" else one.name: () for one in found}


def _topics() -> Facts:
    task = "{task}"
    below = (topics.task_topic, topics.recall_topic, topics.estimate_topic)
    named = [*(topic(task) for topic in below), topics.status_topic("{aggregator}")]
    return dict.fromkeys([*named, topics.report_topic(task, "sender").replace("/sender", "/{sender}")], ())


_TYPES = {str: "text", int: "integer", float: "number", dict: "object", list: "list of "}
_DEFAULTS = ('""', "1", '"fresh"', '"clamp"')
_WITH_ROUNDS = {"round_every", "opens"}  # needed only if there is more than one round
_IN_PROSE = ("table.", "coins.", "domain.coordinates.")  # fields in the row of their object


def _task_fields() -> Facts:
    """JSON type of each field of a task, and what a task without it is: refused, or one with a default."""
    vectors = json.loads((ROOT / "tests/vectors/v1/good.json").read_text(encoding="utf-8"))
    tasks = [json.loads(vector["payload"]) for vector in vectors["tasks"]]
    bit = {"id": "a", "epsilon": "1", "domain": {"kind": "bit"}}
    tasks.append({**bit, "rounds": 2, "round_every": "1d", "opens": "2026-01-01T00:00:00Z", "repeat": "sticky"})
    tasks.append({**bit, "offers": ["0.5", "1"]})
    found = {}
    for name, value in {name: value for task in reversed(tasks) for name, value in _fields(task)}.items():
        if not name.startswith(_IN_PROSE) or name == "domain.coordinates.name":
            kind = _TYPES[type(value)] + (f"{_TYPES[type(value[0])]}s" if isinstance(value, list) else "")
            found[name] = [kind, _left_out(name, [one for one in tasks if name in dict(_fields(one))])]
    return found


def _fields(part: dict[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in part.items():
        yield above + name, value
        below = value[0] if isinstance(value, list) else value
        if isinstance(below, dict):
            yield from _fields(below, f"{above}{name}.")


def _left_out(name: str, tasks: Sequence[dict[str, Any]]) -> str:
    outcomes = [_outcome(_changed(task, name)) for task in tasks]
    for default in _DEFAULTS:
        if outcomes == [_outcome(_changed(task, name, json.loads(default))) for task in tasks]:
            return f"`{default}`"
    if sum(isinstance(outcome, str) for outcome in outcomes) > len(outcomes) / 2:
        return "refused"  # a few are refused for another field, which has no meaning without this one
    return "the first" if name == "mechanism" else "none"


def _outcome(document: dict[str, Any]) -> Task | str:
    """The task without its bytes, or why it is refused."""
    try:
        return replace(decode_task(json.dumps(document, ensure_ascii=False).encode()), payload=b"")
    except TaskError as error:
        return str(error)


def _changed(task: dict[str, Any], name: str, value: object = None) -> dict[str, Any]:
    """A copy with another value of a field, or without it."""
    copied = copy.deepcopy(task)
    part: Any = copied
    *above, last = name.split(".")
    for step in above:
        part = part[step][0] if isinstance(part[step], list) else part[step]
    part[last] = value
    if value is None:
        del part[last]
        if name in _WITH_ROUNDS:
            del copied["rounds"]
    return copied


TABLES = (
    Table("docs/operations.md", "| reason | meaning | what to do |", lambda: {reason.value: () for reason in Refusal}),
    Table("docs/operations.md", "| alarm | when | what to do |", _alarms),
    Table("docs/operations.md", "| metric | meaning |", _metrics),
    Table("docs/http.md", "| name | status | what |", _problems),
    Table("docs/wire.md", "| topic | who writes | what |", _topics),
    Table("docs/wire.md", "| field | JSON | left out | what | in a small client |", _task_fields),
    Table("docs/conform.md", "| check | what happens | what a pass shows |", lambda: {one.name: () for one in CHECKS}),
    Table("docs/laboratory.md", "| `kind` | for | fields | people |", lambda: dict.fromkeys(KINDS, ())),
    Table(
        "docs/tour.md",
        "| attack | against the naive system | against hush |",
        lambda: {f"hush attack {name}": () for name in ATTACKS},
    ),
)

if __name__ == "__main__":
    for table in TABLES:
        table.write()
