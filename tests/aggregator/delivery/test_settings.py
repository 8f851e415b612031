"""The settings of `hush serve`: what is left out has a default, and what is wrong is named."""

from pathlib import Path

import pytest

from hush_aggregator.commands.serve import Settings
from hush_common.errors import BrokerError, OptionError


def read(tmp_path: Path, **changes: object) -> Settings:
    return Settings.read({"broker": "mqtt://localhost", "store": tmp_path / "hush.sqlite", **changes})


def test_what_is_left_out_has_a_default(tmp_path: Path) -> None:
    settings = read(tmp_path)
    assert (str(settings.broker), settings.name, settings.confidence) == ("mqtt://localhost:1883", "aggregator", 0.95)
    assert settings.tasks == ()


@pytest.mark.parametrize("confidence", [1e-9, 0.999999])
def test_any_confidence_inside_0_and_1_will_do(tmp_path: Path, confidence: float) -> None:
    assert read(tmp_path, confidence=confidence).confidence == confidence


@pytest.mark.parametrize(
    ("setting", "value", "shown"),
    [
        ("confidence", 1, "'1'"),
        ("confidence", 0.0, "between 0 and 1"),
        ("confidence", float("nan"), "'nan'"),
        ("confidence", "much", "'much'"),
        ("name", "a/b", "'a/b'"),
        ("name", "", "''"),
        ("store", "/no/such/directory/x", "/no/such/directory "),
        ("store", "/", "'/'"),
        ("store", 300 * "x", "File name too long"),
        ("stroe", "x", "stroe"),
        ("retention", "30", "30d"),
        ("retention", "3651d", "3650d"),
    ],
)
def test_a_wrong_setting_is_named_with_its_value(tmp_path: Path, setting: str, value: object, shown: str) -> None:
    with pytest.raises(OptionError) as caught:
        read(tmp_path, **{setting: value})
    assert (caught.value.option, caught.value.exit_code) == (setting, 2)
    assert shown in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_wrong_address_is_named_without_its_password(tmp_path: Path) -> None:
    with pytest.raises(BrokerError) as caught:
        read(tmp_path, broker="http://alice:secret@host")
    assert "secret" not in str(caught.value)


def test_a_missing_setting_is_named() -> None:
    with pytest.raises(OptionError, match="broker"):
        Settings.read({"store": "hush.sqlite"})
