"""Every noun that travels, there and back; what a noun refuses and what a message lacks is a ProtocolError."""

from __future__ import annotations

import dataclasses
import types
import typing
from typing import Any

import pytest
from google.protobuf.message import DecodeError, Message
from hypothesis import given, settings
from hypothesis import strategies as st

from layerline import facts, plan, plan_request, reports, scoring, stats_report
from layerline.answer import PIECE_KINDS, AnswerItem, Piece
from layerline.errors import ERRORS, LayerlineError, NodeLostError, ProtocolError
from layerline.frames import PLAN_KEY_BYTES
from layerline.hold import (
    Bind,
    Failed,
    Heartbeat,
    HoldCommand,
    HoldEvent,
    HoldHello,
    LayerPlacement,
    LayerRows,
    Load,
    Loaded,
    Place,
    Welcome,
)
from layerline.models.expert_placement import ExpertPlacement
from layerline.peer import Peer
from layerline.plan import DTYPES, KV_DTYPES, MAX_LAYERS, StageSpec
from layerline.reports import PrepareEvent
from layerline.rpc.convert import from_message, from_union, to_message, to_union
from layerline.rpc.v1 import coordinator_pb2, node_pb2
from layerline.sharing import MAX_DEVICES, MAX_PROPORTION, MAX_REPEATS
from tests.fakes.daemon_parts import place_of

SPEC = StageSpec(
    model="m", digest="d", first_layer=0, last_layer=1, dtype="float32", devices=("cpu",), pages=4, page_tokens=4,
    max_rows=8,
)  # fmt: skip
NAMES = st.text(st.characters(min_codepoint=33, max_codepoint=0x24F, exclude_categories=("C", "Z")), min_size=1)
NUMBERS = st.integers(0, (1 << 31) - 1)
SPECS = st.builds(
    StageSpec,
    model=NAMES,
    digest=NAMES,
    first_layer=st.integers(0, 100),
    last_layer=st.integers(100, 1023),
    dtype=st.sampled_from(DTYPES),
    devices=st.lists(NAMES, min_size=2, max_size=2, unique=True).map(tuple),
    pages=st.integers(1, 1 << 24),
    page_tokens=st.integers(1, 4096),
    max_rows=st.integers(1, 65536),
    kv_dtype=st.sampled_from(("", *KV_DTYPES)),
    proportions=st.sampled_from([(), (1, 1), (3, MAX_PROPORTION)]),
    weights=st.just(""),
    long_context=st.booleans(),
    experts=st.just("spread"),
    attention_devices=st.integers(0, 2),
    repeats=st.integers(0, MAX_REPEATS),
    expert_device=st.just(""),
)
PEERS = st.builds(Peer, name=NAMES, addresses=st.lists(NAMES, min_size=1, max_size=3).map(tuple))
PLACES = st.builds(
    Place,
    epoch=st.integers(1, (1 << 53) - 1),
    plan_key=st.binary(min_size=PLAN_KEY_BYTES, max_size=PLAN_KEY_BYTES),
    stage_index=st.just(0),
    stage_count=st.just(2),
    next=PEERS,
)
SPEEDS = st.just(0.0) | st.floats(1, 1e17)
CHOSEN = {
    (Piece, "kind"): st.sampled_from(PIECE_KINDS),
    (facts.NodeFacts, "state"): st.sampled_from(facts.NODE_STATES),
    (facts.DeviceFacts, "kind"): st.sampled_from(facts.DEVICE_KINDS),
    (facts.DeviceFacts, "matrix_flops_per_s"): SPEEDS,
    (facts.DeviceFacts, "memory_bytes_per_s"): SPEEDS,
    (facts.DeviceFacts, "threads"): st.integers(0, facts.MAX_THREADS),
    (facts.NodeFacts, "addresses"): st.lists(st.sampled_from(["10.0.0.2:7070", "[fe80::1%eth0]:7070"])).map(tuple),
    (facts.NodeFacts, "all_reduce_us"): st.floats(0, facts.MAX_ALL_REDUCE_US),
    (Loaded, "data_port"): st.integers(1, 65_535),
    (LayerRows, "layer"): st.integers(0, MAX_LAYERS - 1),
    (LayerRows, "rows"): st.lists(NUMBERS, min_size=1, max_size=3).map(tuple),
}
MESSAGES: dict[type, type[Message]] = {
    facts.NodeFacts: node_pb2.NodeFacts,
    plan_request.PlanRequest: coordinator_pb2.PlanRequest,
    reports.CoordinatorFacts: coordinator_pb2.CoordinatorFacts,
    reports.NodesReport: coordinator_pb2.NodesReport,
    reports.ModelsReport: coordinator_pb2.ModelsReport,
    reports.PipelineReport: coordinator_pb2.PipelineReport,
    reports.PlanReport: coordinator_pb2.PlanReport,
    stats_report.StatsReport: coordinator_pb2.StatsReport,
}
UNIONS: list[tuple[Any, type[Message]]] = [
    (HoldCommand, node_pb2.HoldCommand),
    (HoldEvent, node_pb2.HoldEvent),
    (PrepareEvent, coordinator_pb2.PrepareEvent),
    (AnswerItem, coordinator_pb2.GenerateEvent),
    (scoring.WindowScores | scoring.ScoringFinished, coordinator_pb2.ScoreEvent),
]
SPECIAL = {
    StageSpec: SPECS,
    plan_request.PlanRequest: st.builds(
        plan_request.PlanRequest,
        model=NAMES,
        dtype=st.sampled_from(DTYPES),
        context_tokens=st.integers(0, plan.MAX_CONTEXT_TOKENS),
        layers=st.lists(
            st.builds(
                plan_request.ManualStage, node=NAMES, first_layer=st.integers(0, 100), last_layer=st.integers(100, 1023)
            )
        ).map(tuple),
        kv_dtype=st.sampled_from(("", *KV_DTYPES)),
        weights=st.just(""),
        tensor_parallel=st.integers(0, MAX_DEVICES),
    ),
    scoring.WindowScores: st.builds(
        lambda scores, start: scoring.WindowScores(
            start=start, token_ids=tuple(range(len(scores))), log_probabilities=tuple(scores), text_tokens=start + 9
        ),
        st.lists(st.floats(-100, 0, width=32), max_size=4),
        NUMBERS,
    ),
    Peer: PEERS,
    LayerPlacement: st.builds(
        LayerPlacement.of,
        st.integers(0, MAX_LAYERS - 1),
        st.sampled_from([((0, 1), (2,)), ((), (4, 0)), ((7,),)]).map(ExpertPlacement),
    ),
    Load: st.builds(Load, command=NUMBERS, stage=st.integers(1, (1 << 64) - 1), spec=SPECS),
    Place: PLACES,
    HoldHello: st.builds(HoldHello.of, NAMES),
    LayerlineError: st.builds(
        lambda cls, message, node, remedy: cls(message, node=node, remedy=remedy),
        st.sampled_from(list(ERRORS.values())),
        NAMES,
        NAMES,
        NAMES,
    ),
    str: NAMES,
    int: NUMBERS,
    bool: st.booleans(),
    bytes: st.binary(max_size=4),
    float: st.floats(0, 1e9),
}


