"""`hush results`: of any round in a store, or as the broker retains them."""

import asyncio
import csv
import io
import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from hush_aggregator.commands.options import ConfidenceOption, Id, JsonOption, StoreOption, check_confidence
from hush_common.errors import BrokerError, OptionError, TaskError, printable
from hush_common.options import BROKER, OUTPUT, Commands, Login, Option
from hush_common.output import print_data, print_done, print_json
from hush_common.terminal import Column, Row, Sentence, Table, show
from hush_common.topics import estimate_topic

if TYPE_CHECKING:
    from hush_aggregator.delivery.session import Broker
    from hush_aggregator.estimate.result import ForeignResult, Result
    from hush_common.broker_url import BrokerUrl


_RETAINED_WITHIN_S = 1.0
_LONGEST = 18  # digits: beyond that no store has a round
ALL_ROUNDS = "all"
"""What all rounds together are called."""
_RIGHT = {"round", "n", "value", "stderr", "low", "high"}

app: Commands = Commands()


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultsOptions:
    task: Id
    store: Annotated[str | None, Option(metavar="STORE", help="The store of its aggregator.")] = None
    broker: Annotated[
        str,
        Option(
            group=BROKER,
            metavar="ADDRESS",
            envvar="HUSH_BROKER",
            help="Without a store: print what is retained at this broker.",
        ),
    ] = ""
    round: Annotated[
        str, Option(metavar="N", help="From 0, or all; left out: the latest with a report. Of a store.")
    ] = ""
    all_rounds: Annotated[bool, Option("--all-rounds", help="All rounds together as one estimate. Of a store.")] = False
    confidence: ConfidenceOption = 0.95
    as_json: JsonOption = False
    as_csv: Annotated[bool, Option("--csv", group=OUTPUT, help="Print CSV instead of text.")] = False
    login: Login

    def __post_init__(self) -> None:
        if self.as_json and self.as_csv:
            raise OptionError("--csv", "cannot be given together with --json")
        if self.all_rounds and self.round:
            raise OptionError("--round", "cannot be given together with --all-rounds")
        check_confidence(self.confidence)
        if self.store is None and not self.broker:
            raise OptionError(
                "--store", "name the store of its aggregator, or with --broker a broker that retains its estimate"
            )
        if self.store is None and (self.all_rounds or self.round):
            option = "--all-rounds" if self.all_rounds else "--round"
            raise OptionError(option, "a broker retains the latest round alone; name the store of its aggregator")


@app.command()
def results(options: ResultsOptions) -> None:
    """Print the results of a task, whether its aggregator runs or not.

    A line for each interval, of each round, category or coordinate. With --json the documents, as they are retained.
    """
    if options.store is not None:
        found: Sequence[Result | ForeignResult] = _stored(options, options.store)
    else:
        found = [asyncio.run(_retained(options.task, options.login.at(options.broker)))]
    name = ALL_ROUNDS if options.all_rounds else ""
    if options.as_json:
        _print_json({"v": 1, "results": [_document(one, pooled=options.all_rounds) for one in found]})
    elif options.as_csv:
        _write_csv(found, name)
    else:
        show_results(found, name)


def _document(found: "Result | ForeignResult", *, pooled: bool) -> Mapping[str, object]:
    """The JSON object of a result; of all rounds together it has how many there are in place of the round."""
    document = found.to_document()
    if not pooled:
        return document
    rounds = {"round": found.round + 1}
    return {("rounds" if name == "round" else name): rounds.get(name, value) for name, value in document.items()}


def _stored(options: ResultsOptions, store: str) -> list["Result"]:
    from hush_aggregator.publish.results import ResultReader  # noqa: PLC0415 - --help must not wait for numpy
    from hush_aggregator.store.location import open_reader, parse_store  # noqa: PLC0415 - as above

    task = options.task
    with open_reader(parse_store(store)) as opened:
        row = next((row for row in opened.task_rows() if row.id == task and row.payload), None)
        if row is None:
            raise TaskError("task", f"{task[:80]!r} is not in this store; see hush task list --store")
        latest = opened.latest_round(row.digest)
        one = _number(options.round) if options.round not in ("", "all") else latest
        rounds = range(latest + 1) if options.round == "all" else [one]
        reader = ResultReader(opened, confidence=options.confidence)

        async def read() -> "list[Result]":
            return [await reader.result(task, number) for number in rounds]

        if not options.all_rounds:
            return asyncio.run(read())
        pooled = asyncio.run(reader.all_rounds(task))
        if pooled is None:
            raise TaskError("rounds", "there are not two rounds with reports, or they repeat their noise; see --round")
        return [pooled]


