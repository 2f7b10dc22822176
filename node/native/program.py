"""What is done for the rows of a step, as a list of operations which the kernels run in one call.

A layer is put together of its parts in the order of the decoder, which node/model/decoder.py tells. Where a stage has
several ranks the list is cut wherever their parts of a sum have to be brought together.

Shapes: C hidden.
"""

from __future__ import annotations

import ctypes
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from layerline.models.feed_forward_spec import FeedForwardSpec
from layerline.models.spec import LayerSpec, ModelSpec
from node.kernels.structures import Operation, OperationKind
from node.native.attention import NativeAttention
from node.native.carrying_program import Carrying
from node.native.experts import NativeBranches, NativeExperts
from node.native.feed_forward import NativeFeedForward, gate_kind
from node.native.latent import NativeLatent
from node.native.matrices import NativeMatrix
from node.native.operations import Buffer, Operations, norm, product, scaled
from node.native.recurrent import NativeRecurrent
from node.native.token_inputs import NativeTokenBranch


@dataclass(frozen=True, kw_only=True, slots=True)
class NativeMixing:
    """What mixes tokens, which gives its own operations, and the matrix behind it."""

    mixer: NativeAttention | NativeLatent | NativeRecurrent
    output: NativeMatrix


@dataclass(frozen=True, kw_only=True, slots=True)
class NativeLayer:
    """The weights of one layer; a rank without heads has no `mixing`."""

    spec: LayerSpec
    attention_norm_C: NDArray[np.float32] | None
    mixing: NativeMixing | None
    attention_after_norm_C: NDArray[np.float32] | None
    feed_forward_norm_C: NDArray[np.float32] | None
    feed_forward: NativeFeedForward | NativeExperts | NativeBranches
    feed_forward_after_norm_C: NDArray[np.float32] | None
    output_scale: float | None
    token_branch: NativeTokenBranch | None


@dataclass(frozen=True, slots=True)
class Passage:
    """Operations that are run in one call; after it the ranks bring the sum in a buffer together, if there is one."""

    operations: Any  # an array of Operation
    count: int
    part: Buffer | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Ends:
    """What comes before and after the layers of a stage.

    Without an embedding rows come from another stage, without an output they go to another, as float32 or, if
    `rounded`, as bfloat16. A rank's embedding begins with the token `first_id`.
    """

    spec: ModelSpec
    embedding: NativeMatrix | None
    output: NativeMatrix | None
    final_norm_C: NDArray[np.float32] | None
    first_id: int
    rounded: bool
    carrying: Carrying


class Program:
    """The operations of a stage: `passages` for a step, `logits` alone for further rows of it. Keeps what they use."""

    def __init__(self, layers: Sequence[NativeLayer], ends: Ends, *, in_parts: bool) -> None:
        self._kept = layers, ends
        building, carrying = _Building(ends, in_parts=in_parts), ends.carrying
        ending = list(building.logits(ends)) if ends.output is not None else []
        operations = [
            *building.beginning(ends),
            Operation(kind=OperationKind.PLACE),
            *carrying.begun(),
            *(op for index, layer in enumerate(layers) for op in building.layer(layer, index)),
            *ending,
        ]
        if ends.output is None:
            operations += carrying.ended(rounded=ends.rounded)
        self.passages = tuple(_passages(operations))
        self.logits = next(_passages(ending), None)


