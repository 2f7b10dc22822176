"""A generate request to its message and back: the one noun whose input has three forms."""

from __future__ import annotations

from layerline.errors import RequestError
from layerline.requests import GenerateRequest, Message
from layerline.rpc.channels import MAX_MESSAGE_BYTES
from layerline.rpc.v1 import coordinator_pb2
from layerline.units import format_bytes


def generate_to_message(request: GenerateRequest) -> coordinator_pb2.GenerateRequest:
    """A request for the wire; RequestError for one that no message can hold."""
    message = coordinator_pb2.GenerateRequest(
        model=request.model,
        max_tokens=request.max_tokens,
        temperature=request.temperature,
        top_p=request.top_p,
        top_k=request.top_k,
        min_p=request.min_p,
        repetition_penalty=request.repetition_penalty,
        seed=request.seed,
        stop=request.stop,
        n=request.n,
    )
    if request.messages is not None:
        turns = [coordinator_pb2.ChatMessage(role=turn.role, content=turn.content) for turn in request.messages]
        message.chat.CopyFrom(coordinator_pb2.Chat(messages=turns))
    elif request.prompt is not None:
        message.prompt = request.prompt
    else:
        message.token_ids.CopyFrom(coordinator_pb2.TokenIds(ids=request.token_ids))
    if message.ByteSize() > MAX_MESSAGE_BYTES:
        raise RequestError(
            f"The prompt is too long to be sent: the request has {format_bytes(message.ByteSize())}, and a message "
            f"may have {format_bytes(MAX_MESSAGE_BYTES)}.",
            remedy="Shorten the prompt; no model has a context for one of that length.",
        )
    return message


def generate_from_message(message: coordinator_pb2.GenerateRequest) -> GenerateRequest:
    """The request in a message; RequestError for what it refuses."""
    chosen = message.WhichOneof("input")
    try:
        turns = tuple(Message(role=turn.role, content=turn.content) for turn in message.chat.messages)
        return GenerateRequest(
            model=message.model,
            messages=turns if chosen == "chat" else None,
            prompt=message.prompt if chosen == "prompt" else None,
            token_ids=tuple(message.token_ids.ids) if chosen == "token_ids" else None,
            max_tokens=message.max_tokens,
            temperature=message.temperature,
            top_p=message.top_p,
            top_k=message.top_k,
            min_p=message.min_p,
            repetition_penalty=message.repetition_penalty,
            seed=message.seed if message.HasField("seed") else None,
            stop=tuple(message.stop),
            n=message.n or 1,
        )
    except ValueError as error:
        raise RequestError(f"The request is not valid: {error}.") from error
