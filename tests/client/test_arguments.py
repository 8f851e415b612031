"""An argument of the wrong type is named, with what it should be, before anything is opened."""

import math
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from scripted_broker import ScriptedBroker

from hush import HushError
from hush_client import Client, Gateway, Policy, SyncClient
from hush_common.errors import OptionError


class Secret:
    """Whose text must not show."""

    def __repr__(self) -> str:
        return "171.25"


async def never_awaited(_: object) -> None:
    raise AssertionError


@pytest.mark.parametrize("kind", [Client, SyncClient])
@pytest.mark.parametrize(
    ("wrong", "given"),
    [
        ({"url": 5}, "int"),
        ({"url": None}, "url"),
        ({"device": None}, "NoneType"),
        ({"device": 17}, "int"),
        ({"state": 5}, "int"),
        ({"policy": 4}, "int"),
        ({"spread": "1"}, "str"),
        ({"spread": True}, "bool"),
        ({"capacity": "5"}, "str"),
        ({"capacity": 1.5}, "float"),
        ({"tls": True}, "bool"),
        ({"client_id": 5}, "int"),
        ({"on_delivery": "print"}, "str"),
        ({"on_delivery": never_awaited}, "async def"),
        ({"keep": Secret()}, "Secret"),
    ],
)
def test_an_argument_of_the_wrong_type_is_named(kind: Any, wrong: dict[str, object], given: str) -> None:  # noqa: ANN401
    arguments = {"url": "mqtt://localhost", "device": "d", "state": "s"} | wrong
    with pytest.raises(TypeError) as caught:
        kind(arguments.pop("url"), **arguments)
    assert str(caught.value).startswith(next(iter(wrong)))
    assert given in str(caught.value)
    assert "171.25" not in str(caught.value)


@pytest.mark.parametrize(
    ("wrong", "kind"),
    [
        ({"kept_bytes": "4"}, TypeError),
        ({"kept_bytes": -1}, OptionError),
        ({"recall_every": "1"}, TypeError),
        ({"recall_every": -1}, OptionError),
        ({"recall_every": math.nan}, OptionError),
    ],
)
def test_what_a_gateway_keeps_is_checked_before_anything_is_opened(
    tmp_path: Path, wrong: dict[str, Any], kind: type[Exception]
) -> None:
    with pytest.raises(kind, match=next(iter(wrong))):
        Gateway(ScriptedBroker(), name="g", state=tmp_path / "s", **wrong)


def test_a_policy_takes_no_text_for_a_truth_value() -> None:
    wrong: Any = "no"
    with pytest.raises(TypeError, match="sticky must be True or False, not of type str"):
        Policy(sticky=wrong)


@pytest.mark.parametrize("wrong", [5, never_awaited, partial(never_awaited)])
async def test_a_callback_of_a_source_is_a_plain_function(tmp_path: Path, wrong: Any) -> None:  # noqa: ANN401
    async with Gateway(ScriptedBroker(), name="g", state=tmp_path / "s") as gateway:
        with pytest.raises(TypeError, match="on_receipt must "):
            gateway.answer("d", "t", lambda: 1, on_receipt=wrong)


async def test_a_source_and_a_callback_can_be_called(tmp_path: Path) -> None:
    async with Gateway(ScriptedBroker(), name="g", state=tmp_path / "s") as gateway:
        for wrong in (5, "172", None):
            with pytest.raises(TypeError, match="source "):
                gateway.answer("d", "heights", wrong)  # type: ignore[arg-type]
            with pytest.raises(TypeError, match="callback "):
                gateway.on_task(wrong)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match=r"source_timeout .*str"):
            gateway.answer("d", "heights", lambda: 1, source_timeout="5")  # type: ignore[arg-type]
        for name, given in (("source_timeout", -1), ("source_timeout", 1e9), ("absent", "never")):
            with pytest.raises(HushError, match=f"^{name}: "):
                gateway.answer("d", "heights", lambda: 1, **{name: given})  # type: ignore[arg-type]
        assert gateway.tasks() == {}
