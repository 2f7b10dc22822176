"""Options at the documented ends of what they take, from the client to the stage that draws."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import cast

import numpy as np

from coordinator.coordinator import Coordinator
from coordinator.model_service import ModelService
from coordinator.service import CoordinatorService
from coordinator.service_bounds import ServiceBounds
from layerline.async_client import AsyncClient
from layerline.hold import HoldHello
from layerline.plan_request import PlanRequest
from layerline.reports import CoordinatorFacts
from layerline.requests import GenerateRequest
from layerline.rpc.channels import make_server
from layerline.rpc.transport import Transport
from layerline.rpc.v1 import coordinator_pb2_grpc
from layerline.version import WIRE_VERSION
from tests.fakes.memory_pipelines import MemoryPipelines, Planned
from tests.fakes.model_files import TinyModel
from tests.fakes.tiny_models import Rows, StoredModel, logits_of, pages_in_order

DEADLINE_S = 60.0
PROMPT = [5, 80, 81, 200, 9]
TOKENS = 6
LEAST = 0.01


class Served:
    """What a coordinator is to its service, over one model service."""

    def __init__(self, service: ModelService) -> None:
        self._service = service

    def facts(self) -> CoordinatorFacts:
        return CoordinatorFacts(name="test", version="0", wire_version=WIRE_VERSION, model="tiny", address="here:1")

    async def generate(self, request: GenerateRequest) -> AsyncIterator[object]:
        async with aclosing(self._service.generate(request)) as items:
            async for item in items:
                yield item


@asynccontextmanager
async def client_of(model: StoredModel, folder: Path) -> AsyncIterator[AsyncClient]:
    """A client, over a socket, of a pipeline of real stages with links in memory."""
    pipelines = MemoryPipelines(model, Planned(stages=2))
    service = ModelService(
        PlanRequest(model="tiny"),
        pipelines,
        hello=HoldHello.of("test"),
        bounds=ServiceBounds(),
        open_pipeline=pipelines.open,
    )
    server, address = make_server(), f"unix:{folder}/socket"
    coordinator_pb2_grpc.add_CoordinatorServicer_to_server(
        CoordinatorService(cast("Coordinator", Served(service))), server
    )
    Transport().listen(server, address)
    service.begin(lambda _: None)
    try:
        async with asyncio.timeout(DEADLINE_S):
            await service.stands()
            await server.start()
            async with AsyncClient(address) as client:
                yield client
    finally:
        await server.stop(None)
        await service.leave()


def penalised_by_hand(model: StoredModel, penalty: float) -> list[int]:
    """The greedy answer, of logits that are changed here."""
    chain, tokens = model.chain(1), list(PROMPT)
    while len(tokens) < len(PROMPT) + TOKENS:
        (drawn,) = chain.step(Rows(token_ids=tokens, pages=pages_in_order(len(tokens))))
        logits, seen = logits_of(drawn).copy(), sorted(set(tokens))
        before = logits[seen]
        logits[seen] = np.where(before < 0, before * np.float32(penalty), before / np.float32(penalty))
        tokens.append(int(logits.argmax()))
    return tokens[len(PROMPT) :]


async def test_the_least_repetition_penalty_reaches_the_sampler(tmp_path: Path) -> None:
    model = StoredModel.written(tmp_path / "model", TinyModel(layers=2))
    async with client_of(model, tmp_path) as client:
        answer = await client.generate(token_ids=PROMPT, max_tokens=TOKENS, repetition_penalty=LEAST)
        plain = await client.generate(token_ids=PROMPT, max_tokens=TOKENS)
    expected = penalised_by_hand(model, LEAST)
    assert list(answer.token_ids) == expected[: len(answer.token_ids)]
    assert len(answer.token_ids) == TOKENS or answer.finished.finish_reason == "stop"
    assert answer.token_ids != plain.token_ids
