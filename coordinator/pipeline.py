"""Puts a plan into effect: holds its nodes, has them load, binds the stages into a ring, and takes it all back.

Everything is acquired in one `async with`; leaving it ends the streams and the holds, in reverse order. The
loaded stages stay with their nodes, which keep them for the next coordinator; one that went silent is ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import secrets
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Protocol

from coordinator.balancing.balancer import Balancer
from coordinator.balancing.ledger import ExpertLedger
from coordinator.concurrency import all_of, ended
from coordinator.hold_deadlines import HOLD_DEADLINES, HoldDeadlines
from coordinator.node_hold import NodeHold, hold
from coordinator.ring import Ring
from coordinator.verdict import Verdict
from layerline.addresses import join_address, split_address
from layerline.errors import LayerlineError, ProtocolError
from layerline.frames import MAX_EPOCH, MAX_EPOCH_JUMP, PLAN_KEY_BYTES, Hello
from layerline.hold import ExpertRows, HoldHello, Loaded, Place
from layerline.peer import Peer
from layerline.plan import PipelinePlan
from layerline.rpc.links import FrameSender, ResultReceiver
from layerline.rpc.transport import Transport
from layerline.version import WIRE_VERSION

END_SILENT_DEADLINE_S = 1.0  # the node goes on with it by itself

OnProgress = Callable[[str, int, int], None]

log = logging.getLogger(__name__)


class OpenPipeline(Protocol):
    """What builds pipelines: `pipeline` over one transport, or one in memory."""

    def __call__(
        self,
        planned: PipelinePlan,
        nodes: Mapping[str, Peer],
        *,
        hello: HoldHello,
        verdict: Verdict,
        on_progress: OnProgress,
    ) -> AbstractAsyncContextManager[tuple[PipelinePlan, Ring]]:
        """The pipeline for the time of a block."""


@asynccontextmanager
async def pipeline(
    planned: PipelinePlan,
    nodes: Mapping[str, Peer],
    *,
    transport: Transport,
    hello: HoldHello,
    verdict: Verdict,
    on_progress: OnProgress,
    deadlines: HoldDeadlines = HOLD_DEADLINES,
) -> AsyncIterator[tuple[PipelinePlan, Ring]]:
    """The pipeline in effect, with its epoch, and the ring through it.

    `nodes` are the control ports of its nodes by node id, the first address being the one that answers.
    `verdict` hears of whatever breaks the pipeline; `on_progress(node, done_bytes, total_bytes)` of loading. Raises the
    verdict if the stages do not come together.
    """
    async with AsyncExitStack() as held:
        building = _built(
            held,
            planned,
            nodes,
            transport=transport,
            hello=hello,
            verdict=verdict,
            on_progress=on_progress,
            deadlines=deadlines,
        )
        try:
            built = await verdict.unless_broken(building)
        except LayerlineError:  # a neighbour that cannot be reached may be about to say why
            raise await verdict.reached() from None
        yield built


async def _built(
    held: AsyncExitStack,
    planned: PipelinePlan,
    nodes: Mapping[str, Peer],
    *,
    transport: Transport,
    hello: HoldHello,
    verdict: Verdict,
    on_progress: OnProgress,
    deadlines: HoldDeadlines,
) -> tuple[PipelinePlan, Ring]:
    holds = await all_of(
        held.enter_async_context(
            hold(transport, nodes[stage.node_id], hello=hello, on_lost=verdict.hear, deadlines=deadlines)
        )
        for stage in planned.stages
    )
    held.push_async_callback(_end_silent_workers, holds, verdict)
    bound = replace(planned, epoch=_next_epoch(holds))
    loaded = await all_of(_load(bound, index, node_hold, on_progress) for index, node_hold in enumerate(holds))
    peers = [_data_port(nodes[stage.node_id], answer) for stage, answer in zip(bound.stages, loaded, strict=True)]
    places = _places(bound.epoch, peers)
    await _bind_backwards(holds, places)
    ring = await _dial(held, transport, bound, peers, places, hello.coordinator, verdict)
    return bound, replace(ring, experts=await _balanced(held, bound, holds, loaded))


async def _balanced(
    held: AsyncExitStack, pipeline: PipelinePlan, holds: Sequence[NodeHold], loaded: Sequence[Loaded]
) -> tuple[ExpertLedger, ...]:
    """The ledgers of the stages' experts, which are kept, and the load of ranks even, until `held` is left."""
    ledgers = []
    for index, (stage, node_hold, answer) in enumerate(zip(pipeline.stages, holds, loaded, strict=True)):
        ledgers.append(ledger := ExpertLedger(index, stage, answer.placements))
        balancer = Balancer(node_hold, _number(index), ledger)
        node_hold.on_expert_rows = functools.partial(_counted, stage.node, _number(index), balancer)
        balancing = asyncio.create_task(balancer.run())
        balancing.add_done_callback(_tell_failure)
        held.push_async_callback(ended, balancing)
    return tuple(ledgers)


