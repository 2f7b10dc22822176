"""A gated delta net by the kernels is that of torch, and each row's bits are its own."""

from __future__ import annotations

import ctypes
import dataclasses
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from layerline.frames import PageRun, Span, StateRun
from layerline.models.recurrent import DeltaNetSpec
from node.kernels.structures import DELTA_COLUMNS, Operation, Rows, Work
from node.model.recurrent.convolution import Convolution
from node.model.recurrent.delta_net import DeltaNet
from node.native.delta_net import delta_net_bytes
from node.native.kv_pages import KvPages
from node.native.operations import Buffer
from node.native.steps import step_of
from tests.fakes.kernel_matrices import SETS, engine
from tests.fakes.recurrent_layers import operations_of

Numbers = NDArray[np.float32]
PLAIN = DeltaNetSpec(value_heads=4, key_heads=2, key_dim=16, value_dim=32, taps=4)
SPECS = {
    "neighbours": PLAIN,
    "tiles": dataclasses.replace(PLAIN, tiled=True),
    "as many keys": dataclasses.replace(PLAIN, key_heads=4),
    "odd sizes": dataclasses.replace(PLAIN, key_dim=13, value_dim=20, taps=2),
    "large heads": dataclasses.replace(PLAIN, key_dim=128, value_dim=2 * DELTA_COLUMNS + 5),
}
PAGES = (PageRun(first=0, count=10),)
SLOTS, ROWS, EPSILON = 4, 90, 1e-6
CUTS = {"rows": (1,) * ROWS, "uneven": (1, 2, 40, 7, 33, 7), "halves": (45, 45)}


def weights(spec: DeltaNetSpec) -> dict[str, Numbers]:
    random = np.random.default_rng(3)
    sizes = {"decay": spec.value_heads, "step_bias": spec.value_heads, "norm": spec.value_dim}
    vectors = {name: random.standard_normal(size).astype(np.float32) for name, size in sizes.items()}
    vectors["decay"] = -np.exp(vectors["decay"])
    return {**vectors, "conv": random.standard_normal((spec.conv_channels, spec.taps)).astype(np.float32)}


def rows_of(spec: DeltaNetSpec, count: int = ROWS, seed: int = 0) -> Numbers:
    return np.random.default_rng(seed).standard_normal((count, spec.made_numbers)).astype(np.float32)


class Layer:
    """The slots of a layer, and steps that use them."""

    def __init__(self, spec: DeltaNetSpec, instruction_set: str, threads: int = 1) -> None:
        self._kept, self._operations = operations_of(spec, weights(spec), EPSILON)
        self._pages = KvPages([spec], pages=1, page_tokens=16, kv_dtype="float32", slots=SLOTS)
        self._engine = engine(instruction_set, threads, delta_net_bytes(spec))
        self._outputs = spec.output_numbers

    def slot(self, number: int) -> bytes:
        states = self._pages.states[0].states
        size_bytes = 4 * states.slot_numbers
        return ctypes.string_at(states.numbers + number * size_bytes, size_bytes)

    def step(self, spans: Sequence[Span], made_TM: Numbers) -> Numbers:
        """What the second matrix takes of these rows."""
        wide, out = made_TM.copy(), np.zeros((len(made_TM), self._outputs), np.float32)
        buffers = [Rows() for _ in Buffer]
        buffers[Buffer.WIDE] = Rows(data=wide.ctypes.data, stride=wide.shape[1])
        buffers[Buffer.NARROW] = Rows(data=out.ctypes.data, stride=out.shape[1])
        work = Work(buffers=(Rows * len(buffers))(*buffers), layers=self._pages.states, page_tiles=1, digits=3)
        operations = (Operation * len(self._operations))(*self._operations)
        self._engine.run(operations, len(operations), work, step_of(b"", spans, (), 16))
        return out

    def in_steps(self, made_TM: Numbers, sizes: Sequence[int]) -> Numbers:
        """All rows of one sequence, so many at a time, from slot to slot."""
        outs, first, source = [], 0, None
        for number, size in enumerate(sizes):
            target = number % SLOTS
            own = span(first, StateRun(count=size, source=source, target=target))
            outs.append(self.step([own], made_TM[first : first + size]))
            first, source = first + size, target
        return np.concatenate(outs)


