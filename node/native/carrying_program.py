"""What is done for rows that carry more than the residual, and for layers with inputs of their own of each token.

node/model/carrying.py and node/model/token_inputs.py tell the same for torch.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Mapping
from dataclasses import dataclass

from layerline.models.row_layout import StageRows
from layerline.models.spec import ModelSpec
from node.kernels.structures import Operation, OperationKind
from node.native.feed_forward import gate_kind
from node.native.matrices import NativeMatrix
from node.native.operations import Buffer, Operations, copy, head_norm, norm, product, scaled
from node.native.token_inputs import NativeTokenBranch, NativeTokenInputs
from node.slices.carried_heads import CarriedHeads


@dataclass(frozen=True, kw_only=True, slots=True)
class Carrying:
    """Builds operations of a stage, of which a rank has `spec`; `heads` are those of layers whose keys are in rows."""

    spec: ModelSpec
    rows: StageRows
    heads: Mapping[int, CarriedHeads]
    inputs: NativeTokenInputs | None
    first_id: int  # of the rank's tokens
    in_parts: bool

    @property
    def taken_numbers(self) -> int:
        """Numbers of a row that comes, if it carries anything; else 0."""
        return self.rows.into.numbers if self.rows.into is not None and self.rows.into.carries else 0

    @property
    def sent_numbers(self) -> int:
        """Numbers of a row that goes, if it carries anything; else 0."""
        return self.rows.out.numbers if self.rows.out is not None and self.rows.out.carries else 0

    @property
    def given_numbers(self) -> int:
        """Numbers of the keys and values that ranks bring together."""
        return sum(map(self._numbers, self.rows.made)) if self.in_parts else 0

    @property
    def input_numbers(self) -> int:
        """Numbers of the inputs of all layers."""
        return len(self.rows.layers) * self.spec.token_input

    @property
    def matrices(self) -> tuple[NativeMatrix, ...]:
        """Those that all rows of a step are multiplied with, beside those of layers."""
        return () if self.inputs is None else (self.inputs.projection,)

    def taken(self, *, rounded: bool) -> Operations:
        """Rows from another stage."""
        hidden, numbers = self.spec.hidden, self.taken_numbers
        target = Buffer.TAKEN if numbers else Buffer.RESIDUAL
        yield Operation(kind=OperationKind.TAKE, target=target, flag=rounded, size=numbers or hidden)
        if numbers:
            yield copy(Buffer.TAKEN, 0, Buffer.RESIDUAL, 0, hidden)

    def begun(self) -> Operations:
        """What is to be done with rows before the layers."""
        into, out, hidden = self.rows.into, self.rows.out, self.spec.hidden
        first = Buffer.RESIDUAL if into is None else Buffer.FIRST
        if out is not None and out.has_first:
            yield copy(first, 0, Buffer.SENT, hidden, hidden)
        for source in self.rows.passed_on:
            assert into is not None, "what goes on has come"
            assert out is not None, "it goes on"
            yield copy(Buffer.TAKEN, into.start_of(source), Buffer.SENT, out.start_of(source), self._numbers(source))
        for place, source in enumerate(self.rows.outside):
            assert into is not None, "nothing is before the first stage"
            own, start = self.heads[source], into.start_of(source)
            yield Operation(
                kind=OperationKind.KEEP,
                source=Buffer.TAKEN,
                index=len(self.rows.layers) + place,
                count=start + own.own.start * own.head_dim,
                size=start + own.key_numbers + own.own.start * own.value_dim,
            )
        if self.inputs is not None:
            yield from self._made_inputs(self.inputs, first)

    def kept(self, index: int) -> Operations:
        """Layer number `index` has made the keys and values of Buffer.WIDE, which rows may have to carry."""
        source = self.rows.layers.start + index
        if source not in self.rows.made:
            return
        own, attention = self.heads[source], self.spec.layer(source).attention
        target, start = self._place(source)
        sides = (
            (attention.query_numbers, start, own.head_dim),
            (attention.query_numbers + attention.key_numbers, start + own.key_numbers, own.value_dim),
        )
        skipped = own.given.start - own.own.start
        for made, place, size in sides:
            if own.given:
                place += own.given.start * size
                yield copy(Buffer.WIDE, made + skipped * size, target, place, len(own.given) * size)

    def let_through(self, branch: NativeTokenBranch, index: int) -> Operations:
        """The input of layer number `index` is let through and added to the residual."""
        size, hidden = self.spec.token_input, self.spec.hidden
        activation = gate_kind(self.spec.layer(self.rows.layers.start + index).feed_forward)
        yield product(Buffer.RESIDUAL, Buffer.WIDE, branch.gate)
        yield copy(Buffer.INPUTS, index * size, Buffer.WIDE, size, size)
        yield Operation(kind=OperationKind.GATE, source=Buffer.WIDE, target=Buffer.NARROW, index=activation, size=size)
        yield product(Buffer.NARROW, Buffer.PART, branch.output)
        yield norm(Buffer.PART, Buffer.PART, branch.after_C, self.spec.norm_epsilon)
        yield Operation(kind=OperationKind.ADD, source=Buffer.PART, target=Buffer.RESIDUAL, size=hidden)

    def ended(self, *, rounded: bool) -> Operations:
        """Rows for another stage."""
        hidden, numbers, out = self.spec.hidden, self.sent_numbers, self.rows.out
        if numbers:
            if self.given_numbers:
                yield Buffer.GIVEN
            for source in self.rows.made if self.given_numbers else ():
                assert out is not None, "they go somewhere"
                _, start = self._place(source)
                yield copy(Buffer.GIVEN, start, Buffer.SENT, out.start_of(source), self._numbers(source))
            yield copy(Buffer.RESIDUAL, 0, Buffer.SENT, 0, hidden)
        if rounded:
            source = Buffer.SENT if numbers else Buffer.RESIDUAL
            yield Operation(kind=OperationKind.ROUND, source=source, size=numbers or hidden)

    def _made_inputs(self, own: NativeTokenInputs, first: Buffer) -> Operations:
        size, hidden, numbers = self.spec.token_input, self.spec.hidden, self.input_numbers
        yield Operation(
            kind=OperationKind.EMBED,
            target=Buffer.INPUTS,
            index=self.first_id,
            matrix=ctypes.pointer(own.table.structure),
        )
        if self.in_parts:
            yield Buffer.INPUTS
        yield from scaled(Buffer.INPUTS, numbers, math.sqrt(size))
        yield product(first, Buffer.WIDE, own.projection)
        yield from scaled(Buffer.WIDE, numbers, hidden**-0.5)
        yield head_norm(Buffer.WIDE, 0, len(self.rows.layers), size, own.norm_P, self.spec.norm_epsilon)
        yield Operation(kind=OperationKind.ADD, source=Buffer.WIDE, target=Buffer.INPUTS, size=numbers)
        yield from scaled(Buffer.INPUTS, numbers, 2**-0.5)

    def _place(self, source: int) -> tuple[Buffer, int]:
        """Where the keys of a layer of this stage are put for rows that go."""
        if self.in_parts:
            return Buffer.GIVEN, sum(self._numbers(other) for other in self.rows.made if other < source)
        assert self.rows.out is not None, "they go somewhere"
        return Buffer.SENT, self.rows.out.start_of(source)

    def _numbers(self, source: int) -> int:
        """Numbers of the keys and values of a layer that is made here or passed on."""
        assert self.rows.out is not None, "they go somewhere"
        return self.rows.out.source_numbers[self.rows.out.sources.index(source)]
