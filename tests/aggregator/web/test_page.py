"""What the page says of a task: the figures of its document, its state, warnings, and the privacy label."""

import dataclasses
import hashlib
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import page_states
import pytest
from http_world import TOKEN, Client, Service, Token, asked, count_bodies, make_store
from made_results import changed, single
from page_figures import agree, figures_of, required
from page_tasks import count
from page_views import DRAFT, GOOD, NUMBER, card, listing, page, plain, read, view_of

from hush_aggregator import Estimate, PartEstimate, SqliteStore
from hush_aggregator.store import Origin, TaskState
from hush_aggregator.web.page.environment import assets
from hush_aggregator.web.page.view import TaskStatus, TaskView
from hush_common.task import make_task
from hush_common.wire import Refusal

MINUS = "\N{MINUS SIGN}"

virtual = pytest.mark.virtual_time


# Figures


@pytest.mark.medium
@virtual
async def test_each_figure_is_that_of_the_document_and_none_is_missing(tmp_path: Path) -> None:
    service = Service(page_states.fill(tmp_path / "store"), estimator=page_states.FailingEstimator())
    async with asked(service) as client:
        cards = await client.page("/")
        for task_id in page_states.ALL:
            latest = await client.document(f"/v1/tasks/{task_id}/rounds/latest")
            rounds = (await client.document(f"/v1/tasks/{task_id}/rounds/all"))["results"]
            scale = 100 if task_id.startswith(page_states.SHARES) else 1
            figures = figures_of(await client.page(f"/tasks/{task_id}"))
            agree(figures, {**latest, "rounds": rounds}, scale)
            assert {figure.place for figure in figures} >= set(required(latest)), task_id
            small = figures_of(cards.partition(f'id="task-{task_id}"')[2].partition("</li>")[0])
            agree(small, latest, scale)
            shown = {figure.place for figure in small}
            assert shown >= {"n", "mean"} & latest.keys() - ({"n"} if not latest["n"] else set())
            assert len(shown) > 1 or latest["n"] == 0 or "failures" in latest


@virtual
async def test_the_time_of_a_figure_is_next_to_it(tmp_path: Path) -> None:
    async with asked(Service(make_store(tmp_path / "store"))) as client:
        document = await client.document("/v1/tasks/way/rounds/latest")
        (shown,) = re.findall(r'<p class="from">.*?<time datetime="([^"]+)">', await client.page("/tasks/way"))
    assert shown.replace("+00:00", "Z") == document["updated_at"]


@pytest.mark.parametrize(("mean", "intervals"), [(1e300, {}), (-1e-300, {"anytime": (0.0, 0.0)}), (5e-324, {})])
def test_any_number_can_be_drawn(mean: float, intervals: dict[str, tuple[float, float]]) -> None:
    for domain in (NUMBER, {"kind": "number", "lower": -8e307, "upper": 8e307}):
        shown = page(view_of(single(3, mean, intervals=intervals), draft={**DRAFT, "domain": domain}))
        assert f'value="{mean!r}"' in shown
        assert not re.search(r"\b(nan|inf)\b", shown)


def test_a_number_below_zero_has_a_minus_sign_for_people() -> None:
    below = single(200, -3.0, intervals={"anytime": (-5.0, -1.0)})
    view = view_of(below, draft={**DRAFT, "domain": {**NUMBER, "lower": -10.0}})
    text = read(view)
    for shown in (f"{MINUS}3.0 kg", f"{MINUS}5.0 to {MINUS}1.0 kg", f"{MINUS}10 to 10 kg"):
        assert shown in text
    assert not re.search(r"(?<![0-9])-[0-9]", text.partition(">")[2])
    assert '<data value="-3.0" data-figure="mean">' in page(view)
    assert f"{MINUS}3.0" in plain(card(view))


def test_an_estimate_outside_the_domain_is_not_clipped() -> None:
    text = read(view_of(changed(GOOD, mean=-2.0, intervals={"anytime": (0.0, 1.0)})))
    assert f"{MINUS}2.0 kg" in text
    assert "possible range" in text
    assert "possible range" not in read(view_of())


