"""The JavaScript package: its own tests under node, what npm packs, and how large a page becomes."""

import gzip
import json
import os
import subprocess
from pathlib import Path

import pytest
from port_programs import PORTS
from servers import need

from hush_client.browser import browser_modules

PACKAGE = PORTS / "js"
TESTS = Path(__file__).parent / "js"
MOST_COMPRESSED = 36_000
"""Bytes of the modules, each compressed: the rest of the 60 kB of a phone's page is for the page."""


@pytest.mark.timeout(180)
@pytest.mark.parametrize("file", sorted(TESTS.glob("*.test.mjs")), ids=lambda file: str(file.name))
def test_the_package_passes_its_own_tests(file: Path) -> None:
    run = subprocess.run(
        [need("node"), "--test", "--test-reporter=tap", str(file)], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, "\n".join(
        line for line in run.stdout.splitlines() if "not ok" in line or "error:" in line
    )
    assert "\n# fail 0\n" in run.stdout
    assert "\n# skipped 0\n" in run.stdout


def test_the_browser_modules_are_found_and_import_only_each_other() -> None:
    modules = browser_modules()
    assert {"index.js", "core.js", "device.js", "mqtt.js", "indexeddb.js", "sha256.js"} <= modules.keys()
    assert "node.js" not in modules
    for path in modules.values():
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.startswith(("import", "export")) and ' from "' in line:
                assert line.split(' from "./')[1].rstrip('";') in modules, line


def test_a_page_has_room_for_more_than_the_modules() -> None:
    sizes = {name: len(gzip.compress(path.read_bytes(), 6, mtime=0)) for name, path in browser_modules().items()}
    assert sum(sizes.values()) < MOST_COMPRESSED, sizes


@pytest.mark.outside
def test_npm_packs_the_modules_their_types_and_the_licence() -> None:
    npm = need("npm")
    run = subprocess.run([npm, "pack", "--dry-run", "--json"], cwd=PACKAGE, capture_output=True, text=True, check=True)
    (packed,) = json.loads(run.stdout[run.stdout.index("[") :])
    names = {file["path"] for file in packed["files"]}
    assert {"LICENSE", "README.md", "package.json", "bin/hush-device.js", "src/index.d.ts", "src/node.d.ts"} <= names
    assert {f"src/{name}" for name in browser_modules()} <= names
    assert not (PACKAGE / "LICENSE").exists(), "it is a copy, and gone after the packing"


def test_the_package_has_no_dependency_and_the_version_of_hush() -> None:
    document = json.loads((PACKAGE / "package.json").read_text(encoding="utf-8"))
    assert not {name for name in document if "ependencies" in name}
    assert document["sideEffects"] is False
    version = (PORTS.parents[1] / "pyproject.toml").read_text(encoding="utf-8")
    assert f'version = "{document["version"]}"' in version


def test_the_exports_of_the_package_are_those_of_its_types() -> None:
    """Every name that the types declare is exported, and every exported one is declared."""
    declared = {
        line.split("declare ", 1)[1].split(" ", 1)[1].split("(")[0].split(":")[0].split(" ")[0]
        for line in (PACKAGE / "src" / "index.d.ts").read_text(encoding="utf-8").splitlines()
        if line.startswith("export declare ")
    }
    script = f"console.log(Object.keys(await import('{PACKAGE}/src/index.js')).join())"
    run = subprocess.run(
        [need("node"), "--input-type=module", "-e", script], capture_output=True, text=True, check=True, env=os.environ
    )
    assert set(run.stdout.strip().split(",")) == declared