def _tell_failure(balancing: asyncio.Task[None]) -> None:
    """Answers go on where nothing makes load even, so that it is told and no more."""
    if not balancing.cancelled() and (failure := balancing.exception()):
        log.error("Nothing makes the load of experts even any more.", exc_info=failure)


def _counted(node: str, stage: int, balancer: Balancer, told: ExpertRows) -> None:
    if told.stage != stage:
        raise ProtocolError(f"Node {node} has stage {stage} and tells of experts of stage {told.stage}.", node=node)
    balancer.counted(told.layers)


async def _end_silent_workers(holds: Sequence[NodeHold], verdict: Verdict) -> None:
    """Ends the workers that went silent though their nodes still obey: nobody could adopt one that is frozen."""
    for index, node_hold in enumerate(holds):
        if node_hold.node in verdict.silent:
            with contextlib.suppress(LayerlineError, TimeoutError):
                async with asyncio.timeout(END_SILENT_DEADLINE_S):
                    await node_hold.unload(_number(index))


async def _load(pipeline: PipelinePlan, index: int, node_hold: NodeHold, on_progress: OnProgress) -> Loaded:
    stage = pipeline.stages[index]
    return await node_hold.load(_number(index), stage.spec, lambda done, total: on_progress(stage.node, done, total))


def _next_epoch(holds: Sequence[NodeHold]) -> int:
    """One more than any of the nodes has seen; ProtocolError if one has seen what cannot be."""
    highest = max(holds, key=lambda node_hold: node_hold.welcome.last_epoch)
    last_epoch, lowest = highest.welcome.last_epoch, min(node_hold.welcome.last_epoch for node_hold in holds)
    if last_epoch + 1 >= MAX_EPOCH or last_epoch - lowest >= MAX_EPOCH_JUMP:
        raise ProtocolError(
            f"Node {highest.node} says that it has seen epoch {last_epoch}, and nobody makes so many plans.",
            node=highest.node,
            remedy="Stop it, remove the file `epoch` in its state folder, and start it again.",
        )
    return last_epoch + 1


def _number(stage_index: int) -> int:
    """What a stage is called on the hold of its node."""
    return stage_index + 1


def _places(epoch: int, peers: Sequence[Peer]) -> list[Place]:
    plan_key = secrets.token_bytes(PLAN_KEY_BYTES)
    return [
        Place(epoch=epoch, plan_key=plan_key, stage_index=index, stage_count=len(peers), next=following)
        for index, following in enumerate([*peers[1:], None])
    ]


async def _bind_backwards(holds: Sequence[NodeHold], places: Sequence[Place]) -> None:
    # A stage dials the next one as it is bound, so that one must have its place already.
    for index, node_hold in reversed(list(enumerate(holds))):
        await node_hold.bind(_number(index), places[index])


async def _dial(
    held: AsyncExitStack,
    transport: Transport,
    pipeline: PipelinePlan,
    peers: Sequence[Peer],
    places: Sequence[Place],
    coordinator: str,
    verdict: Verdict,
) -> Ring:
    def hello(place: Place) -> Hello:
        return Hello(
            wire_version=WIRE_VERSION,
            epoch=place.epoch,
            plan_key=place.plan_key,
            model_digest=pipeline.stages[0].spec.digest,
            stage_index=place.stage_index,
            sender=coordinator,
        )

    first, last = peers[0], peers[-1]
    results = await ResultReceiver.dial(transport, last, hello(places[-1]))
    held.push_async_callback(results.close)
    frames = await FrameSender.dial(transport, first, hello(places[0]), on_broken=verdict.hear)
    held.push_async_callback(frames.close)
    nodes = tuple(peer.name for peer in peers)
    return Ring(epoch=pipeline.epoch, frames=frames, results=results, nodes=nodes)


def _data_port(node: Peer, loaded: Loaded) -> Peer:
    # The scope of a link-local address is a matter of whoever dials it, see `scoped_here`.
    addresses = (join_address(split_address(address)[0], loaded.data_port) for address in node.addresses)
    return Peer(name=node.name, addresses=tuple(dict.fromkeys(addresses)))
