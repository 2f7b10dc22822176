"""What every request must pass before a route sees it: whom it says it reached, whence it comes, its key, its size.

A page elsewhere must not use a browser to reach a server on this machine or network. The Host header is checked because
a name that somebody else owns can be made to mean this machine (DNS rebinding), and the Origin header because a browser
sends requests of any page. An address in numbers cannot be rebound.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import ipaddress
from collections.abc import Iterable
from http import HTTPStatus
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from coordinator.http.activity import Activity
from coordinator.http.bodies import MAX_BODY_BYTES
from coordinator.http.failures import RETRY_AFTER_S, HttpError, response_of
from coordinator.http_settings import HttpSettings

WITHOUT_KEY = frozenset({"/health"})
READS = frozenset({"GET", "HEAD", "OPTIONS"})
WRONG_KEY = 'Basic realm="layerline: the key is the password", charset="UTF-8"'


class Guard:
    """The application behind all checks. `own_names` are the names of this machine."""

    def __init__(self, app: ASGIApp, settings: HttpSettings, activity: Activity, own_names: Iterable[str]) -> None:
        self._app = app
        self._keys = tuple(key.encode() for key in settings.keys)
        self._names = {name.lower() for name in ("localhost", *own_names, *settings.names)}
        self._origins = frozenset(settings.origins)
        self._activity = activity

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Lets a request through, or tells why not."""
        if scope["type"] != "http":
            return
        try:
            self._check(scope, Headers(scope=scope))
        except HttpError as failure:
            await response_of(failure, scope["path"])(scope, receive, send)
            return
        with self._activity.of(scope["method"] not in READS):
            await self._app(scope, _Bounded(receive).receive, send)

    def _check(self, scope: Scope, headers: Headers) -> None:
        host = self._checked_host(headers)
        self._check_origin(headers, f"{scope['scheme']}://{host}")
        is_preflight = scope["method"] == "OPTIONS" and "access-control-request-method" in headers
        if self._keys and scope["path"] not in WITHOUT_KEY and not is_preflight and not self._has_key(headers):
            message = "The API key is missing or wrong."
            raise HttpError(401, message, code="invalid_api_key", headers={"WWW-Authenticate": WRONG_KEY})
        if self._activity.draining and scope["method"] not in READS:
            raise HttpError(503, "The coordinator is ending.", code="draining", retry_after_s=RETRY_AFTER_S)
        _check_length(headers)

    def _checked_host(self, headers: Headers) -> str:
        """The Host header, if it names this machine."""
        host = headers.get("host", "")
        try:
            name = (urlsplit(f"//{host}").hostname or "") if host.isascii() else ""
        except ValueError:
            name = ""
        if name not in self._names and not name.endswith(".localhost") and not _is_address(name):
            message = f"This server is not {name or 'what the Host header says'}."
            raise HttpError(HTTPStatus.MISDIRECTED_REQUEST, f"{message} --http-name NAME gives it another name.")
        return host

    def _check_origin(self, headers: Headers, own: str) -> None:
        """Browsers name the page that a request is of; programs name none."""
        origin = headers.get("origin")
        if origin is not None and origin.lower() != own.lower() and origin not in self._origins:
            raise HttpError(403, "Pages of another origin may not call this server; --cors ORIGIN allows one.")

    def _has_key(self, headers: Headers) -> bool:
        """Whether a key is there: as a bearer token, in x-api-key or, as browsers ask for it, as a password."""
        given = [headers.get("x-api-key", "")]
        kind, _, value = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer":
            given.append(value.strip())
        elif kind.lower() == "basic":
            given.append(_password(value))
        # All are compared, so that the time tells nothing of which one is nearly right.
        found = [hmac.compare_digest(key, each.encode(errors="replace")) for key in self._keys for each in given]
        return any(found)


class _Bounded:
    """The body as it comes, up to its bound: one that comes in chunks has no length beforehand."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._size_bytes = 0

    async def receive(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.request":
            self._size_bytes += len(message.get("body", b""))
            if self._size_bytes > MAX_BODY_BYTES:
                raise _too_large()
        return message


def _check_length(headers: Headers) -> None:
    length = headers.get("content-length", "0")
    if length.isascii() and length.isdigit() and int(length[:20]) > MAX_BODY_BYTES:
        raise _too_large()


def _too_large() -> HttpError:
    message = f"The body has over {MAX_BODY_BYTES >> 20} MiB."
    return HttpError(413, message, code="body_too_large", headers={"Connection": "close"})


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.partition("%")[0])
    except ValueError:
        return False
    return True


def _password(basic: str) -> str:
    try:
        return base64.b64decode(basic, validate=True).decode().partition(":")[2]
    except (binascii.Error, UnicodeDecodeError):
        return ""
