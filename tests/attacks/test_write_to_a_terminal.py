"""Whoever can publish a task wants the terminals and logs of those who read it to say what was not said."""

import json

import pytest

from hush_common.errors import TaskError
from hush_common.task import decode_task, make_task

_HOSTILE = "\x1b[2Jepsilon\r\n2026-01-01 INFO hush.aggregator: all is well\u202e\x07"


@pytest.mark.parametrize("place", ["", "domain"])
def test_the_name_of_a_field_cannot(place: str) -> None:
    document = json.loads(make_task({"id": "t", "epsilon": "1", "domain": {"kind": "bit"}}).payload)
    (document[place] if place else document)[_HOSTILE] = 1
    with pytest.raises(TaskError) as caught:
        decode_task(json.dumps(document).encode())
    assert str(caught.value).isprintable()
    assert caught.value.field.isprintable()
