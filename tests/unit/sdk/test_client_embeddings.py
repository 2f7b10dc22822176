"""The client embeds texts: a vector for each, and mistakes that are told before anything travels."""

from __future__ import annotations

from typing import Any

import pytest

from layerline.async_client import AsyncClient
from layerline.client import Client
from layerline.embedding import EmbedInput, EmbedRequest
from layerline.errors import ProtocolError, UsageError
from tests.fakes.coordinator_service import EMBEDDINGS, FakeCoordinator, serving


def test_each_text_has_a_vector(client: Client, fake: FakeCoordinator) -> None:
    assert client.embed(["Once", [5, 6]], pooling="last", dimensions=2, normalised=False) == EMBEDDINGS[:2]
    assert client.embed("Once") == EMBEDDINGS[:2]
    inputs = (EmbedInput(text="Once"), EmbedInput(token_ids=(5, 6)))
    assert fake.embedded == [
        EmbedRequest(inputs=inputs, pooling="last", dimensions=2, normalised=False),
        EmbedRequest(inputs=inputs[:1]),
    ]


async def test_on_an_event_loop_too() -> None:
    with serving(FakeCoordinator()) as address:
        async with AsyncClient(address) as client:
            assert await client.embed(["Once", "twice"]) == EMBEDDINGS[:2]


def test_vectors_that_end_without_saying_so_are_refused(client: Client, fake: FakeCoordinator) -> None:
    fake.embeddings = EMBEDDINGS[:2]
    with pytest.raises(ProtocolError, match="without finishing"):
        client.embed("Once")


@pytest.mark.parametrize(
    ("texts", "options", "words"),
    [
        ([], {}, "from 1 to 2048"),
        ("", {}, "empty"),
        (7, {}, "a list of texts"),
        ([7], {}, "token ids"),
        ("Once", {"pooling": "max"}, "mean, last"),
        ("Once", {"dimensions": -1}, "dimensions"),
        ("Once", {"pool": "mean"}, "pooling"),
    ],
)
def test_mistakes_are_told_in_words(client: Client, texts: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        client.embed(texts, **options)
