"""`hush scenario`: list, show, check, new; and what a scenario file may not say."""

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from hush import SCENARIOS, HushError
from hush_simulations.commands.scenario import app
from hush_simulations.scenarios.scenario_file import parse_scenario, text_of


def command(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


def test_a_shipped_scenario_is_shown_letter_by_letter() -> None:
    assert command("show", "poisoned").stdout == text_of("poisoned")


def test_a_new_one_is_a_copy_that_can_be_checked_and_is_never_written_over(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    assert command("new", str(file), "--like", "survey").exit_code == 0
    assert file.read_text(encoding="utf-8") == text_of("survey")
    checked = command("check", str(file))
    assert checked.stdout == f"{file}: Did you work while ill last year?, randomized_response, 500 devices\n"
    file.write_text("mine", encoding="utf-8")
    error = command("new", str(file)).exception
    assert "exists; name a new file" in str(error)
    assert file.read_text(encoding="utf-8") == "mine"


@pytest.mark.parametrize(
    "arguments", [("show", "heigths"), ("new", "x/y.toml", "--like", "none"), ("show", "./a.toml")]
)
def test_a_name_that_is_none_is_one_line_with_a_remedy(arguments: tuple[str, ...]) -> None:
    error = command(*arguments).exception
    assert isinstance(error, HushError)
    assert "\n" not in str(error)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("[network]\nlost = 1.5", "network.lost: 1.5 is not a share"),
        ("[network]\nlost = 0.6", "network.lost: with cut more than 0.5"),
        ("[network]\ntwice = 0.6\nlate = 0.6", "network: the shares add up to more than 1"),
        ("[network]\nforgotten = 0.1\ncut = 0.1", "network.forgotten: goes with late, twice and reordered"),
        ("[network]\nreordered = -0.1", "network.reordered: -0.1 is not a share"),
        ("[network]\nslow = 0.1", "network.slow: unknown field"),
        ("[[liars]]\nshare = -0.1\nlie = 'edge'", "liars.share: -0.1 is not a share"),
        ("[[liars]]\nshare = 0.1\nlie = 'value'", 'liars.value: is for lie = "value" only'),
        ("[[liars]]\nshare = 0.1\nlie = 'edge'\nvalue = 1", 'liars.value: is for lie = "value" only'),
        (
            "[[liars]]\nshare = 0.1\nlie = 'value'\nvalue = 'yes'",
            "liars.value: 'yes' is not a value of this task's domain",
        ),
        ("[[liars]]\nshare = 0.1\nlie = 'edge'\nreports = 0", "liars.reports: 0 is outside 1 to 1000"),
        ("[[liars]]\nshare = 0.6\nlie = 'edge'\n[[liars]]\nshare = 0.6\nlie = 'edge'", "liars: the shares add up to"),
    ],
)
def test_what_a_scenario_file_may_not_say_is_named_with_its_field(said: str, told: str) -> None:
    with pytest.raises(HushError) as caught:
        parse_scenario(f"{text_of('survey')}\n{said}\n", Path("mine.toml"))
    assert str(caught.value).startswith(told)


def test_every_scenario_is_listed_with_its_paragraph() -> None:
    shown = " ".join(command("list").stdout.split())
    for name, scenario in SCENARIOS.items():
        assert name in shown
        assert scenario.about.split(".")[0] in shown
