"""What the sources of the ports must not contain, whatever the inputs of other tests happen to reach."""

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from port_programs import C_PORT, PORTS
from servers import need

MODULES = {"os", "struct", "hashlib", "binascii", "hush_micropython"}
CALLS = {"float", "round", "seed", "bit_length", "bit_count", "print", "eval", "exec", "fromhex", "sleep"}
C_WORDS = {"float", "double", "strtod", "atof", "rand", "srand", "malloc", "calloc", "free", "setlocale", "goto"}
MODERN = (ast.Match, ast.JoinedStr, ast.AsyncFunctionDef, ast.Await, ast.Starred, ast.TryStar, ast.Global)


class Running(ast.NodeTransformer):
    """Removes what no MicroPython runs: annotations, and imports for types or with another way without them."""

    def visit_If(self, node: ast.If) -> ast.AST | None:
        if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return None
        return self.generic_visit(node)

    def visit_Try(self, node: ast.Try) -> ast.AST | None:
        handled = [handler.type.id for handler in node.handlers if isinstance(handler.type, ast.Name)]
        return None if handled == ["ImportError"] else self.generic_visit(node)


def complaints(source: str) -> Iterator[str]:
    """What MicroPython lacks, and what privacy arithmetic must not use."""
    for node in ast.walk(Running().visit(ast.parse(source))):
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names if alias.name not in MODULES)
            case ast.ImportFrom(module=module):
                yield f"from {module}"
            case ast.Constant(value=float() | complex()):
                yield "a float"
            case ast.BinOp(op=ast.Div()) | ast.AugAssign(op=ast.Div()):
                yield "a division that makes a float"
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), keywords=keywords):
                yield from [name] if name in CALLS else []
                yield from [f"a keyword of {name}"] if keywords else []
            case ast.ClassDef(decorator_list=[_, *_]) | ast.FunctionDef(decorator_list=[_, *_]):
                yield "a decorator"
            case _ if isinstance(node, MODERN):
                yield type(node).__name__


@pytest.mark.parametrize("name", ["hush_micropython.py", "hush_device.py"])
def test_the_micropython_files_use_what_every_micropython_has(name: str) -> None:
    assert list(complaints((PORTS / "micropython" / name).read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize(
    "source",
    [
        "import random",
        "from typing import Any",
        "import dataclasses\n@dataclasses.dataclass\nclass A: ...",
        "x = 0.5",
        "x = 1 / 2",
        "x /= 2",
        "float('1')",
        "(5).bit_length()",
        "os.urandom.seed(1)",
        "f'{x}'",
        "x = [*y]",
        "match x:\n    case 1: ...",
        "(1).to_bytes(8, 'big', signed=True)",
    ],
)
def test_what_a_micropython_lacks_is_seen(source: str) -> None:
    assert list(complaints(source)) != []


def c_words(source: str) -> set[str]:
    """Every word of a C source outside comments and text."""
    bare = re.sub(r'/\*.*?\*/|"(?:\\.|[^"\\])*"', " ", source, flags=re.DOTALL)
    return set(re.findall(r"[A-Za-z_]\w*", bare))


@pytest.mark.parametrize("name", sorted(path.name for path in C_PORT.glob("hush*.[ch]")))
def test_the_c_files_have_no_float_no_allocation_and_no_generator_of_their_own(name: str) -> None:
    words = c_words((C_PORT / name).read_text(encoding="utf-8"))
    assert words & C_WORDS == set()
    assert len(words) > 20, "the words were found"


def test_a_float_in_c_is_seen() -> None:
    assert c_words('/* float */ "double" x = (double)1;') & C_WORDS == {"double"}


JS_WORDS = {
    *("Math.random", "Math.log", "Math.exp", "Math.pow", "parseFloat", "require", "eval", "console", "localStorage"),
    *("innerHTML", "importScripts", "fetch", "XMLHttpRequest", "subtle"),
}
JS_MODULES = sorted((PORTS / "js" / "src").glob("*.js"))
DRAWN = {"mechanisms.js", "numbers.js", "recall.js"}


def js_complaints(source: str, name: str = "mechanisms.js") -> Iterator[str]:
    """What the JavaScript modules must not be made of; floats are for bounds and for people, never for a draw."""
    bare = re.sub(r"^\s*(?:/\*\*.*|\*.*|//.*)$", "", source, flags=re.MULTILINE)
    imports = set(re.findall(r'from "([^"]+)"', bare)) | set(re.findall(r'import\("([^"]+)"', bare))
    yield from (
        one for one in imports if not one.startswith("./") and not (name == "node.js" and one.startswith("node:"))
    )
    yield from (word for word in JS_WORDS if re.search(rf"\b{re.escape(word)}\b", bare))
    if name in DRAWN:
        yield from re.findall(r"\d\.\d", re.sub(r'"[^"]*"', "", bare))


@pytest.mark.parametrize("module", JS_MODULES, ids=lambda module: str(module.name))
def test_a_javascript_module_depends_on_nothing_and_has_no_generator_of_its_own(module: Path) -> None:
    assert list(js_complaints(module.read_text(encoding="utf-8"), module.name)) == []


def test_the_javascript_modules_were_found() -> None:
    assert {"core.js", "device.js", "indexeddb.js", "mqtt.js", "node.js"} <= {module.name for module in JS_MODULES}


@pytest.mark.parametrize(
    "source",
    [
        'import fs from "node:fs";',
        'import mqtt from "mqtt";',
        "Math.random();",
        "const x = 0.5;",
        "console.log(value);",
        'await import("https://example.org/x.js");',
    ],
)
def test_what_a_javascript_module_must_not_have_is_seen(source: str) -> None:
    assert list(js_complaints(source)) != []


@pytest.mark.large
def test_a_device_without_an_operating_system_compiles_the_port_and_brings_its_own_randomness(tmp_path: Path) -> None:
    command = [need("gcc"), "-std=c11", "-Os", "-Wall", "-Wextra", "-Werror", "-DHUSH_NO_OS_RANDOM"]
    subprocess.run([*command, "-c", str(C_PORT / "hush.c"), "-o", str(tmp_path / "hush.o")], check=True)
    names = subprocess.run(
        [need("nm"), "-u", str(tmp_path / "hush.o")], check=True, capture_output=True, text=True
    ).stdout
    assert not {"getrandom", "fopen", "malloc", "strtod"} & set(names.split())
