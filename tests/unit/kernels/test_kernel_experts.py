"""Experts by the kernels against those by torch, and the router of either against that of DeepSeek-V3."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from layerline.models.feed_forward_spec import Activation, ExpertsSpec, FeedForwardSpec
from layerline.models.held import FLOATS
from node.kernels.engine import aligned_bytes, aligned_rows
from node.kernels.structures import Operation, OperationKind, Rows, Step, Work
from node.model.experts import ExpertsFeedForward, HeldExperts, Router, RowPositions
from node.model.feed_forward import GatedFeedForward
from node.model.linear.forms import PlainLinear
from node.native.experts import NativeExperts, NativeRouter
from node.native.feed_forward import NativeFeedForward
from node.native.matrices import NativeMatrix
from tests.fakes.kernel_matrices import SETS, KernelMatrix, engine

HIDDEN, WIDTH, SHARED, COUNT = 64, 32, 96, 12
PLAIN = ExpertsSpec(count=COUNT, chosen=3, scoring="softmax")
SHARING = replace(PLAIN, shared_intermediate=SHARED)
SPECS = {
    "softmax": PLAIN,
    "normalised": replace(PLAIN, normalised=True, scale=2.5),
    "softmax of the chosen": replace(PLAIN, scoring="softmax_of_chosen", router_bias=True),
    "sigmoid in groups": replace(
        PLAIN, scoring="sigmoid", normalised=True, choice_bias=True, groups=4, chosen_groups=2, scale=1.7
    ),
    "shared": replace(SHARING, chosen=1),
    "shared by a gate": replace(SHARING, shared_gate=True),
    "weighed inputs": replace(SHARING, scoring="sigmoid_of_chosen", weighs_input=True),
    "weighed inputs, shared by a gate": replace(SHARING, normalised=True, weighs_input=True, shared_gate=True),
    "all": replace(PLAIN, chosen=COUNT),
}


class Both:
    """The same experts by torch and by the kernels; every expert is stored in another form."""

    def __init__(self, spec: ExpertsSpec, activation: Activation, storages: list[str], *, ordered: bool) -> None:
        random = np.random.default_rng(3)
        self.random = random
        feed_forward = FeedForwardSpec(intermediate=WIDTH, activation=activation, experts=spec)
        self._seed = 0
        router = KernelMatrix("F32", COUNT + spec.shared_gate, HIDDEN, 99)
        bias = random.standard_normal(COUNT).astype(np.float32) if spec.router_bias else None
        choice_bias = random.standard_normal(COUNT).astype(np.float32) if spec.choice_bias else None
        natives, torches = [], []
        for expert in range(COUNT + (spec.shared_intermediate > 0)):
            own = storages[expert % len(storages)], storages[(expert + ordered) % len(storages)]
            native, plain = self._expert(SHARED if expert == COUNT else WIDTH, own, activation, ordered=ordered)
            natives.append(native)
            torches.append(plain)
        logits = NativeMatrix(router.matrix.parts, bias)
        chosen, shared = natives[:COUNT], natives[COUNT] if len(natives) > COUNT else None
        self.native = NativeExperts(
            feed_forward, NativeRouter(logits=logits, choice_bias_N=choice_bias), dict(enumerate(chosen)), shared
        )
        self.torch = ExpertsFeedForward(
            router=Router(
                spec=spec,
                logits=linear(router.numbers, bias),
                choice_bias_N=None if choice_bias is None else torch.from_numpy(choice_bias),
            ),
            held=HeldExperts(dict(enumerate(torches[:COUNT])), COUNT, RowPositions(torch.device("cpu"))),
            shared=torches[COUNT] if len(torches) > COUNT else None,
        )

    def _expert(
        self, width: int, storages: tuple[str, str], activation: Activation, *, ordered: bool
    ) -> tuple[NativeFeedForward, GatedFeedForward]:
        gate, up = (self._matrix(storage, width, HIDDEN, ordered=ordered) for storage in storages)
        down = self._matrix(storages[0], HIDDEN, width, ordered=ordered)
        biases = [self.random.standard_normal(size).astype(np.float32) for size in (2 * width, HIDDEN)]
        native = NativeFeedForward(
            gate_up=NativeMatrix([*gate.matrix.parts, *up.matrix.parts], biases[0]),
            down=NativeMatrix(down.matrix.parts, biases[1]),
        )
        both = linear(np.concatenate([gate.numbers, up.numbers]), biases[0])
        return native, GatedFeedForward(activation=activation, gate_up=both, down=linear(down.numbers, biases[1]))

    def _matrix(self, storage: str, outputs: int, inputs: int, *, ordered: bool) -> KernelMatrix:
        """In some order of its own, if any; floats have none."""
        self._seed += 1
        order = self.random.permutation(inputs).astype(np.int32) if ordered and storage not in FLOATS else None
        return KernelMatrix(storage, outputs, inputs, self._seed, order)

    def by_kernels(self, rows_TC: NDArray[np.float32], threads: int, instruction_set: str) -> NDArray[np.float32]:
        rows, pairs = len(rows_TC), len(rows_TC) * self.native.pairs_of_a_row
        widest, own = self.native.widest, engine(instruction_set, threads)
        made = [
            np.ascontiguousarray(rows_TC),
            aligned_rows(rows, self.native.router.outputs),
            aligned_rows(pairs, HIDDEN),
            aligned_rows(pairs, 2 * widest),
            aligned_rows(pairs, widest),
            aligned_rows(rows, HIDDEN),
        ]
        columns = max(HIDDEN, widest)
        prepared = [
            aligned_bytes(own.prepared_bytes(pairs, columns, digits=3, floats=floats)) for floats in (False, True)
        ]
        buffers = (Rows * len(made))(*(Rows(data=each.ctypes.data, stride=each.shape[1]) for each in made))
        work = Work(
            buffers=buffers,
            prepared=prepared[0].ctypes.data,
            prepared_floats=prepared[1].ctypes.data,
            digits=3,
        )
        router = ctypes.pointer(self.native.router.structure)
        operations = (
            Operation(kind=OperationKind.PRODUCT, source=0, target=1, matrix=router),
            Operation(kind=OperationKind.ROUTE, source=1, weight=self.native.address),
            Operation(kind=OperationKind.EXPERTS, source=0, target=5, index=2, size=HIDDEN, weight=self.native.address),
        )
        own.run((Operation * 3)(*operations), 3, work, Step(rows=rows, span_count=0))
        return made[5]


def linear(numbers: NDArray[np.float32], bias: NDArray[np.float32] | None) -> PlainLinear:
    return PlainLinear(torch.from_numpy(numbers.copy()), None if bias is None else torch.from_numpy(bias))


def assert_alike(both: Both, rows: int, threads: int = 1, instruction_set: str = "") -> None:
    rows_TC = both.random.standard_normal((rows, HIDDEN)).astype(np.float32)
    found = both.by_kernels(rows_TC, threads, instruction_set or SETS[0])
    expected = both.torch(torch.from_numpy(rows_TC)).numpy()
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4 * np.abs(expected).max())


@pytest.mark.parametrize("rows", [1, 2, 37])
@pytest.mark.parametrize("name", SPECS)
def test_every_way_of_choosing(name: str, rows: int) -> None:
    assert_alike(Both(SPECS[name], "silu", ["F32"], ordered=False), rows)


@pytest.mark.parametrize("activation", ["silu", "gelu_tanh", "clamped_swiglu"])
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("instruction_set", SETS)
def test_experts_in_several_forms_and_orders(activation: Activation, threads: int, instruction_set: str) -> None:
    """Gate and up of one expert have columns in different orders, and one of them may be floats."""
    storages = ["INT4_32_BF16", "F32", "Q8_0", "BF16", "Q4_0"]
    both = Both(SHARING, activation, storages, ordered=True)
    for rows in (1, 9):
        assert_alike(both, rows, threads, instruction_set)


def test_of_equals_the_first_is_chosen() -> None:
    both = Both(replace(PLAIN, count=COUNT), "silu", ["F32"], ordered=False)
    rows_TC = np.zeros((2, HIDDEN), np.float32)  # all logits are 0
    choice = both.torch.router(torch.from_numpy(rows_TC))
    assert choice.experts_TK.tolist() == [[0, 1, 2]] * 2
    expected = both.torch(torch.from_numpy(rows_TC)).numpy()
    np.testing.assert_allclose(both.by_kernels(rows_TC, 1, SETS[0]), expected, rtol=0, atol=1e-5)


def test_the_router_is_that_of_deepseek() -> None:
    from transformers import DeepseekV3Config  # noqa: PLC0415
    from transformers.models.deepseek_v3 import modeling_deepseek_v3 as theirs  # noqa: PLC0415

    sizes: dict[str, Any] = {"hidden_size": HIDDEN, "n_routed_experts": COUNT, "num_experts_per_tok": 3}
    config = DeepseekV3Config(**sizes, n_group=4, topk_group=2, norm_topk_prob=True, routed_scaling_factor=1.7)
    wanted = theirs.DeepseekV3TopkRouter(config)
    generator = torch.Generator().manual_seed(1)
    weight_NC = torch.randn((COUNT, HIDDEN), generator=generator)
    bias_N = torch.randn(COUNT, generator=generator)
    wanted.load_state_dict({"weight": weight_NC, "e_score_correction_bias": bias_N})
    x_TC = torch.randn((50, HIDDEN), generator=generator)
    own = Router(spec=SPECS["sigmoid in groups"], logits=PlainLinear(weight_NC), choice_bias_N=bias_N)(x_TC)
    _, weights_TK, experts_TK = wanted(x_TC[None])
    for found, theirs_own in ((own.experts_TK, own.weights_TK), (experts_TK, weights_TK)):
        assert found.shape == theirs_own.shape == (50, 3)
    both = zip(own.experts_TK, own.weights_TK, experts_TK, weights_TK, strict=True)
    for own_K, own_weights_K, their_K, their_weights_K in both:
        assert dict(zip(own_K.tolist(), own_weights_K.tolist(), strict=True)) == pytest.approx(
            dict(zip(their_K.tolist(), their_weights_K.tolist(), strict=True)), rel=1e-5
        )
