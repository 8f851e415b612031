"""A device in MicroPython: spends before it sends, answers no round twice, sends the same bytes until acknowledged.

`Device` decides, draws with `hush_micropython`, and keeps one record for each task in a `Files`. The record has what
was spent on the task, the last round that was answered, and the frames that are waiting or kept. One `store` writes
charge and frame together, before the first network byte. The program around it does MQTT: `main.py` with umqtt.
"""
# ruff: noqa: INP001, PLR2004, RUF005 - copied to a device as one file, and MicroPython has no stars in lists
# ruff: noqa: PTH104, PTH107, PTH123, PTH208 - nor pathlib

import binascii
import hashlib
import os

import hush_micropython as hush

TYPE_CHECKING = False
if TYPE_CHECKING:  # never on a device
    from collections.abc import Callable, Iterator

_NO_FILE = 2  # ENOENT
_SEAL = 8  # bytes of a checksum
_DAMAGED = "the state is damaged: answer nothing, restore no backup (docs/device.md: When the ledger is lost)"
_SKEW, _LONGEST_SPREAD = 300, 86400
_RECALLS = 8  # ids of served recalls that are remembered for each task


# ---- files


class Disk:
    """The files of the machine. Another class with these methods may take its place."""

    def read(self, path: str) -> bytes | None:
        """Return the content of a file, or None if there is none."""
        try:
            with open(path, "rb") as file:
                return file.read()
        except OSError as error:
            if error.args[0] == _NO_FILE:
                return None
            raise

    def write(self, path: str, data: bytes) -> None:
        """Write a file; return when it would survive a power cut."""
        with open(path, "wb") as file:
            file.write(data)
            file.flush()
            if hasattr(os, "fsync"):
                os.fsync(file.fileno())
        self._sync()

    def rename(self, path: str, new: str) -> None:
        """Rename a file over another one. FAT cannot: there the other one is removed first."""
        try:
            os.rename(path, new)
        except OSError:
            os.remove(new)
            os.rename(path, new)
        self._sync()

    def remove(self, path: str) -> None:
        """Remove a file, if there is one."""
        try:
            os.remove(path)
        except OSError as error:
            if error.args[0] != _NO_FILE:
                raise
        self._sync()

    def names(self, directory: str) -> list[str]:
        return os.listdir(directory)

    def lock(self, path: str) -> "Callable[[], None]":
        """Lock a file, until what is returned is called or the program ends."""
        try:
            import fcntl  # noqa: PLC0415 - where there is one
        except ImportError:  # a microcontroller runs one program
            return _nothing
        file = open(path, "wb")  # noqa: SIM115 - open as long as the program runs
        try:
            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.close()
            raise
        return file.close

    def _sync(self) -> None:
        if hasattr(os, "sync"):
            os.sync()


def _nothing() -> None:
    pass


class Files:
    """Records by name in a directory. After a power cut at any moment a record is the old one or the new one, whole.

    A record is written under another name, with a checksum, and then renamed. Where the name is missing, because FAT
    was between removing and renaming, the draft is the record.
    """

    def __init__(self, directory: str, disk: "Disk | None" = None) -> None:
        self._directory, self._disk = directory, Disk() if disk is None else disk
        try:
            self.close = self._disk.lock(directory + "/lock")  # call it to let another program use this state
        except OSError:
            raise hush.HushError("storage", "another program uses this state, or it cannot be written") from None

    def load(self, name: str) -> bytes | None:
        """Return a record, or None if there is none; HushError `storage` if it is damaged."""
        try:
            data = self._disk.read(self._path(name))
            draft = self._disk.read(self._path(name) + "~") if data is None else None
        except OSError:
            raise hush.HushError("storage", "the state cannot be read") from None
        if data is None:
            return None if draft is None or not _is_sealed(name, draft) else draft[:-_SEAL]
        if not _is_sealed(name, data):
            raise hush.HushError("storage", _DAMAGED)
        return data[:-_SEAL]

    def store(self, name: str, data: bytes) -> None:
        """Replace or create a record; return when it is durable."""
        path = self._path(name)
        try:
            self._disk.write(path + "~", data + _seal(name, data))
            self._disk.rename(path + "~", path)
        except OSError:
            raise hush.HushError("storage", "the state cannot be written; nothing is sent that is not stored") from None

    def remove(self, name: str) -> None:
        """Remove a record, if there is one."""
        try:
            self._disk.remove(self._path(name) + "~")  # first: else it would be the record
            self._disk.remove(self._path(name))
        except OSError:
            raise hush.HushError("storage", "the state cannot be written") from None

    def names(self) -> list[str]:
        """Return the names of all records."""
        try:
            files = self._disk.names(self._directory)
        except OSError:
            raise hush.HushError("storage", "the state cannot be read") from None
        found: list[str] = []
        for file in files:
            name = file[:-1] if file[-1:] == "~" else file
            if name != "lock" and name not in found:
                found.append(name)
        return found

    def _path(self, name: str) -> str:
        return self._directory + "/" + name


