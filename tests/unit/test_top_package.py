"""`import hush` and `python -m hush`: one name, and nothing loaded before it is used."""

import subprocess
import sys
from importlib.metadata import version

import pytest

import hush
from hush_client import Client
from hush_common.errors import HushError


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
    assert hush.__version__ == version("hush")
    assert python("-m", "hush", "--version") == f"hush {hush.__version__}"


def test_a_name_whose_extra_is_missing_says_which_to_install() -> None:
    probe = "import sys; sys.modules['numpy'] = None\ntry: from hush import Scenario\nexcept ImportError as e: print(e)"
    assert python("-c", probe) == (
        "hush.Scenario needs numpy, which is not installed; run: pip install 'hush[simulations]'"
    )
    assert issubclass(hush.MissingExtraError, HushError)
