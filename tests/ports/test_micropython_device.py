"""The device part of MicroPython: charged once, the same bytes, whatever is cut, damaged or refused."""

import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
from port_cases import VECTORS
from port_programs import PORTS, micropython, planted

pytestmark = pytest.mark.medium

MODEL = Path(__file__).parent / "device_model.py"
PORT = PORTS / "micropython"
TABLE = VECTORS["tasks"]["room 3"].encode()
OFFERS = VECTORS["tasks"]["offer 3"].encode()


def module(name: str, directory: Path = PORT) -> ModuleType:
    specification = importlib.util.spec_from_file_location(name, directory / f"{name}.py")
    assert specification is not None
    assert specification.loader is not None
    found = importlib.util.module_from_spec(specification)
    sys.modules[name] = found
    specification.loader.exec_module(found)
    return found


@pytest.fixture(autouse=True)
def modules(monkeypatch: pytest.MonkeyPatch) -> tuple[ModuleType, ModuleType]:
    """Both files, in the interpreter of the tests."""
    for name in ("hush_micropython", "hush_device"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))  # so that what is loaded is gone after the test
    return module("hush_micropython"), module("hush_device")


def wrong(directory: Path, every: int) -> str:
    command = [sys.executable, "-I", str(MODEL), str(directory)]
    run = subprocess.run(command, input=f"{every}\n", capture_output=True, text=True, check=False)
    return run.stdout + run.stderr


def test_a_power_cut_at_any_step_charges_once_and_sends_the_same_bytes() -> None:
    assert wrong(PORT, 1) == "[]\n"


@pytest.mark.large
def test_so_it_is_in_micropython() -> None:
    run = subprocess.run(
        micropython(MODEL, PORT), input="13\n", capture_output=True, text=True, check=True, timeout=280
    )
    assert run.stdout.splitlines()[-1] == "[]"


_STORED_TWICE = """        entry = record.entries.pop()
        self._storage.store(record_name(task.id), encode(record))
        record.entries.append(entry)
        self._storage.store(record_name(task.id), encode(record))
        self._answered[task_id]"""
SLIPS = {
    "the charge is not stored": ("        record.spent = hush.add(record.spent, cost)\n", ""),
    "the charge is stored before its frame": (
        "        self._storage.store(record_name(task.id), encode(record))\n        self._answered[task_id]",
        _STORED_TWICE,
    ),
    "a draft is adopted without its checksum": ("draft is not None and _is_sealed(name, draft)", "draft is not None"),
    "a record is written in place": ('self._disk.write(path + "~", data', "self._disk.write(path, data"),
    "a memory is drawn in each round": ("            if record.last < 0:\n", "            if True:\n"),
}
"""Planted in hush_device.py, each must be found by the model."""


@pytest.mark.large
@pytest.mark.parametrize("slip", SLIPS.values(), ids=SLIPS.keys())
def test_a_slip_is_found(slip: tuple[str, str], tmp_path: Path) -> None:
    client = planted(tmp_path, "micropython/hush_device.py", *slip)
    assert wrong(client / "ports" / "micropython", 7) != "[]\n"


# ---- two power cuts


class PowerCut(BaseException):
    """The power fails; nothing of the program is left but its disk."""


class CutDisk:
    """Files in memory; the power fails after `left` steps: a byte, a rename or a removal each."""

    def __init__(self, files: dict[str, bytes], left: int, *, renames_over: bool) -> None:
        self.files, self.left, self.renames_over = dict(files), left, renames_over

    def _step(self) -> None:
        if self.left == 0:
            raise PowerCut
        self.left -= 1

    def read(self, path: str) -> bytes | None:
        return self.files.get(path)

    def write(self, path: str, data: bytes) -> None:
        for length in range(len(data) + 1):
            self._step()
            self.files[path] = data[:length]

    def rename(self, path: str, new: str) -> None:
        if not self.renames_over and new in self.files:
            self.remove(new)
        self._step()
        self.files[new] = self.files.pop(path)

    def remove(self, path: str) -> None:
        self._step()
        self.files.pop(path, None)

    def names(self, directory: str) -> list[str]:
        return [path.removeprefix(f"{directory}/") for path in self.files]

    def lock(self, path: str) -> Callable[[], None]:  # noqa: ARG002 - there is one program
        return lambda: None


def after_cut(storage: ModuleType, disk: CutDisk, new: bytes | None) -> bool:
    """Store a record, or remove it (None), until the power fails; return whether it did."""
    try:
        files = storage.Files("/s", disk)
        if new is None:
            files.remove("task")
        else:
            files.store("task", new)
    except PowerCut:
        return True
    return False


def loaded(storage: ModuleType, files: dict[str, bytes]) -> bytes | None:
    record: bytes | None = storage.Files("/s", CutDisk(files, 0, renames_over=True)).load("task")
    return record


@pytest.mark.parametrize(
    "second", [b"three", b"the third, which is longer", None], ids=["shorter", "longer", "removed"]
)
@pytest.mark.parametrize("renames_over", [False, True], ids=["FAT", "littlefs"])
def test_two_power_cuts_leave_the_old_record_or_the_new_one(
    modules: tuple[ModuleType, ModuleType], second: bytes | None, renames_over: bool
) -> None:
    storage, first, cuts = modules[1], b"the second one", 0
    whole = CutDisk({}, -1, renames_over=renames_over)
    assert not after_cut(storage, whole, b"one")
    for left in range(100):
        once = CutDisk(whole.files, left, renames_over=renames_over)
        is_cut = after_cut(storage, once, first)
        between = loaded(storage, once.files)
        assert between in {b"one", first}
        for again in range(100):
            twice = CutDisk(once.files, again, renames_over=renames_over)
            if not after_cut(storage, twice, second):
                assert loaded(storage, twice.files) == second
                break
            assert loaded(storage, twice.files) in {between, second}, (left, again)
            assert not after_cut(storage, CutDisk(twice.files, -1, renames_over=renames_over), b"four")
            cuts += 1
        if not is_cut:
            break
    assert cuts > len(first) * (len(second) if second is not None else 1)


