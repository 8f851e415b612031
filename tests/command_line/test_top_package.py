"""`import hush` and `python -m hush`: one name, and nothing loaded before it is used."""

import subprocess
import sys
from importlib.metadata import version

import pytest

import hush
from hush import HushError
from hush_client import Client


def python(*arguments: str) -> str:
    """What that Python program prints on standard output; it must end with 0."""
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("then", ["pass", "hush.Client", "hush.SyncClient, hush.HushError", "dir(hush)"])
def test_a_device_that_imports_hush_meets_neither_numpy_nor_typer(then: str) -> None:
    heavy = "{'numpy', 'typer', 'aiomqtt', 'pydantic', 'matplotlib', 'hush_aggregator', 'hush_simulations'}"
    assert python("-c", f"import sys, hush; {then}; print(sorted({heavy} & set(sys.modules)))") == "[]"


def test_the_probe_of_that_test_sees_what_is_loaded() -> None:
    assert python("-c", "import sys, hush; hush.SCENARIOS['heights']; print('numpy' in sys.modules)") == "True"


def test_every_name_is_where_it_says_and_no_other_is() -> None:
    assert hush.Client is Client
    assert {*hush.__all__} <= {*dir(hush)}
    with pytest.raises(AttributeError, match="module 'hush' has no attribute 'nothing'"):
        hush.nothing  # type: ignore[attr-defined]  # noqa: B018 - mypy knows it too


def test_the_version_is_that_of_the_installation_in_python_and_on_the_command_line() -> None:
    assert hush.__version__ == version("hush-ldp")
    assert python("-m", "hush", "--version") == f"hush {hush.__version__}"


@pytest.mark.parametrize(
    "program", ["from hush.__main__ import main; main()", "import runpy; runpy.run_module('hush', run_name='__main__')"]
)
def test_the_command_without_typer_is_one_line_that_names_its_extra(program: str) -> None:
    probe = f"import sys; sys.modules['typer'] = None; {program}"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "hush: the command hush needs typer, which comes with hush-ldp[command]; "
        "in a clone of hush, run: pip install '.[command]'\n"
    )


def test_a_name_whose_extra_is_missing_says_which_to_install() -> None:
    probe = "import sys; sys.modules['numpy'] = None\ntry: from hush import Scenario\nexcept ImportError as e: print(e)"
    assert python("-c", probe) == (
        "hush.Scenario needs numpy, which comes with hush-ldp[simulations]; "
        "in a clone of hush, run: pip install '.[simulations]'"
    )
    assert issubclass(hush.MissingExtraError, HushError)