def test_an_interval_that_excludes_nothing_is_not_called_probable() -> None:
    text = read(view_of(changed(GOOD, intervals={"anytime": (0.0, 10.0)})))
    assert "anything from 0.0 to 10.0 kg" in text
    assert "probably" not in text
    assert "plus-minus" not in page(view_of(changed(GOOD, intervals={"anytime": (0.0, 10.0)})))


def test_live_figures_have_the_interval_that_holds_at_any_time() -> None:
    assert "probably 1.0 to 5.0 kg" in read(view_of())
    assert "probably 2.0 to 4.0 kg" in read(view_of(final=True))
    other = changed(GOOD, methods={"anytime": "population-beta-mixture"})
    assert "probably 1.9 to 4.1 kg" in read(view_of(other, final=True))  # about the same people as before


# States


@pytest.mark.parametrize(
    ("view", "status"),
    [
        (view_of(), TaskStatus.LIVE),
        (view_of(state=TaskState.WITHDRAWN), TaskStatus.WITHDRAWN),
        (view_of(state=TaskState.CLOSED), TaskStatus.FINAL),
        (view_of(ended=True), TaskStatus.FINAL),
        (view_of(draft={**DRAFT, "closes": "2026-06-10T15:39:00Z"}), TaskStatus.CLOSING),
        (view_of(draft={**DRAFT, "closes": "2026-06-10T15:41:00Z"}), TaskStatus.LIVE),
        (view_of(draft={**DRAFT, "opens": "2026-06-10T15:41:00Z"}), TaskStatus.NOT_OPEN),
    ],
)
def test_a_task_says_its_state(view: TaskView, status: TaskStatus) -> None:
    assert view.status is status
    assert f"{status.word} " in read(view)
    assert status.sentence in read(view)
    assert status.word in card(view)


def test_a_task_without_reports_says_what_comes_next() -> None:
    nothing = Estimate(0)
    quiet, soon, over = (
        read(view_of(nothing)),
        page(view_of(nothing, draft={**DRAFT, "opens": "2999-01-01T00:00:00Z"})),
        read(view_of(nothing, state=TaskState.CLOSED)),
    )
    assert "hush report t VALUE --broker ADDRESS" in quiet
    assert 'datetime="2999-01-01T00:00:00+00:00"' in soon
    assert "new id" in over
    for word, texts in (("VALUE", (soon, over)), ("2999", (quiet, over)), ("new id", (quiet, soon))):
        assert not [text for text in texts if word in text.partition("<main")[2]]


def test_an_estimate_that_is_not_ready_still_has_its_count() -> None:
    assert "1 234 report" in read(view_of(None, n=1234))
    assert 'data-figure="n"' in card(view_of(None, n=1234))
    assert 'data-figure="mean"' not in page(view_of(None, n=1234))


def test_intervals_that_failed_are_named_and_the_others_stay() -> None:
    shown = page(view_of(changed(GOOD, failures={"population": "not_finite"}, intervals={"anytime": (1.0, 5.0)})))
    assert 'value="not_finite" data-figure="failures.population"' in shown
    assert 'data-figure="intervals.anytime.0"' in shown


def test_silent_devices_are_counted_unless_more_reports_came() -> None:
    assert "Silent or lost 500" in read(view_of(draft={**DRAFT, "enrolled": 1500}))
    assert "Silent or lost" not in read(view_of(draft={**DRAFT, "enrolled": 150}))


def test_each_refusal_is_shown_with_its_meaning() -> None:
    view = view_of()
    assert view.result is not None
    refused = {reason: 100 + place for place, reason in enumerate(Refusal)}
    text = read(dataclasses.replace(view, result=dataclasses.replace(view.result, refused=refused)))
    for reason, number in refused.items():
        words = reason.value.replace("_", " ")
        assert f"{words} {number} {reason.meaning[0].upper()}{reason.meaning[1:]}" in text


# Warnings


