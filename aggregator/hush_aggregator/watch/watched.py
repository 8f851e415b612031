"""Watched: what has been heard of a task so far, and whether there is more to wait for."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import Enum

from hush_aggregator.result import ForeignResult, read_result, result_in
from hush_aggregator.watch.view import View, view_of
from hush_common.errors import TaskError
from hush_common.task import Task, decode_task

_OF_NO_MATTER = {"updated_at", "term", "store", "taken_from"}


class News(Enum):
    """What is heard."""

    TASK = "the task as it is published, empty where it was cleared"
    ESTIMATE = "the document of a result, empty where it was cleared"
    THERE = "connected; what is retained has been heard"
    LOST = "the connection was lost"


@dataclass(frozen=True, slots=True)
class Heard:
    """Something that was heard.

    Args:
        news: what.
        payload: of the message; of a lost connection why.
    """

    news: News
    payload: bytes = b""


@dataclass(slots=True)
class Watched:
    """What has been heard of a task.

    Args:
        id: of the task.

    Attributes:
        task: what is asked; None where it is not published, or this version cannot read it.
        published: whether it is published, whether it can be read or not.
        document: the last result; empty for none.
        told: what a person should know about the connection or the task; empty for nothing.
    """

    id: str
    task: Task | None = None
    published: bool = False
    document: Mapping[str, object] = field(default_factory=dict)
    told: str = ""
    _rounds: int | None = None

    def hear(self, heard: Heard) -> bool:
        """Take something in; return whether what is seen has changed."""
        before = self.told, self.published, _seen(self.document)
        match heard.news:
            case News.THERE:
                self.told = ""
            case News.LOST:
                self.told = heard.payload.decode()
            case News.TASK:
                self._hear_task(heard.payload)
            case News.ESTIMATE:
                self._hear_estimate(heard.payload)
        return before != (self.told, self.published, _seen(self.document))

    @property
    def nothing(self) -> bool:
        """Whether neither a task nor a result is there."""
        return not self.published and not self.document

    @property
    def is_over(self) -> bool:
        """Whether nothing more can come: the result is final, and of the last round or of a task that is gone."""
        if self.document.get("final") is not True:
            return False
        if not self.published or self.task is None:
            return True
        closed = self.task.closes is not None and datetime.now(UTC) >= self.task.closes
        return closed or self.document.get("round") == self.task.rounds - 1

    @property
    def result(self) -> ForeignResult:
        """The last result; that of an empty document for none."""
        found = result_in(self.document)
        return found if self.task is None else replace(found, is_share=self.task.domain.is_share)

    @property
    def view(self) -> View:
        """What there is to see."""
        return view_of(self.id, self.document, self.task)

    def _hear_task(self, payload: bytes) -> None:
        was_there = self.published
        self.published = bool(payload)
        if not payload:
            if was_there and self.document.get("final") is not True:
                self.told = "withdrawn or closed: nobody is asked any more"
            return
        self.told = ""
        try:
            task = decode_task(payload)
        except TaskError as error:
            self.task, self.told = None, f"what is published as this task cannot be read ({error})"
        else:
            self.task = task if task.id == self.id else None

    def _hear_estimate(self, payload: bytes) -> None:
        if not payload:
            self.document = {}
            return
        found = read_result(payload)
        if found is None:
            self.told = "what is published as its estimate is none"
            return
        self.document = found.document


def _seen(document: Mapping[str, object]) -> Mapping[str, object]:
    """Without what changes while nothing is counted."""
    return {name: value for name, value in document.items() if name not in _OF_NO_MATTER}
