"""Answers: JSON as it is written everywhere else."""

from collections.abc import Mapping

from fastapi import Response

from hush_aggregator.result import encode

__all__ = ["JSON", "answer"]

JSON = "application/json"
"""The media type of an answer."""


def answer(document: Mapping[str, object], status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """The bytes of a document: keys sorted, no spaces, as what is retained at a broker."""
    return Response(encode(document), status, headers, JSON)
