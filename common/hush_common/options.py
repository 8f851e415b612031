"""The options of a command: each is written once, as a field of a dataclass or as a parameter of the command.

    @dataclass(frozen=True, slots=True, kw_only=True)
    class WatchOptions:
        task: Annotated[str, Argument(metavar="TASK", help="Id of the task.")]
        broker: Annotated[str, Option(metavar="ADDRESS", group=BROKER, help="…")] = ""

    @app.command()
    def watch(options: WatchOptions) -> None: ...

A dataclass in place of an option stands for its fields, in a dataclass of options too.
"""

from collections.abc import Callable, Iterable, Mapping
from copy import copy
from dataclasses import MISSING, dataclass, fields, is_dataclass
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeVar, get_args, get_origin

import typer
from typer.core import TyperCommand

from hush_common.broker_url import BrokerUrl, address

BROKER = "Broker"
OUTPUT = "Output"
"""Groups that several commands have."""

_MANY = 8
"""Options from which on they are in groups."""

_METAVARS = {
    "path": "FILE",
    "integer": "N",
    "integer range": "N",
    "int range": "N",
    "int": "N",
    "float": "X",
    "float range": "X",
}
"""By type, of options that do not name theirs."""


def Option(  # noqa: N802 - as typer.Option
    *flags: str,
    group: str | None = None,
    values: Callable[[], Iterable[str]] | Iterable[str] | None = None,
    **settings: Any,  # noqa: ANN401 - as typer.Option takes them
) -> Any:  # noqa: ANN401 - as typer.Option
    """Return the annotation of an option.

    Args:
        flags: as typed; the name of the field, with dashes, if there is none.
        group: in which a help with many options shows it.
        values: what a shell completes.
        settings: of `typer.Option`: help, metavar, envvar, parser, min, max, hidden, show_default.
    """
    return typer.Option(*flags, rich_help_panel=group, autocompletion=_completion(values), **settings)


def Argument(  # noqa: N802 - as typer.Argument
    *,
    values: Callable[[], Iterable[str]] | Iterable[str] | None = None,
    **settings: Any,  # noqa: ANN401 - as typer.Argument takes them
) -> Any:  # noqa: ANN401 - as typer.Argument
    """Return the annotation of an argument; `values` are what a shell completes."""
    return typer.Argument(autocompletion=_completion(values), **settings)


def _completion(values: Callable[[], Iterable[str]] | Iterable[str] | None) -> Callable[[], list[str]] | None:
    return None if values is None else lambda: list(values() if callable(values) else values)


_Run = TypeVar("_Run", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Prefixed:
    """In an annotation of a dataclass of options: they start with this word here, and are in this group."""

    word: str
    group: str


class Commands(typer.Typer):
    """The commands of a module, shown as all of hush's are."""

    def __init__(self, **settings: Any) -> None:  # noqa: ANN401 - as typer takes them
        super().__init__(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None, **settings)

    def command(self, name: str | None = None, **settings: Any) -> Callable[[_Run], _Run]:  # noqa: ANN401 - as typer takes them
        """Register a command that takes options, and dataclasses of them."""
        register = super().command(name, cls=_Command, **settings)

        def decorate(run: _Run) -> _Run:
            register(_expanded(run))
            return run

        return decorate


LOGIN_FILE_HELP = "File whose first line is the password, so that no process list shows it."


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """The login of a command on a broker."""

    user: Annotated[str, Option(group=BROKER, help="User name on the broker, if the address has none.")] = ""
    password_file: Annotated[Path | None, Option(group=BROKER, help=LOGIN_FILE_HELP)] = None

    def at(self, broker: str, **more: str) -> BrokerUrl:
        """Return the address of a broker with this login; `more` are further parts of it."""
        return address(broker, {"user": self.user, **more}, self.password_file)


class _Expanded(NamedTuple):
    """A parameter of a command, or several in place of a dataclass, and how its value is made of what typer parsed."""

    parameters: list[Parameter]
    value: Callable[[Mapping[str, Any]], Any]


def _expanded(run: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function for typer: with a parameter for each field of the dataclasses that `run` takes."""
    options = {one.name: _expand(one.name, one.annotation, one.default) for one in signature(run).parameters.values()}

    def command(**given: Any) -> Any:  # noqa: ANN401 - what typer parsed, and what the command returns
        return run(**{name: one.value(given) for name, one in options.items()})

    parameters = [parameter for one in options.values() for parameter in one.parameters]
    command.__name__, command.__doc__ = run.__name__, run.__doc__
    command.__signature__ = Signature(parameters)  # type: ignore[attr-defined] # read by typer
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command


def _expand(name: str, annotation: Any, default: object, prefix: Prefixed | None = None) -> _Expanded:  # noqa: ANN401 - any
    kind, *notes = get_args(annotation) if get_origin(annotation) is Annotated else (annotation,)
    if is_dataclass(kind) and isinstance(kind, type):
        return _expand_fields(kind, next((one for one in notes if isinstance(one, Prefixed)), prefix))
    if prefix is not None:
        name = f"{prefix.word}_{name}"
        notes = [_prefixed(one, prefix) for one in notes]
    is_repeated = get_origin(kind) is tuple and get_args(kind)[1:] == (...,)
    if is_repeated:  # typer knows a list of them, and None without any
        kind = list[get_args(kind)[0]]  # type: ignore[misc] # at run time
        if default == ():
            kind, default = kind | None, None
    full = Annotated[kind, *notes] if notes else kind
    parameter = Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=full)
    return _Expanded([parameter], lambda given: tuple(given[name] or ()) if is_repeated else given[name])


def _expand_fields(kind: type[Any], prefix: Prefixed | None) -> _Expanded:
    parts = {
        field.name: _expand(
            field.name, field.type, Parameter.empty if field.default is MISSING else field.default, prefix
        )
        for field in fields(kind)
    }
    return _Expanded(
        [parameter for one in parts.values() for parameter in one.parameters],
        lambda given: kind(**{name: one.value(given) for name, one in parts.items()}),
    )


def _prefixed(note: Any, prefix: Prefixed) -> Any:  # noqa: ANN401 - typer does not export it
    changed = copy(note)
    # typer takes the first flag as the default
    flags = [one for one in (note.default, *note.param_decls) if isinstance(one, str)]
    changed.default, changed.param_decls = ..., tuple(f"--{prefix.word}-{flag.removeprefix('--')}" for flag in flags)
    changed.rich_help_panel = prefix.group
    return changed


class _Command(TyperCommand):
    def __init__(self, *arguments: Any, **settings: Any) -> None:  # noqa: ANN401 - as typer makes it
        super().__init__(*arguments, **settings)
        self.short_help = self.short_help or (self.help or "").split("\n\n")[0]  # whole, not cut
        for one in self._own_options():
            if one.metavar is None and not one.is_flag and not one.count:
                one.metavar = _METAVARS.get(one.type.name, "NAME")

    def _own_options(self) -> list[Any]:
        return [one for one in self.params if one.param_type_name == "option"]

    def format_options(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401 - typer does not export them
        """Write the arguments, the options that are most used, and then the groups in the order of their options."""
        is_grouped = len(self._own_options()) > _MANY
        found: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        for one in self.get_params(ctx):
            row = one.get_help_record(ctx)
            if row is not None:
                group = getattr(one, "rich_help_panel", None) if is_grouped else None
                place = "Arguments" if one.param_type_name == "argument" else group or "Options"
                found.setdefault(place, []).append(row)
        for group, rows in found.items():
            if rows:
                with formatter.section(group):
                    formatter.write_dl(rows)
