"""All routes, behind the guard."""

from __future__ import annotations

import socket

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect
from starlette.routing import BaseRoute
from starlette.types import ASGIApp

from coordinator.coordinator import Coordinator
from coordinator.http.activity import Activity
from coordinator.http.chat import chat_routes
from coordinator.http.completions import completion_routes
from coordinator.http.embeddings import embedding_routes
from coordinator.http.failures import HttpError, tell_failure, tell_nobody
from coordinator.http.guard import Guard
from coordinator.http.live import Live
from coordinator.http.messages import message_routes
from coordinator.http.page_routes import page_routes
from coordinator.http.responses import response_routes
from coordinator.http.server_facts import server_routes
from coordinator.http.tokens import token_routes
from coordinator.http_settings import HttpSettings
from layerline.errors import LayerlineError


def routes_of(coordinator: Coordinator, activity: Activity, live: Live) -> list[BaseRoute]:
    """Every route that there is."""
    return [
        *page_routes(coordinator, live),
        *server_routes(coordinator, activity),
        *chat_routes(coordinator),
        *completion_routes(coordinator),
        *response_routes(coordinator),
        *message_routes(coordinator),
        *embedding_routes(coordinator),
        *token_routes(coordinator),
    ]


def make_app(coordinator: Coordinator, settings: HttpSettings, activity: Activity, live: Live) -> ASGIApp:
    """The application for `coordinator`; `activity` counts what is under way, `live` looks at it for the page."""
    app = Starlette(
        routes=routes_of(coordinator, activity, live),
        exception_handlers={
            HttpError: tell_failure,
            HTTPException: tell_failure,
            LayerlineError: tell_failure,
            ClientDisconnect: tell_nobody,
            Exception: tell_failure,
        },
    )
    host = socket.gethostname()
    guard = Guard(app, settings, activity, (host, f"{host.partition('.')[0]}.local"))
    if not settings.origins:
        return guard
    # Outside the guard, so that pages that may ask can read why they were refused.
    return CORSMiddleware(guard, allow_origins=list(settings.origins), allow_methods=["*"], allow_headers=["*"])
