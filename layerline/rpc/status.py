"""Errors to statuses and back: the one translator at the RPC boundary.

A LayerlineError crosses as a status whose trailing metadata carries an ErrorDetail, so that the class, the
node and the remedy survive any number of hops. A status without one comes from gRPC itself and is named by
what the caller was doing.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, NoReturn, Protocol, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from layerline import errors
from layerline.endings import NOT_FAILURES, task_is_cancelled
from layerline.errors import LayerlineError
from layerline.rpc.malformed import Malformed
from layerline.rpc.v1 import common_pb2

DETAIL_KEY = "layerline-error-bin"
MAX_TEXT_LENGTH = 4_000  # of a sentence in an ErrorDetail; see MAX_METADATA_BYTES of layerline.rpc.channels
MAX_NODE_LENGTH = 256
MAX_RETRY_AFTER_S = 86_400

# The status that grpc.aio makes up when a call ends during a write; the peer's own is lost then.
WRITE_FAILED = (grpc.StatusCode.INTERNAL, "Internal error from Core")
TOO_LARGE = "message larger than max"  # in the details of RESOURCE_EXHAUSTED, if it is because of a message's size
MAX_DETAILS_LENGTH = 500  # of the status itself, for people with other tools; it says nothing that the detail does not

# What ends a handler without being its failure: the call or the process ends.
_PASSED_ON = (grpc.aio.AbortError, *NOT_FAILURES)

log = logging.getLogger(__name__)
Servicer = TypeVar("Servicer")
Request = TypeVar("Request")
Reply = TypeVar("Reply")

_STATUS_OF: dict[type[LayerlineError], grpc.StatusCode] = {
    errors.UsageError: grpc.StatusCode.INVALID_ARGUMENT,
    errors.RequestError: grpc.StatusCode.INVALID_ARGUMENT,
    errors.WireError: grpc.StatusCode.INVALID_ARGUMENT,
    errors.ModelNotFoundError: grpc.StatusCode.NOT_FOUND,
    errors.ModelError: grpc.StatusCode.FAILED_PRECONDITION,
    errors.PlanError: grpc.StatusCode.FAILED_PRECONDITION,
    errors.NodeHeldError: grpc.StatusCode.FAILED_PRECONDITION,
    errors.NodeError: grpc.StatusCode.UNAVAILABLE,
    errors.NoNodesError: grpc.StatusCode.UNAVAILABLE,
    errors.OverloadedError: grpc.StatusCode.RESOURCE_EXHAUSTED,
    errors.DeadlineError: grpc.StatusCode.DEADLINE_EXCEEDED,
}


class _AsyncCall(Protocol):
    async def code(self) -> grpc.StatusCode: ...
    async def details(self) -> str: ...
    async def trailing_metadata(self) -> Any: ...


class _RpcFailure(Protocol):
    def code(self) -> grpc.StatusCode: ...
    def details(self) -> str | None: ...
    def trailing_metadata(self) -> Any: ...


def detail_from_error(error: LayerlineError) -> common_pb2.ErrorDetail:
    """The message form of an error."""
    retry_after_s = error.retry_after_s if isinstance(error, errors.OverloadedError) else 0
    return common_pb2.ErrorDetail(
        code=error.code,
        message=_sendable(error.message, MAX_TEXT_LENGTH),
        node=_sendable(error.node, MAX_NODE_LENGTH),
        remedy=_sendable(error.remedy, MAX_TEXT_LENGTH),
        retry_after_s=min(max(0, retry_after_s), MAX_RETRY_AFTER_S),
    )


def _sendable(text: str, length: int) -> str:
    """`text` cut to `length`; what has no UTF-8, as a file's name may not, is replaced."""
    return text[:length].encode(errors="replace").decode()


def error_from_detail(detail: common_pb2.ErrorDetail) -> LayerlineError:
    """The error that a message describes."""
    return errors.error_from_code(
        detail.code,
        detail.message[:MAX_TEXT_LENGTH],
        node=detail.node[:MAX_NODE_LENGTH],
        remedy=detail.remedy[:MAX_TEXT_LENGTH],
        retry_after_s=min(detail.retry_after_s, MAX_RETRY_AFTER_S),
    )


def connection_failure(details: str | None) -> str:
    """The end of what gRPC says of a connection, which is the system's own word; the rest repeats the address."""
    return (details or "no details").rpartition(": ")[2].rstrip(".")


def has_detail(failure: _RpcFailure) -> bool:
    """Whether a layerline process has put the failure into words; otherwise gRPC has."""
    return any(key == DETAIL_KEY for key, _ in failure.trailing_metadata() or ())


