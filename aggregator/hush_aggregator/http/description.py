"""The description of HTTP as OpenAPI 3.1: what every endpoint may answer beside its own, and the forms of documents."""

from typing import Any

from fastapi import FastAPI
from pydantic import TypeAdapter

from hush_aggregator.http.documents import Conflict, Problem
from hush_aggregator.http.problems import PROBLEM
from hush_aggregator.http.task_documents import TaskDocument

__all__ = ["CONFLICT", "Described", "form"]

_PLACE = "#/components/schemas/{model}"
_FORMS = (Problem, Conflict, TaskDocument)  # those that no endpoint names as what it answers


def form(name: str) -> dict[str, str]:
    """A reference to the form of a document."""
    return {"$ref": _PLACE.format(model=name)}


CONFLICT: dict[str, object] = {
    "description": "Another task has its id.",
    "content": {PROBLEM: {"schema": form("Conflict")}},
}
"""Of an endpoint where two tasks may meet."""

_FAILURES: dict[str, object] = {
    "4XX": {"description": "What was wrong with the request.", "content": {PROBLEM: {"schema": form("Problem")}}},
    "5XX": {"description": "What is wrong with the service.", "content": {PROBLEM: {"schema": form("Problem")}}},
}


class Described(FastAPI):
    """An application whose description has all answers."""

    def openapi(self) -> dict[str, Any]:
        if not self.openapi_schema:
            document = super().openapi()
            forms = document.setdefault("components", {}).setdefault("schemas", {})
            for kind in _FORMS:
                found = TypeAdapter(kind).json_schema(ref_template=_PLACE)
                forms |= found.pop("$defs", {})
                forms[kind.__name__] = found
            for operations in document["paths"].values():
                for operation in operations.values():
                    operation["responses"].pop("422", None)  # one of them all
                    operation["responses"] |= _FAILURES
            for name in ("HTTPValidationError", "ValidationError"):
                forms.pop(name, None)
        return super().openapi()