def span(start: int, *runs: StateRun, sequence: int = 1) -> Span:
    return Span(sequence=sequence, start=start, count=sum(run.count for run in runs), pages=PAGES, states=runs)


def by_torch(spec: DeltaNetSpec, made_TM: Numbers) -> Numbers:
    own = {name: torch.from_numpy(numbers) for name, numbers in weights(spec).items()}
    net = DeltaNet(
        spec=spec,
        convolution=Convolution(weight_CL=own["conv"], bias_C=None),
        decay_H=own["decay"],
        step_bias_H=own["step_bias"],
        norm_P=own["norm"],
        norm_epsilon=EPSILON,
    )
    made: Numbers = net(torch.from_numpy(made_TM)[None], torch.zeros(1, spec.state_numbers))[0].numpy()
    return made


@pytest.mark.parametrize("instruction_set", SETS)
@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_it_is_that_of_torch(instruction_set: str, spec: DeltaNetSpec) -> None:
    made_TM = rows_of(spec)
    found, expected = Layer(spec, instruction_set).in_steps(made_TM, (ROWS,)), by_torch(spec, made_TM)
    assert np.abs(found - expected).max() < 1e-5 * np.abs(expected).max()


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_every_instruction_set_gives_the_same_bits(spec: DeltaNetSpec) -> None:
    found = {name: Layer(spec, name).in_steps(rows_of(spec), (ROWS,)).tobytes() for name in SETS}
    assert len(set(found.values())) == 1


@pytest.mark.parametrize("cut", CUTS.values(), ids=CUTS)
@pytest.mark.parametrize("threads", [1, 3])
def test_bits_do_not_depend_on_how_rows_are_cut(cut: Sequence[int], threads: int) -> None:
    whole = Layer(PLAIN, SETS[0]).in_steps(rows_of(PLAIN), (ROWS,))
    assert Layer(PLAIN, SETS[0], threads).in_steps(rows_of(PLAIN), cut).tobytes() == whole.tobytes()


def test_runs_of_one_span_go_on_from_each_other_and_leave_the_states_that_they_came_from() -> None:
    layer, made_TM = Layer(PLAIN, SETS[0]), rows_of(PLAIN)
    whole = Layer(PLAIN, SETS[0]).in_steps(made_TM, (ROWS,))
    runs = [StateRun(count=30, source=None, target=2), StateRun(count=20, source=2, target=0)]
    first = layer.step([span(0, *runs)], made_TM[:50])
    kept = layer.slot(2)
    rest = StateRun(count=40, source=0, target=1)
    strangers = StateRun(count=7, source=None, target=3)
    second = layer.step(
        [span(0, strangers, sequence=2), span(50, rest)], np.concatenate([rows_of(PLAIN, 7, seed=9), made_TM[50:]])
    )
    assert np.concatenate([first, second[7:]]).tobytes() == whole.tobytes()
    assert layer.slot(2) == kept
    again = layer.step([span(30, StateRun(count=60, source=2, target=1))], made_TM[30:])
    assert again.tobytes() == whole[30:].tobytes()


def test_another_state_gives_another_row() -> None:
    layer, made_TM = Layer(PLAIN, SETS[0]), rows_of(PLAIN)
    layer.in_steps(made_TM[:50], (50,))
    from_nothing = layer.step([span(0, StateRun(count=40, source=None, target=1))], made_TM[50:])
    gone_on = layer.step([span(50, StateRun(count=40, source=0, target=1))], made_TM[50:])
    assert not np.allclose(from_nothing, gone_on, atol=1e-2)
