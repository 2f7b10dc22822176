"""Mamba 2 by the kernels is what it is in torch, and each row's bits are its own, however runs and slots are cut."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from layerline.frames import PageRun, Span, StateRun
from layerline.models.recurrent import Mamba2Spec
from node.kernels.structures import Operation, Rows, Work
from node.model.recurrent.convolution import Convolution
from node.model.recurrent.mamba2 import Mamba2
from node.native.kv_pages import KvPages
from node.native.operations import Buffer
from node.native.steps import step_of
from tests.fakes.kernel_matrices import SETS, engine
from tests.fakes.recurrent_layers import operations_of

LENGTH, SLOTS, EPSILON = 150, 5, 1e-5
PLAIN = Mamba2Spec(heads=6, head_dim=32, groups=2, state_dim=24, taps=4)
SPECS = {
    "plain": PLAIN,
    "one group": Mamba2Spec(heads=3, head_dim=64, groups=1, state_dim=16, taps=2),
    "odd sizes": Mamba2Spec(heads=4, head_dim=23, groups=4, state_dim=7, taps=3, conv_bias=False),
    "large heads": Mamba2Spec(heads=2, head_dim=200, groups=1, state_dim=128, taps=4),
}
CUTS = ([1] * LENGTH, [7] * 21 + [3], [64, 1, 2, 70, 13], [32, 118])
PAGES = (PageRun(first=0, count=LENGTH),)
Numbers = NDArray[np.float32]


def weights_of(spec: Mamba2Spec) -> dict[str, Numbers]:
    """Random ones, among which some heads forget much and some little."""
    generator = np.random.default_rng(7)
    sizes = {"conv": spec.conv_channels * spec.taps, "conv_bias": spec.conv_channels, "norm": spec.output_numbers}
    made = {
        name: generator.standard_normal(sizes.get(name, spec.heads)).astype(np.float32)
        for name in ("conv", "conv_bias", "skip", "step_bias", "norm")
    }
    return {**made, "decay": -np.exp(np.linspace(-3, 3, spec.heads, dtype=np.float32))}


class Layer:
    """One layer's slots, and steps over them."""

    def __init__(self, spec: Mamba2Spec, instruction_set: str, threads: int = 1) -> None:
        self.spec = spec
        self.slots = KvPages([spec], pages=1, page_tokens=16, kv_dtype="float32", slots=SLOTS)
        self._engine = engine(instruction_set, threads)
        weights = weights_of(spec)
        if not spec.conv_bias:
            del weights["conv_bias"]
        self._kept, self._operations = operations_of(spec, weights, EPSILON)

    def step(self, spans: Sequence[Span], made_TM: Numbers) -> Numbers:
        """What rows give [T, O] that the first matrix has made."""
        wide, out = made_TM.copy(), np.zeros((len(made_TM), self.spec.output_numbers), np.float32)
        buffers = {Buffer.WIDE: wide, Buffer.NARROW: out}
        rows = [buffers.get(name, out) for name in Buffer]
        work = Work(
            buffers=(Rows * len(rows))(*(Rows(data=own.ctypes.data, stride=own.shape[1]) for own in rows)),
            layers=self.slots.states,
            page_tiles=1,
        )
        operations = (Operation * len(self._operations))(*self._operations)
        self._engine.run(operations, len(operations), work, step_of(b"", spans, (), 16))
        return out

    def in_chunks(self, made_TM: Numbers, sizes: Sequence[int]) -> Numbers:
        """All rows of one sequence, so many at a time, each chunk from one slot to the next."""
        outs, start = [], 0
        for number, size in enumerate(sizes):
            source, target = number % SLOTS, (number + 1) % SLOTS
            states = StateRun(count=size, source=source if start else None, target=target)
            outs.append(self.step([span(start, size, (states,))], made_TM[start : start + size]))
            start += size
        return np.concatenate(outs)


def span(start: int, count: int, states: tuple[StateRun, ...], sequence: int = 1) -> Span:
    return Span(sequence=sequence, start=start, count=count, pages=PAGES, states=states)


