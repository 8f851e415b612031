"""Reading tasks from files and retained messages: the edge where bytes become a frozen `Task`."""

from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path

from hush_common.errors import TaskError
from hush_common.mechanisms.parameters import Parameters
from hush_common.mechanisms.registry import named
from hush_common.task import Task
from hush_common.task_document import encode_document, task_of_document
from hush_common.untrusted import DRAFT, TASK, read_file, read_json, read_toml

__all__ = ["PAYLOAD_LIMIT", "decode_task", "make_task", "read_draft", "read_task", "settled"]

PAYLOAD_LIMIT = TASK.bytes
"""Most bytes of a published task."""


def read_task(path: Path, *, legacy: bool = False) -> Task:
    """Read a task from a TOML or JSON file, and fix the bytes under which it will be published.

    Args:
        path: the file.
        legacy: whether it may be one that is counted already and nobody answers any more: see `Task`.

    Raises:
        TaskError: naming the file, which is missing, not TOML or JSON, or not a legal task.
    """
    try:
        text = read_file(path, DRAFT)
    except OSError as error:
        raise TaskError(str(path), f"cannot be read ({error.strerror}); name a TOML or JSON task file") from error
    except UnicodeDecodeError as error:
        raise TaskError(str(path), "is not UTF-8 text; name a TOML or JSON task file") from error
    except ValueError as error:
        raise TaskError(str(path), f"cannot be a task: {error}") from error
    return read_draft(text, str(path), legacy=legacy)


def read_draft(text: str, name: str, *, legacy: bool = False) -> Task:
    """Read a task from TOML or JSON, and fix the bytes under which it will be published.

    Args:
        text: the draft; JSON begins with a brace.
        name: what to call it in a message.
        legacy: as of `read_task`.

    Raises:
        TaskError: naming the draft, which is not TOML or JSON, or not a legal task.
    """
    try:
        document = _object(read_json(text, DRAFT)) if text.lstrip().startswith("{") else read_toml(text, DRAFT)
    except ValueError as error:
        raise TaskError(name, f"cannot be parsed: {error}") from error
    if isinstance(document.get("task"), dict):
        raise TaskError(name, "is a scenario, not a task; write what stands under [task] into a file of its own")
    try:
        return make_task(document, legacy=legacy)
    except TaskError as error:
        error.args = (f"{name}: {error}",)
        raise


def make_task(document: Mapping[str, object], *, legacy: bool = False) -> Task:
    """Validate a task given as a mapping, fill in what has one sensible value, and encode it for publication.

    Raises:
        TaskError: naming the field and the remedy.
    """
    made = task_of_document(document, draft=True, legacy=legacy)
    return replace(decode_task(encode_document(made), legacy=legacy), chosen=made.chosen)


def settled(task: Task, payload: bytes) -> Task | None:
    """The task that stands under the id of `task` already, if it asks the same.

    Tasks never change, but what a draft leaves open another version of hush may have decided otherwise: the G of
    `multilevel`, the table, with `"auto"` the mechanism. Then what was decided first stays, and its reports count.

    Args:
        task: made from a draft by this version.
        payload: what is stored or published under its id.

    Returns:
        `task` itself, or the one in `payload`, or None if that is another one: the draft fixes something else.
    """
    if payload == task.payload:
        return task
    try:
        there = decode_task(payload, legacy=task.legacy)
        names = [field.name for field in fields(Parameters)]
        given = {name: getattr((there if name in task.chosen else task).parameters, name) for name in names}
        kind = named(there.mechanism)
        free = "mechanism" in task.chosen and kind is not None and kind.auto
        mechanism = there.mechanism if free else task.mechanism
        asked = replace(task, mechanism=mechanism, parameters=Parameters(**given), payload=payload)
    except TaskError:
        return None
    return there if asked == there else None


def decode_task(payload: bytes, *, legacy: bool = False) -> Task:
    """The task in a retained message. Its digest is that of these very bytes.

    Args:
        payload: the message.
        legacy: whether it may be one of before, for an aggregator that has counted it: see `Task`. A device says no.

    Raises:
        TaskError: not UTF-8 JSON, too long, a duplicate key, an unknown field, or not a legal task.
    """
    try:
        document = _object(read_json(bytes(payload), TASK, published=True))
    except ValueError as error:
        raise TaskError("task", f"cannot be read: {error}") from error
    return task_of_document(document, payload=bytes(payload), legacy=legacy)


def _object(document: object) -> dict[str, object]:
    if not isinstance(document, dict):
        raise TaskError("task", "is not a JSON object; write the fields of the task in braces")
    return document
