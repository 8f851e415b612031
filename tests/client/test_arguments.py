"""An argument that cannot be right is named before anything is opened, and no value is quoted."""

import math
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from scripted_broker import ScriptedBroker

from hush_client import Client, Gateway, Policy, SyncClient
from hush_common.errors import BrokerError, OptionError, TaskError

pytestmark = pytest.mark.virtual_time


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
    ("option", "values", "kind"),
    [
        ("spread", [-1, math.nan, math.inf, 604_801], OptionError),
        ("keep", [-1, math.nan, math.inf, 604_801], OptionError),
        ("capacity", [0], OptionError),
        ("kept_bytes", [-1], OptionError),
        ("kept_bytes", ["4"], TypeError),
        ("recall_every", [-1, math.nan], OptionError),
        ("recall_every", ["1"], TypeError),
    ],
)
def test_a_number_out_of_range_is_refused(
    tmp_path: Path, option: str, values: list[Any], kind: type[Exception]
) -> None:
    for value in values:
        with pytest.raises(kind, match=option):
            Gateway(ScriptedBroker(), name="g", state=tmp_path / "s", **{option: value})
    assert not (tmp_path / "s").exists()


def test_a_policy_takes_no_text_for_a_truth_value() -> None:
    wrong: Any = "no"
    with pytest.raises(TypeError, match=r"sticky .*str"):
        Policy(sticky=wrong)


def test_a_name_must_fit_into_a_topic(tmp_path: Path) -> None:
    for device in ("a b", "", "-a", "a/b", "x" * 129):
        with pytest.raises(OptionError) as raised:
            Client("mqtt://h", device=device, state=tmp_path)
        assert str(raised.value).startswith(f"device: {device!r}"[:50])
    with pytest.raises(BrokerError, match="topic"):
        Client("mqtt://a%2Fb@h", device="d", state=tmp_path)


async def test_a_wrong_task_or_device_spends_nothing(tmp_path: Path) -> None:
    async with Gateway(ScriptedBroker(), name="g", state=tmp_path, spread=0) as gateway:
        for task_id in ("", "+", "#", "a/b", "Heights", "x" * 65):
            with pytest.raises(TaskError, match="id"):
                await gateway.report("d", task_id, 172.0)
            with pytest.raises(TaskError, match="id"):
                gateway.answer("d", task_id, lambda: 172.0)
        wrong: Any
        for wrong in (None, 7, b"heights", ["heights"]):
            for asked in (gateway.report("d", wrong, 172.0), gateway.task(wrong)):
                with pytest.raises(TypeError, match=type(wrong).__name__):
                    await asked
            with pytest.raises(TypeError, match=type(wrong).__name__):
                gateway.answer("d", wrong, lambda: 172.0)
        with pytest.raises(OptionError, match="name"):
            await gateway.report("", "heights", 172.0)
        assert await gateway.devices() == ()


async def test_a_source_and_a_callback_can_be_called(tmp_path: Path) -> None:
    async with Gateway(ScriptedBroker(), name="g", state=tmp_path) as gateway:
        wrong: Any
        for wrong in (5, "172", None):
            with pytest.raises(TypeError, match="source "):
                gateway.answer("d", "heights", wrong)
            with pytest.raises(TypeError, match="callback "):
                gateway.on_task(wrong)
        for wrong in (5, never_awaited, partial(never_awaited)):
            with pytest.raises(TypeError, match="on_receipt "):
                gateway.answer("d", "heights", lambda: 1, on_receipt=wrong)
        with pytest.raises(TypeError, match=r"source_timeout .*str"):
            gateway.answer("d", "heights", lambda: 1, source_timeout="5")  # type: ignore[arg-type]
        for name, wrong in (
            *(("source_timeout", seconds) for seconds in (0, -1, 1e9, math.nan)),
            ("absent", "never"),
        ):
            with pytest.raises(OptionError, match=f"^{name}: "):
                gateway.answer("d", "heights", lambda: 1, **{name: wrong})
        with pytest.raises(OptionError, match="name"):
            gateway.answer("", "heights", lambda: 1)
        assert gateway.tasks() == {}
        gateway.answer("d", "later", lambda: 1)
        with pytest.raises(ValueError, match="later"):
            gateway.answer("d", "later", lambda: 2)


async def test_a_closed_gateway_tells_how_to_open_it(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="async with"):
        await Gateway(ScriptedBroker(), name="g", state=tmp_path).report("d", "heights", 172.0)
