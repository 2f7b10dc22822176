"""How many numbers and bytes the tensors of a layer, or of an end of a model, are as they are held.

Counted from the tensor table, by what a rank has along their sides. Knows one kind of layer at a time.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from layerline.models.held import VECTOR_BYTES, WeightForm
from layerline.models.model_parts import LayerPart, WholeExperts
from layerline.models.spec import LayerSpec, ModelSpec
from layerline.models.tensor_rules import (
    ATTENDED,
    FEED_FORWARD,
    MADE_FROM_LATENT,
    OF_HEADS,
    SHARED,
    is_of_latents,
    is_of_state,
    is_router,
    side_lengths,
)
from layerline.models.weight_size import WeightSize

BESIDE = WeightForm(dtype="float32", weights="stored", kernels=True)
"""How experts are held that lie on a CPU beside their device."""


@dataclass(frozen=True, slots=True)
class SizedTensor:
    """A tensor by its sides, as the rules name them, their lengths, and how it is stored."""

    sides: tuple[str, ...]
    lengths: tuple[int, ...]
    storage: str
    expert: int | None = None


SizedTensors = tuple[SizedTensor, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class HeldKind:
    """One kind of layer as it is held: how long its sides are, and where they begin."""

    layer: LayerSpec
    lengths: Mapping[str, int]
    starts: Mapping[str, int]  # of the sides of which a rank has a part; else 0
    has_heads: bool = True
    whole_experts: WholeExperts | None = None

    @classmethod
    def of(cls, model: ModelSpec, held: ModelSpec, place: int, part: LayerPart | None) -> HeldKind:
        """That in this place among the kinds, of which a rank holds `part`, or all."""
        layer, mixer = held.kinds[place], model.kinds[place].mixer
        lengths = side_lengths(held, layer)
        if part is None:
            return cls(layer=layer, lengths=lengths, starts={})
        return cls(
            layer=layer,
            lengths=lengths,
            starts={
                FEED_FORWARD: part.intermediate.start,
                SHARED: part.shared.start,
                ATTENDED: part.heads.start * mixer.output_numbers // mixer.heads,
            },
            has_heads=len(part.heads) > 0,
            whole_experts=part.whole_experts,
        )

    def part_of(self, tensor: SizedTensor) -> list[range]:
        """What is held along the sides of a tensor."""
        return [
            range(self.starts.get(side, 0), self.starts.get(side, 0) + min(length, self.lengths[side]))
            for side, length in zip(tensor.sides, tensor.lengths, strict=False)
        ]

    def has(self, tensor: SizedTensor) -> bool:
        """Whether any of it is held."""
        return self.has_heads or OF_HEADS.isdisjoint(tensor.sides)


def weight_size(tensors: SizedTensors, kind: HeldKind, form: WeightForm) -> WeightSize:
    """What is held of some tensors: of each the part along its sides."""
    numbers, held_bytes = 0, 0
    expert_numbers: Counter[int] = Counter()
    expert_bytes: Counter[int] = Counter()
    beside_bytes: Counter[int] = Counter()
    converted: dict[bool, set[tuple[str, str]]] = {False: set(), True: set()}  # by whether they are of latents
    for tensor in filter(kind.has, tensors):
        sides = kind.part_of(tensor)
        own_bytes = _tensor_bytes(tensor, sides, kind, form, converted)
        if tensor.expert is None:
            numbers += math.prod(map(len, sides))
            held_bytes += own_bytes
        else:
            expert_numbers[tensor.expert] += math.prod(map(len, sides))
            expert_bytes[tensor.expert] += own_bytes
            beside_bytes[tensor.expert] += _tensor_bytes(tensor, sides, kind, BESIDE, {False: set(), True: set()})
    read, whole = _read_share(kind), kind.whole_experts
    on_device = Fraction(whole.on_device, max(1, whole.room)) if whole else Fraction(1)
    largest, largest_beside = (max(each.values(), default=0) for each in (expert_bytes, beside_bytes))
    return WeightSize(
        numbers=numbers + math.ceil(read * on_device * expert_numbers.total()),
        read_bytes=held_bytes + math.ceil(read * on_device * expert_bytes.total()),
        held_bytes=held_bytes + (whole.on_device * largest if whole else expert_bytes.total()),
        converted=frozenset(converted[False]),
        of_latents=frozenset(converted[True]),
        expert_bytes=largest if whole else 0,
        beside_bytes=(whole.room - whole.on_device) * largest_beside if whole else 0,
        beside_read_bytes=math.ceil(read * (1 - on_device) * beside_bytes.total()),
        beside_expert_bytes=largest_beside if whole and whole.room > whole.on_device else 0,
    )


def _read_share(kind: HeldKind) -> Fraction:
    """Which part of all experts' bytes a token reads, on the rank where it reads most."""
    whole, (chosen, experts) = kind.whole_experts, kind.layer.feed_forward.read_share
    return Fraction(chosen, experts) if whole is None else Fraction(whole.of_a_row) / experts


def _tensor_bytes(
    tensor: SizedTensor,
    sides: Sequence[range],
    kind: HeldKind,
    form: WeightForm,
    converted: Mapping[bool, set[tuple[str, str]]],
) -> int:
    """What the part along `sides` takes; where it is not held as stored, `converted` is told."""
    if is_of_state(tensor.sides, kind.layer):
        return math.prod(map(len, sides)) * VECTOR_BYTES
    if len(sides) == 1:
        return form.vector_bytes(len(sides[0]))
    rows, columns = sides
    own = form.of_router() if is_router(tensor.sides) else form
    if is_of_latents(tensor.sides):
        own = form.of_latents(tensor.storage, apart=MADE_FROM_LATENT not in tensor.sides)
    held_in = own.storage(tensor.storage, columns, tensor.lengths[1])
    if form.converts(tensor.storage, held_in):
        converted[is_of_latents(tensor.sides)].add((tensor.storage, held_in))
    return form.matrix_bytes(held_in, len(rows), len(columns))
