"""Requests that are no message: refused in a sentence by the handler, where gRPC alone would log a traceback for each.

Every server has `MalformedRequests`; the handlers of `layerline.rpc.status` refuse what it lets through.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Malformed:
    """Stands for a request that is none."""

    reason: str


class MalformedRequests(grpc.aio.ServerInterceptor):
    """Reads single requests, so that one that cannot be read is a `Malformed`; counts them by method."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        """The handler of a method, with a deserializer that raises nothing; streams are read by their handlers."""
        handler = await continuation(handler_call_details)
        if handler is None or handler.request_streaming:
            return handler
        method, deserialize = str(handler_call_details.method), handler.request_deserializer

        def read(data: bytes) -> Any:
            try:
                return deserialize(data)
            except DecodeError as error:
                self._count(method)
                return Malformed(str(error))

        return handler._replace(request_deserializer=read)

    def _count(self, method: str) -> None:
        """Tells the first, the tenth, the hundredth of a method, and so on: whoever sends many fills no log."""
        self._counts[method] += 1
        count = self._counts[method]
        if str(count).strip("0") == "1":
            log.warning("Request number %d to %s that is no message was refused.", count, method)
