"""Which sensors take part: by live messages and a person's decision, and never by a value or a retained message."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hush_client.sensor_list import Admission, Participation, SensorList
from hush_common.errors import StateError

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
MONTH = timedelta(days=30)


class Gateway:
    """The list of a gateway, as its process would use it."""

    def __init__(self, path: Path, *, most: int = 10, had_answered: tuple[str, ...] = (), **options: object) -> None:
        self.path, self.now = path, NOW
        self.admission = Admission(keys=["t"], most=most, forget_after=MONTH, had_answered=had_answered, **options)  # type: ignore[arg-type]
        self.start()

    def start(self) -> None:
        """Start as after a kill: only the file is left."""
        self.list = SensorList(self.path, self.admission, lambda: self.now)

    def live(self, *topics: str, has_key: bool = True, field: str = "t") -> None:
        for topic in topics:
            self.list.hear(field, topic, live=self.now, has_key=has_key)
        self.list.save()

    def retained(self, topic: str) -> None:
        self.list.hear("t", topic, live=None, has_key=True)
        self.list.save()

    def edit(self, old: str, new: str) -> None:
        text = self.path.read_text()
        assert old in text
        self.path.write_text(text.replace(old, new))
        self.tick()

    def tick(self) -> None:
        """Let time pass, in which the file is read, and read again."""
        for _ in range(2):
            self.list.read()
        assert self.list.save()

    def state(self, topic: str, field: str = "t") -> Participation:
        return self.list.participation(field, topic)

    def lines(self) -> list[str]:
        return [line for line in self.path.read_text().splitlines() if line and line[0] not in "#["]


@pytest.fixture
def house(tmp_path: Path) -> Gateway:
    return Gateway(tmp_path / "sensors.txt")


def test_a_person_confirms_a_candidate_in_the_file_once(house: Gateway) -> None:
    house.live("z/a b", "z/c")
    house.edit("?   2026-06-01T12:00:00Z z/a b", "# kitchen\nYES z/a b".replace("YES", "yes"))
    assert house.state("z/a b") is Participation.TAKES_PART
    house.start()
    assert (house.state("z/a b"), house.state("z/c")) == (Participation.TAKES_PART, Participation.WAITS)
    assert "\n# kitchen\nyes " in house.path.read_text()


def test_only_a_live_message_with_the_key_makes_a_candidate(house: Gateway) -> None:
    house.live("z/lamp", has_key=False)
    house.retained("z/dead")
    house.live("z/new")
    states = [house.state(topic) for topic in ("z/lamp", "z/dead", "z/new", "z/unheard")]
    assert states == [Participation.NO_KEY, Participation.RETAINED, Participation.WAITS, Participation.NO_KEY]
    assert house.lines() == ["?   2026-06-01T12:00:00Z z/new"]
    house.live("z/lamp", has_key=False)
    house.live("z/dead", has_key=False)
    assert house.state("z/dead") is Participation.RETAINED, "a message without the key changes no reason"
    house.live("z/dead")
    assert house.state("z/dead") is Participation.WAITS


@pytest.mark.parametrize("confirmed", [["#"], ["z/a"], ["+/a", "x"]])
def test_an_option_confirms_candidates_and_is_remembered(tmp_path: Path, confirmed: list[str]) -> None:
    path = tmp_path / "sensors.txt"
    Gateway(path).live("z/a")
    Gateway(path).live("z/a", field="other")
    house = Gateway(path, confirmed=confirmed)
    house.live("z/a", "y/a")
    for again in (house, Gateway(path)):
        again.live("y/a")
        other = Participation.WAITS if confirmed == ["z/a"] else Participation.TAKES_PART
        assert [again.state("z/a"), again.state("y/a")] == [Participation.TAKES_PART, other]
        assert again.state("z/a", "other") is Participation.WAITS, "of a key that this run does not read"


def test_a_confirmed_sensor_waits_for_a_live_message_with_the_key(house: Gateway) -> None:
    house.path.write_text("[t]\nyes z/a\n")
    house.start()
    house.retained("z/a")
    house.live("z/a", has_key=False)
    assert house.state("z/a") is Participation.UNHEARD
    house.live("z/a")
    assert house.state("z/a") is Participation.TAKES_PART


def test_a_candidate_that_comes_while_a_person_edits_is_not_removed(house: Gateway) -> None:
    house.live("z/a", "z/b")
    seen = house.path.read_text()
    house.live("z/new")
    house.edit(house.path.read_text(), seen.replace("?   2026-06-01T12:00:00Z z/b", "NO z/b"))
    house.live("z/new", "z/b")
    assert [house.state("z/new"), house.state("z/b")] == [Participation.WAITS, Participation.REMOVED]


def test_a_person_need_not_write_as_the_gateway_does(house: Gateway) -> None:
    house.path.write_bytes("\ufeff[ h , p ]\r\nYes\tz/ä \r\n".encode())
    house.start()
    house.live("z/ä", field="h,p")
    assert house.state("z/ä", "h,p") is Participation.TAKES_PART


def test_a_list_that_is_a_link_stays_one(tmp_path: Path) -> None:
    real, link = tmp_path / "real" / "mine", tmp_path / "sensors.txt"
    real.parent.mkdir()
    link.symlink_to(real)
    house = Gateway(link)
    house.live("z/a")
    real.write_text(real.read_text().replace("?  ", "no "))
    house.tick()
    house.live("z/b")
    assert house.state("z/a") is Participation.REMOVED
    assert "z/b" in real.read_text()
    assert link.is_symlink()


@pytest.mark.parametrize("options", [{}, {"confirmed": ["#"]}, {"confirmed": ["#", "z/b"]}])
def test_a_sensor_that_a_person_removed_stays_removed(tmp_path: Path, options: dict[str, object]) -> None:
    path = tmp_path / "sensors.txt"
    Gateway(path, confirmed=["#"]).live("z/a", "z/b")
    path.write_text(path.read_text().replace("yes", "no "))
    house = Gateway(path, **options)  # type: ignore[arg-type]
    house.live("z/a")
    assert house.state("z/a") is Participation.REMOVED
    house.edit("no  2026-06-01T12:00:00Z z/b\n", "")  # the line is deleted while it runs
    house.live("z/b")
    assert house.state("z/b") is Participation.REMOVED
    house.start()
    assert house.state("z/b") is Participation.REMOVED


def test_a_line_deleted_between_runs_removes_a_sensor(tmp_path: Path) -> None:
    path = tmp_path / "sensors.txt"
    house = Gateway(path, confirmed=["#"], had_answered=("z/a",))
    house.live("z/a", "z/b")
    assert house.state("z/a") is Participation.TAKES_PART, "without a file, nothing was deleted from it"
    path.write_text("[t]\nyes 2026-06-01T12:00:00Z z/b\n")
    house.start()
    house.live("z/a", "z/b", "z/new")
    house.live("z/b", field="h")
    assert house.state("z/a") is Participation.REMOVED
    assert [house.state("z/b"), house.state("z/new"), house.state("z/b", "h")] == [Participation.TAKES_PART] * 3


def test_a_file_that_an_editor_is_still_writing_removes_nothing(house: Gateway) -> None:
    house.live("z/a")
    whole = house.path.read_bytes()
    house.path.write_bytes(b"")
    house.list.read()
    house.now += timedelta(hours=2)
    house.live("z/a")
    assert house.path.read_bytes() == b"", "it would undo the edit"
    house.path.write_bytes(whole.replace(b"?  ", b"yes"))
    house.tick()
    assert house.state("z/a") is Participation.TAKES_PART


def test_a_sensor_silent_for_a_month_stops_until_its_next_message(tmp_path: Path) -> None:
    house = Gateway(tmp_path / "sensors.txt", confirmed=["#"])
    house.live("z/a")
    house.now += MONTH
    assert house.state("z/a") is Participation.TAKES_PART
    house.now += timedelta(seconds=1)
    house.retained("z/a")
    assert house.state("z/a") is Participation.STOPPED
    house.start()
    assert house.state("z/a") is Participation.STOPPED
    house.live("z/a", has_key=False)
    assert house.state("z/a") is Participation.TAKES_PART, "it is about the device, and not about its value"
    house.start()
    assert house.state("z/a") is Participation.TAKES_PART


def test_a_clock_that_was_wrong_keeps_no_sensor_alive_or_dead(tmp_path: Path) -> None:
    house = Gateway(tmp_path / "sensors.txt", confirmed=["#"])
    house.now = datetime(2099, 1, 1, tzinfo=UTC)
    house.live("z/a")
    house.now = NOW
    assert house.state("z/a") is Participation.STOPPED
    house.live("z/a")
    assert house.state("z/a") is Participation.TAKES_PART


def test_the_time_of_a_message_is_written_once_an_hour(house: Gateway) -> None:
    house.live("z/a")
    before = house.path.stat().st_mtime_ns, house.path.read_bytes()
    house.now += timedelta(minutes=59)
    house.live("z/a")
    assert (house.path.stat().st_mtime_ns, house.path.read_bytes()) == before
    house.now += timedelta(minutes=1)
    house.live("z/a")
    assert house.lines() == ["?   2026-06-01T13:00:00Z z/a"]
    house.now += timedelta(minutes=107, seconds=59)
    house.live("z/a")
    assert house.lines() == ["?   2026-06-01T14:00:00Z z/a"], "the minute may be that of an event"


def test_a_full_list_takes_no_candidate_and_blocks_no_confirmed_sensor(tmp_path: Path) -> None:
    house = Gateway(tmp_path / "sensors.txt", most=2, confirmed=["z/mine"])
    house.live("z/evil1", "z/evil2", "z/evil3", "z/mine")
    assert house.state("z/evil3") is Participation.FULL
    assert house.state("z/mine") is Participation.TAKES_PART
    house.edit("[t]\n", "[t]\nyes z/evil3\n")
    house.live("z/evil3")
    assert house.state("z/evil3") is Participation.TAKES_PART
    house.edit("?   2026-06-01T12:00:00Z z/evil1", "no z/evil1")
    house.edit("?   2026-06-01T12:00:00Z z/evil2", "no z/evil2")
    house.live("z/new")
    assert house.state("z/new") is Participation.FULL, "two are confirmed"


@pytest.mark.parametrize("wide", ["#", "z/+"])
def test_a_filter_confirms_no_more_than_fit_and_nothing_deleted(tmp_path: Path, wide: str) -> None:
    house = Gateway(tmp_path / "sensors.txt", most=2, confirmed=[wide, "z/mine"])
    house.live("z/evil1", "z/evil2", "z/evil3", "z/mine")
    found = [house.state(topic) for topic in ("z/evil2", "z/evil3", "z/mine")]
    assert found == [Participation.TAKES_PART, Participation.FULL, Participation.TAKES_PART]
    (tmp_path / "edited.txt").write_text("")
    house = Gateway(tmp_path / "edited.txt", confirmed=[wide, "z/b"], had_answered=("z/a", "z/b"))
    house.live("z/a", "z/b")
    assert [house.state("z/a"), house.state("z/b")] == [Participation.REMOVED, Participation.TAKES_PART]


def test_an_excluded_topic_takes_no_part_whatever_the_list_says(tmp_path: Path) -> None:
    path = tmp_path / "sensors.txt"
    Gateway(path, confirmed=["#"]).live("z/a", "z/bridge/x")
    house = Gateway(path, confirmed=["#"], excluded=["z/bridge/#"])
    house.live("z/a", "z/bridge/x", "z/bridge/new")
    found = [house.state(topic) for topic in ("z/a", "z/bridge/x", "z/bridge/new")]
    assert found == [Participation.TAKES_PART, Participation.EXCLUDED, Participation.EXCLUDED]
    assert [line.rpartition(" ")[2] for line in house.lines()] == ["z/a", "z/bridge/x"]


def test_a_sensor_whose_messages_are_not_read_any_more_takes_no_part(tmp_path: Path) -> None:
    path = tmp_path / "sensors.txt"
    Gateway(path, confirmed=["#"]).live("z/a", "y/b/c", "y/b")
    house = Gateway(path, read=["z/+", "y/b/#"])
    found = [house.state(topic) for topic in ("z/a", "y/b/c", "y/b")]
    assert found == [Participation.TAKES_PART] * 3
    house = Gateway(path, read=["z/+", "y/+"])
    found = [house.state(topic) for topic in ("z/a", "y/b/c", "y/b")]
    assert found == [Participation.TAKES_PART, Participation.UNMATCHED, Participation.TAKES_PART]


def test_a_topic_that_no_line_can_hold_takes_no_part(tmp_path: Path) -> None:
    for topic in ("a\nb", "x" * 300, "a\u202eb", " a", "yes\ta\r", "a/+", "#"):
        house = Gateway(tmp_path / "sensors.txt", confirmed=["#"])
        house.live(topic)
        assert house.state(topic) is Participation.UNLISTABLE
        assert not house.path.exists()


def test_other_topics_and_keys_are_read_as_they_were_written(tmp_path: Path) -> None:
    for place, topic in enumerate(("a b  c", "[x]", "2026-06-01T12:00:00 x", "yes", "? no", "héé/☃")):
        for field in ("", "t", "[t]", "a,b", "# x"):
            house = Gateway(tmp_path / f"{place}{field}", confirmed=["#"])
            house.live(topic, field=field)
            house.start()
            assert house.list.sensors.keys() == {(field, topic)}


@pytest.mark.parametrize(
    ("content", "line", "remedy"),
    [
        ("z/a\n", "line 1", r"\[KEY\]"),  # without a decision
        ("[t]\nnein z/a\n", "line 2", "yes, no or"),
        ("# x\n[t]\nyes\n", "line 3", "the topic"),
        ("[t]\nyes z/+\n", "line 2", "one topic"),
        ("[t]\nno z/a\nyes z/b # kitchen\n", "line 3", "comments"),
        ("[t]\nyes 2026-13-01T00:00:00Z z/a\n", "line 2", "remove it"),
        ("[t]\nyes z/a\nno z/a\n", "line 3", "remove one"),
    ],
)
def test_an_error_in_the_sensor_file_names_its_line(tmp_path: Path, content: str, line: str, remedy: str) -> None:
    path = tmp_path / "sensors.txt"
    path.write_text(content)
    with pytest.raises(StateError, match=rf"sensors\.txt: {line} .*{remedy}"):
        Gateway(path)
    path.unlink()
    house = Gateway(path)
    house.live("z/new")
    path.write_text(content)
    with pytest.raises(StateError, match=line):
        house.tick()
    house.live("z/newer")
    assert path.read_text() == content


def test_a_list_that_cannot_be_read_or_written_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="missing"):
        Gateway(tmp_path / "missing" / "sensors.txt").live("a")
    (tmp_path / "sensors.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(StateError, match="UTF-8"):
        Gateway(tmp_path / "sensors.txt")


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["key", "other", "retained", "yes", "no", "delete", "restart", "wait", "month"]),
        st.sampled_from(["z/a", "z/b"]),
    ),
    max_size=25,
)


@pytest.mark.medium
@settings(max_examples=40)
@given(STEPS, st.booleans())
def test_a_sensor_needs_a_decision_a_live_key_and_a_live_device(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, str]], everything: bool
) -> None:
    path = tmp_path_factory.mktemp("house") / "sensors.txt"
    house = Gateway(path, confirmed=["#"] if everything else [])
    decided, had_key = dict.fromkeys(("z/a", "z/b"), everything), dict.fromkeys(("z/a", "z/b"), False)
    heard: dict[str, datetime] = {}
    for step, topic in steps:
        text = path.read_text() if path.exists() else "[t]\n"
        others = [line for line in text.splitlines() if not line.endswith(topic)]
        match step:
            case "key" | "other":
                house.live(topic, has_key=step == "key")
                had_key[topic] |= step == "key"
                heard[topic] = house.now
            case "retained":
                house.retained(topic)
            case "yes" | "no":
                path.write_text("\n".join([*others, f"{step} {topic}", ""]))
                decided[topic] = step == "yes"
            case "delete" if topic in text:
                path.write_text("\n".join([*others, ""]))
                decided[topic] = False
            case "restart":
                house.start()
            case "wait" | "month":
                house.now += timedelta(hours=1) if step == "wait" else MONTH
        house.tick()
        for one in ("z/a", "z/b"):
            lives = one in heard and house.now - heard[one] <= MONTH
            takes_part = house.state(one) is Participation.TAKES_PART
            assert takes_part <= (decided[one] and had_key[one] and lives), (step, one)
            if decided[one] and had_key[one] and heard.get(one) == house.now and step != "restart":
                assert takes_part, (step, one)
