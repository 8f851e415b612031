"""The options of a command as the fields of a dataclass, so that they are listed once."""

from collections.abc import Callable
from dataclasses import MISSING, Field, fields
from inspect import Parameter, Signature, signature
from typing import Any

__all__ = ["with_options_of"]


def with_options_of(kind: type[Any], *, last: bool = False) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Let a command take, in place of its first parameter, the fields of a dataclass.

    Args:
        kind: a dataclass whose fields are annotated as typer wants it, each with a default.
        last: whether help lists them after the command's own.
    """

    def decorate(run: Callable[..., None]) -> Callable[..., None]:
        own = list(signature(run).parameters.values())[1:]
        listed = [_parameter(field) for field in fields(kind)]

        def command(**given: Any) -> None:  # noqa: ANN401 - what typer parsed
            run(kind(**{parameter.name: given.pop(parameter.name) for parameter in listed}), **given)

        parameters = [*own, *listed] if last else [*listed, *own]
        command.__name__, command.__doc__ = run.__name__, run.__doc__
        command.__signature__ = Signature(parameters)  # type: ignore[attr-defined] # read by typer
        command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return command

    return decorate


def _parameter(field: "Field[Any]") -> Parameter:
    default = Parameter.empty if field.default is MISSING else field.default
    return Parameter(field.name, Parameter.KEYWORD_ONLY, default=default, annotation=field.type)
