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

NAMES = {"text": "output_text", "thinking": "reasoning_text", "tool_call": "function_call_arguments"}

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
        return Response(_found(kept, request.path_params["id"], "response_id").told, media_type="application/json")

    async def delete(request: Request) -> Response:
        id_ = _found(kept, request.path_params["id"], "response_id").id
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
    ended: BlockEnded | None = None  # whether it is whole is known once the next comes, or the end
    yield {"type": "response.created", "response": response}
    yield {"type": "response.in_progress", "response": response}
    try:
        async with aclosing(block_events(items)) as events:
            async for each in events:
                if isinstance(each, BlockEnded):
                    blocks.append(each.block)
                    ended = each
                    continue
                if ended:
                    cut = isinstance(each, Finished) and each.finish_reason == "length"
                    for told in _end_events(ended.block, response["id"], "incomplete" if cut else "completed"):
                        yield told
                    ended = None
                if isinstance(each, Finished):
                    whole = ended_response(response, blocks, each)
                    keep(whole, blocks)
                    yield {"type": f"response.{whole['status']}", "response": whole}
                    continue
                for told in _block_events(each, response["id"]):
                    yield told
    except Exception as failure:  # noqa: BLE001  # the HTTP boundary: the status is sent already
        told_failure = failure_of(failure)
        error = {"code": told_failure.code or "server_error", "message": told_failure.message}
        yield {"type": "response.failed", "response": {**response, "status": "failed", "error": error}}


def _place(block: Block, response_id: str) -> dict[str, Any]:
    """Where a block is told; a text or thought is the only part of its item."""
    place: dict[str, Any] = {"item_id": item_id(block, response_id), "output_index": block.number}
    return place if block.kind == "tool_call" else {**place, "content_index": 0}


def _block_events(each: BlockBegun | BlockGrown, response_id: str) -> list[dict[str, Any]]:
    """What is told of a block that begins or grows."""
    block = each.block
    place = _place(block, response_id)
    if isinstance(each, BlockBegun):
        told = [_item_event("added", block, response_id, "in_progress")]
        return told + ([_part_event("added", block, place)] if block.kind == "text" else [])
    delta = {"type": f"response.{NAMES[block.kind]}.delta", **place, "delta": each.text}
    return [delta | ({"logprobs": chat_logprobs(each.likelihoods)["content"]} if block.kind == "text" else {})]


def _end_events(block: Block, response_id: str, status: str) -> list[dict[str, Any]]:
    """What is told of a block that has ended."""
    place = _place(block, response_id)
    done = {"type": f"response.{NAMES[block.kind]}.done", **place, **_whole_text(block)}
    parts = [_part_event("done", block, place)] if block.kind == "text" else []
    return [done, *parts, _item_event("done", block, response_id, status)]


def _item_event(what: str, block: Block, response_id: str, status: str) -> dict[str, Any]:
    item = item_of(block, response_id, status)
    return {"type": f"response.output_item.{what}", "output_index": block.number, "item": item}


def _part_event(what: str, block: Block, place: dict[str, Any]) -> dict[str, Any]:
    return {"type": f"response.content_part.{what}", **place, "part": text_part(block)}


def _whole_text(block: Block) -> dict[str, Any]:
    if block.kind == "tool_call":
        return {"name": block.name, "arguments": block.text}
    return {"text": block.text} | ({"logprobs": text_part(block)["logprobs"]} if block.kind == "text" else {})
