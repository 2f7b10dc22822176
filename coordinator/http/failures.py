"""What failed, as a status and a body in the form of the API that was called: the one place where errors become HTTP.

Clients try 409, 429 and 5xx again, so what would fail again is another 4xx.
"""

from __future__ import annotations

import logging
from http import HTTPStatus
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from layerline import errors
from layerline.errors import LayerlineError

ANTHROPIC_PATH = "/v1/messages"
CLIENT_LEFT = 499  # as nginx calls it
RETRY_AFTER_S = 2  # where nobody knows better

log = logging.getLogger(__name__)

_STATUS_OF: dict[type[LayerlineError], int] = {
    errors.UsageError: 400,
    errors.RequestError: 400,
    errors.WireError: 400,
    errors.ModelNotFoundError: 404,
    errors.OtherModelError: 404,
    errors.ModelError: 422,
    errors.PlanError: 422,
    errors.OverloadedError: 429,
    errors.NoNodesError: 503,
    errors.NoCoordinatorError: 503,
    errors.NodeError: 503,
    errors.DeadlineError: 504,
}
_CODES: dict[type[LayerlineError], str] = {
    errors.PromptTooLongError: "context_length_exceeded",
    errors.ModelNotFoundError: "model_not_found",
    errors.OtherModelError: "model_not_found",
}
_OPENAI_TYPES = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}
_ANTHROPIC_TYPES = {**_OPENAI_TYPES, 413: "request_too_large", 503: "overloaded_error", 504: "timeout_error"}


class HttpError(Exception):
    """A request that HTTP itself refuses; `param` is the field that is at fault."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        retry_after_s: int = 0,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param
        self.code = code
        self.headers = {**(headers or {}), **({"Retry-After": str(retry_after_s)} if retry_after_s else {})}


def status_of(error: LayerlineError) -> int:
    """The status that goes with an error."""
    return next((_STATUS_OF[cls] for cls in type(error).__mro__ if cls in _STATUS_OF), 500)


def failure_of(failure: BaseException) -> HttpError:
    """Any failure as one that can be told; what is none of ours is a bug, and logged as such."""
    if isinstance(failure, HttpError):
        return failure
    if isinstance(failure, HTTPException):
        return HttpError(failure.status_code, failure.detail, headers=dict(failure.headers or {}))
    if not isinstance(failure, LayerlineError):
        log.error("A request failed.", exc_info=failure)
    error = errors.typed(failure)
    status = status_of(error)
    code = _CODES.get(type(error), error.code)
    retry_after_s = error.retry_after_s if isinstance(error, errors.OverloadedError) else 0
    if status in (429, 503):
        retry_after_s = retry_after_s or RETRY_AFTER_S
    return HttpError(status, str(error), code=code, retry_after_s=retry_after_s)


def openai_body(failure: HttpError) -> dict[str, Any]:
    """In the form of OpenAI's API."""
    kind = _OPENAI_TYPES.get(failure.status, "invalid_request_error" if failure.status < 500 else "server_error")
    return {"error": {"message": failure.message, "type": kind, "param": failure.param, "code": failure.code}}


def anthropic_body(failure: HttpError) -> dict[str, Any]:
    """In the form of Anthropic's API."""
    kind = _ANTHROPIC_TYPES.get(failure.status, "invalid_request_error" if failure.status < 500 else "api_error")
    return {"type": "error", "error": {"type": kind, "message": failure.message}}


def response_of(failure: HttpError, path: str) -> Response:
    """The response that tells it, in the form of the API that `path` belongs to."""
    body = anthropic_body(failure) if path.startswith(ANTHROPIC_PATH) else openai_body(failure)
    return JSONResponse(body, status_code=failure.status, headers=failure.headers)


async def tell_failure(request: Request, failure: Exception) -> Response:
    """Starlette's handler of exceptions."""
    path = request.url.path
    if isinstance(failure, HTTPException) and failure.status_code == HTTPStatus.NOT_FOUND:
        failure = HttpError(HTTPStatus.NOT_FOUND, f"There is nothing at {path}.")
    return response_of(failure_of(failure), path)


async def tell_nobody(_: Request, __: Exception) -> Response:
    """The client has left; what is sent now goes nowhere."""
    return Response(status_code=CLIENT_LEFT)
