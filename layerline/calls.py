"""What both clients share: calls with their deadlines, connections, and what a failure means.

Knows the messages, and nothing of how a call is made: `layerline.client` makes them on a blocking channel,
`layerline.async_client` on an event loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import grpc
from google.protobuf.message import Message as WireMessage

from layerline.addresses import split_address
from layerline.answer import Completion, Finished, Piece, PromptLikelihoods
from layerline.checks import shown
from layerline.embedding import Embedding, EmbeddingFinished, EmbedRequest
from layerline.errors import (
    DeadlineError,
    LayerlineError,
    NoCoordinatorError,
    ProtocolError,
    RequestError,
    UsageError,
    WireVersionError,
)
from layerline.plan_request import PlanRequest
from layerline.readers import AnswerReader, PartsReader, PrepareReader, Reader
from layerline.reports import CoordinatorFacts, ModelsReport, NodesReport, PlanReport, PrepareEvent, Ready
from layerline.requests import GenerateRequest
from layerline.rpc.channels import MAX_MESSAGE_BYTES
from layerline.rpc.convert import from_message, to_message
from layerline.rpc.status import DETAIL_KEY, TOO_LARGE, error_from_rpc
from layerline.rpc.v1 import coordinator_pb2, node_pb2
from layerline.scoring import ScoreRequest, ScoringFinished, WindowScores
from layerline.stats_report import StatsReport
from layerline.units import format_bytes
from layerline.version import WIRE_VERSION

SEARCH_TIMEOUT_S = 3.0
CONNECT_TIMEOUT_S = 5.0
UNARY_TIMEOUT_S = 30.0
PLAN_TIMEOUT_S = 600.0  # a node reads through a model's files when it meets them first

HOW_TO_START = "Start one with `layerline coordinator --model REF`, or name the address of one."
HOW_TO_SHORTEN = "Shorten the prompt; no model has a context for one of that length."

Reply = TypeVar("Reply")
Item = TypeVar("Item")
End = TypeVar("End")
Channel = TypeVar("Channel")  # grpc.Channel or grpc.aio.Channel


@dataclass(frozen=True, kw_only=True, slots=True)
class Connection(Generic[Channel]):
    """A channel to the coordinator at `address`, which has said who it is; `stub` calls it."""

    channel: Channel
    stub: Any
    address: str
    facts: CoordinatorFacts


@dataclass(frozen=True, kw_only=True, slots=True)
class UnaryCall(Generic[Reply]):
    """One question with one answer: the method of the service, its message, and the noun that comes back."""

    method: str
    message: WireMessage
    reply: type[Reply]
    timeout_s: float = UNARY_TIMEOUT_S

    def read(self, message: WireMessage) -> Reply:
        """The noun in the reply."""
        return from_message(self.reply, message)


@dataclass(frozen=True, kw_only=True, slots=True)
class StreamCall(Generic[Item, End]):
    """One question with a stream of answers. It has no deadline: the channel's keepalive watches it."""

    method: str
    message: WireMessage
    reader: Reader[Item, End]


class StreamEnd(Generic[Item, End]):
    """What either kind of stream says of its end, which its `_reader` has read."""

    _reader: Reader[Item, End]

    @property
    def finished(self) -> End | None:
        """How the stream ended, of several answers the first; None while it has not."""
        return self.all_finished[0] if self.all_finished else None

    @property
    def all_finished(self) -> tuple[End, ...]:
        """How each answer of the stream ended, in order; empty while one has not."""
        return self._reader.all_finished

    @property
    def of_prompt(self) -> tuple[PromptLikelihoods, ...]:
        """How likely the tokens of the prompt were, if that was asked for."""
        reader: object = self._reader
        return reader.of_prompt if isinstance(reader, AnswerReader) else ()