def rows_of(spec: Mamba2Spec, count: int = LENGTH, seed: int = 0) -> Numbers:
    return np.random.default_rng(seed).standard_normal((count, spec.made_numbers)).astype(np.float32)


def by_torch(spec: Mamba2Spec, made_TM: Numbers) -> Numbers:
    own = {name: torch.from_numpy(numbers) for name, numbers in weights_of(spec).items()}
    layer = Mamba2(
        spec=spec,
        convolution=Convolution(
            weight_CL=own["conv"].view(-1, spec.taps), bias_C=own["conv_bias"] if spec.conv_bias else None
        ),
        decay_H=own["decay"],
        skip_H=own["skip"],
        step_bias_H=own["step_bias"],
        norm_O=own["norm"],
        norm_epsilon=EPSILON,
    )
    made: Numbers = layer(torch.from_numpy(made_TM)[None], torch.zeros(1, spec.state_numbers))[0].numpy()
    return made


@pytest.mark.parametrize("instruction_set", SETS)
@pytest.mark.parametrize("name", SPECS)
def test_it_is_that_of_torch(name: str, instruction_set: str) -> None:
    spec = SPECS[name]
    made = rows_of(spec)
    found = Layer(spec, instruction_set).in_chunks(made, [LENGTH])
    np.testing.assert_allclose(found, by_torch(spec, made), rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("instruction_set", SETS)
@pytest.mark.parametrize("name", SPECS)
def test_rows_have_the_same_bits_in_chunks_of_any_size(name: str, instruction_set: str) -> None:
    spec = SPECS[name]
    made = rows_of(spec)
    whole = Layer(spec, instruction_set).in_chunks(made, [LENGTH])
    for sizes in CUTS:
        assert np.array_equal(Layer(spec, instruction_set).in_chunks(made, sizes), whole)


@pytest.mark.parametrize("name", SPECS)
def test_instruction_sets_and_threads_give_the_same_bits(name: str) -> None:
    spec = SPECS[name]
    found = [
        Layer(spec, instruction_set, threads).in_chunks(rows_of(spec), [100, 50])
        for instruction_set in SETS
        for threads in (1, 3)
    ]
    assert all(np.array_equal(found[0], other) for other in found)


@pytest.mark.parametrize("instruction_set", SETS)
def test_runs_of_a_step_leave_states_that_others_go_on_from(instruction_set: str) -> None:
    made = rows_of(PLAIN)
    whole = Layer(PLAIN, instruction_set).in_chunks(made, [LENGTH])
    layer = Layer(PLAIN, instruction_set)
    states = [StateRun(count=64, source=None, target=3), StateRun(count=36, source=3, target=1)]
    first = layer.step([span(0, 100, tuple(states))], made[:100])
    again = layer.step([span(64, 40, (StateRun(count=40, source=3, target=3),))], made[64:104])
    last = layer.step([span(100, 50, (StateRun(count=50, source=1, target=0),))], made[100:])
    assert np.array_equal(np.concatenate([first, last]), whole)
    assert np.array_equal(again, whole[64:104])


@pytest.mark.parametrize("instruction_set", SETS)
def test_sequences_of_a_step_have_their_own_states(instruction_set: str) -> None:
    rows = [rows_of(PLAIN, 40, seed) for seed in range(3)]
    alone = [Layer(PLAIN, instruction_set).in_chunks(own, [40]) for own in rows]
    layer = Layer(PLAIN, instruction_set)
    layer.step([span(0, 40, (StateRun(count=40, source=None, target=2),))], rows[0])  # leaves a slot that is used anew
    spans = [span(0, 30, (StateRun(count=30, source=None, target=own),), own) for own in range(3)]
    layer.step(spans, np.concatenate([own[:30] for own in rows]))
    spans = [span(30, 10, (StateRun(count=10, source=own, target=own),), own) for own in range(3)]
    found = layer.step(spans, np.concatenate([own[30:] for own in rows]))
    assert np.array_equal(found, np.concatenate([own[30:] for own in alone]))
