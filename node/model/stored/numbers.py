"""From stored rows to numbers, in plain operations that every device has.

In float32 they are to the bit what the `gguf` library makes of the rows, or `grouped_rows` of those with scales of
groups. Knows nothing of what they are for.

Shapes: R rows, I numbers of a row, N blocks, B bytes of a block, G groups of a block, S numbers of a group.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch import Tensor

from layerline.models.grouped import grouped_form
from node.model.stored.floats import FLOATS
from node.model.stored.forms import FORMS, Fields, Form, Scales
from node.model.stored.grouped_numbers import grouped_numbers

Parts = tuple[Tensor, Tensor | None]
"""(the scale, the minimum or None) of each group [N, G], or of the block [N, 1], in float32."""


def numbers_of(storage: str, stored_RB: Tensor, dtype: torch.dtype) -> Tensor:
    """The numbers [R, I] of stored rows [R, bytes] of uint8, rounded to `dtype`; a view where they are stored so."""
    if storage in FLOATS:
        return stored_RB.view(FLOATS[storage]).to(dtype)
    if (grouped := grouped_form(storage)) is not None:
        return grouped_numbers(grouped, stored_RB).to(dtype)
    form = FORMS[storage]
    blocks_NB = stored_RB.reshape(-1, form.nbytes)
    steps_NGS = _steps(form, blocks_NB).view(len(blocks_NB), -1, form.group_numbers)
    scales_NG, minima_NG = _SCALES[form.scales](form, blocks_NB)
    numbers_NGS = steps_NGS.mul_(scales_NG[:, :, None])
    if minima_NG is not None:
        numbers_NGS.sub_(minima_NG[:, :, None])
    return numbers_NGS.view(len(stored_RB), -1).to(dtype)


def _steps(form: Form, blocks_NB: Tensor) -> Tensor:
    """What scales are multiplied with [N, numbers], in float32."""
    if form.signed:
        return _bytes(blocks_NB, form.low.offset, form.numbers).contiguous().view(torch.int8).float()
    integers = _fields(blocks_NB, form.low, form.numbers)
    if form.high is not None:
        integers |= _fields(blocks_NB, form.high, form.numbers) << form.low.bits
    if form.listed:
        listed = _listed(form.listed, blocks_NB.device)
        return listed.index_select(0, integers.view(-1).int()).view(integers.shape)
    steps = integers.float()
    return steps.sub_(form.zero) if form.zero else steps


def _fields(blocks_NB: Tensor, fields: Fields, count: int) -> Tensor:
    """`count` integers of each block [N, count], in uint8."""
    bits, run = fields.bits, fields.run
    stored = _bytes(blocks_NB, fields.offset, count * bits // 8).reshape(len(blocks_NB), -1, 1, run)
    shifts = torch.arange(0, 8, bits, dtype=torch.uint8, device=blocks_NB.device)
    return ((stored >> shifts[:, None]) & ((1 << bits) - 1)).view(len(blocks_NB), -1)


def _bytes(blocks_NB: Tensor, offset: int, count: int) -> Tensor:
    return blocks_NB.narrow(1, offset, count)


def _half(blocks_NB: Tensor, offset: int) -> Tensor:
    """The 16-bit number of each block [N, 1]."""
    return _bytes(blocks_NB, offset, 2).contiguous().view(torch.float16).float()


@functools.cache
def _listed(values: tuple[int, ...], device: torch.device) -> Tensor:
    """On the device for good, so that nothing is copied there while it computes."""
    return torch.tensor(values, dtype=torch.float32, device=device)


def _of_block(form: Form, blocks_NB: Tensor) -> Parts:
    minima = None if form.minimum is None else -_half(blocks_NB, form.minimum)  # it is added in these forms
    return _half(blocks_NB, form.scale), minima


def _exponent(form: Form, blocks_NB: Tensor) -> Parts:
    """Half of 2 to the power of what is stored less 127; the two smallest are no normal float32 numbers."""
    stored = _bytes(blocks_NB, form.scale, 1).int()
    bits = torch.where(stored < 2, (stored + 1) << 21, (stored - 1) << 23)
    return bits.view(torch.float32), None


def _nibbles(form: Form, blocks_NB: Tensor) -> Parts:
    assert form.minimum is not None
    packed = _bytes(blocks_NB, form.packed, form.numbers // form.group)
    scales_NG, minima_NG = (packed & 15).float(), (packed >> 4).float()
    return scales_NG.mul_(_half(blocks_NB, form.scale)), minima_NG.mul_(_half(blocks_NB, form.minimum))


def _sixteen(form: Form, blocks_NB: Tensor) -> Parts:
    low = _fields(blocks_NB, Fields(form.packed, 4, 8), 16)
    high = _fields(blocks_NB, Fields(form.packed + 8, 2, 4), 16)
    return _six_bits(low, high).mul_(_half(blocks_NB, form.scale)), None


def _eight(form: Form, blocks_NB: Tensor) -> Parts:
    assert form.minimum is not None
    first, second, third = (_bytes(blocks_NB, form.packed + place, 4) for place in (0, 4, 8))
    scales_NG = torch.cat([first & 63, (third & 15) | ((first >> 2) & 48)], dim=1).float()
    minima_NG = torch.cat([second & 63, (third >> 4) | ((second >> 2) & 48)], dim=1).float()
    return scales_NG.mul_(_half(blocks_NB, form.scale)), minima_NG.mul_(_half(blocks_NB, form.minimum))


def _bytes_each(form: Form, blocks_NB: Tensor) -> Parts:
    scales_NG = _bytes(blocks_NB, form.packed, form.numbers // form.group).contiguous().view(torch.int8).float()
    return scales_NG.mul_(_half(blocks_NB, form.scale)), None


def _split(form: Form, blocks_NB: Tensor) -> Parts:
    high = _fields(blocks_NB, Fields(form.packed, 2, 1), 8)
    low = _fields(blocks_NB, Fields(form.packed + 2, 4, 1), 8)
    return _six_bits(low, high).mul_(_half(blocks_NB, form.scale)), None


def _six_bits(low: Tensor, high: Tensor) -> Tensor:
    """Scales from -32 on, in float32."""
    return (low | (high << 4)).float().sub_(32)


_SCALES: dict[Scales, Callable[[Form, Tensor], Parts]] = {
    "block": _of_block,
    "exponent": _exponent,
    "nibbles": _nibbles,
    "sixteen": _sixteen,
    "eight": _eight,
    "bytes": _bytes_each,
    "split": _split,
}
