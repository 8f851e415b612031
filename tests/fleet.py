"""The program of a device in each language, by the contract of docs/conform.md."""

import sys
from pathlib import Path

from port_programs import micropython_module
from servers import need

PROGRAMS = ("python", "c", "node", "micropython")
_TESTS = Path(__file__).parent


def command(language: str, client: Path, directory: Path) -> list[str]:
    """The words of its command; `directory` has what was compiled."""
    match language:
        case "python":
            return [sys.executable, str(_TESTS / "conform_client.py")]
        case "c":
            return [sys.executable, str(_TESTS / "ports" / "line_device.py"), str(directory / "hush_line")]
        case "node":
            words = ["{broker}", "--device", "{sender}", "--state", "{state}", "--value-file", "{value_file}"]
            limits = ["--task", "{task}", "--spread", "0", "--max-epsilon", "{epsilon}", "--lifetime", "{epsilon}"]
            limits.append("--sticky")
            return [need("node"), str(client / "ports" / "js" / "bin" / "hush-device.js"), *words, *limits]
        case _:
            port = str(client / "ports" / "micropython")
            return [need("node"), str(_TESTS / "ports" / "micropython_device.mjs"), str(micropython_module()), port]
