"""Results in the real programs that people use: Jupyter, IPython, marimo and the plain interpreter."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

pytestmark = pytest.mark.large

DOMAIN = "{'kind': 'number', 'lower': 0, 'upper': 110, 'unit': 'years'}"
CELLS = {
    "run": "hush.simulate('heights', engine='memory', clients=50, seed=1)",
    "sweep": "hush.sweep({'task.epsilon': [1, 2]}, out='sweep', trials=2, seed=1)",
    "feasible": f"hush.feasible([30, 41, 59] * 100, {DOMAIN})",
    "plan": f"hush.plan({DOMAIN}, people=500, epsilon=1)",
    "audit": "hush.audit('laplace', samples=200, seed=1)",
}
WORDS = {"run": "reporters", "sweep": "task.epsilon", "feasible": "years", "plan": "table", "audit": "laplace"}
MISTAKE = "hush.simulate('hieghts')"


@pytest.fixture(scope="module")
def notebook(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The outputs of every cell, by its name."""
    cells = [nbformat.v4.new_code_cell("import hush")]  # type: ignore[no-untyped-call]
    cells += [nbformat.v4.new_code_cell(text) for text in (*CELLS.values(), MISTAKE)]  # type: ignore[no-untyped-call]
    book = nbformat.v4.new_notebook(cells=cells)  # type: ignore[no-untyped-call]
    place = str(tmp_path_factory.mktemp("notebook"))
    done = NotebookClient(
        book, timeout=100, allow_errors=True, kernel_name="python3", resources={"metadata": {"path": place}}
    ).execute()
    return dict(zip(("import", *CELLS, "mistake"), (cell["outputs"] for cell in done["cells"]), strict=True))


@pytest.mark.parametrize("kind", CELLS)
def test_jupyter_shows_the_table_and_the_picture(notebook: dict[str, Any], kind: str) -> None:
    (shown,) = notebook[kind]
    assert shown["output_type"] == "execute_result"
    html = shown["data"]["text/html"]
    assert "<table" in html
    assert '<img src="data:image/png;base64,' in html
    assert WORDS[kind] in shown["data"]["text/plain"]


def test_a_mistake_in_jupyter_is_one_short_error(notebook: dict[str, Any]) -> None:
    (shown,) = notebook["mistake"]
    assert shown["output_type"] == "error"
    (line,) = shown["traceback"]
    assert line.startswith("OptionError: scenario: 'hieghts'")
    assert "'heights'" in line
    assert "\n" not in line


@pytest.mark.parametrize("program", [("-m", "IPython", "--simple-prompt", "--no-banner", "-i"), ("-i", "-q")])
def test_a_terminal_shows_text_alone(program: Sequence[str], tmp_path: Path) -> None:
    shown = CELLS["feasible"] if "IPython" in program else f"print({CELLS['feasible']})"
    ended = subprocess.run(
        [sys.executable, *program],
        input=f"import hush\n{shown}\n{MISTAKE}\nexit()\n",
        cwd=tmp_path,
        env={**os.environ, "IPYTHONDIR": str(tmp_path), "PYTHONSTARTUP": ""},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert "0 to 110 years" in ended.stdout, ended.stderr
    assert "<table" not in ended.stdout
    said = ended.stdout + ended.stderr
    assert "'heights'" in said
    assert said.count("Traceback") == (0 if "IPython" in program else 1)


def test_marimo_shows_the_table_and_the_picture(tmp_path: Path) -> None:
    cells = "".join(f"\n@app.cell\ndef _(hush):\n    {text}\n    return\n" for text in CELLS.values())
    (tmp_path / "book.py").write_text(
        f"import marimo\napp = marimo.App()\n\n@app.cell\ndef _():\n    import hush\n    return (hush,)\n{cells}\n",
        encoding="utf-8",
    )
    words = (sys.executable, "-m", "marimo", "export", "html", "book.py", "-o", "book.html")
    subprocess.run(words, cwd=tmp_path, capture_output=True, timeout=200, check=True)
    page = (tmp_path / "book.html").read_text(encoding="utf-8")
    assert page.count("data:image/png;base64") == len(CELLS)
    for words_of in WORDS.values():
        assert json.dumps(words_of)[1:-1] in page or words_of in page