class _Building:
    """Puts operations together for a model of that description, of which a rank has a part if `in_parts`."""

    def __init__(self, ends: Ends, *, in_parts: bool) -> None:
        self._spec = ends.spec
        self._carrying = ends.carrying
        self._in_parts = in_parts

    def beginning(self, ends: Ends) -> Operations:
        """The rows' first residual. Each of several ranks has the embeddings of some tokens, zeros for the others."""
        hidden = self._spec.hidden
        if ends.embedding is None:
            yield from self._carrying.taken(rounded=ends.rounded)
            return
        yield Operation(
            kind=OperationKind.EMBED,
            target=Buffer.PART if self._in_parts else Buffer.RESIDUAL,
            index=ends.first_id,
            matrix=ctypes.pointer(ends.embedding.structure),
        )
        if self._in_parts:
            yield Buffer.PART
            yield Operation(kind=OperationKind.ADD, source=Buffer.PART, target=Buffer.RESIDUAL, flag=True, size=hidden)
        yield from scaled(Buffer.RESIDUAL, hidden, self._spec.embedding_scale)

    def logits(self, ends: Ends) -> Operations:
        """Those of the rows that are picked."""
        assert ends.output is not None
        assert ends.final_norm_C is not None
        vocabulary = ends.output.outputs
        yield Operation(kind=OperationKind.PICK, source=Buffer.RESIDUAL, target=Buffer.PICKED, size=self._spec.hidden)
        yield self._norm(Buffer.PICKED, Buffer.NORMED, ends.final_norm_C)
        yield product(Buffer.NORMED, Buffer.LOGITS, ends.output)
        yield from scaled(Buffer.LOGITS, vocabulary, self._spec.logit_scale)
        if self._spec.logit_cap:
            yield Operation(kind=OperationKind.CAP, target=Buffer.LOGITS, size=vocabulary, number=self._spec.logit_cap)

    def layer(self, layer: NativeLayer, index: int) -> Operations:
        """Layer number `index` of the stage."""
        spec = layer.spec
        source = yield from self._read(layer.attention_norm_C)
        if layer.mixing is None:
            nothing = Operation(kind=OperationKind.SCALE, size=self._spec.hidden, number=0.0)
            yield from self._joined(nothing, layer.attention_after_norm_C, spec.branch_scale)
        else:
            yield from self._mixed(layer.mixing, source, index)
            yield from self._added(layer.mixing.output, layer.attention_after_norm_C, spec.branch_scale)
        if not spec.parallel:
            source = yield from self._read(layer.feed_forward_norm_C)
        after_C, made = layer.feed_forward_after_norm_C, layer.feed_forward
        if isinstance(made, NativeExperts):
            yield from self._routed(source, made)
            yield from self._joined(self._experts(source, made), after_C, spec.branch_scale)
        elif isinstance(made, NativeBranches):
            yield from self._branches(spec.feed_forward, source, made)
            yield from self._part_added(after_C, spec.branch_scale)
        else:
            yield from self._gated(spec.feed_forward, source, made)
            yield from self._added(made.down, after_C, spec.branch_scale)
        if layer.token_branch is not None:
            yield from self._carrying.let_through(layer.token_branch, index)
        if layer.output_scale is not None:
            yield from scaled(Buffer.RESIDUAL, self._spec.hidden, layer.output_scale)

    def _mixed(self, mixing: NativeMixing, source: Buffer, index: int) -> Operations:
        """What attention or a recurrent layer gives for the rows of `source`, in Buffer.NARROW."""
        if isinstance(mixing.mixer, NativeAttention):
            yield from mixing.mixer.mixed(source, index, self._carrying.kept(index))
        else:
            yield from mixing.mixer.mixed(source, index)

    def _gated(self, spec: FeedForwardSpec, source: Buffer, own: NativeFeedForward) -> Operations:
        """What the gate of a dense one lets through, in Buffer.NARROW."""
        yield product(source, Buffer.WIDE, own.gate_up)
        width = own.down.inputs
        yield Operation(
            kind=OperationKind.GATE, source=Buffer.WIDE, target=Buffer.NARROW, index=gate_kind(spec), size=width
        )

    def _branches(self, spec: FeedForwardSpec, source: Buffer, own: NativeBranches) -> Operations:
        """The sum of both in Buffer.PART; that of the dense one, which reads `source`, waits in Buffer.NARROW."""
        yield from self._gated(spec, source, own.dense)
        yield product(Buffer.NARROW, Buffer.PART, own.dense.down)
        if self._in_parts:
            yield Buffer.PART
        yield self._norm(Buffer.PART, Buffer.NARROW, own.dense_after_C)
        yield self._norm(Buffer.RESIDUAL, Buffer.NORMED, own.router_norm_C)
        yield from self._routed(Buffer.NORMED, own.experts)
        yield self._norm(Buffer.RESIDUAL, Buffer.NORMED, own.experts_before_C)
        chosen = self._experts(Buffer.NORMED, own.experts)
        chosen.target = Buffer.PART
        yield chosen
        if self._in_parts:
            yield Buffer.PART
        yield self._norm(Buffer.PART, Buffer.PART, own.experts_after_C)
        yield Operation(kind=OperationKind.ADD, source=Buffer.NARROW, target=Buffer.PART, size=self._spec.hidden)

    def _routed(self, source: Buffer, experts: NativeExperts) -> Operations:
        """Chooses experts."""
        yield product(source, Buffer.ROUTED, experts.router)
        yield Operation(kind=OperationKind.ROUTE, source=Buffer.ROUTED, weight=experts.address)

    def _experts(self, source: Buffer, experts: NativeExperts) -> Operation:
        """Those that have been chosen; where their sum goes is still to be said."""
        return Operation(
            kind=OperationKind.EXPERTS,
            source=source,
            index=Buffer.PAIRS,
            size=self._spec.hidden,
            weight=experts.address,
        )

    def _read(self, weight_C: NDArray[np.float32] | None) -> Generator[Operation, None, Buffer]:
        """Norms the residual, if there is a weight; returns where the rows are."""
        if weight_C is None:
            return Buffer.RESIDUAL
        yield self._norm(Buffer.RESIDUAL, Buffer.NORMED, weight_C)
        return Buffer.NORMED

    def _added(self, matrix: NativeMatrix, after_C: NDArray[np.float32] | None, scale: float) -> Operations:
        """The product of what is in Buffer.NARROW, normed if there is a weight, is added to the residual."""
        yield from self._joined(product(Buffer.NARROW, Buffer.PART, matrix), after_C, scale)

    def _joined(self, making: Operation, after_C: NDArray[np.float32] | None, scale: float) -> Operations:
        """What an operation makes, normed if there is a weight, is added to the residual."""
        if not self._in_parts and after_C is None and scale == 1.0:
            making.target, making.flag = Buffer.RESIDUAL, True
            yield making
            return
        making.target = Buffer.PART
        yield making
        if self._in_parts:
            yield Buffer.PART
        yield from self._part_added(after_C, scale)

    def _part_added(self, after_C: NDArray[np.float32] | None, scale: float) -> Operations:
        """What is in Buffer.PART, normed if there is a weight, is added to the residual."""
        if after_C is not None:
            yield self._norm(Buffer.PART, Buffer.PART, after_C)
        hidden = self._spec.hidden
        yield from scaled(Buffer.PART, hidden, scale)
        yield Operation(kind=OperationKind.ADD, source=Buffer.PART, target=Buffer.RESIDUAL, size=hidden)

    def _norm(self, source: Buffer, target: Buffer, weight_C: NDArray[np.float32]) -> Operation:
        return norm(source, target, weight_C, self._spec.norm_epsilon, centred=self._spec.norm == "layer")


def _passages(operations: Iterable[Operation | Buffer]) -> Iterator[Passage]:
    """The operations, cut where the ranks bring a sum together."""
    begun: list[Operation] = []
    for operation in operations:
        if isinstance(operation, Buffer):
            yield Passage((Operation * len(begun))(*begun), len(begun), operation)
            begun = []
        else:
            begun.append(operation)
    if begun:
        yield Passage((Operation * len(begun))(*begun), len(begun), None)
