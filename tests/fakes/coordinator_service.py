"""A coordinator on loopback that follows a script, for tests of the clients and the commands.

It serves on threads, so that a test may use either client and any event loop beside it. Run as a program it
prints its address and serves until it is killed, for tests that kill it.
"""

from __future__ import annotations

import queue
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import grpc
from google.protobuf.message import Message as WireMessage

from layerline.answer import Finished, Piece, StageSummary, Timings, Usage
from layerline.embedding import Embedding, EmbeddingFinished, EmbedRequest
from layerline.errors import LayerlineError
from layerline.facts import DeviceFacts, NodeFacts
from layerline.plan_request import PlanRequest
from layerline.reports import (
    Announcement,
    CoordinatorFacts,
    ModelReport,
    ModelsReport,
    NodeProgress,
    NodeReport,
    NodesReport,
    PipelineReport,
    Planned,
    PlanReport,
    Ready,
    StageReport,
)
from layerline.requests import GenerateRequest
from layerline.rpc.channels import COORDINATOR_OPTIONS
from layerline.rpc.convert import from_message, to_message, to_union
from layerline.rpc.status import DETAIL_KEY, detail_from_error, status_of
from layerline.rpc.transport import Transport
from layerline.rpc.v1 import coordinator_pb2, coordinator_pb2_grpc
from layerline.scoring import ScoreRequest, ScoringFinished, WindowScores
from layerline.stats_report import StatsReport
from layerline.version import WIRE_VERSION, __version__
from tests.fakes.stats_report import stats_report

GIB = 1 << 30


class Hang:
    """A step of a script at which the coordinator waits until the client leaves or the test ends."""


FINISHED = Finished(
    finish_reason="stop",
    usage=Usage(prompt_tokens=7, completion_tokens=3),
    timings=Timings(ttft_s=0.25, prefill_tokens_per_s=28.0, decode_tokens_per_s=12.5),
    plan=(
        StageSummary(node="attic", first_layer=0, last_layer=14),
        StageSummary(node="cellar", first_layer=15, last_layer=29),
    ),
    seed=42,
)
ANSWER = (Piece(text="Par", token_ids=(1, 2)), Piece(text="is.", token_ids=(3,)), FINISHED)
TWO_ANSWERS = (
    ANSWER[0],
    Piece(text="Lyon", token_ids=(4,), index=1),
    replace(FINISHED, index=1, seed=43),
    *ANSWER[1:],
)
SCORES = (
    WindowScores(start=1, token_ids=(5, 6, 7), log_probabilities=(-0.5, -1.5, -1.0), text_tokens=6),
    WindowScores(start=5, token_ids=(9,), log_probabilities=(-2.0,), text_tokens=6),
    ScoringFinished(text_tokens=6, took_s=0.25, plan=FINISHED.plan),
)
EMBEDDINGS = (
    Embedding(index=0, numbers=(0.5, -0.25), tokens=3),
    Embedding(index=1, numbers=(1.0, 0.0), tokens=2),
    EmbeddingFinished(tokens=5, took_s=0.25, plan=FINISHED.plan),
)


def stage_report(node: str, first_layer: int, last_layer: int) -> StageReport:
    """A stage of half a gibibyte."""
    return StageReport(
        node=node,
        node_id=f"id-{node}",
        first_layer=first_layer,
        last_layer=last_layer,
        devices=("cpu",),
        weights_bytes=GIB // 2,
        kv_bytes=GIB // 8,
        workspace_bytes=GIB // 16,
        budget_bytes=GIB,
        why="as many layers as fit",
    )


PLAN = PlanReport(
    model="tiny",
    digest="d1",
    dtype="bfloat16",
    kv_dtype="bfloat16",
    weights="bfloat16",
    layers=30,
    context_tokens=2048,
    pipelines=(PipelineReport(stages=(stage_report("attic", 0, 14), stage_report("cellar", 15, 29))),),
    notes=("shed was left out: it would only slow this down",),
)
PREPARING = (
    Announcement(text="Looking at the nodes."),
    Planned(plan=PLAN),
    NodeProgress(node="attic", phase="load", done_bytes=10, total_bytes=20),
    NodeProgress(node="cellar", phase="load", done_bytes=20, total_bytes=20),
    Ready(plan=PLAN),
)


def node_facts(name: str) -> NodeFacts:
    """A ready node with one CPU."""
    device = DeviceFacts(
        device="cpu",
        kind="cpu",
        name="A CPU",
        threads=4,
        total_bytes=16 * GIB,
        free_bytes=8 * GIB,
        budget_bytes=6 * GIB,
        matrix_flops_per_s=2.5e11,
        memory_bytes_per_s=2.1e10,
    )
    return NodeFacts(
        node_id=f"id-{name}",
        name=name,
        version="0.1.0",
        wire_version=WIRE_VERSION,
        state="ready",
        addresses=(f"10.0.0.{len(name)}:7355",),
        devices=(device,),
    )


NODES = NodesReport(
    nodes=(
        NodeReport(name="attic", address="10.0.0.5:7355", unusable="", facts=node_facts("attic")),
        NodeReport(name="[red]shed", address="", unusable="it answers at none of its addresses", facts=None),
    ),
    searched=("eth0 (10.0.0.1)",),
)
MODELS = ModelsReport(
    models=(ModelReport(name="tiny", digest="d1", size_bytes=GIB, nodes=("attic", "cellar"), loaded=True),)
)


