"""A device starts on what it needs: the class of a client loads nothing that only an answer needs."""

import subprocess
import sys

import pytest

HEAVY = {"aiomqtt", "asyncio", "hush_client.gateway", "hush_common.mechanisms", "paho", "sqlite3", "ssl"}
OF_FILES = {"gzip", "importlib.resources", "tempfile", "tomllib"}


def loaded(statement: str) -> set[str]:
    """Modules in a process of its own, once it has run this."""
    command = [sys.executable, "-c", f"{statement}\nimport sys\nprint(*sys.modules)"]
    return set(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split())


@pytest.mark.medium
@pytest.mark.parametrize(
    ("statement", "spared"),
    [
        ("from hush_client import Client", HEAVY | OF_FILES),
        ("from hush_client import Gateway, SyncClient", OF_FILES | {"aiomqtt", "paho"}),
        ("from hush_client import Client; Client('mqtt://h', device='d', state='s')", {"tomllib"}),
    ],
)
def test_an_import_spares_what_only_an_answer_or_a_file_needs(statement: str, spared: set[str]) -> None:
    started = loaded("")
    assert loaded(statement) & (spared - started) == set()
    assert started & HEAVY == set()  # else it could not be seen
