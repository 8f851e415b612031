"""The numbers of the page are those of the API and of `hush results`, of each kind of task in each state."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import page_states
import pytest
from page_figures import agree, figures_of, required
from page_server import served
from typer.testing import CliRunner

from hush_aggregator.commands import results

SCALES = {"bit": 100, "category": 100}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("states") / "hush.sqlite3"
    page_states.fill(path)
    return path


@pytest.fixture(scope="module")
def client(path: Path) -> Iterator[httpx.Client]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        page_states.fail_the_failed(monkeypatch)
        with served(path) as address, httpx.Client(base_url=address, timeout=60) as client:
            yield client


def printed(path: Path, task_id: str) -> Any:  # noqa: ANN401 - JSON
    shown = CliRunner().invoke(results.app, [task_id, "--store", str(path), "--round", "all", "--json"])
    return json.loads(shown.stdout)["results"]


@pytest.mark.large
@pytest.mark.parametrize("task_id", page_states.ALL)
def test_each_number_is_that_of_the_api_and_of_the_command_and_none_is_missing(
    client: httpx.Client, path: Path, task_id: str
) -> None:
    rounds = printed(path, task_id)
    document = client.get(f"/v1/tasks/{task_id}/rounds/latest").json()
    assert {**document, "updated_at": ""} == {**rounds[-1], "updated_at": ""}
    scale = SCALES.get(task_id.partition("-")[0], 1)
    figures = figures_of(client.get(f"/tasks/{task_id}").text)
    agree(figures, {**document, "rounds": rounds}, scale)
    assert {figure.place for figure in figures} >= set(required(document))


@pytest.mark.large
@pytest.mark.parametrize("task_id", page_states.ALL)
def test_so_is_each_number_of_the_card(client: httpx.Client, path: Path, task_id: str) -> None:
    for page in (1, 2):
        _, found, card = client.get(f"/?page={page}").text.partition(f'id="task-{task_id}"')
        if found:
            break
    assert found
    figures = figures_of(card.partition("</li>")[0])
    scale = SCALES.get(task_id.partition("-")[0], 1)
    document = printed(path, task_id)[-1]
    shown = {figure.place for figure in figures}
    agree(figures, document, scale)
    assert shown >= {"n", "mean"} & document.keys() - ({"n"} if not document["n"] else set())
    assert len(shown) > 1 or document["n"] == 0 or "failures" in document
