"""What there is and how it is: models, health, version, metrics."""

from __future__ import annotations

import time
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from coordinator.coordinator import Coordinator
from coordinator.http.activity import Activity
from coordinator.http.failures import RETRY_AFTER_S, HttpError
from coordinator.stats.exposition import CONTENT_TYPE, exposition
from layerline.models.names import same_name
from layerline.version import __version__

STARTED_S = int(time.time())  # what OpenAI calls the creation of a model


def server_routes(coordinator: Coordinator, activity: Activity) -> list[BaseRoute]:
    """GET /v1/models, /v1/models/{id}, /health, /version, /metrics."""

    async def models(_: Request) -> Response:
        return JSONResponse({"object": "list", "data": _served(coordinator)})

    async def model(request: Request) -> Response:
        wanted = request.path_params["model"]
        for served in _served(coordinator):
            if same_name(served["id"], wanted):
                return JSONResponse(served)
        raise HttpError(404, f"There is no model {wanted!r} here.", code="model_not_found", param="model")

    async def health(_: Request) -> Response:
        if coordinator.serves and not activity.draining:
            return JSONResponse({"status": "ok", "model": coordinator.facts().model})
        status = "ending" if activity.draining else "not serving"
        return JSONResponse({"status": status}, status_code=503, headers={"Retry-After": str(RETRY_AFTER_S)})

    async def version(_: Request) -> Response:
        return JSONResponse({"version": __version__})

    async def metrics(_: Request) -> Response:
        return Response(exposition(coordinator.stats()), media_type=CONTENT_TYPE)

    return [
        Route("/v1/models", models),
        Route("/v1/models/{model:path}", model),
        Route("/health", health),
        Route("/version", version),
        Route("/metrics", metrics),
    ]


def _served(coordinator: Coordinator) -> list[dict[str, Any]]:
    facts = coordinator.facts()
    if not facts.model:
        return []
    return [
        {
            "id": facts.model,
            "object": "model",
            "created": STARTED_S,
            "owned_by": "layerline",
            "max_model_len": coordinator.context_tokens,
        }
    ]
