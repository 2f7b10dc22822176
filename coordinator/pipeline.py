"""Puts a plan into effect: holds its nodes, has them load, binds the stages into a ring, and takes it all back.

Everything is acquired in one `async with`; leaving it ends the streams and the holds, in reverse order. The
loaded stages stay with their nodes, which keep them for the next coordinator; one that went silent is ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Callable, Mapping, Sequence, Set
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

from coordinator.concurrency import all_of, unless
from coordinator.node_session import NodeSession, hold
from coordinator.ring import Ring
from coordinator.telling import TELLING_S, most_telling
from layerline.addresses import MAX_ADDRESSES, join_address, split_address
from layerline.errors import LayerlineError, NodeLostError
from layerline.frames import PLAN_KEY_BYTES, Hello, StepResult
from layerline.holding import Loaded, Peer
from layerline.link import Receiver
from layerline.plan import PipelinePlan
from layerline.rpc.links import FrameSender, ResultReceiver
from layerline.version import WIRE_VERSION

END_SILENT_DEADLINE_S = 1.0  # the node goes on with it by itself

OnLost = Callable[[LayerlineError], None]
OnProgress = Callable[[str, int, int], None]


@asynccontextmanager
async def pipeline(
    planned: PipelinePlan,
    addresses: Mapping[str, Sequence[str]],
    *,
    coordinator: str,
    on_lost: OnLost,
    on_progress: OnProgress,
) -> AsyncIterator[tuple[PipelinePlan, Ring]]:
    """The pipeline in effect, with its epoch, and the ring through it.

    `addresses` are host:port of each node's control port by node id, the first being the one it answers on.
    `on_lost` hears of whatever breaks the pipeline, possibly more than once; `on_progress(node, done_bytes,
    total_bytes)` of loading. Raises the first error of a node that holds or loads not, and the most telling one where
    the stages do not come together.
    """
    silent: set[str] = set()
    said: list[LayerlineError] = []
    broken: asyncio.Future[LayerlineError] = asyncio.get_running_loop().create_future()

    def hear(error: LayerlineError) -> None:
        if isinstance(error, NodeLostError):
            silent.add(error.node)
        said.append(error)
        if not broken.done():
            broken.set_result(error)
        on_lost(error)

    async with AsyncExitStack() as held:
        sessions = await all_of(
            held.enter_async_context(
                hold(addresses[stage.node_id][0], node=stage.node, coordinator=coordinator, on_lost=hear)
            )
            for stage in planned.stages
        )
        held.push_async_callback(_end_silent_workers, sessions, silent)
        epoch = 1 + max(session.welcome.last_epoch for session in sessions)
        bound = replace(planned, epoch=epoch)
        loading = all_of(_load(bound, index, session, on_progress) for index, session in enumerate(sessions))
        loaded = await unless(broken, loading)
        plan_key = secrets.token_bytes(PLAN_KEY_BYTES)
        peers = [
            Peer(node_id=stage.node_id, name=stage.node, addresses=_data_addresses(addresses[stage.node_id], answer))
            for stage, answer in zip(bound.stages, loaded, strict=True)
        ]
        try:
            await unless(broken, _bind_backwards(sessions, peers, epoch, plan_key))
            ring = await unless(broken, _dial(held, bound, peers, plan_key, coordinator, hear))
        except LayerlineError as error:  # a neighbour that cannot be reached may be about to say why
            await asyncio.sleep(TELLING_S)
            raise most_telling([error, *said]) from None
        yield bound, ring


async def _end_silent_workers(sessions: Sequence[NodeSession], silent: Set[str]) -> None:
    """Ends the workers that went silent though their nodes still obey: nobody could adopt one that is frozen."""
    for session in sessions:
        if session.node in silent:
            with contextlib.suppress(LayerlineError, TimeoutError):
                async with asyncio.timeout(END_SILENT_DEADLINE_S):
                    await session.unload()


async def _load(pipeline: PipelinePlan, index: int, session: NodeSession, on_progress: OnProgress) -> Loaded:
    stage = pipeline.stages[index]
    return await session.load(stage.spec, lambda done, total: on_progress(stage.node, done, total))


async def _bind_backwards(sessions: Sequence[NodeSession], peers: Sequence[Peer], epoch: int, plan_key: bytes) -> None:
    # A stage dials the next one as it is bound, so that one must have its place already.
    for index in reversed(range(len(sessions))):
        following = peers[index + 1] if index + 1 < len(sessions) else None
        await sessions[index].bind(
            epoch=epoch, plan_key=plan_key, stage_index=index, stage_count=len(sessions), following=following
        )


async def _dial(
    held: AsyncExitStack,
    pipeline: PipelinePlan,
    peers: Sequence[Peer],
    plan_key: bytes,
    coordinator: str,
    on_lost: OnLost,
) -> Ring:
    def hello(stage_index: int) -> Hello:
        return Hello(
            wire_version=WIRE_VERSION,
            epoch=pipeline.epoch,
            plan_key=plan_key,
            model_digest=pipeline.stages[0].spec.digest,
            stage_index=stage_index,
            sender=coordinator,
        )

    first, last = peers[0], peers[-1]
    results = await ResultReceiver.dial(last.addresses, hello(len(peers) - 1), node=last.name)
    held.push_async_callback(results.close)
    frames = await FrameSender.dial(first.addresses, hello(0), node=first.name, on_broken=on_lost)
    held.push_async_callback(frames.close)
    nodes = tuple(peer.name for peer in peers)
    return Ring(epoch=pipeline.epoch, frames=frames, results=_HeardResults(results, on_lost), nodes=nodes)


class _HeardResults:
    """Results whose end is told to `on_lost` too: a frozen last stage may be noticed by them before any other link."""

    def __init__(self, results: Receiver[StepResult], on_lost: OnLost) -> None:
        self._results = results
        self._on_lost = on_lost

    async def receive(self) -> StepResult:
        """The next result."""
        try:
            return await self._results.receive()
        except LayerlineError as error:
            self._on_lost(error)
            raise

    async def close(self) -> None:
        """Ends the link."""
        await self._results.close()


def _data_addresses(control: Sequence[str], loaded: Loaded) -> tuple[str, ...]:
    # The scope of a link-local address is a matter of whoever dials it, see `scoped_here`.
    told = (join_address(split_address(address)[0], loaded.data_port) for address in control)
    return tuple(dict.fromkeys(told))[:MAX_ADDRESSES]
