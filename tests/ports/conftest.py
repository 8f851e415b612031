"""The ports under test, each as a program."""

import pytest
from port_programs import Port, port_of


@pytest.fixture(
    scope="session",
    params=[
        *(pytest.param(name, marks=pytest.mark.large) for name in ("c", "node", "micropython")),
        pytest.param("cpython", marks=pytest.mark.medium),
    ],
)
def port(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Port:
    """Each port in turn; `cpython` runs the MicroPython file where MicroPython itself is missing."""
    return port_of(request.param, tmp_path_factory.mktemp(request.param))
