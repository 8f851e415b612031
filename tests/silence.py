"""The law of everything that leaves a device, by following every draw of its own code from a decision to the outbox."""

import logging
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from decimal import Decimal
from threading import get_ident
from typing import Any

import pytest
from answers import answer_one

from hush import Task
from hush_client import Policy, Receipt
from hush_client.privacy.answer import Question
from hush_client.state import ledger, outbox
from hush_common.domain import ParsedValue
from hush_common.mechanisms import Channel, Laplace, Multilevel, RandomizedResponse, SubsetSelection, Vector
from hush_common.rng import ReportRng

__all__ = ["NOW", "Answer", "Event", "Events", "Tree", "known_laws", "law_of", "paths", "question_of", "worst_ratio"]

NOW = datetime(2026, 1, 1, tzinfo=UTC)
Answer = Callable[[sqlite3.Connection, Question, ParsedValue, ReportRng], tuple[Receipt, int | None]]
Event = tuple[object, object, object, object]
"""What was said, the rows of the state, what was put into the outbox, and the log."""
Events = tuple[Event, ...]
_ID = bytes(16)


@dataclass
class Tree:
    """Randomness that is followed along every path: a path is the choices made so far, each with its probability."""

    script: list[int] = field(default_factory=list)
    made: list[tuple[int, int]] = field(default_factory=list)
    weight: Decimal = Decimal(1)

    def pick(self, weights: Sequence[Decimal]) -> int:
        """One of several branches; the first time the first, later what the script says."""
        place = len(self.made)
        choice = self.script[place] if place < len(self.script) else 0
        self.made.append((choice, len(weights)))
        self.weight *= weights[choice]
        return choice

    def randbelow(self, n: int, /) -> int:
        assert n <= 16, "more than small instances draw, once the mechanisms are known by their laws"
        return self.pick([Decimal(1) / n] * n)

    def token_bytes(self, count: int, /) -> bytes:
        return _ID[:count]

    def report_id(self) -> bytes:
        return _ID

    def after(self) -> list[int] | None:
        """The script of the next path, or None after the last one."""
        script = list(self.made)
        while script and script[-1][0] == script[-1][1] - 1:
            script.pop()
        return [*(choice for choice, _ in script[:-1]), script[-1][0] + 1] if script else None


@contextmanager
def known_laws(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every mechanism draws from its exact table in one choice: that its sampler has this law, other tests show."""

    def perturb(self: Any, index: Any, rng: Tree) -> tuple[int, ...]:  # noqa: ANN401 - of each mechanism its own
        bodies = list(self.outputs())
        return tuple(bodies[rng.pick([self.probability(body, index) for body in bodies])])

    with monkeypatch.context() as patch:
        for kind in (Channel, Laplace, Multilevel, RandomizedResponse, SubsetSelection, Vector):
            patch.setattr(kind, "perturb", perturb)
        yield


def question_of(task: Task, policy: Policy | None = None) -> Question:
    limits = policy or Policy(max_epsilon=task.epsilon, lifetime=task.epsilon, sticky=True)
    return Question(task, "topic", limits, NOW, not_before=1234, delay=34)


def paths(rounds: Sequence[tuple[Question, object]], act: Answer = answer_one) -> Iterator[tuple[Events, Tree]]:
    """Each path of one answer, or of some one after the other: the course of events, and the draws that led there.

    An event is all that anybody but the program itself can learn: whether the call ended in an error and in which,
    the receipt but for what became of the value, every row of the state but the secret memory, and the log.
    """
    script: list[int] | None = []
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.executescript(ledger.SCHEMA + outbox.SCHEMA)
        while script is not None:
            tree = Tree(script)
            connection.execute("BEGIN")
            seen = [_event(connection, question, value, tree, act) for question, value in rounds]
            connection.execute("ROLLBACK")
            yield tuple(seen), tree
            script = tree.after()


def law_of(question: Question, value: object, act: Answer = answer_one) -> dict[Event, Decimal]:
    """The probability of each event, over all paths of one answer."""
    law: dict[Event, Decimal] = defaultdict(Decimal)
    for (event,), tree in paths([(question, value)], act):
        law[event] += tree.weight
    assert abs(sum(law.values(), Decimal(-1))) < Decimal("1e-20")
    return law


def _event(connection: sqlite3.Connection, question: Question, value: object, tree: Tree, act: Answer) -> Event:
    log = _Lines()
    logging.getLogger().addHandler(log)
    try:
        receipt, sequence = act(connection, question, question.task.domain.read(value), tree)
        said: object = (replace(receipt, value=None), sequence)
    except Exception as error:  # noqa: BLE001 - an error is an event, too
        said = type(error).__name__, str(error)
    finally:
        logging.getLogger().removeHandler(log)
    queries = ("SELECT * FROM charge", "SELECT * FROM account", "SELECT * FROM refusal", "SELECT * FROM pin")
    rows = tuple(tuple(connection.execute(query).fetchall()) for query in queries)
    sent = tuple(
        (entry.topic, entry.payload, entry.not_before, entry.delay) for entry in outbox.page(connection, 0, 99)
    )
    return said, rows, sent, tuple(log.lines)


class _Lines(logging.Handler):
    """What hush says on this thread; what an earlier test left behind to be collected may speak at any time."""

    def __init__(self) -> None:
        super().__init__(logging.NOTSET)
        self.thread = get_ident()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.name.startswith("hush") and record.thread == self.thread:
            self.lines.append(record.getMessage())


def worst_ratio(laws: Sequence[Mapping[Any, Decimal]]) -> Decimal | None:
    """The largest ratio of the probabilities of one event under two values; None where one of them cannot happen."""
    events = {event for law in laws for event in law}
    worst = Decimal(1)
    for event in events:
        chances = [law.get(event, Decimal(0)) for law in laws]
        if min(chances) == 0:
            return None
        worst = max(worst, max(chances) / min(chances))
    return worst
