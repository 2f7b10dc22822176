"""Text to tokens and back: POST /tokenize and /detokenize."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from coordinator.coordinator import Coordinator
from coordinator.http.bodies import Body, read_body, refused_by_nouns
from coordinator.http.chat_body import ChatMessage, FunctionTool, messages_of, tool_rules, variables_text
from coordinator.http.failures import HttpError
from layerline.requests import GenerateRequest


class TokenizeBody(Body):
    """A text or a chat."""

    model: str = ""
    prompt: str | None = None
    messages: list[ChatMessage] | None = None
    tools: list[FunctionTool] | None = None
    chat_template_kwargs: dict[str, Any] | None = None


class DetokenizeBody(Body):
    """Ids of tokens."""

    model: str = ""
    tokens: list[int]


def token_routes(coordinator: Coordinator) -> list[BaseRoute]:
    """POST /tokenize and /detokenize, in the form that vLLM gave them."""

    async def tokenize(request: Request) -> Response:
        asked = _request(await read_body(request, TokenizeBody))
        ids = await coordinator.prompt_ids(asked)
        return JSONResponse({"count": len(ids), "max_model_len": coordinator.context_tokens, "tokens": list(ids)})

    async def detokenize(request: Request) -> Response:
        body = await read_body(request, DetokenizeBody)
        if not body.tokens:
            raise HttpError(400, "tokens is empty.", param="tokens")
        with refused_by_nouns({"token_ids": "tokens"}):
            asked = GenerateRequest(model=body.model, token_ids=tuple(body.tokens))
        return JSONResponse({"prompt": await coordinator.text_of(asked)})

    return [
        Route("/tokenize", tokenize, methods=["POST"]),
        Route("/detokenize", detokenize, methods=["POST"]),
    ]


def _request(body: TokenizeBody) -> GenerateRequest:
    if (body.prompt is None) == (body.messages is None):
        raise HttpError(400, "Give exactly one of prompt and messages.", param="prompt")
    if body.prompt is not None:
        return GenerateRequest(model=body.model, prompt=body.prompt)
    with refused_by_nouns():
        return GenerateRequest(
            model=body.model,
            messages=messages_of(body.messages or []),
            tools=tool_rules(body.tools),
            template_variables=variables_text(body.chat_template_kwargs),
        )