def describe() -> UnaryCall[CoordinatorFacts]:
    """Who the coordinator is; the first call on every connection."""
    message = node_pb2.DescribeRequest(wire_version=WIRE_VERSION)
    return UnaryCall(method="Describe", message=message, reply=CoordinatorFacts, timeout_s=CONNECT_TIMEOUT_S)


def nodes() -> UnaryCall[NodesReport]:
    """Every node found."""
    return UnaryCall(method="Nodes", message=coordinator_pb2.NodesRequest(), reply=NodesReport)


def models() -> UnaryCall[ModelsReport]:
    """Every model that a node has."""
    return UnaryCall(method="Models", message=coordinator_pb2.ModelsRequest(), reply=ModelsReport)


def plan(request: PlanRequest) -> UnaryCall[PlanReport]:
    """Who would hold what."""
    message = to_message(request, coordinator_pb2.PlanRequest)
    return UnaryCall(method="Plan", message=message, reply=PlanReport, timeout_s=PLAN_TIMEOUT_S)


def stats() -> UnaryCall[StatsReport]:
    """How the work goes."""
    return UnaryCall(method="Stats", message=coordinator_pb2.StatsRequest(), reply=StatsReport)


def prepare(request: PlanRequest) -> StreamCall[PrepareEvent, Ready]:
    """Loads a model."""
    message = to_message(request, coordinator_pb2.PlanRequest)
    return StreamCall(method="Prepare", message=message, reader=PrepareReader())


def generate(request: GenerateRequest) -> StreamCall[Piece, Finished]:
    """Answers a request; RequestError for one that no message can hold."""
    message = _sendable(to_message(request, coordinator_pb2.GenerateRequest), "prompt", HOW_TO_SHORTEN)
    return StreamCall(method="Generate", message=message, reader=AnswerReader(request.n))


def score(request: ScoreRequest) -> StreamCall[WindowScores, ScoringFinished]:
    """Scores a text; RequestError for one that no message can hold."""
    message = _sendable(to_message(request, coordinator_pb2.ScoreRequest), "text", "Score it in parts.")
    return StreamCall(method="Score", message=message, reader=PartsReader(WindowScores, ScoringFinished))


def embed(request: EmbedRequest) -> StreamCall[Embedding, EmbeddingFinished]:
    """Texts as vectors; RequestError for what no message can hold."""
    message = _sendable(to_message(request, coordinator_pb2.EmbedRequest), "inputs", "Ask for fewer at a time.")
    return StreamCall(method="Embed", message=message, reader=PartsReader(Embedding, EmbeddingFinished))


def _sendable(message: WireMessage, what: str, remedy: str) -> WireMessage:
    """`message` if it can be sent."""
    if message.ByteSize() > MAX_MESSAGE_BYTES:
        size, most = format_bytes(message.ByteSize()), format_bytes(MAX_MESSAGE_BYTES)
        text = f"The {what} is too long to be sent: the request has {size}, and a message may have {most}."
        raise RequestError(text, remedy=remedy)
    return message


def completion(pieces: Iterable[Piece], end: StreamEnd[Piece, Finished]) -> Completion:
    """The whole answer, or answers, once their stream has ended."""
    assert end.all_finished, "a stream ends with what finished it, or with an error"
    return Completion.joined(tuple(pieces), *end.all_finished, of_prompt=end.of_prompt)


def require_finished(reader: Reader[object, object], peer: str) -> None:
    """Refuses a stream that ended without saying how."""
    if not reader.all_finished:
        raise ProtocolError(f"{peer} ended a stream without finishing it.", remedy="Check its log.")


def require_flag(name: str, value: object) -> None:
    """Refuses what is neither True nor False."""
    if not isinstance(value, bool):
        raise UsageError(f"{name} must be True or False, not {shown(value)}.")


def checked_addresses(given: str | Sequence[str] | None) -> tuple[str, ...]:
    """The addresses that a client was given; none if it is to look for itself."""
    if given is None:
        return ()
    addresses = (given,) if isinstance(given, str) or not isinstance(given, Sequence) else tuple(given)
    return tuple(_checked_address(address) for address in addresses)


