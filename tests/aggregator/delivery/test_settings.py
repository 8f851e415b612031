from pathlib import Path

import pytest

from hush_aggregator.commands.serve import Settings
from hush_common.errors import BrokerError, OptionError


def values(tmp_path: Path, **changes: object) -> dict[str, object]:
    return {"broker": "mqtt://localhost", "store": tmp_path / "hush.sqlite", **changes}


def test_what_is_left_out_has_a_default(tmp_path: Path) -> None:
    settings = Settings.read(values(tmp_path))
    assert (str(settings.broker), settings.name, settings.confidence) == ("mqtt://localhost:1883", "aggregator", 0.95)
    assert settings.tasks == ()


@pytest.mark.parametrize("confidence", [1e-9, 0.5, 0.999999])
def test_any_confidence_inside_0_and_1_will_do(tmp_path: Path, confidence: float) -> None:
    assert Settings.read(values(tmp_path, confidence=confidence)).confidence == confidence


@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        ("confidence", 1, r"confidence: '1': a confidence lies between 0 and 1"),
        ("confidence", 0.0, r"lies between 0 and 1"),
        ("confidence", float("nan"), r"confidence: 'nan': a confidence lies between 0 and 1"),
        ("confidence", "much", r"confidence: 'much'"),
        ("name", "a/b", r"name: 'a/b': a name is part of a topic"),
        ("name", "", r"name: '': a name"),
        ("store", "/no/such/directory/x", r"store: '/no/such/directory/x': the directory /no/such/directory does not"),
        ("store", "/", r"store: '/': is a directory; name a file"),
        ("store", 300 * "x", r"cannot be opened \(File name too long\); name another file"),
        ("stroe", "x", r"stroe: Extra inputs"),
        ("retention", "30", r"retention: is not a length of time; write a number and s, m, h, d or w, as in 30d"),
        ("retention", "3651d", r"as in 30d, up to 3650d"),
    ],
)
def test_a_wrong_setting_is_named_with_its_value(tmp_path: Path, setting: str, value: object, message: str) -> None:
    with pytest.raises(OptionError, match=message) as caught:
        Settings.read(values(tmp_path, **{setting: value}))
    assert caught.value.option == setting
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)


def test_a_wrong_address_is_told_without_its_password(tmp_path: Path) -> None:
    with pytest.raises(BrokerError) as caught:
        Settings.read(values(tmp_path, broker="http://alice:secret@host"))
    assert "secret" not in str(caught.value)


def test_a_missing_setting_is_named() -> None:
    with pytest.raises(OptionError, match="broker: Field required"):
        Settings.read({"store": "hush.sqlite"})