def _seal(name: str, data: bytes) -> bytes:
    return hashlib.sha256(name.encode() + b"\n" + data).digest()[:_SEAL]


def _is_sealed(name: str, data: bytes) -> bool:
    return data[-_SEAL:] == _seal(name, data[:-_SEAL])


# ---- records


class Entry:
    """A frame: waiting for the broker (`acknowledged` is -1), or kept for a recall. Times in Unix seconds."""

    def __init__(self, round_: int, topic: str, frame: bytes, place: str) -> None:
        self.round, self.topic, self.frame, self.place = round_, topic, frame, place
        self.due = 0  # in milliseconds: when it may be sent
        self.acknowledged = -1
        self.again = -1  # in milliseconds: when a recall sends it again
        self.spread = 0  # of that recall

    def numbers(self) -> list[int]:
        return [self.round, self.due, self.acknowledged, self.again, self.spread]


class Record:
    """What a device has spent on a task, and its frames: the last is the newest."""

    def __init__(self, task_id: str, digest: bytes, purpose: bytes) -> None:
        self.id, self.digest, self.purpose = task_id, digest, purpose
        self.spent = (0, 1)
        self.last = -1  # the last round that was answered
        self.closes = -1
        self.dropped = 0  # kept frames that were deleted early, because there was no room
        self.memory: list[int] = []  # of a sticky task: threshold, substitute, reports
        self.recalled_at = -1
        self.recalls: list[bytes] = []  # ids of served recalls, the newest first
        self.entries: list[Entry] = []


def encode(record: Record) -> bytes:
    numbers = list(record.spent) + [record.last, record.closes, record.dropped, record.recalled_at]
    parts = [b"hush record 1", record.id.encode(), record.digest, record.purpose, _line(numbers), _line(record.memory)]
    parts += [b"".join(record.recalls), str(len(record.entries)).encode()]
    for entry in record.entries:
        parts += [_line(entry.numbers()), entry.topic.encode(), entry.frame, entry.place.encode()]
    return b"".join([len(part).to_bytes(4, "big") + part for part in parts])


def _line(numbers: list[int]) -> bytes:
    return " ".join([str(number) for number in numbers]).encode()


def decode(data: bytes) -> Record:
    """Return a record; HushError `storage` if it is not one."""
    try:
        return _decode(_parts(data))
    except (ValueError, IndexError):
        raise hush.HushError("storage", _DAMAGED) from None


def _parts(data: bytes) -> list[bytes]:
    parts, at = [], 0
    while at < len(data):
        end = at + 4 + int.from_bytes(data[at : at + 4], "big")
        parts.append(data[at + 4 : end])
        at = end
    if at != len(data):
        raise ValueError
    return parts


def _decode(parts: list[bytes]) -> Record:
    record = Record(parts[1].decode(), parts[2], parts[3])
    numerator, denominator, record.last, record.closes, record.dropped, record.recalled_at = _numbers(parts[4])
    record.spent, record.memory = (numerator, denominator), _numbers(parts[5])
    record.recalls = [parts[6][at : at + 16] for at in range(0, len(parts[6]), 16)]
    if parts[0] != b"hush record 1" or numerator < 0 or denominator < 1 or len(parts) != 8 + 4 * int(parts[7].decode()):
        raise ValueError
    for at in range(8, len(parts), 4):
        entry = Entry(0, parts[at + 1].decode(), parts[at + 2], parts[at + 3].decode())
        entry.round, entry.due, entry.acknowledged, entry.again, entry.spread = _numbers(parts[at])
        record.entries.append(entry)
    return record


def _numbers(line: bytes) -> list[int]:
    return [int(word) for word in line.decode().split()]


def record_name(task_id: str) -> str:
    return "task-" + binascii.hexlify(hashlib.sha256(task_id.encode()).digest()[:12]).decode()


# ---- the device