def error_from_rpc(failure: _RpcFailure, *, peer: str, node: str = "") -> LayerlineError:
    """What a failed call means. `peer` says in words who was called, e.g. "node b at 10.0.0.2:4242"."""
    for key, value in failure.trailing_metadata() or ():
        if key == DETAIL_KEY:
            try:
                return error_from_detail(common_pb2.ErrorDetail.FromString(value))
            except DecodeError:
                break
    code, details = failure.code(), failure.details() or "no details"
    if (code, details) == WRITE_FAILED:
        code, details = grpc.StatusCode.UNAVAILABLE, "it ended in the middle of a message"
    if code is grpc.StatusCode.UNAVAILABLE:
        return errors.NodeLostError(
            f"The connection to {peer} is gone ({connection_failure(details)}).",
            node=node,
            remedy="Check that the machine is up and that its layerline process runs.",
        )
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return errors.DeadlineError(f"{peer} did not answer in time.", node=node, remedy="Check that it is not frozen.")
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED:
        return _exhausted(details, peer, node)
    return errors.ProtocolError(
        f"{peer} answered outside the protocol ({code.name}: {details}).",
        node=node,
        remedy="Check that the address is that of a layerline process of the same version.",
    )


def _exhausted(details: str, peer: str, node: str) -> LayerlineError:
    """What gRPC means by RESOURCE_EXHAUSTED: a message over a bound, or too many calls at a time."""
    if TOO_LARGE in details:
        return errors.ProtocolError(f"A message to or from {peer} was refused as too large ({details}).", node=node)
    return errors.OverloadedError(
        f"{peer} takes no further call now ({details}).", node=node, remedy="Try again in a moment.", retry_after_s=1
    )


async def call_failure(call: _AsyncCall, *, peer: str, node: str = "") -> LayerlineError:
    """What the end of a streaming call means, once it has ended; waits for the end."""
    code, details, metadata = await call.code(), await call.details(), await call.trailing_metadata()
    if code is grpc.StatusCode.OK:
        return errors.NodeLostError(f"{peer} ended the stream.", node=node, remedy="Check its log.")
    return error_from_rpc(
        grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(*metadata), details),
        peer=peer,
        node=node,
    )


def status_of(error: LayerlineError) -> grpc.StatusCode:
    """The gRPC status code that goes with an error."""
    for cls in type(error).__mro__:
        if cls in _STATUS_OF:
            return _STATUS_OF[cls]
    return grpc.StatusCode.INTERNAL


async def abort(context: grpc.aio.ServicerContext[Any, Any], error: LayerlineError) -> NoReturn:
    """Ends the call with `error`."""
    detail = detail_from_error(error).SerializeToString()
    await context.abort(status_of(error), _sendable(error.message, MAX_DETAILS_LENGTH), ((DETAIL_KEY, detail),))
    raise AssertionError("abort returns by raising")


def _error_from(failure: BaseException) -> LayerlineError:
    if isinstance(failure, DecodeError):
        return errors.ProtocolError(f"A message came that is none of the protocol's: {failure}.")
    if not isinstance(failure, LayerlineError):
        log.error("A handler failed.", exc_info=failure)
    return errors.without_trace(errors.typed(failure))


def _ends_the_call(failure: BaseException) -> bool:
    """Whether it is to be raised again, as the call ends already, rather than told to the client.

    gRPC and the end of the process cancel the call's own task. A cancellation of something else that the handler waited
    for looks the same, but ends nothing: without a status the client would wait for ever.
    """
    if isinstance(failure, asyncio.CancelledError):
        return task_is_cancelled()
    return isinstance(failure, _PASSED_ON)


def _message(request: Request) -> Request:
    if isinstance(request, Malformed):
        raise errors.ProtocolError(f"The request is no message: {request.reason}.")
    return request


def unary_handler(
    handler: Callable[[Servicer, Request, Any], Awaitable[Reply]],
) -> Callable[[Servicer, Request, Any], Awaitable[Reply]]:
    """Makes a handler that raises LayerlineError into one that ends the call with its status."""

    @functools.wraps(handler)
    async def handle(servicer: Servicer, request: Request, context: Any) -> Reply:
        try:
            return await handler(servicer, _message(request), context)
        except BaseException as failure:  # the RPC boundary; a library's panic is no Exception
            if _ends_the_call(failure):
                raise
            await abort(context, _error_from(failure))

    return handle


def stream_handler(
    handler: Callable[[Servicer, Request, Any], AsyncGenerator[Reply, None]],
) -> Callable[[Servicer, Request, Any], AsyncGenerator[Reply, None]]:
    """The same for a handler that yields replies; it is closed with the call, wherever it is then."""

    @functools.wraps(handler)
    async def handle(servicer: Servicer, request: Request, context: Any) -> AsyncGenerator[Reply, None]:
        try:
            async with aclosing(handler(servicer, _message(request), context)) as replies:
                async for reply in replies:
                    yield reply
        except BaseException as failure:  # the RPC boundary; a library's panic is no Exception
            if _ends_the_call(failure):
                raise
            await abort(context, _error_from(failure))

    return handle
