"""The worker program: load the stage that the daemon names, listen, and take places in plans as told.

Computing happens on the event loop: a worker does nothing else, and gRPC's own threads answer pings meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from pathlib import Path
from typing import cast

import torch

from layerline.errors import LayerlineError, ModelCorruptError, ProtocolError, StageFailedError
from layerline.models.card import ModelCard
from layerline.rpc.channels import make_server
from layerline.rpc.v1 import ring_pb2_grpc
from node import pipe
from node.stage import Stage
from node.worker.daemon_pipe import DaemonPipe
from node.worker.ring_service import RingService

MAX_QUEUED_COMMANDS = 64
PROGRESS_STEPS = 100

log = logging.getLogger(__name__)


def main() -> None:
    """Runs until the daemon ends the pipe or the process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in a terminal reaches the daemon, which ends us in order
    logging.basicConfig(stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s", level=logging.INFO)
    channel = DaemonPipe.over_standard_streams()
    start = _first_command(channel)
    try:
        asyncio.run(_serve(channel, start))
    except LayerlineError as error:
        channel.write(pipe.Refused.of(error))
        raise SystemExit(1) from None


def _first_command(channel: DaemonPipe) -> pipe.Start:
    try:
        start = channel.read()
    except EOFError:
        raise SystemExit(0) from None
    except ValueError as error:
        raise SystemExit(f"layerline worker: {error}") from None
    if not isinstance(start, pipe.Start):
        raise SystemExit(f"layerline worker: {type(start).__name__} came before Start")
    return start


async def _serve(channel: DaemonPipe, start: pipe.Start) -> None:
    commands: asyncio.Queue[pipe.ToWorker] = asyncio.Queue(maxsize=MAX_QUEUED_COMMANDS)
    channel.feed(asyncio.get_running_loop(), commands.put_nowait)
    stage = _load(channel, start)
    service = RingService(stage, node=start.node, model_digest=start.spec.digest)
    server = make_server()
    # The generated class knows only handlers that yield, gRPC also those that write to their context.
    ring_pb2_grpc.add_RingServicer_to_server(cast("ring_pb2_grpc.RingServicer", service), server)
    port = server.add_insecure_port(f"{start.host}:0")
    await server.start()
    started = pipe.Started(port=port, weights_bytes=stage.weights_bytes, kv_bytes=stage.kv_bytes)
    channel.write(started)
    while True:
        await _obey(channel, service, await commands.get())


def _load(channel: DaemonPipe, start: pipe.Start) -> Stage:
    torch.set_num_threads(start.threads)
    last_part = -1

    def report(done_bytes: int, total_bytes: int) -> None:
        nonlocal last_part
        part = PROGRESS_STEPS * done_bytes // max(1, total_bytes)
        if part != last_part:
            last_part = part
            channel.write(pipe.Progress(done_bytes=done_bytes, total_bytes=total_bytes))

    try:
        card = ModelCard.from_bytes(Path(start.card_path).read_bytes())
        return Stage.load(card, Path(start.model_path), start.spec, report)
    except LayerlineError:
        raise
    except OSError as failure:
        message = f"A file of model {start.spec.model} cannot be read on node {start.node} ({failure})."
        raise ModelCorruptError(message, node=start.node, remedy="Check the file and the disk.") from failure
    except (RuntimeError, MemoryError) as failure:
        log.exception("Loading failed.")
        message = (
            f"Node {start.node} cannot load layers {start.spec.first_layer} to {start.spec.last_layer} ({failure})."
        )
        remedy = "If memory ran out, give the node a smaller --memory."
        raise StageFailedError(message, node=start.node, remedy=remedy) from failure


async def _obey(channel: DaemonPipe, service: RingService, command: pipe.ToWorker) -> None:
    try:
        if isinstance(command, pipe.Place):
            channel.write(pipe.Placed(next_address=await service.take_place(command)))
        elif isinstance(command, pipe.Vacate):
            await service.vacate()
        else:
            raise ProtocolError("A worker is started once.")
    except LayerlineError as error:
        channel.write(pipe.Refused.of(error))
