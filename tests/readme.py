"""README.md as a person follows it: its blocks in their order, and the script that they make together.

Blocks in `sh` are typed; every other block is a file, under the name that the text before it gives last. A block in
`sh` that begins with `# needs mosquitto` is left out where mosquitto is not installed.
"""

import re
import shlex
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["NEEDS_MOSQUITTO", "README", "Block", "blocks", "export", "script"]

README = Path(__file__).resolve().parents[1] / "README.md"
NEEDS_MOSQUITTO = "# needs mosquitto\n"
MARK = "\x1e"
"""Stands before what each block prints."""

_FENCED = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_NAMED = re.compile(r"`([\w-]+\.\w+)`[^`]*\Z")
_PORT = "1883"
_COMMIT = ("-c", "user.name=test", "-c", "user.email=test@localhost", "stash", "create")


@dataclass(frozen=True)
class Block:
    """A fenced block.

    Args:
        language: as the fence says.
        text: what stands in it.
        name: of the file that it is; empty where it is typed, or where nothing names it.
    """

    language: str
    text: str
    name: str

    @property
    def needs_mosquitto(self) -> bool:
        return self.text.startswith(NEEDS_MOSQUITTO)


def blocks(document: str) -> Iterator[Block]:
    """The fenced blocks, first to last."""
    last = 0
    for match in _FENCED.finditer(document):
        before = document[last : match.start()].rstrip().rpartition("\n\n")[2]
        named = None if match[1] == "sh" else _NAMED.search(before)
        yield Block(match[1], match[2], named[1] if named else "")
        last = match.end()


def export(repository: Path, directory: Path) -> None:
    """What is committed, and what a commit of all changes of tracked files would have: no caches, no environments."""
    git = ["git", "-C", str(repository)]
    made = subprocess.run([*git, *_COMMIT], check=True, capture_output=True, text=True).stdout.strip()
    directory.mkdir()
    archive = subprocess.run([*git, "archive", made or "HEAD"], check=True, capture_output=True).stdout
    subprocess.run(["tar", "-x", "-C", str(directory)], input=archive, check=True)


def _counted(port: int) -> str:
    """Wait until all three reports are counted: an acknowledgement only says that the broker has the last one."""
    estimate = f"mosquitto_sub -p {port} -t hush/v1/estimates/heights -C 1"
    return f"until {estimate} | grep -Eq '\"n\": ?3\\b'; do sleep 0.2; done"


def script(document: str, port: int, *, mosquitto: bool) -> str:
    """All blocks as one script of bash, as they are printed but for the port of the broker.

    Each begins with a line of `MARK` and its number, counted from 0.
    """
    lines = ["set -e"]
    for number, block in enumerate(blocks(document)):
        lines.append(f"printf '{MARK}%s\\n' {number}")
        text = block.text.replace(_PORT, str(port))
        if block.language != "sh":
            lines.append(f"printf %s {shlex.quote(text)} > {shlex.quote(block.name)}")
        elif mosquitto or not block.needs_mosquitto:
            lines += [*([_counted(port)] if mosquitto and text.startswith("kill %2") else []), text]
    return "\n".join(lines)
