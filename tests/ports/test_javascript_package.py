"""The JavaScript package: its own tests under node, what npm packs, and how large a page becomes."""

import gzip
import json
import os
import subprocess
from pathlib import Path

import pytest
from port_programs import PORTS
from servers import missing, need

from hush_client.browser import browser_modules

PACKAGE = PORTS / "js"
TESTS = Path(__file__).parent / "js"
MOST_COMPRESSED = 36_000
"""Bytes of the modules, each compressed: the rest of the 60 kB of a phone's page is for the page."""


@pytest.mark.large
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


@pytest.mark.large
def test_npm_packs_the_modules_their_types_and_the_licence() -> None:
    npm = need("npm")
    run = subprocess.run([npm, "pack", "--dry-run", "--json"], cwd=PACKAGE, capture_output=True, text=True, check=True)
    (packed,) = json.loads(run.stdout[run.stdout.index("[") :])
    names = {file["path"] for file in packed["files"]}
    assert {"LICENSE", "README.md", "package.json", "bin/hush-device.js", "src/index.d.ts", "src/node.d.ts"} <= names
    assert {f"src/{name}" for name in browser_modules()} <= names
    assert not (PACKAGE / "LICENSE").exists(), "it is a copy, and gone after the packing"


USES = """
import { Device, HushError, draw, openIndexedDB, readTask, reportedText } from "../../client/ports/js/src/index.js";
import type { Receipt } from "../../client/ports/js/src/index.js";
import { Device as NodeDevice, openDirectory } from "../../client/ports/js/src/node.js";

export async function use(): Promise<void> {
  const storage = await openIndexedDB();
  const device = await new Device({ url: "ws://broker", storage, device: "a" }).open();
  const receipt: Receipt = await device.answer("t", { noise: 4 });
  if (receipt.status === "refused") console.log(receipt.reason, receipt.message);
  await device.answer("t", [1, null, "3"], { epsilon: "1" });
  void new NodeDevice({ url: "mqtt://broker", storage: await openDirectory("s"), tls: { ca: "x" }, device: "b" });
  const task = readTask(new Uint8Array());
  if (task.domain.kind === "category") console.log(task.domain.labels[0]);
  console.log(reportedText(task, draw(task, null, { round: 0 }).body));
  // @ts-expect-error a limit is text
  void new Device({ url: "ws://broker", storage, maxEpsilon: 4 });
  // @ts-expect-error a value is no bigint
  await device.answer("t", 4n);
  // @ts-expect-error not a status
  throw new HushError("other", "x");
}
"""


@pytest.mark.large
def test_typescript_accepts_the_types_and_finds_mistakes(tmp_path: Path) -> None:
    compiler = Path(__file__).parents[2] / "out" / "typescript" / "node_modules" / ".bin" / "tsc"
    if not compiler.exists():
        missing(f"{compiler} is not there; .ci/run fetches it")
    (tmp_path / "use.ts").write_text(USES.replace("../../client/ports/js", str(PACKAGE)), encoding="utf-8")
    options = ["--noEmit", "--strict", "--target", "es2022", "--module", "nodenext", "--lib", "es2022,dom"]
    run = subprocess.run([str(compiler), *options, "use.ts"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout) == (0, "")


def test_the_package_has_no_dependency_and_the_version_of_hush() -> None:
    document = json.loads((PACKAGE / "package.json").read_text(encoding="utf-8"))
    assert not {name for name in document if "ependencies" in name}
    assert document["sideEffects"] is False
    version = (PORTS.parents[1] / "pyproject.toml").read_text(encoding="utf-8")
    assert f'version = "{document["version"]}"' in version


@pytest.mark.large
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
