"""docs/api.md names every endpoint, and of every API all options and what it ignores."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from starlette.routing import Route

from coordinator.coordinator import Coordinator
from coordinator.http import chat_body, completions, embeddings, messages_body, responses_body
from coordinator.http.activity import Activity
from coordinator.http.app import routes_of
from coordinator.http.bodies import Body
from coordinator.http.live import Live
from coordinator.http.tokens import DetokenizeBody, TokenizeBody
from coordinator.settings import CoordinatorSettings
from layerline.rpc.transport import Transport

PAGE = (Path(__file__).parents[2] / "docs" / "api.md").read_text()
OPTIONS = PAGE[PAGE.index("## Options") : PAGE.index("### Ignored")]
IGNORED = {
    "chat completions": chat_body.IGNORED,
    "completions, embeddings": completions.IGNORED | embeddings.IGNORED,
    "responses": responses_body.IGNORED,
    "messages": messages_body.IGNORED,
}
BODIES: list[type[Body]] = [
    chat_body.ChatBody,
    completions.CompletionBody,
    responses_body.ResponsesBody,
    messages_body.MessagesBody,
    embeddings.EmbeddingBody,
    TokenizeBody,
    DetokenizeBody,
]


def test_every_endpoint_is_named() -> None:
    coordinator = Coordinator(CoordinatorSettings(mdns=False), Transport(), address="here:1")
    activity = Activity()
    routes = routes_of(coordinator, activity, Live(coordinator, activity))
    for route in (route for route in routes if isinstance(route, Route) and not route.path.startswith("/page/")):
        (method,) = (route.methods or set()) - {"HEAD"}
        path = route.path.replace("{model:path}", "{model}")
        assert f"`{method} {path}`" in PAGE


@pytest.mark.parametrize("body", BODIES)
def test_every_option_is_named(body: type[Body]) -> None:
    named = set(re.findall(r"`(\w+)`", OPTIONS)) | {"metadata"}
    assert set(body.model_fields) <= named


@pytest.mark.parametrize("api", IGNORED)
def test_what_is_ignored_is_named(api: str) -> None:
    (row,) = re.findall(rf"^\| {api} \| (.*?)(?:;.*)? \|$", PAGE, re.M)
    assert set(re.findall(r"`(\w+)`", row)) == IGNORED[api]
