"""What weights are held as: as they are stored where every node has kernels, and what the plan says of it."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.plan_match import does_for
from coordinator.planning.choices import plan_for
from layerline.errors import PlanInvalidError
from layerline.facts import NodeFacts
from layerline.layers_option import parse_layers
from layerline.plan import Plan, PlanRequest
from tests.fakes.cards import model_card
from tests.fakes.worlds import MIB, device, model_spec, node

SPEC = model_spec(layers=8, hidden=512, intermediate=1536, heads=8, kv_heads=4, vocabulary=4096)


def with_kernels(name: str) -> NodeFacts:
    return node(name, device(kernels="avx2"))


def plan(*nodes: NodeFacts, storage: str = "Q4_K", **asked: Any) -> Plan:
    return plan_for(model_card(SPEC, storage=storage), PlanRequest(model="m", **asked), nodes)


def held(made: Plan) -> tuple[str, str, str, str]:
    return made.weights, made.precision, made.dtype, made.kv_dtype


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


def test_a_node_without_kernels_is_left_out_rather_than_that_all_hold_more() -> None:
    made = plan(with_kernels("a"), node("b"), node("c"))
    assert held(made)[:2] == ("stored", "standard")
    assert {stage.node for stage in made.stages} == {"a"}
    note = "b, c have a device without kernels, so they took no part and the others hold weights as stored."
    assert note in made.notes


def test_it_takes_part_where_the_others_have_not_the_memory() -> None:
    small = node("a", device(kernels="avx2", budget_bytes=50 * MIB))
    made = plan(small, node("b"))
    assert held(made)[:2] == ("bfloat16", "")
    assert "b has a device without kernels, so that torch computes everywhere." in made.notes


def test_an_accelerator_is_not_left_out_for_its_want_of_kernels() -> None:
    made = plan(with_kernels("a"), node("b", device("cuda:0")))
    assert held(made)[:2] == ("bfloat16", "")


def test_nodes_that_are_not_named_do_not_count() -> None:
    made = plan(with_kernels("a"), node("b"), layers=parse_layers("a=0-7"))
    assert held(made)[:2] == ("stored", "standard")
    made = plan(with_kernels("a"), node("b"), layers=parse_layers("a=0-3,b=4-7"))
    assert held(made)[:2] == ("bfloat16", "")


def test_an_answer_goes_on_as_it_was_computed() -> None:
    card, request = model_card(SPEC, storage="Q4_K"), PlanRequest(model="m")
    both = [with_kernels("a"), with_kernels("b")]
    assert held(plan_for(card, request, both, kernels=False))[:2] == ("bfloat16", "")
    joined = [*both, node("c", device("cuda:0"))]
    assert held(plan_for(card, request, joined, kernels=True))[:2] == ("stored", "standard")


@pytest.mark.parametrize(
    "asked",
    [
        *({"weights": form} for form in ("stored", "int8", "int4")),
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
    (note,) = [note for note in plan(with_kernels("a"), storage="IQ2_XXS").notes if "held in float32" in note]
    assert note == "Matrices stored as IQ2_XXS are held in float32, as the kernels do not multiply them as they are."
    assert not [note for note in plan(with_kernels("a")).notes if "held in float32" in note]
    assert not [note for note in plan(with_kernels("a"), storage="INT4_32_F16").notes if "held in float32" in note]
    (note,) = [note for note in plan(with_kernels("a"), storage="INT4_48_BF16").notes if "held in float32" in note]
    assert note.startswith("Matrices stored as INT4 in groups of 48 are held in float32, as the kernels do not")


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
