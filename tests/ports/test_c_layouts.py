"""The C port as a component of ESP-IDF, a library of Arduino and one of PlatformIO, from one folder.

None of the three tool chains is here. The examples are compiled with declarations of what they use (`stubs`).
"""

import json
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from port_programs import C_PORT
from servers import need

STUBS = Path(__file__).parent / "stubs"
SOURCES = {"hush.c", "hush_device.c", "hush_flash.c", "hush_esp.c"}
FLAGS = ["-Wall", "-Wextra", "-Wshadow", "-Werror", f"-I{C_PORT}", f"-I{STUBS}", "-DESP_PLATFORM"]
ARM = ["arm-none-eabi-gcc", "-mcpu=cortex-m3", "-mthumb"]


def read(name: str) -> str:
    return (C_PORT / name).read_text(encoding="utf-8")


def compile_source(command: list[str], source: Path, target: Path) -> None:
    need(command[0])
    run = subprocess.run([*command, *FLAGS, "-c", source, "-o", target], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr[:4000]


def test_esp_idf_and_platformio_compile_the_same_files() -> None:
    component = re.search(r"SRCS (.+)", read("CMakeLists.txt"))
    filters = json.loads(read("library.json"))["build"]["srcFilter"]
    assert component is not None
    assert set(component[1].split()) == SOURCES
    assert {name[2:-1] for name in filters if name.startswith("+")} == SOURCES


def test_every_layout_has_the_version_of_hush() -> None:
    project = Path(__file__).parents[2] / "pyproject.toml"
    version = tomllib.loads(project.read_text(encoding="utf-8"))["project"]["version"]
    assert json.loads(read("library.json"))["version"] == version
    assert f'version: "{version}"' in read("idf_component.yml").splitlines()
    assert f"version={version}" in read("library.properties").splitlines()


@pytest.mark.large
@pytest.mark.parametrize("source", sorted(C_PORT.glob("*.c")), ids=lambda path: path.name)
def test_arduino_can_compile_every_file_of_the_folder(source: Path, tmp_path: Path) -> None:
    """It compiles all of them; what needs an operating system, or has a main program, is empty then."""
    target = tmp_path / "source.o"
    compile_source([*ARM, "-std=c11", "-DARDUINO=10819", "-DHUSH_NO_OS_RANDOM"], source, target)
    names = subprocess.run(["arm-none-eabi-nm", target], capture_output=True, text=True, check=True).stdout.split()
    assert "main" not in names
    assert ("T" in names) == (source.name in SOURCES)


@pytest.mark.large
@pytest.mark.parametrize("compiler", [["gcc", "-std=c11"], [*ARM, "-std=c11"]], ids=["host", "arm"])
def test_the_example_of_esp_idf_compiles(compiler: list[str], tmp_path: Path) -> None:
    compile_source(compiler, C_PORT / "examples" / "esp-idf" / "main" / "main.c", tmp_path / "main.o")


@pytest.mark.large
def test_the_sketch_for_arduino_compiles(tmp_path: Path) -> None:
    sketch = tmp_path / "HushSensor.cpp"
    text = read("examples/HushSensor/HushSensor.ino")
    sketch.write_text(f"#include <Arduino.h>\n{text}", encoding="utf-8")
    compile_source(["g++", "-std=c++17"], sketch, tmp_path / "sketch.o")
