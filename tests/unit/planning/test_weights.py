"""Who computes, and what weights are held as: as they are stored where they are multiplied so, or nothing else fits."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.plan_match import does_for
from coordinator.planning.choices import plan_for
from layerline.errors import PlanDoesNotFitError, PlanInvalidError
from layerline.facts import LoadedStage, NodeFacts
from layerline.layers_option import parse_layers
from layerline.models.spec import ModelSpec
from layerline.plan import Plan
from layerline.plan_request import PlanRequest
from tests.fakes.cards import model_card
from tests.fakes.worlds import GIB, MIB, device, model_spec, node

SPEC = model_spec(layers=8, hidden=512, intermediate=1536, heads=8, kv_heads=4, vocabulary=4096)


LARGE = model_spec(layers=32, hidden=2048, intermediate=8192, heads=32, kv_heads=8, vocabulary=32000)
"""3.7 GiB in bfloat16, 1.1 GiB in 4.5 bits."""


def with_kernels(name: str) -> NodeFacts:
    return node(name, device(kernels="avx2"))


def plan(*nodes: NodeFacts, storage: str = "Q4_K", spec: ModelSpec = SPEC, **asked: Any) -> Plan:
    return plan_for(model_card(spec, storage=storage), PlanRequest(model="m", **asked), nodes)


def held(made: Plan) -> tuple[str, str, str, str]:
    return made.weights, made.precision, made.dtype, made.kv_dtype


def ways(made: Plan) -> dict[str, tuple[str, str]]:
    return {stage.node: (stage.spec.weights, stage.spec.precision) for stage in made.stages}


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({}, ("stored", "standard", "float32", "float16")),
        ({"dtype": "float32"}, ("stored", "full", "float32", "float32")),
        ({"dtype": "bfloat16"}, ("stored", "standard", "bfloat16", "float16")),
        ({"precision": "fast"}, ("stored", "fast", "float32", "float16")),
        ({"dtype": "float32", "precision": "fast"}, ("stored", "fast", "float32", "float16")),
        ({"precision": "full"}, ("stored", "full", "float32", "float32")),
        ({"weights": "int4", "kv_dtype": "int8"}, ("int4", "standard", "float32", "int8")),
        ({"weights": "bfloat16"}, ("bfloat16", "standard", "float32", "float16")),
    ],
)
def test_where_every_node_has_kernels(asked: dict[str, Any], expected: tuple[str, ...]) -> None:
    made = plan(with_kernels("a"), with_kernels("b"), **asked)
    assert held(made) == expected
    assert {(stage.spec.weights, stage.spec.precision) for stage in made.stages} == {expected[:2]}


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({}, ("bfloat16", "", "bfloat16", "bfloat16")),
        ({"dtype": "float32"}, ("float32", "", "float32", "float32")),
        ({"weights": "float32"}, ("float32", "", "float32", "float32")),
        ({"precision": "full"}, ("float32", "", "float32", "float32")),
        ({"dtype": "float32", "precision": "full"}, ("float32", "", "float32", "float32")),
    ],
)
def test_where_no_node_has_any_torch_computes(asked: dict[str, Any], expected: object) -> None:
    assert held(plan(node("a"), node("b"), **asked)) == expected


def test_a_node_without_kernels_is_left_out_as_long_as_the_others_hold_the_model() -> None:
    made = plan(with_kernels("a"), node("b"), node("c"))
    assert held(made) == ("stored", "standard", "float32", "float16")
    assert {stage.node for stage in made.stages} == {"a"}
    assert "b, c have no kernels, so they take no part: the others hold the model." in made.notes


def test_it_takes_part_where_the_others_have_not_the_memory() -> None:
    """In its own way: by torch, in a dtype that all stages hand each other."""
    small = node("a", device(kernels="avx2", budget_bytes=GIB))
    made = plan(small, node("b", device(budget_bytes=3 * GIB)), spec=LARGE)
    assert held(made) == ("stored", "standard", "bfloat16", "bfloat16")
    assert ways(made) == {"a": ("stored", "standard"), "b": ("bfloat16", "")}
    assert "a: kernels in standard precision over weights as stored." in made.notes
    assert "b: torch in bfloat16 over weights in bfloat16." in made.notes


def test_an_accelerator_computes_by_torch_beside_cpus_that_do_by_kernels() -> None:
    gpu = device("cuda:0", budget_bytes=3 * GIB, gb_per_s=400.0)
    made = plan(node("a", device(kernels="avx2", budget_bytes=GIB)), node("b", gpu), spec=LARGE)
    assert held(made) == ("stored", "standard", "bfloat16", "bfloat16")
    assert ways(made) == {"a": ("stored", "standard"), "b": ("bfloat16", "")}
    assert made.computing == "each"


def test_a_gpu_with_products_of_stored_weights_holds_them_so() -> None:
    gpu = device("cuda:0", kernels="triton", gb_per_s=400.0)
    made = plan(with_kernels("a"), node("b", gpu))
    assert ways(made) == {"b": ("stored", "")}
    assert (made.weights, made.precision, made.dtype) == ("stored", "", "bfloat16")
    assert "b: torch in bfloat16 over weights as stored, unpacked for each product." in made.notes


def test_a_node_with_both_computes_with_either() -> None:
    both = [device(kernels="avx2", gb_per_s=50.0), device("cuda:0", budget_bytes=10 * MIB)]
    assert ways(plan(node("a", *both))) == {"a": ("stored", "standard")}
    both = [device(kernels="avx2", gb_per_s=50.0), device("cuda:0", gb_per_s=500.0)]
    assert ways(plan(node("a", *both))) == {"a": ("bfloat16", "")}
    assert ways(plan(node("a", *both), precision="fast")) == {"a": ("stored", "fast")}


def test_what_does_not_fit_in_the_dtype_is_held_as_it_is_stored() -> None:
    """On whatever device, though it is slower there: a file of 4 bits then needs less than a third."""
    roomy, tight = (plan(node("a", device("mps", budget_bytes=gib * GIB)), spec=LARGE) for gib in (6, 3))
    assert (ways(roomy), ways(tight)) == ({"a": ("bfloat16", "")}, {"a": ("stored", "")})
    assert held(tight) == ("stored", "", "bfloat16", "bfloat16")
    assert tight.stages[0].weights_bytes < 0.3 * roomy.stages[0].weights_bytes
    with pytest.raises(PlanDoesNotFitError, match=r"Its weights take 1\.1 GiB as stored"):
        plan(node("a", device("mps")), spec=LARGE)


@pytest.mark.parametrize(
    ("storage", "share"), [("INT4_128_F16_ORDERED", 0.262), ("INT4_48_BF16", 0.282), ("F8_E4M3_128_F32", 0.516)]
)
def test_scales_of_groups_are_held_so_where_nothing_else_fits(storage: str, share: float) -> None:
    """No GPU has kernels for them, so that none holds them so for the sake of speed."""
    for name, kernels in (("mps", ""), ("cuda:0", "triton")):
        roomy, tight = (
            plan(node("a", device(name, kernels=kernels, budget_bytes=gib * GIB)), spec=LARGE, storage=storage)
            for gib in (6, 3)
        )
        assert (ways(roomy), ways(tight)) == ({"a": ("bfloat16", "")}, {"a": ("stored", "")})
        assert tight.stages[0].weights_bytes == pytest.approx(share * roomy.stages[0].weights_bytes, rel=0.01)
        assert "a: torch in bfloat16 over weights as stored, unpacked for each product." in tight.notes
        assert not [note for note in tight.notes if "are held in" in note]


def test_a_long_context_is_worth_more_than_weights_in_the_dtype() -> None:
    made = plan(node("a", device("mps", budget_bytes=4 * GIB)), spec=LARGE)
    assert (ways(made), made.context_tokens) == ({"a": ("stored", "")}, 8192)
    short = plan(node("a", device("mps", budget_bytes=4 * GIB)), spec=LARGE, context_tokens=512)
    assert ways(short) == {"a": ("bfloat16", "")}


def test_what_takes_no_less_as_it_is_stored_is_tried_once() -> None:
    with pytest.raises(PlanDoesNotFitError, match="GiB in bfloat16"):
        plan(node("a", device("mps")), storage="BF16", spec=LARGE)


def test_unpacking_counts_as_the_time_it_takes() -> None:
    """Of two equal devices the one that has to unpack what it multiplies is the slower."""
    gpus = [node("a", device("mps")), node("b", device("cuda:0", kernels="triton"))]
    assert ways(plan(*gpus, weights="stored")) == {"b": ("stored", "")}
    assert ways(plan(*gpus[:1], node("c", device("mps", gb_per_s=60.0)), weights="stored")) == {"c": ("stored", "")}
    slower = node("b", device("cuda:0", kernels="triton", gb_per_s=10.0))
    for storage, fastest in (("Q4_K", "b"), ("INT4_128_F16", "a")):
        assert ways(plan(gpus[0], slower, weights="stored", storage=storage)) == {fastest: ("stored", "")}


def test_floating_point_weights_are_not_unpacked() -> None:
    """As they are stored they are what they are in the dtype, and cost what they do."""
    nodes = [node("a", device("mps")), node("b", device("cuda:0", kernels="triton"))]
    assert ways(plan(*nodes, weights="stored", storage="BF16")) == {"a": ("stored", "")}
    stored, plain = (plan(nodes[0], weights=each, storage="BF16") for each in ("stored", "bfloat16"))
    assert stored.stages[0].needed_bytes == plain.stages[0].needed_bytes
    assert not [note for note in stored.notes if "unpacked" in note]


def test_nodes_that_are_not_named_do_not_count() -> None:
    made = plan(with_kernels("a"), node("b"), layers=parse_layers("a=0-7"))
    assert held(made) == ("stored", "standard", "float32", "float16")
    made = plan(with_kernels("a"), node("b"), layers=parse_layers("a=0-3,b=4-7"))
    assert ways(made) == {"a": ("stored", "standard"), "b": ("bfloat16", "")}


@pytest.mark.parametrize("weights", ["stored", "int8", "int4", "bfloat16"])
def test_what_is_asked_for_is_held_on_every_device(weights: str) -> None:
    made = plan(with_kernels("a"), node("b"), weights=weights, layers=parse_layers("a=0-3,b=4-7"))
    assert ways(made) == {"a": (weights, "standard"), "b": (weights, "")}
    assert ways(plan(node("b"), weights=weights)) == {"b": (weights, "")}
    assert does_for(made, PlanRequest(model="m", weights=weights))


def test_in_full_precision_torch_computes_in_float32() -> None:
    wishes: list[dict[str, Any]] = [{"precision": "full"}, {"dtype": "float32"}]
    for asked in wishes:
        made = plan(with_kernels("a"), node("b"), layers=parse_layers("a=0-3,b=4-7"), **asked)
        assert ways(made) == {"a": ("stored", "full"), "b": ("float32", "")}
        assert (made.dtype, made.kv_dtype) == ("float32", "float32")


def test_loaded_stages_that_compute_each_in_its_own_way_are_adopted() -> None:
    layers = parse_layers("a=0-3,b=4-7")
    made = plan(with_kernels("a"), node("b"), layers=layers)
    nodes = [
        node(stage.node, *device_of.devices, loaded=(LoadedStage(spec=stage.spec, weights_bytes=0, kv_bytes=0),))
        for stage, device_of in zip(made.stages, (with_kernels("a"), node("b")), strict=True)
    ]
    again = plan(*nodes, layers=layers)
    assert [stage.why for stage in again.stages] == ["loaded already", "loaded already"]
    assert ways(again) == ways(made)
    assert "loaded already" not in {stage.why for stage in plan(*nodes, layers=layers, weights="int8").stages}


def test_an_answer_goes_on_as_it_was_computed() -> None:
    card, request = model_card(SPEC, storage="Q4_K"), PlanRequest(model="m")
    both = [with_kernels("a"), with_kernels("b")]
    assert held(plan_for(card, request, both, computing="torch"))[:2] == ("bfloat16", "")
    joined = [*both, node("c", device("cuda:0"))]
    assert held(plan_for(card, request, joined, computing="kernels"))[:2] == ("stored", "standard")


@pytest.mark.parametrize(
    "asked",
    [
        *({"precision": each} for each in ("fast", "standard")),
        {"weights": "bfloat16", "dtype": "float32"},
    ],
)
def test_what_only_kernels_can_do_is_done_by_them_or_refused_by_name(asked: dict[str, Any]) -> None:
    made = plan(with_kernels("a"), node("b"), **asked)
    assert {stage.node for stage in made.stages} == {"a"}
    with pytest.raises(PlanInvalidError, match=r"not every device of Attic-B has kernels"):
        plan(node("Attic-B"), **asked)


def test_a_plan_counts_the_stored_bytes() -> None:
    small, large = (plan(with_kernels("a"), storage=storage).stages[0].weights_bytes for storage in ("Q4_K", "BF16"))
    assert 0.28 < small / large < 0.29
    assert plan(node("b")).stages[0].weights_bytes == pytest.approx(large, rel=0.01)


def test_a_form_that_the_kernels_do_not_multiply_is_named() -> None:
    (note,) = [note for note in plan(with_kernels("a"), storage="IQ2_XS").notes if "held in float32" in note]
    assert note == "Matrices stored as IQ2_XS are held in float32, as the kernels do not multiply them as they are."
    assert not [note for note in plan(with_kernels("a")).notes if "held in float32" in note]
    assert not [note for note in plan(with_kernels("a"), storage="INT4_32_F16").notes if "held in float32" in note]
    (note,) = [note for note in plan(with_kernels("a"), storage="INT4_48_BF16").notes if "held in float32" in note]
    assert note.startswith("Matrices stored as INT4 in groups of 48 are held in float32, as the kernels do not")


def test_a_form_of_few_bits_is_held_in_eight() -> None:
    """By torch too, where there is no room for the dtype."""
    end = "do not multiply them as they are."
    by_kernels = plan(with_kernels("a"), storage="IQ3_S")
    assert f"Matrices stored as IQ3_S are held in 8 bits, without loss, as the kernels {end}" in by_kernels.notes
    plain = plan(with_kernels("a"), storage="IQ3_S", weights="float32").stages[0].weights_bytes
    assert by_kernels.stages[0].weights_bytes == pytest.approx(37 / 128 * plain, rel=0.01)
    roomy, tight = (
        plan(node("a", device("cuda:0", kernels="triton", budget_bytes=gib * GIB)), storage="IQ3_S", spec=LARGE)
        for gib in (6, 4)
    )
    assert (ways(roomy), ways(tight)) == ({"a": ("bfloat16", "")}, {"a": ("stored", "")})
    sentence = "Matrices stored as IQ3_S are held in 8 bits, without loss, as torch does not multiply them as they are."
    assert (sentence in roomy.notes, sentence in tight.notes) == (False, True)


@pytest.mark.parametrize(
    ("storage", "words"),
    [
        ("Q4_K", "Q4_K"),
        ("INT8_256_BF16", "INT8 in groups of 256"),
        ("INT4_64_F16_ORDERED", "INT4 in groups of 64 by act-order"),
    ],
)
def test_ranks_that_divide_blocks_are_named(storage: str, words: str) -> None:
    """Of 8 heads of 64 three ranks have 3, 3 and 2, whose columns begin within blocks of 256."""
    parts = [device(f"cpu:{index}", kernels="avx2") for index in range(3)]
    made = plan(node("a", *parts, all_reduce_us=5.0), storage=storage, tensor_parallel=3)
    (note,) = [note for note in made.notes if "held in float32" in note]
    assert note == f"Matrices stored as {words} are held in float32, as ranks divide their blocks."


@pytest.mark.parametrize(
    ("asked", "does"),
    [
        ({}, True),
        ({"precision": "standard"}, True),
        ({"weights": "stored"}, True),
        ({"dtype": "float32"}, False),  # whoever asks for float32 alone means all of its precision
        ({"dtype": "float32", "precision": "standard"}, True),
        ({"precision": "fast"}, False),
        ({"weights": "int8"}, False),
    ],
)
def test_a_plan_in_effect_does_for_what_it_is(asked: dict[str, Any], does: bool) -> None:
    assert does_for(plan(with_kernels("a")), PlanRequest(model="m", **asked)) is does


def test_a_plan_of_torch_in_float32_is_of_full_precision() -> None:
    made = plan(node("a"), dtype="float32")
    assert does_for(made, PlanRequest(model="m", dtype="float32"))
    assert does_for(made, PlanRequest(model="m", precision="full"))
    assert not does_for(made, PlanRequest(model="m", precision="standard"))
