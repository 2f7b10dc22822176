"""POST /v1/responses, and GET and DELETE /v1/responses/{id} of those that are kept."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

from coordinator.coordinator import Coordinator
from coordinator.http.blocks import Block, BlockBegun, BlockEnded, BlockGrown, block_events, blocks_of
from coordinator.http.bodies import read_body
from coordinator.http.event_stream import EventStream, begun, event, unless_left
from coordinator.http.failures import HttpError, failure_of
from coordinator.http.kept_responses import KeptResponse, KeptResponses
from coordinator.http.likelihoods import chat_logprobs
from coordinator.http.response_items import begun_response, ended_response, item_id, item_of, text_part, turn_of
from coordinator.http.responses_body import IGNORED, ResponsesBody
from layerline.answer import AnswerItem, Finished
from layerline.requests import GenerateRequest

Keep = Callable[[dict[str, Any], list[Block]], None]


def response_routes(coordinator: Coordinator) -> list[BaseRoute]:
    """POST /v1/responses, and GET and DELETE of one."""
    kept = KeptResponses()

    async def respond(request: Request) -> Response | ASGIApp:
        body = await read_body(request, ResponsesBody, IGNORED)
        previous = body.previous_response_id
        before = () if previous is None else _found(kept, previous, "previous_response_id").turns
        asked = body.request(before)

        def keep(told: dict[str, Any], blocks: list[Block]) -> None:
            if body.store is not False:
                kept.keep(told, (*before, *body.turns(), turn_of(blocks)))

        if body.stream:
            items = await unless_left(request, begun(coordinator.generate(asked)))
            return EventStream(_numbered(_events(items, begun_response(body, coordinator.facts().model), keep)))
        whole, blocks = await unless_left(request, _whole(coordinator, body, asked))
        keep(whole, blocks)
        return JSONResponse(whole)

    async def get(request: Request) -> Response:
        return JSONResponse(_found(kept, request.path_params["id"], "response_id").told)

    async def delete(request: Request) -> Response:
        id_ = _found(kept, request.path_params["id"], "response_id").told["id"]
        kept.forget(id_)
        return JSONResponse({"id": id_, "object": "response", "deleted": True})

    return [
        Route("/v1/responses", respond, methods=["POST"]),
        Route("/v1/responses/{id}", get, methods=["GET"]),
        Route("/v1/responses/{id}", delete, methods=["DELETE"]),
    ]


def _found(kept: KeptResponses, id_: str, param: str) -> KeptResponse:
    """The response that a `param` names; HttpError if there is none."""
    response = kept.get(id_)
    if response is None:
        message = f"There is no response {id_[:80]!r} (any more): they are kept for an hour."
        raise HttpError(404, message, code=f"{param.removesuffix('_id')}_not_found", param=param)
    return response


async def _whole(
    coordinator: Coordinator, body: ResponsesBody, asked: GenerateRequest
) -> tuple[dict[str, Any], list[Block]]:
    blocks, finished = await blocks_of(coordinator.generate(asked))
    return ended_response(begun_response(body, coordinator.facts().model), blocks, finished), blocks


async def _numbered(events: AsyncGenerator[dict[str, Any], None]) -> AsyncGenerator[bytes, None]:
    number = 0
    async with aclosing(events):
        async for each in events:
            yield event({**each, "sequence_number": number}, each["type"])
            number += 1


async def _events(
    items: AsyncGenerator[AnswerItem, None], response: dict[str, Any], keep: Keep
) -> AsyncGenerator[dict[str, Any], None]:
    """The response as it is made; a failure on the way is told in the stream, which then ends."""
    blocks: list[Block] = []
    yield {"type": "response.created", "response": response}
    yield {"type": "response.in_progress", "response": response}
    try:
        async with aclosing(block_events(items)) as events:
            async for each in events:
                if isinstance(each, Finished):
                    whole = ended_response(response, blocks, each)
                    keep(whole, blocks)
                    yield {"type": f"response.{whole['status']}", "response": whole}
                    continue
                if isinstance(each, BlockEnded):
                    blocks.append(each.block)
                for told in _block_events(each, response["id"]):
                    yield told
    except Exception as failure:  # noqa: BLE001  # the HTTP boundary: the status is sent already
        told_failure = failure_of(failure)
        error = {"code": told_failure.code or "server_error", "message": told_failure.message}
        yield {"type": "response.failed", "response": {**response, "status": "failed", "error": error}}


def _block_events(each: BlockBegun | BlockGrown | BlockEnded, response_id: str) -> list[dict[str, Any]]:
    block = each.block
    own = {"item_id": item_id(block, response_id), "output_index": block.number}
    place = own if block.kind == "tool_call" else {**own, "content_index": 0}
    if isinstance(each, BlockBegun):
        item = item_of(block, response_id, "in_progress")
        added = [{"type": "response.output_item.added", "output_index": block.number, "item": item}]
        if block.kind == "text":
            added.append({"type": "response.content_part.added", **place, "part": text_part(block)})
        return added
    name = {"text": "output_text", "thinking": "reasoning_text", "tool_call": "function_call_arguments"}[block.kind]
    likely = {"logprobs": chat_logprobs(each.likelihoods)["content"]} if isinstance(each, BlockGrown) else {}
    likely = likely if block.kind == "text" else {}
    if isinstance(each, BlockGrown):
        return [{"type": f"response.{name}.delta", **place, "delta": each.text, **likely}]
    if block.kind == "tool_call":
        ended = [{"type": f"response.{name}.done", **place, "name": block.name, "arguments": block.text}]
    else:
        told = {"logprobs": text_part(block)["logprobs"]} if block.kind == "text" else {}
        ended = [{"type": f"response.{name}.done", **place, "text": block.text, **told}]
    if block.kind == "text":
        ended.append({"type": "response.content_part.done", **place, "part": text_part(block)})
    item = item_of(block, response_id, "completed")
    return [*ended, {"type": "response.output_item.done", "output_index": block.number, "item": item}]
