"""Real nodes of unlike degrees: one splits its layers over two parts of its CPU, the other has one device."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from coordinator.coordinator import Coordinator
from coordinator.node_client import NodeClient
from coordinator.settings import CoordinatorSettings
from layerline.answer import AnswerItem
from layerline.plan_request import ManualStage, PlanRequest
from layerline.requests import GenerateRequest
from layerline.rpc.transport import Transport
from tests.fakes.coordinators import answer, joined, prepared
from tests.fakes.model_files import TinyModel, write_gguf
from tests.fakes.real_node import ALL_REDUCE_US, RealNode, real_node
from tests.lab.process import wait_until

pytestmark = pytest.mark.system

DEADLINE_S = 90.0
LAYERS = 6
PROMPTS = ("hello", "hell w", "a longer prompt, of several words")


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """Nodes `a`, of two devices, and `b`, of one."""

    a: RealNode
    b: RealNode

    def coordinator(self) -> Coordinator:
        """One that knows both."""
        settings = CoordinatorSettings(name="test", nodes=(self.a.address, self.b.address), mdns=False)
        return Coordinator(settings, Transport(), address="here:1")


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with asyncio.timeout(DEADLINE_S), AsyncExitStack() as stack:
        a = await stack.enter_async_context(real_node(home(tmp_path / "a"), "a", "cpu:1,cpu:1"))
        b = await stack.enter_async_context(real_node(home(tmp_path / "b"), "b", "cpu:1"))
        yield Cluster(a=a, b=b)
        workers = [*a.ranks(), *b.ranks()]
    assert not any(map(lives, workers))


def lives(process: psutil.Process) -> bool:
    """Whether it runs; an orphan that has ended may stay a zombie until the system's first process looks."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def home(folder: Path) -> Path:
    (folder / "models").mkdir(parents=True)
    write_gguf(folder / "models" / "tiny.gguf", TinyModel(layers=LAYERS))
    return folder


def request(*stages: tuple[str, int, int], tensor_parallel: int) -> PlanRequest:
    layers = tuple(ManualStage(node=node, first_layer=first, last_layer=last) for node, first, last in stages)
    return PlanRequest(model="tiny", dtype="float32", layers=layers, tensor_parallel=tensor_parallel)


SPLIT = request(("a", 0, 2), ("b", 3, 5), tensor_parallel=2)
WHOLE = request(("b", 0, 5), tensor_parallel=1)


async def answers(coordinator: Coordinator) -> list[str]:
    """The likeliest answers to all prompts, and one that is drawn."""
    greedy = [await answer(coordinator, prompt, max_tokens=12) for prompt in PROMPTS]
    drawn = await answer(coordinator, PROMPTS[0], max_tokens=12, temperature=1.0, top_p=0.9, seed=7)
    return [completion.text for completion in (*greedy, drawn)]


@pytest.mark.slow
async def test_what_two_nodes_of_unlike_degrees_answer_is_what_one_device_answers(cluster: Cluster) -> None:
    facts = await NodeClient(Transport()).describe(cluster.a.address)
    assert [(device.device, device.kind, device.threads) for device in facts.devices] == [
        ("cpu:0", "cpu", 1),
        ("cpu:1", "cpu", 1),
    ]
    assert facts.all_reduce_us == ALL_REDUCE_US
    async with cluster.coordinator() as coordinator:
        await prepared(coordinator, SPLIT)
        assert [len(node.ranks()) for node in (cluster.a, cluster.b)] == [2, 1]
        split = await answers(coordinator)
    async with cluster.coordinator() as coordinator:
        await prepared(coordinator, WHOLE)
        assert await answers(coordinator) == split


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
async def test_an_answer_goes_on_when_a_rank_is_killed_under_it(
    cluster: Cluster, rank: int, caplog: pytest.LogCaptureFixture
) -> None:
    async with cluster.coordinator() as coordinator:
        await prepared(coordinator, SPLIT)
        undisturbed = await answer(coordinator, PROMPTS[0], max_tokens=200)
        items: list[AnswerItem] = []
        request = GenerateRequest(prompt=PROMPTS[0], max_tokens=200)
        async with aclosing(coordinator.generate(request)) as coming:
            async for item in coming:
                if not items:
                    cluster.a.ranks()[rank].kill()
                items.append(item)
        one = joined(items)
        assert (one.text, one.token_ids, one.finished.usage) == (
            undisturbed.text,
            undisturbed.token_ids,
            undisturbed.finished.usage,
        )
        assert one.finished.losses == 1
    assert f"Rank {rank} (cpu:{rank}) of node a was killed (SIGKILL)" in caplog.text


async def test_ranks_end_when_their_daemon_is_killed(cluster: Cluster) -> None:
    async with cluster.coordinator() as coordinator:
        await prepared(coordinator, SPLIT)
        ranks = cluster.a.ranks()
        cluster.a.daemon.kill()
        await asyncio.to_thread(wait_until, lambda: not any(map(lives, ranks)), "end of ranks", deadline_s=DEADLINE_S)