class Policy:
    """The limits of a device. Set them before the device is made."""

    def __init__(self) -> None:
        self.max_epsilon = "4"  # most that one task may cost, over all its rounds
        self.lifetime = "4"  # most that all tasks of one purpose may cost together
        self.total = ""  # most that all tasks of all purposes may cost together; empty sets no limit
        self.sticky = False  # whether to answer tasks with repeat = "sticky": they show when a value changed
        self.spread = 1000  # a report is sent at a uniform time within so many milliseconds
        self.keep = hush.KEEP_SECONDS  # seconds for which a frame is kept after the broker's acknowledgement
        self.kept_bytes = 8192  # most bytes of kept frames, for each task
        self.capacity = 64  # most frames that wait for the broker


class Receipt:
    """An answer that is charged and stored: `task`, `round`, `cost`, `spent` (on this task), `topic` and `value`.

    `value` says how the value was used (see `hush_micropython.Report`): never send, store or show it to others.
    """

    def __init__(self, task: hush.Task, round_: int, cost: tuple[int, int], topic: str, value: str) -> None:
        self.task, self.round, self.cost, self.topic, self.value = task.id, round_, cost, topic, value
        self.spent = (0, 1)


class Device:
    """Answers tasks for one device.

    Args:
        storage: a `Files`, or another object with `load`, `store`, `remove` and `names`.
        sender: the MQTT user, or the name of the device.
        clock: returns the milliseconds since 1970. Rounds need the time: set the clock of the machine first.
        policy: the limits of the device.
        place: the address of the broker; kept frames are sent again only there.
    """

    def __init__(
        self, storage: "Files", sender: str, clock: "Callable[[], int]", policy: Policy, place: str = ""
    ) -> None:
        hush.report_topic("a", sender)  # for its check
        for name in (policy.max_epsilon, policy.lifetime, policy.total or "0"):
            if hush.exact(name) is None:
                raise hush.HushError("argument", 'a limit is not decimal text; write for example "4"')
        self.rng = hush.SystemRandom()
        self.tasks: dict[str, bytes] = {}
        self._storage, self._sender, self._clock, self._policy = storage, sender, clock, policy
        self._place = sender + "@" + place
        self._pending: dict[str, hush.Recall] = {}  # recalls that came within an hour of another
        self._resent: dict[tuple[str, int], bool] = {}  # what was sent again since the last write

    # ---- messages of the broker

    def receive(self, topic: str, payload: bytes) -> None:
        """Handle a retained message: a task, or a recall. An empty one withdraws it."""
        parts = topic.split("/")
        if len(parts) != 4 or parts[:2] != ["hush", "v1"] or not hush.is_task_id(parts[3]):
            return
        if parts[2] == "recalls":
            self._receive_recall(parts[3], payload)
        elif parts[2] == "tasks" and payload:
            self.tasks[parts[3]] = payload
        elif parts[2] == "tasks" and parts[3] in self.tasks:
            del self.tasks[parts[3]]

    def recall_topics(self) -> list[str]:
        """Return the topics to subscribe to, at QoS 1: recalls of the tasks of which frames are kept."""
        return [hush.recall_topic(record.id) for record in self._healthy() if record.entries]

    # ---- answers

    def answer(self, task_id: str, value: "str | Callable[[], str | None] | None") -> Receipt:
        """Answer the open round of a task: charge it and store the report. `due` then has it.

        Whether and when you call this must not depend on the value: if it is missing, pass None. A function is called
        once it is decided that the device answers; an exception in it, and anything but text, is a missing value.

        Raises:
            TypeError: the value is neither text, None nor a function; nothing was answered.
            HushError: nothing was answered. In addition to the words of `hush_micropython`: no_task (the broker has not
                sent it) · changed (another task was answered under this id) · answered (this round was) · sticky (the
                policy does not allow it) · spent (it would exceed the budget) · full (too many reports wait) · storage
                (the state is damaged, locked, or cannot be written).
        """
        if not callable(value):
            hush.check_type(value)
        if task_id not in self.tasks:
            raise hush.HushError("no_task", "the broker has not sent this task")
        task = hush.read_task(self.tasks[task_id], self._policy.max_epsilon)
        if task.id != task_id:
            raise hush.HushError("task", "it is published under another id")
        now = self._clock()
        record, round_, offer, cost = self._decide(task, now)
        given = _read(value) if callable(value) else value
        receipt = self._draw(task, given, now, record, (round_, offer, cost))
        self._storage.store(record_name(task.id), encode(record))
        return receipt

    def _decide(self, task: hush.Task, now: int) -> tuple[Record, int, int, tuple[int, int]]:
        """Return the record, the round, the offer and the cost of an answer; HushError if there is none. No value."""
        record, spent, total, waiting = self._history(task)
        if record.digest != task.digest:
            raise hush.HushError("changed", "this device has answered another task under this id")
        round_ = hush.current_round(task, now // 1000)
        if round_ <= record.last:
            raise hush.HushError("answered", "this round is answered")
        if task.repeat == "sticky" and not self._policy.sticky:
            raise hush.HushError("sticky", "it shows when a value changed; this device does not allow that")
        repeats = task.repeat == "sticky" and record.last >= 0
        for offer in range(hush.largest_offer(task), -1, -1):
            cost = (0, 1) if repeats else hush.offer_cost(task, offer)
            if self._fits(spent, cost, self._policy.lifetime) and self._fits(total, cost, self._policy.total):
                if waiting >= self._policy.capacity:
                    raise hush.HushError("full", "too many reports wait for the broker")
                return record, round_, offer, cost
        raise hush.HushError("spent", "the answer would exceed the budget of this device")

    def _fits(self, spent: tuple[int, int], cost: tuple[int, int], limit: str) -> bool:
        return limit == "" or hush.is_within(hush.add(spent, cost), hush.exact(limit) or (0, 1))

    def _history(self, task: hush.Task) -> tuple[Record, tuple[int, int], tuple[int, int], int]:
        """Return the record of a task, what was spent on its purpose and on all, and the number of waiting frames."""
        own, spent, total, waiting = Record(task.id, task.digest, task.purpose), (0, 1), (0, 1), 0
        for name in self._storage.names():
            data = self._storage.load(name)
            if data is None:
                continue
            record = decode(data)
            total = hush.add(total, record.spent)
            waiting += sum([1 for entry in record.entries if entry.acknowledged < 0])
            if record.purpose == task.purpose:
                spent = hush.add(spent, record.spent)
            if record.id == task.id:
                own = record
        return own, spent, total, waiting

    def _draw(
        self, task: hush.Task, value: str | None, now: int, record: Record, decided: tuple[int, int, tuple[int, int]]
    ) -> Receipt:
        """Draw the report, and add it and its charge to the record. It cannot refuse."""
        round_, offer, cost = decided
        memory = None
        if task.repeat == "sticky":
            if record.last < 0:
                memory = hush.draw_memory(task, self.rng)
                record.memory = [memory.threshold, memory.substitute] + memory.reports
            memory = hush.Memory(record.memory[0], record.memory[2:], record.memory[1])
        report = hush.draw(task, value, round_, offer, self.rng, memory)
        topic = hush.report_topic(task.id, self._sender)
        frame = hush.encode_frame(report.digest, report.round, [(report.id, report.body)])
        entry = Entry(round_, topic, frame, self._place)
        entry.due = now + self.rng.below(self._policy.spread + 1)
        record.entries.append(entry)
        record.last, record.closes = round_, task.closes if "closes" in task.seen else -1
        record.spent = hush.add(record.spent, cost)
        receipt = Receipt(task, round_, cost, topic, report.value)
        receipt.spent = record.spent
        return receipt

    # ---- sending

    def due(self, now: int | None = None) -> "Iterator[tuple[tuple[str, int], str, bytes]]":
        """Yield key, topic and frame of each report that is due, to publish at QoS 1, not retained.

        Call `acknowledged` with the key of each that the broker has acknowledged. The others are due again.
        """
        at = self._clock() if now is None else now
        for record in self._healthy():
            for entry in record.entries:
                key = record.id, entry.round
                waits = entry.acknowledged < 0 and entry.due <= at
                recalled = 0 <= entry.again <= at and entry.place == self._place and key not in self._resent
                if waits or recalled:
                    yield key, entry.topic, entry.frame

    def acknowledged(self, key: tuple[str, int]) -> None:
        """Note that the broker has acknowledged a report. It is kept for recalls, as long as the policy says."""
        record = self._load(key[0])
        entry = None if record is None else _find(record, key[1])
        if record is None or entry is None:
            return
        if entry.acknowledged < 0:
            entry.acknowledged = self._clock() // 1000
        else:
            self._resent[key] = True
            if not self._settle(record):
                return  # one write for a recall, not one for a frame
        self._tidy(record)
        self._storage.store(record_name(record.id), encode(record))

    def _settle(self, record: Record) -> bool:
        """End a recall of which every frame was sent again; return whether there was one."""
        again = [entry for entry in record.entries if entry.again >= 0]
        if not again or not all((record.id, entry.round) in self._resent for entry in again):
            return False
        for entry in again:
            entry.again = -1
            del self._resent[(record.id, entry.round)]
        return True

    def tidy(self) -> None:
        """Delete frames that have ended, and serve a recall that has waited for an hour. Call it every few minutes."""
        for record in self._healthy():
            changed = self._tidy(record)
            if self._settle(record) or changed:
                self._storage.store(record_name(record.id), encode(record))
        for task_id, recall in list(self._pending.items()):
            self._serve(task_id, recall)

    def _tidy(self, record: Record) -> bool:
        """Delete frames that have ended; what they cost stays in the record. Return whether any has."""
        now, before = self._clock() // 1000, len(record.entries)
        for entry in record.entries:
            entry.acknowledged = min(entry.acknowledged, now)  # after the clock was set back
        record.entries = [entry for entry in record.entries if not self._has_ended(record, entry, now)]
        kept = [entry for entry in record.entries if entry.acknowledged >= 0]
        size = sum([_size(entry) for entry in kept])
        while size > self._policy.kept_bytes:
            size -= _size(kept[0])
            record.entries.remove(kept.pop(0))
            record.dropped += 1
        return len(record.entries) < before

    def _has_ended(self, record: Record, entry: Entry, now: int) -> bool:
        closes = None if record.closes < 0 else record.closes
        if entry.acknowledged < 0:  # never counted any more, whatever is recalled
            return closes is not None and now >= closes + _SKEW + 2 * _LONGEST_SPREAD
        recall = None
        if entry.again >= 0:
            recall = hush.Recall()
            recall.spread = entry.spread
        until = hush.kept_until(entry.acknowledged, closes, self._policy.keep, recall)
        return until is not None and now >= until

    # ---- recalls

    def _receive_recall(self, task_id: str, payload: bytes) -> None:
        if not payload:
            self._pending.pop(task_id, None)
            return
        recall = hush.read_recall(payload)
        if recall is not None and recall.task == task_id:
            self._serve(task_id, recall)

    def _serve(self, task_id: str, recall: hush.Recall) -> None:
        """Plan when each frame is sent again; a recall within an hour of another one waits."""
        record, now = self._load(task_id), self._clock() // 1000
        self._pending.pop(task_id, None)
        if record is None or recall.id in record.recalls:
            return
        if record.recalled_at >= 0 and 0 <= now - record.recalled_at < hush.RECALL_EVERY:
            self._pending[task_id] = recall
            return
        asked = [entry for entry in record.entries if self._is_asked(record, entry, recall)]
        for entry in asked:
            entry.again = 1000 * now + hush.recall_delay(recall, self.rng)
            entry.spread = recall.spread
            self._resent.pop((task_id, entry.round), None)
        if asked:
            record.recalls, record.recalled_at = ([recall.id] + record.recalls)[:_RECALLS], now
            self._storage.store(record_name(task_id), encode(record))

    def _is_asked(self, record: Record, entry: Entry, recall: hush.Recall) -> bool:
        is_kept = entry.acknowledged >= 0 and entry.place == self._place
        return is_kept and hush.is_recalled(recall, record.id, entry.frame)

    # ---- what is stored

    def spent(self) -> "list[tuple[str, bytes, tuple[int, int]]]":
        """Return id, purpose and cost of each task; HushError `storage` if a record is damaged."""
        found = []
        for name in self._storage.names():
            data = self._storage.load(name)
            if data is not None:
                record = decode(data)
                found.append((record.id, record.purpose, record.spent))
        return found

    def _load(self, task_id: str) -> Record | None:
        try:
            data = self._storage.load(record_name(task_id))
            return None if data is None else decode(data)
        except hush.HushError:  # `answer` reports it
            return None

    def _healthy(self) -> "Iterator[Record]":
        """Yield the records that can be read; a damaged one keeps no other report from being sent."""
        for name in self._storage.names():
            try:
                data = self._storage.load(name)
                record = None if data is None else decode(data)
            except hush.HushError:
                continue
            if record is not None:
                yield record


def _read(source: "Callable[[], str | None]") -> str | None:
    """Call a source. Whatever it does, the device answers: otherwise its silence would reveal something."""
    try:
        value = source()
    except Exception:  # noqa: BLE001 - as the docstring says
        return None
    return value if isinstance(value, str) else None


def _find(record: Record, round_: int) -> Entry | None:
    for entry in record.entries:
        if entry.round == round_:
            return entry
    return None


def _size(entry: Entry) -> int:
    return len(entry.frame) + len(entry.topic) + len(entry.place)