def _checked_address(address: str) -> str:
    """`address` if it can be one: host:port, [v6]:port or unix:path."""
    if not isinstance(address, str):
        raise UsageError(f"A coordinator's address must be text like HOST:PORT, not {shown(address)}.")
    if address.startswith("unix:") and len(address) > len("unix:"):
        return address
    try:
        split_address(address)
    except ValueError as error:
        raise UsageError(f"This is no address of a coordinator: {error}.") from error
    return address


def peer_at(address: str) -> str:
    """How sentences name the coordinator at `address`."""
    return "The coordinator of this process" if address.startswith("unix:") else f"The coordinator at {address}"


def connection(channel: Channel, stub: Any, address: str, greeting: WireMessage) -> Connection[Channel]:
    """The connection to a coordinator that answered `describe` so; refuses one that speaks another wire version."""
    facts = describe().read(greeting)
    if facts.wire_version != WIRE_VERSION:
        raise WireVersionError(
            f"{peer_at(address)} speaks wire version {facts.wire_version} (layerline {facts.version}),"
            f" and this process speaks {WIRE_VERSION}.",
            remedy="Install the same version of layerline on both.",
        )
    return Connection(channel=channel, stub=stub, address=address, facts=facts)


def require_open(closed: bool) -> None:
    """Refuses the use of a client that was closed."""
    if closed:
        raise UsageError("The client is closed.", remedy="Make a new one.")


def greeting_failure(failure: grpc.RpcError, address: str) -> LayerlineError:
    """What the failure of the first call on a connection means: NoCoordinatorError if nobody is there."""
    silences = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
    if not _is_from_grpc(failure) or failure.code() not in silences:
        return failure_of(failure, address)
    why = failure.details() or failure.code().name
    return NoCoordinatorError(f"No coordinator answers at {address} ({why}).", remedy=HOW_TO_START)


def unreachable(failures: Sequence[LayerlineError]) -> LayerlineError:
    """The error for a coordinator that is at none of its addresses: the first refusal, or what all silences say."""
    refusal = next((failure for failure in failures if not isinstance(failure, NoCoordinatorError)), None)
    return refusal or NoCoordinatorError(" ".join(failure.message for failure in failures), remedy=HOW_TO_START)


def cancelled() -> RequestError:
    """The error for a request under way when its call was cancelled, as by closing the client."""
    return RequestError("The request was cancelled.", remedy="Ask again.")


def failure_of(failure: grpc.RpcError, address: str) -> LayerlineError:
    """What the failure of a call to a coordinator that answered before means."""
    peer, code = peer_at(address), failure.code()
    if _is_from_grpc(failure):
        if code is grpc.StatusCode.UNAVAILABLE:
            details = failure.details() or "no details"
            return NoCoordinatorError(f"{peer} is gone ({details}).", remedy="Check that its process runs.")
        if code is grpc.StatusCode.CANCELLED:
            return cancelled()
        if code is grpc.StatusCode.DEADLINE_EXCEEDED:
            return DeadlineError(f"{peer} did not answer in time.", remedy="Check that it is not frozen.")
        if code is grpc.StatusCode.RESOURCE_EXHAUSTED and _is_of_request(failure.details() or ""):
            return RequestError(f"The request is too long to be sent ({failure.details()}).", remedy=HOW_TO_SHORTEN)
    return error_from_rpc(failure, peer=peer)


def _is_of_request(details: str) -> bool:
    """Whether what is too large is what this side sent, and not what came back."""
    return TOO_LARGE in details and ("CLIENT: Sent" in details or "SERVER: Received" in details)


def _is_from_grpc(failure: grpc.RpcError) -> bool:
    metadata: Any = failure.trailing_metadata() or ()  # pairs; typeshed's stubs have no class that says so
    return all(key != DETAIL_KEY for key, _ in metadata)