@dataclass(kw_only=True)
class FakeCoordinator:
    """The script, and what was asked. A LayerlineError in a script ends the call with it."""

    facts: CoordinatorFacts = field(
        default_factory=lambda: CoordinatorFacts(
            name="fake", version=__version__, wire_version=WIRE_VERSION, model="tiny", address=""
        )
    )
    nodes: NodesReport | LayerlineError = NODES
    models: ModelsReport | LayerlineError = MODELS
    plan: PlanReport | LayerlineError = PLAN
    stats: StatsReport | LayerlineError = field(default_factory=stats_report)
    preparing: Sequence[object] = PREPARING
    answers: list[Sequence[object]] = field(default_factory=lambda: [ANSWER])  # the last one repeats
    scores: Sequence[object] = SCORES
    embeddings: Sequence[object] = EMBEDDINGS
    asked: list[GenerateRequest] = field(default_factory=list)
    scored: list[ScoreRequest] = field(default_factory=list)
    embedded: list[EmbedRequest] = field(default_factory=list)
    planned: list[PlanRequest] = field(default_factory=list)
    cancelled: queue.SimpleQueue[str] = field(default_factory=queue.SimpleQueue)
    hung: queue.SimpleQueue[str] = field(default_factory=queue.SimpleQueue)
    ended: threading.Event = field(default_factory=threading.Event)

    def next_answer(self) -> Sequence[object]:
        """What to say to the next request."""
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


class _Service(coordinator_pb2_grpc.CoordinatorServicer):
    def __init__(self, fake: FakeCoordinator) -> None:
        self._fake = fake

    def Describe(self, request: Any, context: Any) -> Any:
        return to_message(self._fake.facts, coordinator_pb2.CoordinatorFacts)

    def Nodes(self, request: Any, context: Any) -> Any:
        return _reply(self._fake.nodes, coordinator_pb2.NodesReport, context)

    def Models(self, request: Any, context: Any) -> Any:
        return _reply(self._fake.models, coordinator_pb2.ModelsReport, context)

    def Plan(self, request: Any, context: Any) -> Any:
        self._fake.planned.append(from_message(PlanRequest, request))
        return _reply(self._fake.plan, coordinator_pb2.PlanReport, context)

    def Stats(self, request: Any, context: Any) -> Any:
        return _reply(self._fake.stats, coordinator_pb2.StatsReport, context)

    def Prepare(self, request: Any, context: Any) -> Iterator[Any]:
        self._fake.planned.append(from_message(PlanRequest, request))
        yield from self._follow(self._fake.preparing, coordinator_pb2.PrepareEvent, context)

    def Generate(self, request: Any, context: Any) -> Iterator[Any]:
        self._fake.asked.append(from_message(GenerateRequest, request))
        yield from self._follow(self._fake.next_answer(), coordinator_pb2.GenerateEvent, context)

    def Score(self, request: Any, context: Any) -> Iterator[Any]:
        self._fake.scored.append(from_message(ScoreRequest, request))
        yield from self._follow(self._fake.scores, coordinator_pb2.ScoreEvent, context)

    def Embed(self, request: Any, context: Any) -> Iterator[Any]:
        self._fake.embedded.append(from_message(EmbedRequest, request))
        yield from self._follow(self._fake.embeddings, coordinator_pb2.EmbedEvent, context)

    def _follow(self, script: Sequence[object], kind: type[WireMessage], context: Any) -> Iterator[Any]:
        try:
            for step in script:
                if isinstance(step, Hang):
                    self._hang(context)
                elif isinstance(step, LayerlineError):
                    _abort(step, context)
                else:
                    yield to_union(step, kind)
        except GeneratorExit:  # the client left before the next step was asked for
            self._fake.cancelled.put("cancelled")
            raise

    def _hang(self, context: Any) -> None:
        left = threading.Event()
        if not context.add_callback(left.set):
            left.set()
        self._fake.hung.put("hung")
        while not left.wait(0.02):
            if self._fake.ended.is_set():
                return
        self._fake.cancelled.put("cancelled")


def _reply(reply: object, kind: type[WireMessage], context: Any) -> WireMessage:
    if isinstance(reply, LayerlineError):
        _abort(reply, context)
    return to_message(reply, kind)


def _abort(error: LayerlineError, context: Any) -> None:
    context.set_trailing_metadata(((DETAIL_KEY, detail_from_error(error).SerializeToString()),))
    context.abort(status_of(error), error.message)


@contextmanager
def serving(fake: FakeCoordinator) -> Iterator[str]:
    """Serves `fake` and yields its address."""
    with ThreadPoolExecutor(8, "fake-coordinator") as threads:
        server = grpc.server(threads, options=COORDINATOR_OPTIONS)
        coordinator_pb2_grpc.add_CoordinatorServicer_to_server(_Service(fake), server)
        port = Transport().listen(server, "127.0.0.1:0")
        server.start()
        try:
            yield f"127.0.0.1:{port}"
        finally:
            fake.ended.set()
            server.stop(0).wait()


if __name__ == "__main__":
    with serving(FakeCoordinator(answers=[(*ANSWER[:2], Hang())])) as own_address:
        print(own_address, flush=True)
        sys.stdin.read()
