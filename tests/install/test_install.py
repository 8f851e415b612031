"""What `pip install .` puts on a device: small, without numpy, and importable."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from commands import without_progress

pytestmark = [pytest.mark.large, pytest.mark.face]

ROOT = Path(__file__).parents[2]
LIMIT = 9_800_000
DOCUMENTED = re.compile(r"under ([0-9]+) MB")
INSTALLERS = ("pip", "setuptools", "pkg_resources", "_distutils_hack", "distutils-precedence")
DEVICE = {"aiomqtt", "hush-ldp", "paho-mqtt"}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """This tree as a clone of it: without caches, environments and what a build leaves behind."""
    directory = tmp_path_factory.mktemp("clone") / "source"
    shutil.copytree(
        ROOT, directory, ignore=shutil.ignore_patterns(".*", "__marimo__", "__pycache__", "tests", "out", "images")
    )
    return directory


@pytest.fixture(scope="module")
def device(tmp_path_factory: pytest.TempPathFactory, source: Path) -> Path:
    """A fresh environment with a built wheel of this tree and what it depends on; its path."""
    return environment_with(str(source), tmp_path_factory.mktemp("device"))


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory, source: Path) -> Path:
    """The same with the command; its path."""
    return environment_with(f"{source}[command]", tmp_path_factory.mktemp("shell"))


def environment_with(requirement: str, directory: Path) -> Path:
    environment = directory / "environment"
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", environment], check=True
    )  # to make one takes seconds
    pip = [sys.executable, "-m", "pip", "--python", str(environment / "bin" / "python"), "--disable-pip-version-check"]
    subprocess.run([*pip, "install", "--quiet", requirement], check=True, capture_output=True)
    return environment


def site_packages(environment: Path) -> Path:
    return Path(sysconfig.get_path("purelib", vars={"base": str(environment)}))


def installed(environment: Path) -> set[str]:
    """Names of distributions, less the installer that a virtual environment begins with."""
    listing = "from importlib.metadata import distributions\nfor one in distributions(): print(one.name)"
    run = subprocess.run(
        [environment / "bin" / "python", "-I", "-c", listing], check=True, capture_output=True, text=True
    )
    return {*run.stdout.split()} - {*INSTALLERS}


def weight(environment: Path) -> int:
    """Bytes of all files, compiled ones included, less the installer."""
    return sum(
        path.stat().st_size
        for top in site_packages(environment).iterdir()
        if not top.name.startswith(INSTALLERS)
        for path in ([top] if top.is_file() else top.rglob("*"))
        if path.is_file()
    )


def test_a_device_install_is_three_distributions_with_the_client(device: Path) -> None:
    assert installed(device) == DEVICE
    probe = "import sys; from hush_client import Client, MqttTransport; sys.exit('numpy' in sys.modules)"
    subprocess.run([device / "bin" / "python", "-I", "-W", "error", "-c", probe], check=True)
    for package in ("hush", "hush_common", "hush_client", "hush_aggregator", "hush_simulations"):
        assert (site_packages(device) / package / "py.typed").exists()


def test_a_device_install_weighs_what_the_documents_say(device: Path) -> None:
    measured = weight(device)
    assert measured <= LIMIT, f"{measured / 1e6:.1f} MB"
    for document in (ROOT / "README.md", ROOT / "docs" / "device.md"):
        (documented,) = DOCUMENTED.findall(" ".join(document.read_text(encoding="utf-8").split()))
        limit = int(documented) * 1_000_000
        assert limit - 1_500_000 <= measured < limit, f"{document.name}: {measured / 1e6:.1f} MB"


def test_the_command_of_a_device_install_names_its_extra(device: Path) -> None:
    run = subprocess.run([device / "bin" / "hush", "ledger"], capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert run.stderr.count("\n") == 1
    assert "hush-ldp[command]" in run.stderr


def test_the_command_brings_typer_and_answers_on_a_device(shell: Path, tmp_path: Path) -> None:
    assert installed(shell) > DEVICE | {"typer"}
    assert "numpy" not in installed(shell)
    run = subprocess.run(
        [shell / "bin" / "hush", "report", "heights", "172", "--broker", "mqtt://localhost:1", "--timeout", "0.1"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "HUSH_STATE": str(tmp_path / "state")},
    )
    assert run.returncode == 1
    assert run.stderr.startswith("hush: mqtt://localhost:1: ")


@pytest.mark.parametrize(("command", "extra"), [("simulate", "simulations"), ("serve", "aggregator")])
def test_a_command_whose_extra_is_missing_says_which_to_install(shell: Path, command: str, extra: str) -> None:
    run = subprocess.run([shell / "bin" / "hush", command], capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert f"hush-ldp[{extra}]" in run.stderr
    assert "Traceback" not in run.stderr


@pytest.mark.parametrize(
    ("top", "folder", "known"),
    [
        ("simulations", "hush_simulations/scenarios/shipped", "heights.toml"),
        ("aggregator", "hush_aggregator/web/page/templates", "task.html"),
        ("aggregator", "hush_aggregator/web/page/assets", "hush.css"),
    ],
)
def test_the_data_of_the_source_is_in_the_installed_wheel(device: Path, top: str, folder: str, known: str) -> None:
    source, installed = (
        {file.name: file.read_bytes() for file in (place / folder).iterdir()}
        for place in (ROOT / top, site_packages(device))
    )
    assert known in source
    assert installed == source


def test_the_installed_wheel_carries_the_modules_of_a_page(device: Path) -> None:
    probe = "from hush_client.browser import browser_modules\nfor one in browser_modules().values(): print(one)"
    run = subprocess.run([device / "bin" / "python", "-I", "-c", probe], check=True, capture_output=True, text=True)
    found = {Path(line).name: Path(line) for line in run.stdout.splitlines()}
    assert found.keys() == {path.name for path in (ROOT / "client/ports/js/src").glob("*.js")} - {"node.js"}
    assert all(site_packages(device) in path.parents for path in found.values())
    assert all(path.read_bytes() == (ROOT / "client/ports/js/src" / name).read_bytes() for name, path in found.items())


def test_the_tour_and_the_attacks_run_from_the_installed_wheel(device: Path, tmp_path: Path) -> None:
    top = site_packages(device)
    for package, folder in (("hush_tour", "tour"), ("hush_attacks", "attacks")):
        there, here = (
            {file.relative_to(place): file.read_bytes() for file in (place / package).rglob("*.py")}
            for place in (top, ROOT / "docs" / folder)
        )
        assert there == here != {}
    environment = {**os.environ, "PYTHONPATH": str(top)}  # what the extras bring is that of this environment
    probe = "import hush_attacks, hush_tour; print(hush_attacks.__file__, hush_tour.__file__)"
    for command, shown in (
        (["-c", probe], str(top)),
        (["-m", "hush", "tour", "notes"], "Laplace"),
        (["-m", "hush", "attack", "silence"], "height"),
    ):
        run = subprocess.run(
            [sys.executable, *command], capture_output=True, text=True, check=False, env=environment, cwd=tmp_path
        )
        assert run.returncode == 0, run.stderr
        assert shown in run.stdout


@pytest.mark.parametrize(
    ("option", "loaded"), [((), set()), (("--plot", "terminal"), {"hush_simulations.display.charts"})]
)
def test_a_simulation_loads_what_it_uses(option: tuple[str, ...], loaded: set[str]) -> None:
    probe = (
        "import sys\nfrom hush.cli import app\n"
        "try: app(sys.argv[1:])\nexcept SystemExit: pass\n"
        "optional = {'rich', 'narwhals', 'matplotlib', 'hush_simulations.display.charts'}\n"
        "print(sorted(optional & set(sys.modules)), file=sys.stderr)"
    )
    command = [sys.executable, "-c", probe, "simulate", "--engine", "memory", "--clients", "3", *option]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert without_progress(run.stderr) == f"{sorted(loaded)}\n"


def test_help_imports_nothing_heavy() -> None:
    probe = (
        "import sys\nfrom hush.cli import app\n"
        "try: app(['--help'])\nexcept SystemExit: pass\n"
        "heavy = {'numpy', 'aiomqtt', 'pydantic', 'matplotlib', 'amqtt', 'asyncio'} & set(sys.modules)\n"
        "sys.exit(str(heavy) if heavy else 0)"
    )
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    run = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=False, env=environment)
    assert run.returncode == 0, run.stderr
    assert "simulate" in run.stdout
