"""What `pip install hush` puts on a device: small, without numpy, and importable."""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
LIMIT = 17 * 2**20
INSTALLERS = ("pip", "setuptools", "pkg_resources", "_distutils_hack")


@pytest.fixture(scope="module")
def device(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh environment with a built wheel of this tree and what it depends on; its path."""
    directory = tmp_path_factory.mktemp("device")
    source = directory / "source"
    shutil.copytree(ROOT, source, ignore=shutil.ignore_patterns(".*", "tests", "out", "docs"))
    environment = directory / "environment"
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    subprocess.run(
        [environment / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", source],
        check=True,
        capture_output=True,
    )
    return environment


def site_packages(environment: Path) -> Path:
    return Path(sysconfig.get_path("purelib", vars={"base": str(environment)}))


@pytest.mark.timeout(300)
def test_a_device_install_has_no_numpy_and_imports_the_client(device: Path) -> None:
    probe = "import sys; from hush_client import Client; sys.exit('numpy' in sys.modules)"
    subprocess.run([device / "bin" / "python", "-I", "-W", "error", "-c", probe], check=True)
    assert not (site_packages(device) / "numpy").exists()


@pytest.mark.timeout(300)
def test_a_device_install_weighs_under_17_mebibytes(device: Path) -> None:
    """All files, compiled ones included, less the installer that a virtual environment begins with."""
    weight = sum(
        path.stat().st_size
        for top in site_packages(device).iterdir()
        if not top.name.startswith(INSTALLERS)
        for path in ([top] if top.is_file() else top.rglob("*"))
        if path.is_file()
    )
    assert weight < LIMIT, f"{weight / 2**20:.1f} MiB"


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("command", "extra"), [("simulate", "simulations"), ("serve", "aggregator")])
def test_a_command_whose_extra_is_missing_says_which_to_install(device: Path, command: str, extra: str) -> None:
    run = subprocess.run([device / "bin" / "hush", command], capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert f"hush[{extra}]" in run.stderr
    assert "Traceback" not in run.stderr


@pytest.mark.timeout(300)
def test_the_installed_wheel_carries_types_and_all_five_packages(device: Path) -> None:
    for package in ("hush", "hush_common", "hush_client", "hush_aggregator", "hush_simulations"):
        assert (site_packages(device) / package / "py.typed").exists()


@pytest.mark.timeout(300)
def test_the_scenarios_of_the_source_are_in_the_installed_wheel(device: Path) -> None:
    shipped = Path("hush_simulations", "scenarios", "shipped")
    source, installed = (
        {file.name: file.read_bytes() for file in (top / shipped).iterdir()}
        for top in (ROOT / "simulations", site_packages(device))
    )
    assert "heights.toml" in source
    assert installed == source


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
