"""GET / and what the page needs: its files, how the cluster stands, a request that is stopped, another model."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

from coordinator.coordinator import Coordinator
from coordinator.http.bodies import Body, read_body, refused_by_nouns
from coordinator.http.event_stream import EventStream, begun, unless_left
from coordinator.http.failures import HttpError
from coordinator.http.live import Live
from layerline.plan_request import PlanRequest

KINDS = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
}
HEADERS = {
    "Content-Security-Policy": "; ".join(
        [
            "default-src 'none'",
            "script-src 'self'",
            "style-src 'self'",
            "img-src 'self'",
            "connect-src 'self'",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types 'none'",
        ]
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-cache",
}


class SwitchBody(Body):
    """The model that is to be served."""

    model: str


def page_routes(coordinator: Coordinator, live: Live) -> list[BaseRoute]:
    """The page at /, its files below /page, and what it asks below /page/api."""
    parts = {
        each.name: each.read_bytes() for each in (files("coordinator.http") / "page").iterdir() if _kind(each.name)
    }

    async def index(_: Request) -> Response:
        return _file("index.html")

    async def part(request: Request) -> Response:
        return _file(request.path_params["name"])

    def _file(name: str) -> Response:
        if name not in parts:
            raise HTTPException(404)
        return Response(parts[name], media_type=_kind(name), headers=HEADERS)

    async def events(request: Request) -> Response | ASGIApp:
        if request.method == "HEAD":
            return Response(media_type="text/event-stream")
        return EventStream(await unless_left(request, begun(live.events())))

    async def stop(request: Request) -> Response:
        number = request.path_params["number"]
        if not coordinator.stop(number):
            raise HttpError(404, f"There is no request {number} that runs.", code="request_not_found")
        return JSONResponse({"stopped": number})

    async def switch(request: Request) -> Response:
        body = await read_body(request, SwitchBody)
        with refused_by_nouns():
            wanted = PlanRequest(model=body.model)
        plan = await coordinator.switch(wanted)  # goes on though the page may be closed
        return JSONResponse({"model": plan.model})

    return [
        Route("/", index),
        Route("/page/api/events", events),
        Route("/page/api/requests/{number:int}/stop", stop, methods=["POST"]),
        Route("/page/api/model", switch, methods=["POST"]),
        Route("/page/{name}", part),
    ]


def _kind(name: str) -> Any:
    return KINDS.get(name.rpartition(".")[2])