def values(hint: Any) -> st.SearchStrategy[Any]:
    """Anything that a field of that type may hold."""
    arguments = typing.get_args(hint)
    if typing.get_origin(hint) is tuple:
        return st.lists(values(arguments[0]), max_size=2).map(tuple)
    if isinstance(hint, types.UnionType):
        return st.one_of(*(st.none() if one is type(None) else values(one) for one in arguments))
    return nouns(hint)


def nouns(noun: type) -> st.SearchStrategy[Any]:
    """Any noun of that class."""
    if noun in SPECIAL:
        return SPECIAL[noun]
    hints = typing.get_type_hints(noun)
    fields = {
        field.name: CHOSEN[noun, field.name] if (noun, field.name) in CHOSEN else values(hints[field.name])
        for field in dataclasses.fields(noun)
    }
    if noun is facts.Holder:
        fields["address"] = st.sampled_from(["10.0.0.2:7355", "[fe80::1%eth0]:7355"])
    if noun is facts.NodeFacts:
        devices = nouns(facts.DeviceFacts)
        fields["devices"] = st.lists(devices, max_size=2, unique_by=lambda device: device.device).map(tuple)
    return st.builds(noun, **fields)


def comparable(noun: Any) -> Any:
    """A noun as a value in which errors compare by what they say."""
    if isinstance(noun, LayerlineError):
        return type(noun), noun.message, noun.node, noun.remedy
    if dataclasses.is_dataclass(noun):
        return {field.name: comparable(getattr(noun, field.name)) for field in dataclasses.fields(noun)}
    return [comparable(item) for item in noun] if isinstance(noun, tuple) else noun


