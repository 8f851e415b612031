"""How the options of every command look: placeholders, groups, and values that a shell completes."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

_PLACEHOLDERS = {
    "admin_token_file": "FILE",
    "bind": "HOST:PORT",
    "broker": "ADDRESS",
    "clock": "SERVER",
    "config": "DIR",
    "gateway": "NAME=M",
    "home_assistant_page": "ADDRESS",
    "home_assistant_prefix": "TOPIC",
    "http": "ADDRESS",
    "http_root_path": "PATH",
    "http_trusted_proxy": "ADDRESS",
    "keep": "SECONDS",
    "listen": "ADDRESS",
    "login_timeout": "SECONDS",
    "notify": "URL",
    "notify_precision": "TASK=VALUE",
    "plugins": "DIR",
    "retention": "TIME",
    "root_path": "PATH",
    "round_": "N",
    "spread": "SECONDS",
    "state": "DIR",
    "store": "STORE",
    "timeout": "SECONDS",
    "trusted_proxy": "ADDRESS",
}
"""Of options that do not name theirs, where their type says too little."""

_BY_TYPE = {"path": "FILE", "integer": "N", "integer range": "N", "int range": "N", "int": "N"}
_NUMBERS = ("float", "float range")
_EPSILONS = ("epsilon", "max_epsilon", "lifetime", "total")

_MANY = 8
"""Options from which on they are in groups."""

_GROUPS: Mapping[str, Sequence[str]] = {
    "Question": ["number", "yes_no", "labels", "epsilon", "purpose", "questions", "until"],
    "Network": ["bind", "port", "is_open", "broker", "websocket"],
    "Your own data": [
        "csv",
        "column",
        "lower",
        "upper",
        "unit",
        "labels",
        "yes",
        "missing",
        "delimiter",
        "encoding",
        "header",
        "decimal",
        "na",
        "fold_case",
    ],
    "Broker": [
        "broker",
        "user",
        "password_file",
        "control_user",
        "control_password_file",
        "login_timeout",
        "ca",
        "cert",
        "key",
        "timeout",
        "device_user",
        "device_password_file",
    ],
    "How it is simulated": [
        "engine",
        "broker",
        "connections",
        "draw",
        "workers",
        "dask",
        "seed",
        "deterministic_noise",
        "rerun",
    ],
    "Privacy": ["epsilon", "max_epsilon", "lifetime", "total", "sticky"],
    "Device": ["device", "state", "spread", "keep"],
    "HTTP": [
        "http",
        "http_write",
        "http_token_file",
        "http_open",
        "http_host",
        "http_trusted_proxy",
        "http_admin_token_file",
        "http_audit_log",
        "http_root_path",
        "http_frame_ancestors",
        "token_file",
    ],
    "Home Assistant": ["home_assistant", "home_assistant_prefix", "home_assistant_page"],
    "Several workers": ["group", "worker"],
    "Webhook": ["notify", "notify_secret_file", "notify_precision"],
    "Output": ["out", "theme", "plot", "as_json", "as_csv", "in_full", "parquet", "log_format"],
}
_ONLY = {
    "Question": "yes_no",
    "Network": "websocket",
    "Broker": "user",
    "How it is simulated": "seed",
    "Privacy": "lifetime",
    "Device": "device",
    "HTTP": "http",
}
"""Groups of commands that have this option; in others their options are among the rest."""

_VALUES: Mapping[str, tuple[str, ...]] = {
    "draw": ("tally", "devices"),
    "engine": ("mqtt", "memory", "bulk"),
    "log_format": ("text", "json"),
    "missing": ("drop", "replace"),
    "plot": ("terminal",),
    "theme": ("light", "dark", "both"),
}
"""What a shell completes, by the name of the option."""


def prepare(command: Any, values: Mapping[str, Callable[[], Iterable[str]]]) -> Any:  # noqa: ANN401 - typer does not export it
    """Return a command, or a group of them, whose options are shown and completed as all of hush's are.

    Args:
        command: as typer made it.
        values: what a shell completes for arguments whose values only the command's own package knows.
    """
    parts = getattr(command, "commands", {})
    for part in parts.values():
        part.short_help = part.short_help or (part.help or "").split("\n\n")[0]  # whole, not cut
        prepare(part, values)
    for one in command.params:
        if one.param_type_name == "option" and one.metavar is None and not one.is_flag and not one.count:
            one.metavar = _placeholder(one.name, one.type.name)
        if one.name in _VALUES or one.name in values:
            one.shell_complete = partial(_complete, values.get(one.name) or partial(_VALUES.get, one.name))
    if not parts and sum(one.param_type_name == "option" for one in command.params) > _MANY:
        command.format_options = partial(_grouped, command)
    return command


def _placeholder(name: str, kind: str) -> str:
    if name in _PLACEHOLDERS:
        return _PLACEHOLDERS[name]
    if name in _EPSILONS:
        return "EPS"
    if kind in _NUMBERS or name == "confidence":
        return "X"
    return _BY_TYPE.get(kind, "N" if name == "seed" else "FILE" if name in {"ca", "cert", "key"} else "NAME")


class _Completion(NamedTuple):
    """What a shell completes; typer does not export its own."""

    value: str
    type: str = "plain"
    help: str | None = None


def _complete(found: Callable[[], Iterable[str] | None], _context: object, incomplete: str) -> list[_Completion]:
    return [_Completion(value) for value in found() or () if value.startswith(incomplete)]


def _grouped(command: Any, context: Any, formatter: Any) -> None:  # noqa: ANN401 - typer does not export them
    """Write the arguments, the options that are most used, and then the groups."""
    names = {one.name for one in command.params}
    found: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
    found |= {group: [] for group in _GROUPS}
    for one in command.get_params(context):
        row = one.get_help_record(context)
        if row is None:
            continue
        if one.param_type_name == "argument":
            found["Arguments"].append(row)
            continue
        groups = (group for group, members in _GROUPS.items() if one.name in members)
        group = next((group for group in groups if _ONLY.get(group, one.name) in names), "Options")
        found[group].append(row)
    for group, rows in found.items():
        if rows:
            with formatter.section(group):
                formatter.write_dl(rows)
