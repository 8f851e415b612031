"""The image is built and its containers run, and the units run under a real systemd: as root, in a few minutes.

No registry of images is asked: the base is a Debian that debootstrap makes, and the broker its mosquitto.
"""

import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from hardened import hush
from operations_guide import HEIGHTS, install_update_and_restore
from servers import free_port
from started import Booted, Engine, debian, output

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1200)]

COMPOSE = Path(__file__).parents[2] / "aggregator/packaging/compose.yaml"


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    debian()
    made = Engine(tmp_path_factory.mktemp("engine"))
    made.build()
    yield made
    made.stop()


def test_the_image_has_hush_and_nothing_runs_as_root(engine: Engine) -> None:
    fences = ["--rm", "--network=none", "--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges"]
    assert engine.podman("run", *fences, "localhost/hush", "--version").strip().endswith("hush 0.1.0")
    shell = ["--entrypoint=sh", "localhost/hush", "-c", "id -u; ls -ld /var/lib/hush /broker /socket"]
    printed = engine.podman("run", *fences, *shell)
    assert printed.split()[0] == "10001"
    assert printed.count("drwx------ 2 hush hush") == 3


def until(read: str, seconds: float = 60) -> dict[str, object]:
    """The JSON at an address, once it answers."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            with urllib.request.urlopen(read, timeout=5) as answer:  # noqa: S310 - the loopback
                answered: dict[str, object] = json.load(answer)
                return answered
        except (urllib.error.URLError, ConnectionError):
            assert time.monotonic() < deadline, read
            time.sleep(0.2)


def test_the_compose_file_counts_a_report_and_keeps_it(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, http = free_port(), free_port()
    file = tmp_path / "compose.yaml"
    text = COMPOSE.read_text(encoding="utf-8")
    file.write_text(text.replace('"8883:', f'"127.0.0.1:{broker}:').replace("127.0.0.1:8080:", f"127.0.0.1:{http}:"))
    monkeypatch.setenv("HUSH_HOST", "127.0.0.1")
    engine.compose(file, "up", "--detach", "--no-build")
    try:
        inside = "exec", "-T", "aggregator"
        add = "hush", "broker", "add", "kitchen-7", "--config", "/broker/hush", "--print"
        password = engine.compose(file, *inside, *add).splitlines()[-1]
        engine.compose(file, "kill", "-s", "HUP", "broker")
        authority = engine.podman("exec", "hush_aggregator_1", "cat", "/broker/hush/ca.pem")
        for name, content in (("ca.pem", authority), ("password", password)):
            (tmp_path / name).write_text(content, encoding="utf-8")
            (tmp_path / name).chmod(0o600)
        publish = f"printf '%s' '{HEIGHTS}' >heights.toml && hush task publish heights.toml --store hush.sqlite3"
        engine.compose(file, *inside, "sh", "-c", publish)
        device = hush(
            *("report", "heights", "172", "--broker", f"mqtts://kitchen-7@127.0.0.1:{broker}?ca=ca.pem"),
            *("--password-file", "password", "--state", "state", "--spread", "0", "--timeout", "20"),
            cwd=tmp_path,
        )
        logs = device.stdout + device.stderr + engine.podman("logs", "hush_broker_1")
        assert "sent" in device.stdout, logs
        estimate = f"http://127.0.0.1:{http}/v1/tasks/heights/rounds/latest"
        deadline = time.monotonic() + 60
        while until(estimate)["n"] != 1:
            assert time.monotonic() < deadline, engine.podman("logs", "hush_aggregator_1")
            time.sleep(0.2)
        engine.podman("healthcheck", "run", "hush_http_1")
        with pytest.raises(AssertionError, match="Read-only"):
            engine.podman("exec", "hush_aggregator_1", "touch", "/opt/hush/here")
        engine.compose(file, "down")
        engine.compose(file, "up", "--detach", "--no-build")
        assert until(estimate)["n"] == 1
        assert "Traceback" not in engine.podman("logs", "hush_aggregator_1")
    finally:
        engine.compose(file, "down", "--volumes")


def test_the_units_run_under_systemd_and_the_guide_is_followed(engine: Engine, tmp_path: Path) -> None:
    root = tmp_path / "system/root"
    root.mkdir(parents=True)
    output("cp", "--archive", f"{debian()}/.", str(root))
    engine.copy("/opt/hush", root / "opt")
    shared = tmp_path / "shared"
    shared.mkdir()
    machine = Booted(root, shared=shared)
    try:
        install_update_and_restore(machine, shared)
        machine.run("systemctl start mosquitto hush-aggregator hush-http", shared)
        for unit, user in (("mosquitto", "mosquitto"), ("hush-aggregator", "hush"), ("hush-http", "hush")):
            process = machine.run(f"systemctl show --value --property MainPID {unit}", shared).strip()
            assert machine.run(f"stat --format %U /proc/{process}", shared).strip() == user
            status = dict(line.split(":\t") for line in machine.run(f"cat /proc/{process}/status", shared).splitlines())
            if user == "hush":
                rights = status["CapEff"], status["CapBnd"], status["NoNewPrivs"], status["Seccomp"]
                assert rights == ("0" * 16, "0" * 16, "1", "2")
    finally:
        machine.stop()
