"""The reports that a broker delivers, in a file, without a doubt whether the last ones have come."""

import itertools
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from servers import Mosquitto, need
from waiting import wait_until

__all__ = ["ReportsSeen", "seeing_reports"]


@dataclass
class ReportsSeen:
    """What a subscriber has written.

    Args:
        broker: where it subscribes.
        file: one message a line, as hexadecimal digits.
    """

    broker: Mosquitto
    file: Path
    _marks: Iterator[int] = field(default_factory=itertools.count)

    def distinct(self) -> set[str]:
        """Return each payload once, among them all that the broker acknowledged before this call."""
        mark = f"mark {next(self._marks)}"

        def has_come() -> bool:
            command = [need("mosquitto_pub"), "-p", str(self.broker.port), "-q", "1", "-t", "hush/v1/reports/mark"]
            subprocess.run([*command, "-m", mark], check=True)
            return mark.encode().hex() in self._lines()

        wait_until(has_come)
        return {line for line in self._lines() if not line.startswith(b"mark ".hex())}

    def _lines(self) -> set[str]:
        return set(self.file.read_text(encoding="ascii").split())


@contextmanager
def seeing_reports(broker: Mosquitto, file: Path) -> Iterator[ReportsSeen]:
    """Subscribe to all reports until the block ends."""
    command = [need("mosquitto_sub"), "-p", str(broker.port), "-q", "1", "-t", "hush/v1/reports/#", "-F", "%x"]
    with file.open("wb") as out, subprocess.Popen(command, stdout=out) as watching:
        seen = ReportsSeen(broker, file)
        try:
            seen.distinct()  # it has subscribed
            yield seen
        finally:
            watching.terminate()
