"""The sources of the ports draw from the system's generator alone, and use no float where noise is drawn."""

import ast
import re
import subprocess
from pathlib import Path

import pytest
from port_programs import C_PORT, PORTS
from servers import need

C_WORDS = {"float", "double", "strtod", "atof", "rand", "srand", "malloc", "calloc", "free"}
JS_WORDS = {"Math.random", "Math.log", "Math.exp", "Math.pow", "parseFloat", "eval", "console", "localStorage", "fetch"}


@pytest.mark.parametrize("name", sorted(path.name for path in C_PORT.glob("hush*.[ch]")))
def test_the_c_files_have_no_float_and_no_generator(name: str) -> None:
    bare = re.sub(r'/\*.*?\*/|"(?:\\.|[^"\\])*"', " ", (C_PORT / name).read_text(encoding="utf-8"), flags=re.DOTALL)
    words = set(re.findall(r"[A-Za-z_]\w*", bare))
    assert words & C_WORDS == set()
    assert len(words) > 20, "the words were found"


@pytest.mark.parametrize("name", ["hush_micropython.py", "hush_device.py"])
def test_the_micropython_files_have_no_float_and_no_generator(name: str) -> None:
    for node in ast.walk(ast.parse((PORTS / "micropython" / name).read_text(encoding="utf-8"))):
        assert not (isinstance(node, ast.Constant) and isinstance(node.value, float)), ast.unparse(node)
        assert not (isinstance(node, ast.BinOp | ast.AugAssign) and isinstance(node.op, ast.Div)), ast.unparse(node)
        if isinstance(node, ast.Import):
            assert not {"random", "math", "secrets"} & {alias.name for alias in node.names}


@pytest.mark.parametrize("module", sorted((PORTS / "js" / "src").glob("*.js")), ids=lambda module: str(module.name))
def test_the_javascript_modules_have_no_generator_and_no_dependency(module: Path) -> None:
    bare = re.sub(r"^\s*(?:/\*\*.*|\*.*|//.*)$", "", module.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert {word for word in JS_WORDS if re.search(rf"\b{re.escape(word)}\b", bare)} == set()
    imported = set(re.findall(r'(?:from |import\()"([^"]+)"', bare))
    assert all(one.startswith(("./", "node:") if module.name == "node.js" else "./") for one in imported)
    if module.name in {"mechanisms.js", "numbers.js", "recall.js"}:
        assert re.findall(r"\d\.\d", re.sub(r'"[^"]*"', "", bare)) == []


@pytest.mark.large
def test_a_build_without_an_operating_system_needs_none(tmp_path: Path) -> None:
    command = [need("gcc"), "-std=c11", "-Os", "-Wall", "-Wextra", "-Werror", "-DHUSH_NO_OS_RANDOM"]
    subprocess.run([*command, "-c", str(C_PORT / "hush.c"), "-o", str(tmp_path / "hush.o")], check=True)
    names = subprocess.run(
        [need("nm"), "-u", str(tmp_path / "hush.o")], check=True, capture_output=True, text=True
    ).stdout
    assert not {"getrandom", "fopen", "malloc", "strtod"} & set(names.split())
