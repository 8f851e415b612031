"""A device whose power fails at any step of its storage, compared with a model. It runs in MicroPython, too.

The model: a round is charged once, and all frames of it that ever reach the broker are the same bytes.
"""

import hashlib
import sys

sys.path.insert(0, sys.argv[1] if len(sys.argv) > 1 else "client/ports/micropython")

import hush_device
import hush_micropython as hush

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

DAY = 86400
OPENS = 1767225600
TASK = (
    b'{"domain":{"kind":"number","lower":0,"outside":"clamp","upper":1},"epsilon":"1","id":"room","levels":1,'
    b'"mechanism":"multilevel","opens":"2026-01-01T00:00:00Z","purpose":"p","round_every":"1d","rounds":3}'
)
STICKY = (
    b'{"domain":{"kind":"bit"},"epsilon":"2","id":"kept","mechanism":"randomized_response",'
    b'"opens":"2026-01-01T00:00:00Z","purpose":"q","repeat":"sticky","round_every":"1d","rounds":9}'
)


class PowerCut(BaseException):
    """The power fails; nothing of the program is left but its disk."""


class MemoryDisk(hush_device.Disk):
    """A disk that fails at a step: a write is cut anywhere, a rename happens or not; FAT removes the old file first."""

    def __init__(self, cut: int, fat: bool) -> None:
        self.files: dict[str, bytes] = {}
        self.steps, self.cut, self.fat = 0, cut, fat

    def step(self) -> None:
        self.steps += 1
        if self.steps == self.cut:
            raise PowerCut

    def read(self, path: str) -> bytes | None:
        return self.files.get(path)

    def write(self, path: str, data: bytes) -> None:
        self.step()
        for length in (0, len(data) // 2, len(data)):
            self.files[path] = data[:length]
            self.step()

    def rename(self, path: str, new: str) -> None:
        if self.fat and new in self.files:
            del self.files[new]
            self.step()
        self.files[new] = self.files.pop(path)
        self.step()

    def remove(self, path: str) -> None:
        self.files.pop(path, None)
        self.step()

    def names(self, directory: str) -> list[str]:
        return [path[len(directory) + 1 :] for path in self.files]

    def lock(self, path: str) -> "Callable[[], None]":  # noqa: ARG002 - there is one program
        return lambda: None


class World:
    """The disk, the time and the broker, which outlive the device."""

    def __init__(self, cut: int, fat: bool) -> None:
        self.disk, self.now = MemoryDisk(cut, fat), OPENS
        self.received: list[tuple[str, int, bytes]] = []
        self.memories: list[list[int]] = []  # of the sticky task, as they were stored
        self.device = self.started()

    def started(self) -> hush_device.Device:
        policy = hush_device.Policy()
        policy.spread, policy.sticky = 0, True
        self.files = hush_device.Files("/s", self.disk)
        device = hush_device.Device(self.files, "d", lambda: 1000 * self.now, policy, "b")
        device.receive("hush/v1/tasks/room", TASK)
        device.receive("hush/v1/tasks/kept", STICKY)
        return device

    def answer(self, task: str, after: int) -> None:
        """Answer, or note that the round is answered already."""
        self.now = max(self.now, OPENS + after)
        try:
            self.device.answer(task, None)
        except hush.HushError as refusal:
            if refusal.status != "answered":
                raise
        data = self.files.load(hush_device.record_name("kept"))
        if data is not None:
            self.memories.append(hush_device.decode(data).memory)

    def send(self, is_acknowledged: bool) -> None:
        for key, topic, frame in self.device.due():
            self.received.append((topic, key[1], frame))
            if is_acknowledged:
                self.device.acknowledged(key)

    def recall(self, number: int, after: int) -> None:
        self.now = max(self.now, OPENS + after)
        digest = "".join(["%02x" % byte for byte in hashlib.sha256(TASK).digest()])  # noqa: UP031 - old MicroPython
        text = '{"v":1,"task":"room","digest":"' + digest + '","id":"' + "%032x" % number + '","over":1}'  # noqa: UP031
        self.device.receive("hush/v1/recalls/room", text.encode())
        self.now += 2

    def pass_time(self, days: int) -> None:
        self.now = OPENS + days * DAY
        self.device.tidy()


def events(world: World) -> "list[object]":
    """What happens to a device."""
    return [
        lambda: world.answer("room", 0),
        lambda: world.answer("kept", 1),
        lambda: world.send(True),
        lambda: world.answer("room", 5),
        lambda: world.recall(1, 10),
        lambda: world.send(True),
        lambda: world.answer("room", DAY),
        lambda: world.answer("kept", DAY),
        lambda: world.send(False),
        lambda: world.send(True),
        lambda: world.recall(1, DAY + 10),
        lambda: world.send(True),
        lambda: world.recall(2, DAY + 8000),
        lambda: world.send(True),
        lambda: world.send(True),
        lambda: world.answer("room", 2 * DAY),
        lambda: world.send(True),
        lambda: world.pass_time(30),
    ]


def run(cut: int, fat: bool) -> "tuple[list[str], int]":
    """Return what is wrong after a power cut at a step, and the number of steps."""
    world = World(cut, fat)
    for event in events(world):
        try:
            event()  # type: ignore[operator]  # each is a function
        except PowerCut:
            world.device = world.started()
            event()  # type: ignore[operator]  # as above
        except hush.HushError as refusal:
            return ["refused: " + str(refusal)], world.disk.steps
    return complaints(world), world.disk.steps


def complaints(world: World) -> "list[str]":
    found = []
    frames: dict[tuple[str, int], bytes] = {}
    for topic, round_, frame in world.received:
        if frames.setdefault((topic, round_), frame) != frame:
            found.append("two frames for one round")
    if len(frames) != 5:
        found.append("reports of " + str(len(frames)) + " rounds, not of 5")
    counts = [sum([1 for one in world.received if one[1] == round_ and "room" in one[0]]) for round_ in (0, 1, 2)]
    if counts[0] < 3 or counts[1] < 3:  # round 1 was sent without an acknowledgement, too
        found.append("no repeated report after a recall")
    if counts[0] > 3 + (1 if world.disk.cut else 0):  # what was under way is sent once more after a power cut
        found.append("one recall was served twice")
    if any(memory != world.memories[0] for memory in world.memories):
        found.append("a memory was drawn twice")
    spent = sorted([(task, cost) for task, _, cost in world.device.spent()])
    if spent != [("kept", (2, 1)), ("room", (1, 1))]:
        found.append("spent " + str(spent))
    for name in world.files.names():
        data = world.files.load(name)
        if data is not None and hush_device.decode(data).entries:
            found.append("a frame is kept for ever")
    return found


def check(every: int) -> "list[str]":
    """Return what is wrong after a power cut at each step, or at each `every`-th one."""
    found = []
    for fat in (False, True):
        _, steps = run(0, fat)
        for cut in range(0, steps + 1, every):
            wrong, _ = run(cut, fat)
            found += ["cut at step " + str(cut) + (" on FAT: " if fat else ": ") + one for one in wrong]
    return found


def respond(line: str) -> None:
    """Check each so many steps, and print what is wrong."""
    print(check(int(line))[:3])  # noqa: T201 - printing is its job


if __name__ == "__main__":
    respond("1")
