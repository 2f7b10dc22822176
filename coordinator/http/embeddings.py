"""POST /v1/embeddings."""

from __future__ import annotations

import base64
import struct
from collections.abc import Sequence
from contextlib import aclosing
from typing import Any, Literal

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from coordinator.coordinator import Coordinator
from coordinator.http.bodies import Body, read_body, refused_by_nouns
from coordinator.http.event_stream import unless_left
from layerline.embedding import Embedding, EmbedInput, EmbedRequest

IGNORED = frozenset({"user"})
"""Fields of OpenAI's API that mean nothing to a local model."""


class EmbeddingBody(Body):
    """One text or several, each of which may be token ids; `pooling` and `normalise` are layerline's own."""

    input: str | list[str] | list[int] | list[list[int]]
    model: str = ""
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: int | None = None
    pooling: Literal["mean", "last"] | None = None
    normalise: bool | None = None

    def request(self) -> EmbedRequest:
        """The request that it is; HttpError for what cannot be."""
        with refused_by_nouns({"inputs": "input", "token_ids": "input", "normalised": "normalise"}):
            return EmbedRequest(
                model=self.model,
                inputs=tuple(map(_input, self._inputs())),
                pooling=self.pooling or "mean",
                normalised=self.normalise is not False,
                dimensions=_dimensions(self.dimensions),
            )

    def _inputs(self) -> Sequence[str | list[int]]:
        if isinstance(self.input, str):
            return [self.input]
        if self.input and isinstance(self.input[0], int):
            return [self.input]
        return self.input  # type: ignore[return-value]  # several of one kind


def embedding_routes(coordinator: Coordinator) -> list[BaseRoute]:
    """POST /v1/embeddings."""

    async def embed(request: Request) -> Response:
        body = await read_body(request, EmbeddingBody, IGNORED)
        found = await unless_left(request, _embedded(coordinator, body.request()))
        written = _in_base64 if body.encoding_format == "base64" else list
        tokens = sum(each.tokens for each in found)
        return JSONResponse(
            {
                "object": "list",
                "data": [
                    {"object": "embedding", "index": each.index, "embedding": written(each.numbers)} for each in found
                ],
                "model": coordinator.facts().model,
                "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
            }
        )

    return [Route("/v1/embeddings", embed, methods=["POST"])]


async def _embedded(coordinator: Coordinator, request: EmbedRequest) -> list[Embedding]:
    async with aclosing(coordinator.embed(request)) as events:
        return [event async for event in events if isinstance(event, Embedding)]


def _input(given: str | list[int]) -> EmbedInput:
    return EmbedInput(text=given) if isinstance(given, str) else EmbedInput(token_ids=tuple(given))


def _dimensions(given: int | None) -> int:
    if given == 0:
        raise ValueError("dimensions must be at least 1")
    return given or 0


def _in_base64(numbers: Sequence[float]) -> Any:
    """As little-endian float32, which OpenAI's clients ask for."""
    return base64.b64encode(struct.pack(f"<{len(numbers)}f", *numbers)).decode()
