"""The options of `hush serve`: what is left out has a default, and what is wrong is named."""

from pathlib import Path
from typing import Any

import pytest
from commands import Shown, run

from hush_aggregator.commands.serve import ServeOptions
from hush_common.errors import OptionError


def options(tmp_path: Path, **changes: Any) -> ServeOptions:  # noqa: ANN401 - of ServeOptions
    given: dict[str, Any] = {"broker": "mqtt://localhost", "store": str(tmp_path / "hush.sqlite"), **changes}
    return ServeOptions(**given)


def served(tmp_path: Path, *more: str, broker: str = "mqtt://127.0.0.1:9", store: str = "hush.sqlite") -> Shown:
    return run(["serve", "--broker", broker, "--store", store, *more], tmp_path)


def test_what_is_left_out_has_a_default(tmp_path: Path) -> None:
    left_out = options(tmp_path)
    assert (left_out.name, left_out.confidence, left_out.task) == ("aggregator", 0.95, ())


@pytest.mark.parametrize("confidence", [1e-9, 0.999999])
def test_any_confidence_inside_0_and_1_will_do(tmp_path: Path, confidence: float) -> None:
    assert options(tmp_path, confidence=confidence).confidence == confidence


@pytest.mark.parametrize(
    ("setting", "value", "shown"),
    [
        ("confidence", 1, "'1'"),
        ("confidence", 0.0, "between 0 and 1"),
        ("confidence", float("nan"), "'nan'"),
        ("name", "a/b", "'a/b'"),
        ("name", "", "''"),
        ("store", "/no/such/directory/x", "/no/such/directory "),
        ("store", "/", "'/'"),
        ("store", 300 * "x", "File name too long"),
    ],
)
def test_a_wrong_setting_is_named_with_its_value(tmp_path: Path, setting: str, value: object, shown: str) -> None:
    with pytest.raises(OptionError) as caught:
        options(tmp_path, **{setting: value})
    assert (caught.value.option, caught.value.exit_code) == (setting, 2)
    assert shown in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("option", "value", "shown"),
    [
        ("--confidence", "much", "'much'"),
        ("--retention", "30", "30d"),
        ("--retention", "3651d", "3650d"),
        ("--gateway", "kitchen", "'kitchen'"),
        ("--stroe", "x", "--stroe"),
    ],
)
def test_what_cannot_be_read_is_named_in_one_line(tmp_path: Path, option: str, value: str, shown: str) -> None:
    ended = served(tmp_path, option, value)
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert option.strip("-") in ended.err
    assert shown in ended.err


def test_a_wrong_address_is_named_without_its_password(tmp_path: Path) -> None:
    ended = served(tmp_path, broker="http://alice:secret@host")
    assert (ended.code, "secret" in ended.err) == (1, False)


def test_a_missing_setting_is_named(tmp_path: Path) -> None:
    ended = run(["serve", "--store", "hush.sqlite"], tmp_path)
    assert (ended.code, "--broker" in ended.err) == (2, True)
