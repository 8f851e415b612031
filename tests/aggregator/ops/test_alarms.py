"""The alarms and the dashboard ask for metrics that there are, and Prometheus' own checker takes all of them."""

import json
import re
import subprocess
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from servers import need

from hush_aggregator.count.intake import IntakeStatus
from hush_aggregator.ops.metrics import Exposition, IntakeFigures, MetricValues
from hush_aggregator.ops.service_metrics import ProcessFigures, ServiceValues
from hush_aggregator.publish.status import EstimateStatus
from hush_aggregator.store import CommitOutcome
from hush_aggregator.store.disk import StoreDisk
from hush_aggregator.web.latency import RequestLatency
from hush_common.wire import Refusal

ROOT = Path(__file__).parents[3]
RULES = ROOT / "docs/operations/prometheus-rules.yml"
DASHBOARD = ROOT / "docs/operations/grafana-dashboard.json"
TESTS = ROOT / "tests/promtool.yml"


def promtool(*arguments: str, stdin: str = "") -> None:
    command = [need("promtool"), *arguments]
    run = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.fixture(scope="module")
def exposed() -> str:
    counting = IntakeFigures({"heights": 3}, {})
    counting.add(CommitOutcome(2, {Refusal.QUOTA: 1}, frozenset(), counted={"heights": 2}))

    now, latency = datetime.now(UTC), RequestLatency()

    def figures() -> MetricValues:
        connections = {"intake": 1}
        intake = IntakeStatus(["heights"], connected=True, waiting=0, dropped=1, stored=0, connections=connections)
        service = ServiceValues(
            ProcessFigures(1, 1.0, 1, 1), StoreDisk(1, 1), now, EstimateStatus(1, 1, 1.0), now, notifications=1
        )
        latency.add(200, 0.5)
        return replace(counting.figures(intake), service=service, requests=latency.histograms)

    return Exposition(figures, "1").text().decode()


def names(text: str) -> set[str]:
    """The metrics that a text asks for, without the ends of histograms."""
    return {re.sub("_(bucket|sum|count)$", "", name) for name in re.findall(r"\b(?:hush|process)_[a-z_]+", text)}


def expressions() -> list[str]:
    """What the dashboard asks, with its variables filled in."""
    dashboard = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    asked = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    fill = {"$instance": ".*", "$__rate_interval": "1m", "$__range": "1h"}
    return [re.sub(r"\$\w+", lambda found: fill[found[0]], text) for text in asked]


def test_alarms_and_dashboard_ask_for_every_metric_and_no_other(exposed: str) -> None:
    there = set(re.findall(r"^# TYPE (\S+)", exposed, re.MULTILINE))
    rules = RULES.read_text(encoding="utf-8")
    asked = names("".join(re.findall(r"expr:(.*?)(?=for:|labels:)", rules, re.DOTALL))) | names(" ".join(expressions()))
    assert asked == there


def test_labels_that_are_asked_for_are_there(exposed: str) -> None:
    there = set(re.findall(r"[{,](\w+)=", exposed)) | {"instance"}  # which Prometheus gives
    asked = RULES.read_text(encoding="utf-8") + " ".join(expressions())
    by = {label.strip() for found in re.findall(r"by \(([^)]*)\)", asked) for label in found.split(",")}
    assert by | set(re.findall(r"[{,](\w+)(?:=|!=|=~)\"", asked)) <= there


def test_every_alarm_has_a_test() -> None:
    alarms = set(re.findall(r"- alert: (\w+)", RULES.read_text(encoding="utf-8")))
    assert set(re.findall(r"alertname: (\w+)\n +exp_alerts", TESTS.read_text(encoding="utf-8"))) == alarms


@pytest.mark.large
def test_prometheus_takes_metrics_rules_and_dashboard(exposed: str, tmp_path: Path) -> None:
    promtool("check", "metrics", stdin=exposed)
    promtool("check", "rules", str(RULES))
    asked = [{"record": f"asked:{place}", "expr": text} for place, text in enumerate(expressions())]
    (tmp_path / "asked.yml").write_text(json.dumps({"groups": [{"name": "asked", "rules": asked}]}), encoding="utf-8")
    promtool("check", "rules", str(tmp_path / "asked.yml"))


@pytest.mark.large
def test_alarms_fire_when_they_should_and_only_then(tmp_path: Path) -> None:
    """Their annotations are left out: these are texts."""
    rules = re.sub(r" {8}annotations:\n(?: {10}.*\n)+", "", RULES.read_text(encoding="utf-8"))
    (tmp_path / "rules.yml").write_text(rules, encoding="utf-8")
    tests = tmp_path / "tests.yml"
    tests.write_text(TESTS.read_text(encoding="utf-8").replace("RULES", "rules.yml"), encoding="utf-8")
    promtool("test", "rules", str(tests))