@pytest.mark.parametrize("noun", MESSAGES, ids=lambda noun: noun.__name__)
@given(data=st.data())
@settings(max_examples=15)
def test_a_noun_comes_back_as_it_was(noun: type, data: st.DataObject) -> None:
    told = data.draw(nouns(noun))
    message = MESSAGES[noun].FromString(to_message(told, MESSAGES[noun]).SerializeToString())
    assert from_message(noun, message) == told


@pytest.mark.parametrize(
    ("union", "message_class", "noun"),
    [(union, message_class, noun) for union, message_class in UNIONS for noun in typing.get_args(union)],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
@given(data=st.data())
@settings(max_examples=10)
def test_every_noun_of_a_union_comes_back_as_it_was(
    union: Any, message_class: type[Message], noun: type, data: st.DataObject
) -> None:
    told = data.draw(nouns(noun))
    message = message_class.FromString(to_union(told, message_class).SerializeToString())
    assert comparable(from_union(union, message)) == comparable(told)


@pytest.mark.parametrize(
    ("union", "message_class"), UNIONS, ids=lambda value: value.__name__ if isinstance(value, type) else ""
)
@given(junk=st.binary(max_size=64))
def test_junk_is_a_noun_or_a_protocol_error(union: Any, message_class: type[Message], junk: bytes) -> None:
    try:
        message = message_class.FromString(junk)
    except DecodeError:
        return
    try:
        noun = from_union(union, message)
    except ProtocolError:
        return
    assert isinstance(noun, typing.get_args(union))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"devices": ["cpu"] * 65}, "devices"),
        ({"devices": []}, "devices"),
        ({"devices": ["cpu", "cpu"]}, "device twice"),
        ({"proportions": [1, 1]}, "a proportion for each device"),
        ({"proportions": [0]}, "proportions must be 1"),
        ({"proportions": [MAX_PROPORTION + 1]}, "proportions must be 1"),
        ({"dtype": "int4"}, "int4"),
        ({"kv_dtype": "fp4"}, "kv_dtype is 'fp4'"),
        ({"weights": "q4_k"}, "weights is 'q4_k'"),
        ({"weights": "bfloat16"}, "torch holds floating-point weights as it computes"),
        ({"precision": "exact"}, "precision is 'exact'"),
        ({"first_layer": 2}, "range"),
        ({"model": "a\nb"}, "model name"),
        ({"pages": 0}, "pages"),
    ],
)
def test_a_message_that_its_noun_refuses_is_a_protocol_error(change: dict[str, Any], words: str) -> None:
    message = to_union(Load(command=1, stage=1, spec=SPEC), node_pb2.HoldCommand)
    for field, value in change.items():
        if isinstance(value, list):
            getattr(message.load.spec, field)[:] = value
        else:
            setattr(message.load.spec, field, value)
    with pytest.raises(ProtocolError, match=words):
        from_union(HoldCommand, message)


def test_a_missing_part_is_refused_not_made_up() -> None:
    with pytest.raises(ProtocolError, match="model name"):
        from_union(HoldCommand, node_pb2.HoldCommand(load=node_pb2.Load(command=1, stage=1)))
    nameless = to_union(Load(command=1, stage=1, spec=SPEC), node_pb2.HoldCommand)
    nameless.load.ClearField("stage")
    with pytest.raises(ProtocolError, match="numbered from 1"):
        from_union(HoldCommand, nameless)
    with pytest.raises(ProtocolError, match="instance"):
        from_union(HoldCommand, node_pb2.HoldCommand(hold_hello=node_pb2.HoldHello(coordinator="a", instance="A" * 16)))


def test_nothing_and_what_a_newer_peer_says_are_protocol_errors() -> None:
    field_99 = b"\x9a\x06\x01x"
    for message in (node_pb2.HoldEvent(), node_pb2.HoldEvent.FromString(field_99)):
        with pytest.raises(ProtocolError, match="HoldEvent message holds nothing"):
            from_union(HoldEvent, message)


def test_a_command_in_place_of_an_event_is_a_protocol_error() -> None:
    with pytest.raises(ProtocolError):
        from_union(Welcome | Heartbeat, to_union(Failed(command=1, error=NodeLostError("x")), node_pb2.HoldEvent))


def test_presence_is_kept_where_it_has_a_meaning() -> None:
    last = Bind(command=1, stage=1, place=place_of(1))
    assert from_union(HoldCommand, to_union(last, node_pb2.HoldCommand)).place.next is None
    assert Heartbeat() == from_union(HoldEvent, to_union(Heartbeat(), node_pb2.HoldEvent))
