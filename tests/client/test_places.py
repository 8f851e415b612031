"""Where a device keeps its state unless it is told."""

from pathlib import Path

import pytest

from hush_client.state.database import state_directory


@pytest.mark.parametrize(
    ("base", "directory"),
    [("/data", "/data/hush"), (None, "/home/d/.local/state/hush"), ("relative", "/home/d/.local/state/hush")],
)
def test_a_state_lies_where_the_xdg_base_directories_have_it(
    monkeypatch: pytest.MonkeyPatch, base: str | None, directory: str
) -> None:
    monkeypatch.setenv("HOME", "/home/d")
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    if base is not None:
        monkeypatch.setenv("XDG_STATE_HOME", base)
    assert state_directory(None) == Path(directory)
    assert state_directory(Path("given")) == Path("given")
