"""How the devices of a node share experts: by columns, whole or beside them, with the figures that decide it."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.planning.choices import plan_for
from layerline.errors import PlanDoesNotFitError, PlanInvalidError
from layerline.facts import DeviceFacts, NodeFacts
from layerline.models.card import ModelCard
from layerline.models.expert_rows import busiest_of_a_row
from layerline.models.feed_forward_spec import ExpertsSpec, FeedForwardSpec
from layerline.models.spec import ModelSpec
from layerline.plan import Plan, StagePlan
from layerline.plan_request import ManualStage, PlanRequest
from node.daemon.stages.memory import check_memory_fits
from tests.fakes.cards import model_card
from tests.fakes.specs import decoder_spec, of_layers
from tests.fakes.worlds import GIB, MIB, device, node

COUNT, CHOSEN = 32, 4


def moe(width: int = 512, *, layers: int = 8, heads: int = 8, **experts: Any) -> ModelSpec:
    """Experts of 3 MiB each in 16 bits, 0.75 GiB of them in all with that width."""
    dense = decoder_spec(
        layers=layers, hidden=1024, heads=heads, kv_heads=heads, head_dim=64, vocabulary=512, context_tokens=2048
    )
    chosen = ExpertsSpec(count=COUNT, chosen=CHOSEN, scoring="softmax", **experts)
    feed_forward = FeedForwardSpec(intermediate=width, experts=chosen)
    made = of_layers(dense, [replace(dense.layer(0), feed_forward=feed_forward)] * layers)
    return replace(made, family="qwen3_moe")


def cpus(count: int, mib: int = 4096) -> list[DeviceFacts]:
    return [device(f"cpu:{place}", budget_bytes=mib * MIB, kernels="AVX2") for place in range(count)]


def gpu(mib: int) -> DeviceFacts:
    return device("cuda:0", budget_bytes=mib * MIB, gb_per_s=1000.0)


def plan(card: ModelCard | ModelSpec, *nodes: NodeFacts, **request: Any) -> Plan:
    own = card if isinstance(card, ModelCard) else model_card(card)
    made = plan_for(own, PlanRequest(model="m", **request), nodes)
    for stage in made.stages:
        owner = next(each for each in nodes if each.node_id == stage.node_id)
        check_memory_fits(stage.spec, own, owner.devices, owner.name)  # as the node asks before it loads
    return made


def only_stage(made: Plan) -> StagePlan:
    (stage,) = made.stages
    return stage


def test_columns_are_evener_for_one_row_and_what_spread_experts_cost_is_told() -> None:
    made = plan(moe(), node("a", *cpus(2), all_reduce_us=20), tensor_parallel=2)
    stage = only_stage(made)
    assert stage.spec.experts == "split"
    assert stage.why.endswith("; experts split by columns")
    (note,) = [note for note in made.notes if note.startswith("Experts ")]
    told = re.fullmatch(
        r"Experts split by columns take (\S+ \S+) and (\S+) ms a token on a, spread (\S+ \S+) and (\S+) ms a token:"
        r" of a row's 4 experts the busiest device has 2\.8 where they are spread\."
        r" All-reduces of 0\.02 ms are the same\.",
        note,
    )
    assert told, note
    assert float(told[4]) > float(told[2])


def test_blocks_that_cannot_be_divided_are_a_reason_to_spread() -> None:
    """Split over four devices 256 columns of blocks of 256 would be held in float32."""
    card = model_card(moe(256), storage="Q4_K")
    made = plan(card, node("a", *cpus(4), all_reduce_us=20), tensor_parallel=4)
    assert only_stage(made).spec.experts == "spread"
    assert only_stage(made).why.endswith("; experts spread")
    assert any(note.startswith("Experts spread take ") for note in made.notes)


def test_experts_are_spread_where_columns_would_not_fit() -> None:
    card = model_card(moe(256), storage="Q4_K")
    needed = only_stage(plan(card, node("a", *cpus(4), all_reduce_us=20), experts="spread")).needed_bytes
    tight = [replace(each, budget_bytes=int(0.9 * needed / 4)) for each in cpus(4)]
    made = plan(card, node("a", *tight, all_reduce_us=20))
    assert (only_stage(made).spec.experts, len(only_stage(made).spec.devices)) == ("spread", 4)
    assert any("a token, which does not fit: of a row's 4 experts" in note for note in made.notes)


@pytest.mark.parametrize("asked", ["split", "spread"])
def test_what_is_asked_for_is_done_and_said(asked: str) -> None:
    made = plan(moe(), node("a", *cpus(2), all_reduce_us=20), experts=asked, tensor_parallel=2)
    assert only_stage(made).spec.experts == asked
    assert only_stage(made).why.endswith(", as --experts says")
    assert not any(note.startswith("Experts ") for note in made.notes)


def test_what_memory_is_left_over_is_for_repeated_experts() -> None:
    roomy = only_stage(plan(moe(), node("a", *cpus(4), all_reduce_us=20), experts="spread"))
    assert roomy.spec.repeats == 2  # a quarter of the 8 that each of four devices has
    tight = [replace(each, budget_bytes=roomy.needed_bytes // 4 - 16 * MIB) for each in cpus(4)]
    less = only_stage(plan(moe(), node("a", *tight, all_reduce_us=20), experts="spread", context_tokens=2048))
    assert less.spec.repeats < 2


def test_heads_are_on_as_many_devices_as_there_are_heads() -> None:
    stage = only_stage(plan(moe(heads=2), node("a", *cpus(4), all_reduce_us=20), experts="spread"))
    assert (len(stage.spec.devices), stage.spec.attention_devices) == (4, 2)
    with pytest.raises(PlanInvalidError, match="2 attention heads cannot be split over 4 devices"):
        plan(moe(heads=2), node("a", *cpus(4), all_reduce_us=20), experts="split", tensor_parallel=4)


def test_a_shared_expert_is_whole_where_its_columns_cannot_be_cut() -> None:
    whole = model_card(moe(256, shared_intermediate=256), storage="Q4_K")
    divided = model_card(moe(256, shared_intermediate=2048), storage="Q4_K")
    for card, deals in ((whole, True), (divided, False)):
        made = plan(card, node("a", *cpus(2), all_reduce_us=20), experts="spread")
        from layerline.models.sizes import ModelSizes  # noqa: PLC0415

        spec = only_stage(made).spec
        parts = ModelSizes.of_stage(card, spec).parts(spec.sharing)
        assert {kind.deals_shared for part in parts for kind in part.kinds} == {deals}


def test_experts_lie_on_the_cpu_where_nothing_else_holds_the_model() -> None:
    """Attention and pages stay on the GPU, with as many experts as have room there."""
    card, ram = model_card(moe()), device("cpu", budget_bytes=8 * GIB, kernels="AVX2")
    on_gpu = only_stage(plan(card, node("a", gpu(4096), ram)))
    assert (on_gpu.spec.devices, on_gpu.spec.expert_device) == (("cuda:0",), "")
    small = replace(ram, budget_bytes=600 * MIB)
    beside = only_stage(plan(card, node("a", gpu(600), small)))
    assert beside.spec.devices == ("cuda:0",)
    assert beside.spec.expert_device == "cpu"
    assert 0 < beside.spec.device_experts < COUNT
    assert beside.beside_bytes <= small.budget_bytes
    assert f"{beside.spec.device_experts} of 32 experts of a layer on each device" in beside.why
    assert "on cpu, as they do not fit otherwise with this context" in beside.why
    with pytest.raises(PlanDoesNotFitError):
        plan(card, node("a", gpu(600), small), expert_device="none")
    with pytest.raises(PlanDoesNotFitError) as raised:
        plan(card, node("a", gpu(600)))
    assert "With --device cuda:0,cpu on a experts may lie on the CPU." in raised.value.remedy


def test_experts_lie_on_the_cpu_where_that_is_asked_for() -> None:
    card, ram = model_card(moe()), device("cpu", budget_bytes=8 * GIB, kernels="AVX2")
    stage = only_stage(plan(card, node("a", gpu(4096), ram), expert_device="cpu"))
    assert stage.spec.expert_device == "cpu"
    assert "as --expert-device says" in stage.why


@pytest.mark.parametrize(
    ("nodes", "request_", "words"),
    [
        ((node("a", *cpus(1)),), {"experts": "spread"}, "needs a node with several devices of one kind"),
        ((node("a", *cpus(2)),), {"expert_device": "cpu"}, "needs a node that offers a GPU and a CPU with kernels"),
        ((node("a", gpu(4096)),), {"expert_device": "cpu"}, "needs a node that offers a GPU and a CPU with kernels"),
    ],
)
def test_what_no_node_can_do_is_refused(nodes: tuple[NodeFacts, ...], request_: dict[str, str], words: str) -> None:
    with pytest.raises(PlanInvalidError, match=words):
        plan(moe(), *nodes, **request_)


def test_a_faster_node_that_cannot_do_what_is_asked_is_left_out() -> None:
    """Whatever is asked for, the plan is one that does for it: nothing is loaded and then refused."""
    ram = device("cpu", budget_bytes=8 * GIB, kernels="AVX2")
    spread = PlanRequest(model="m", experts="spread")
    made = plan(moe(), node("a", gpu(4096)), node("b", *cpus(2), all_reduce_us=20), experts="spread")
    assert [stage.node for stage in made.stages] == ["b"]
    assert spread.shares([stage.spec.sharing for stage in made.stages])
    of_one = plan(moe(), node("a", gpu(4096), *cpus(2), all_reduce_us=20), experts="spread")
    assert only_stage(of_one).spec.devices == ("cpu:0", "cpu:1")
    beside = plan(moe(), node("a", gpu(1024), ram), node("b", gpu(8192)), expert_device="cpu")
    assert [(stage.node, stage.spec.expert_device) for stage in beside.stages] == [("a", "cpu")]
    by_hand = (ManualStage(node="a", first_layer=0, last_layer=7),)
    nodes = node("a", gpu(4096)), node("b", *cpus(2), all_reduce_us=20)
    with pytest.raises(PlanInvalidError, match="--experts spread cannot be followed: m fits these nodes otherwise"):
        plan(moe(), *nodes, experts="spread", layers=by_hand)
    small = node("b", *cpus(2, 64), all_reduce_us=20)
    with pytest.raises(PlanInvalidError, match="--experts spread cannot be followed: m fits the other nodes, and"):
        plan(moe(), nodes[0], small, experts="spread")


def test_experts_beside_a_gpu_cannot_be_split() -> None:
    with pytest.raises(ValueError, match="are whole, so that they cannot be split"):
        PlanRequest(model="m", experts="split", expert_device="cpu")
    with pytest.raises(ValueError, match="on a CPU alone"):
        replace(only_stage(plan(moe(), node("a", gpu(4096)))).spec, experts="spread", expert_device="cuda:1")


@pytest.mark.parametrize("request_", [{"experts": "spread"}, {"expert_device": "cpu"}])
def test_a_dense_model_has_no_experts_to_ask_for(request_: dict[str, str]) -> None:
    with pytest.raises(PlanInvalidError, match="has no experts"):
        plan(decoder_spec(context_tokens=2048), node("a", *cpus(2)), **request_)
    with pytest.raises(PlanInvalidError, match="has no experts"):
        plan(decoder_spec(context_tokens=2048), node("a", gpu(4096), *cpus(2)), **request_)


@given(
    st.lists(st.integers(60, 1500), min_size=1, max_size=4),
    st.booleans(),
    st.integers(0, 1500),
    st.sampled_from(["auto", "split", "spread"]),
    st.sampled_from(["BF16", "Q4_K", "Q8_0"]),
    st.integers(0, 2) | st.just(8),
)
def test_every_plan_is_one_that_its_node_loads(
    mibs: list[int], on_gpus: bool, ram_mib: int, experts: str, storage: str, shared: int
) -> None:
    """Whatever there is: a plan that fits by the node's own count, or why there is none."""
    kind = "cuda" if on_gpus else "cpu"
    devices = [
        device(f"{kind}:{place}", budget_bytes=mib * MIB, kernels="" if on_gpus else "AVX2", gb_per_s=100.0)
        for place, mib in enumerate(mibs)
    ]
    if on_gpus and ram_mib:
        devices.append(device("cpu", budget_bytes=ram_mib * MIB, kernels="AVX2"))
    spec = moe(256, layers=2, shared_intermediate=256 * shared)
    try:
        plan(model_card(spec, storage=storage), node("a", *devices, all_reduce_us=30), experts=experts)
    except (PlanDoesNotFitError, PlanInvalidError):
        return


@pytest.mark.parametrize(
    ("chosen", "parts", "expected"),
    [(1, [0.5, 0.5], 1.0), (2, [0.5, 0.5], 1.5), (2, [1.0], 2.0), (8, [0.125] * 8, 2.6), (3, [0.9, 0.1], 2.73)],
)
def test_how_many_experts_of_a_row_the_busiest_rank_has(chosen: int, parts: list[float], expected: float) -> None:
    assert busiest_of_a_row(chosen, parts) == pytest.approx(expected, abs=0.03)