@pytest.mark.parametrize("monitor", ["too_little_noise", "outliers", "something_new"])
@pytest.mark.parametrize("mean", [3.0, -2.0])
def test_wrong_reports_are_a_warning_above_the_figure(monitor: str, mean: float) -> None:
    view = view_of(dataclasses.replace(changed(GOOD, mean=mean), monitor=monitor))
    for shown in (page(view), card(view)):
        assert 0 < shown.index('class="warning alarm"') < shown.index('data-figure="mean"')
        assert "probably" not in shown
        assert "reports were correct" in plain(shown)
    assert f'value="{monitor}" data-figure="monitor"' in page(view)
    row = listing([view], total=100)
    assert row.index('class="verdict bad"') < row.index('data-figure="mean"')


@pytest.mark.parametrize("monitor", ["ok", None])
def test_reports_that_look_right_or_are_few_raise_no_warning(monitor: str | None) -> None:
    view = view_of(dataclasses.replace(GOOD, monitor=monitor))
    for shown in (page(view), card(view)):
        assert 'class="warning alarm"' not in shown
        assert "probably" in shown


def test_wrong_reports_of_categories_are_a_warning_above_the_table() -> None:
    draft = {"id": "t", "epsilon": "1", "domain": {"kind": "category", "labels": ["a", "b"]}}
    parts = tuple(PartEstimate(name=label, n=9, mean=0.5) for label in "ab")
    view = view_of(Estimate(200, parts=parts, monitor="outliers"), draft=draft)
    for shown in (page(view), card(view)):
        assert shown.index('class="warning alarm"') < shown.index('data-figure="categories.0.frequency"')


@pytest.mark.medium
@virtual
async def test_noise_explains_a_share_below_zero_if_reports_look_right(tmp_path: Path) -> None:
    ways = {"kind": "category", "labels": ["bus", "car", "bicycle", "boat"]}
    counts = {
        "wrong": (1000, 0, 0, 0),
        "fair": (355, 220, 215, 210),
    }  # with the noise of the task: (355, 215, 215, 215)
    with SqliteStore(tmp_path / "store") as store:
        for name, numbers in counts.items():
            task = make_task({"id": name, "epsilon": "0.5", "domain": ways})
            store.add_task(task)
            count_bodies(store, task, [1 << k for k, number in enumerate(numbers) for _ in range(number)])
    async with asked(Service(tmp_path / "store")) as client:
        for name in counts:
            document = await client.document(f"/v1/tasks/{name}/rounds/latest")
            below = sum(one["frequency"] < 0 for one in document["categories"])
            assert 0 < below < 4
            shown = re.findall(r"<small>below zero(.*?)</small>", await client.page(f"/tasks/{name}"))
            assert shown == [": noise" if name == "fair" else ""] * below


# The privacy label


@pytest.mark.parametrize("origin", Origin)
def test_the_label_says_what_leaves_and_how_sure_anybody_becomes(origin: Origin) -> None:
    text = read(view_of(origin=origin)).partition("Privacy label")[2]
    for words in ("from 0 to 10 kg", "To know", "a noisy number", "73.2 %"):
        assert words in text, words
    assert "hides little" not in text
    assert "hides little" in read(view_of(draft={**DRAFT, "epsilon": "4.1"}))


# Precision


def half_of(text: str) -> float:
    (found,) = re.findall(r'<p class="plus-minus">±&nbsp;([\d.]+)', text)
    return float(found)


def needed(text: str) -> int:
    (found,) = re.findall(r"about ([\d\s]+) reports in all", text)
    return int("".join(found.split()))


@pytest.fixture
async def precise(tmp_path: Path) -> AsyncIterator[Client]:
    domains: dict[str, dict[str, Any]] = {"height": {**NUMBER, "upper": 100, "unit": "cm"}, "home": {"kind": "bit"}}
    with SqliteStore(tmp_path / "store") as store:
        answers: list[list[object]] = [[40.0, 60.0], [True, False]]
        for (name, domain), values in zip(domains.items(), answers, strict=True):
            task = make_task({"id": name, "epsilon": "2", "mechanism": "auto", "domain": domain})
            store.add_task(task)
            count(store, task, values * 2000)
    async with asked(Service(tmp_path / "store")) as client:
        yield client