def _number(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= _LONGEST):
        raise OptionError("--round", f"{text[:40]!r} is not a round; write a number from 0, or all")
    return int(text)


async def _retained(task: str, where: "BrokerUrl") -> "ForeignResult":
    from hush_aggregator.delivery.mqtt import MqttBroker  # noqa: PLC0415 - a store needs no MQTT
    from hush_aggregator.estimate.result import read_result  # noqa: PLC0415 - as above

    bus: Broker = MqttBroker(where, identifier=f"hush-results-{secrets.token_hex(6)}")
    came: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
    topic = estimate_topic(task)

    def listen(_: str, payload: bytes) -> None:
        if not came.done():
            came.set_result(payload)

    async with bus.connect(()) as session:
        await session.look([topic], listen)
        try:
            async with asyncio.timeout(_RETAINED_WITHIN_S):
                payload = await came
        except TimeoutError:
            raise BrokerError(bus.name, f"retains nothing under {topic}, or this user may not read it") from None
    found = read_result(payload)
    if found is None:
        raise BrokerError(bus.name, f"what it retains under {topic} is not an estimate")
    return found


def _print_json(document: Mapping[str, object]) -> None:
    """As it is read best, unless that would write to the terminal: what is retained anybody may have published."""
    if all(map(str.isprintable, json.dumps(document, indent=2, ensure_ascii=False).split("\n"))):
        print_json(document)
    else:
        print(json.dumps(document, indent=2))


def _write_csv(found: "Sequence[Result | ForeignResult]", round_: str) -> None:
    from hush_aggregator.publish.presentation import COLUMNS, rows_of  # noqa: PLC0415 - as above

    lines = io.StringIO()
    writer = csv.DictWriter(lines, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for one in found:
        writer.writerows(
            {name: printable(value) if isinstance(value, str) else value for name, value in row.figures.items()}
            for row in rows_of(one, round_)
        )
    print_data(lines.getvalue())


def show_results(found: "Sequence[Result | ForeignResult]", round_: str = "") -> None:
    """Print results as one table."""
    from hush_aggregator.publish.presentation import COLUMNS, rows_of  # noqa: PLC0415 - as above

    rows = [row.shown for one in found for row in rows_of(one, round_)]
    used = [name for name in COLUMNS if any(row[name] for row in rows)]
    columns = [Column(name, right=name in _RIGHT) for name in used]
    show([Table(columns, [Row([row[name] for name in used]) for row in rows])])
    if any(not one.estimate.n and not _RELEASE.isdisjoint(one.to_document()) for one in found):
        show([Sentence("n is 0 until the first release: see release_from and release_every of the task.")])


_RELEASE = {"release_from", "release_every"}

export_app: Commands = Commands()


@export_app.command()
def export(
    task: Id,
    store: StoreOption,
    out: Annotated[Path, Option(help="File to write, .csv or .parquet; it must not be there yet.")],
    round_: Annotated[int | None, Option("--round", help="Only this round, from 0; left out: all.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Write the counted reports of a task to a file, whether its aggregator runs or not.

    A row for each report: round, its random id, and the integers of its body, as devices sent them. There is neither a
    sender nor a time: the store has none. Rows are in the order of their ids. Reports that are not released yet are
    among them: whoever has the store sees everything.
    """
    from hush_aggregator.ops.export import export_reports  # noqa: PLC0415 - --help must not wait for numpy
    from hush_aggregator.store.location import parse_store  # noqa: PLC0415 - as above

    if out.suffix not in (".csv", ".parquet"):
        raise OptionError("--out", "ends in neither .csv nor .parquet; name such a file")
    count, dropped = export_reports(parse_store(store), task, out, round_)
    if as_json:
        facts = {"dropped": {str(number): n for number, n in dropped.items()}} if dropped else {}
        print_done(json.dumps({"v": 1, "task": task, "file": str(out), "reports": count, **facts}))
        return
    print_done(printable(f"wrote {out}: {count} reports"))
    if dropped:
        rounds = f"round {next(iter(dropped))}" if len(dropped) == 1 else f"{len(dropped)} rounds"
        print_done(f"not in it: {sum(dropped.values())} reports of {rounds}, dropped by the retention; their sums stay")