# ---- what a device refuses


@pytest.fixture
def device(modules: tuple[ModuleType, ModuleType], tmp_path: Path) -> Iterator["Made"]:
    made = Made(*modules, tmp_path)
    yield made
    made.close()


class Made:
    """A device with its state in a directory, and a clock that stands still."""

    def __init__(self, hush: ModuleType, files: ModuleType, directory: Path) -> None:
        self.hush, self.files, self.directory, self.now = hush, files, directory, 1767225600
        self.policy = files.Policy()
        self.policy.spread = 0
        self.storage: ModuleType | None = None

    def close(self) -> None:
        if self.storage is not None:
            self.storage.close()

    def open(self, *tasks: bytes) -> ModuleType:
        self.close()
        self.storage = self.files.Files(str(self.directory))
        storage = self.storage
        found = self.files.Device(storage, "d", lambda: 1000 * self.now, self.policy, "b")
        for task in tasks:
            found.receive(f"hush/v1/tasks/{json.loads(task)['id']}", task)
        return found  # type: ignore[no-any-return]  # of a module that is loaded here

    def refusal(self, made: ModuleType, task: str) -> str:
        with pytest.raises(self.hush.HushError) as raised:
            made.answer(task, "21.5")
        return str(raised.value.status)


def test_a_task_of_a_table_is_answered_once(device: Made) -> None:
    made = device.open(TABLE)
    assert made.answer("room", "21.5").cost == (1, 1)
    ((key, topic, frame),) = made.due()
    assert (key, topic) == (("room", 0), "hush/v1/reports/room/d")
    made.acknowledged(key)
    assert list(made.due()) == []
    assert device.refusal(made, "room") == "answered"
    assert frame in (device.directory / device.files.record_name("room")).read_bytes(), "kept for a recall"


def test_two_programs_do_not_share_a_state(device: Made) -> None:
    first = device.open(TABLE)
    with pytest.raises(device.hush.HushError, match="storage"):
        device.files.Files(str(device.directory))
    first.answer("room", None)


def test_every_damaged_byte_of_a_record_refuses(device: Made) -> None:
    device.open(TABLE).answer("room", "21.5")
    file = device.directory / device.files.record_name("room")
    whole = file.read_bytes()
    other = OFFERS
    for place in range(len(whole)):
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        assert device.refusal(device.open(TABLE, other), json.loads(other)["id"]) == "storage", place
    for length in range(len(whole)):
        file.write_bytes(whole[:length])
        assert device.refusal(device.open(TABLE), "room") == "storage", length


def test_another_task_under_the_same_id_is_refused(device: Made) -> None:
    device.open(TABLE).answer("room", "21.5")
    assert device.refusal(device.open(TABLE + b" "), "room") == "changed"
    assert device.refusal(device.open(TABLE), "room") == "answered"
    assert device.refusal(device.open(), "room") == "no_task"


def test_the_largest_offer_within_the_budget_is_taken(device: Made) -> None:
    offered = json.loads(OFFERS)
    tasks = [json.dumps({**offered, "id": name}, separators=(",", ":")).encode() for name in "abc"]
    device.policy.lifetime = "3.1"
    made = device.open(*tasks)
    value = "yes" if offered["domain"]["kind"] == "bit" else None
    assert [made.answer(name, value).cost for name in "ab"] == [(2, 1), (1, 1)]
    assert device.refusal(made, "c") == "spent"
    device.policy.lifetime, device.policy.total = "9", "3.5"
    assert made.answer("c", value).cost == (1, 2)
    assert sorted(cost for _, _, cost in made.spent()) == [(1, 1), (1, 2), (2, 1)]


def test_a_source_is_called_once_it_is_decided_and_never_decides(device: Made) -> None:
    called = []

    def source() -> object:
        called.append(1)
        raise OSError

    made = device.open(TABLE)
    device.now = -1
    assert made.answer("room", source).value == "replaced"
    with pytest.raises(device.hush.HushError, match="answered"):
        made.answer("room", source)
    assert called == [1]
    with pytest.raises(TypeError, match="float"):
        made.answer("room", 21.5)


def test_no_more_than_the_capacity_waits(device: Made) -> None:
    tasks = [TABLE.replace(b'"room"', f'"r{place}"'.encode()) for place in range(3)]
    device.policy.capacity = 2
    made = device.open(*tasks)
    for name in ("r0", "r1"):
        made.answer(name, None)
    assert device.refusal(made, "r2") == "full"


def test_kept_frames_end_and_the_charge_stays(device: Made) -> None:
    made = device.open(TABLE)
    made.answer("room", None)
    for key, _, _ in made.due():
        made.acknowledged(key)
    file = device.directory / device.files.record_name("room")
    size = len(file.read_bytes())
    device.now += 7 * 86400 - 1
    made.tidy()
    assert len(file.read_bytes()) == size
    device.now += 1
    made.tidy()
    assert len(file.read_bytes()) < size - 40
    assert made.spent()[0][2] == (1, 1)