@pytest.mark.medium
@virtual
@pytest.mark.parametrize(("name", "scale", "unit"), [("height", 1, "cm"), ("home", 100, "points")])
async def test_a_wanted_precision_needs_reports_as_the_square(
    precise: Client, name: str, scale: int, unit: str
) -> None:
    text = await precise.page(f"/tasks/{name}")
    document = await precise.document(f"/v1/tasks/{name}/rounds/latest")
    half, (low, high) = half_of(text), document["intervals"]["anytime"]
    assert half == pytest.approx(max(document["mean"] - low, high - document["mean"]) * scale, rel=0.05)
    for share in (2, 4, 10):
        text = await precise.page(f"/tasks/{name}?goal={half / share}")
        assert needed(text) == pytest.approx(4000 * share**2, rel=0.08)
        assert unit in text
    for goal in (half * 1.1, 0.00001):  # reached, and never
        assert "reports in all" not in await precise.page(f"/tasks/{name}?goal={goal}")
    for wrong in ("0", "-1", "nan", "inf", "x", "1e99"):
        assert (await precise.get(f"/tasks/{name}?goal={wrong}")).status_code == 422


# Headers, and pages without figures


def frames(policy: str) -> str:
    return policy.rpartition("frame-ancestors ")[2]


@pytest.mark.medium
@virtual
async def test_only_named_origins_may_have_the_page_in_a_frame(tmp_path: Path) -> None:
    path, origins = make_store(tmp_path / "store"), ("https://example.org", "http://intranet:8080")
    for service, allowed in ((Service(path), "'none'"), (Service(path, frame_ancestors=origins), " ".join(origins))):
        async with asked(service) as client:
            for answer in (await client.get("/"), await client.head("/"), await client.get("/nowhere")):
                assert frames(answer.headers["content-security-policy"]) == allowed
                assert ("x-frame-options" in answer.headers) is (allowed == "'none'")


@virtual
async def test_a_page_loads_only_what_the_service_has_and_sets_no_cookie(tmp_path: Path) -> None:
    kinds = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
    async with asked(Service(make_store(tmp_path / "store"))) as client:
        for name, asset in assets().items():
            answer = await client.get(asset.address)
            assert answer.headers["content-type"].partition(";")[0] == kinds[name.partition(".")[2]]
            assert "immutable" in answer.headers["cache-control"]
            assert hashlib.sha256(answer.content).hexdigest()[:12] in asset.address  # another name for other bytes
        for place in ("/", "/tasks/heights"):
            answer = await client.get(place)
            policy = answer.headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "script-src 'self'" in policy
            assert "unsafe" not in policy
            assert answer.headers["referrer-policy"] == "no-referrer"
            assert answer.headers["cache-control"] == "private, no-cache"
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert "set-cookie" not in answer.headers
            assert not re.search(r"<style|<script>|style=|\bon[a-z]+=|https?://", answer.text)
    assert sum(len(asset.body) for asset in assets().values()) < 30_000


@virtual
async def test_a_page_that_does_not_exist_is_404(tmp_path: Path) -> None:
    async with asked(Service(make_store(tmp_path / "store"))) as client:
        for place in ("/tasks/none", "/tasks/..%2f..%2fetc", "/tasks/%3Cscript%3E", "/assets/none.css"):
            answer = await client.get(place)
            assert (answer.status_code, "<script>" in answer.text) == (404, False)


@virtual
async def test_a_store_that_cannot_be_read_is_a_page_without_its_path(tmp_path: Path) -> None:
    async with asked(Service(tmp_path / "store")) as client:
        for place in ("/", "/tasks/t"):
            answer = await client.get(place)
            assert (answer.status_code, answer.headers["content-type"][:9]) == (503, "text/html")
            assert str(tmp_path) not in answer.text


@virtual
async def test_a_browser_is_asked_for_the_token_where_reading_is_guarded(tmp_path: Path) -> None:
    async with asked(Service(make_store(tmp_path / "store"), token=Token(TOKEN), guarded=True)) as client:
        refused = await client.get("/")
        assert (refused.status_code, "Basic" in refused.headers["www-authenticate"]) == (401, True)
        assert (await client.get("/", auth=("anybody", TOKEN))).status_code == 200
        assert (await client.get("/tasks/heights", auth=("anybody", "wrong"))).status_code == 401
