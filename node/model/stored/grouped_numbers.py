"""Numbers of stored rows whose scales serve groups of columns, in plain operations that every device has.

How a row lies is said in `layerline.models.grouped`. In float32 the numbers are to the bit those of
`layerline.models.grouped_rows`. Those of FP8 are looked up, as not every device has such a dtype.

Shapes: R rows, I numbers of a row, G its groups, B bytes.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

import torch
from torch import Tensor

from layerline.models.grouped import CELL_COLUMNS, SCALE_BYTES, GroupedForm
from layerline.models.grouped_rows import numbers_of_codes
from node.model.stored.floats import FLOATS


def grouped_numbers(form: GroupedForm, stored_RB: Tensor) -> Tensor:
    """The numbers [R, I] of stored rows, in float32, each rounded once."""
    columns = form.columns(stored_RB.shape[1])
    groups, code_bytes = form.groups(columns), form.code_bytes(columns)
    scale_bytes = groups * SCALE_BYTES[form.scale]
    codes_RB = stored_RB.narrow(1, stored_RB.shape[1] - code_bytes, code_bytes)
    numbers_RI = _integers(form, codes_RB) if form.has_zeros else _listed(form, codes_RB)
    if form.has_zeros:
        zeros_RG = stored_RB.narrow(1, scale_bytes, groups).float().sub_(_least(form))
        for own_RI, zero_RI in _each_group(form, numbers_RI, zeros_RG):
            own_RI.sub_(zero_RI)
    # Copied, as rows may begin where no such number may.
    scales_RB = stored_RB.narrow(1, 0, scale_bytes).clone(memory_format=torch.contiguous_format)
    for own_RI, scale_RI in _each_group(form, numbers_RI, scales_RB.view(FLOATS[form.scale]).float()):
        own_RI.mul_(scale_RI)
    return numbers_RI


def _integers(form: GroupedForm, codes_RB: Tensor) -> Tensor:
    """Codes [R, I], less 128 if they have eight bits."""
    if form.bits == 8:
        return codes_RB.contiguous().view(torch.int8).float()
    halves = codes_RB.reshape(len(codes_RB), -1, CELL_COLUMNS // 2)
    return torch.stack((halves & 15, halves >> 4), dim=2).view(len(codes_RB), -1).float()


def _least(form: GroupedForm) -> int:
    """What `_integers` has codes less by."""
    return form.zero if form.bits == 8 else 0


def _listed(form: GroupedForm, codes_RI: Tensor) -> Tensor:
    """What codes without zeros stand for [R, I]."""
    return _table(form.codes, codes_RI.device).index_select(0, codes_RI.reshape(-1).int()).view(codes_RI.shape)


@functools.cache
def _table(codes: str, device: torch.device) -> Tensor:
    """On the device for good, so that nothing is copied there while it computes."""
    return torch.from_numpy(numbers_of_codes(codes)).to(device, copy=True)


def _each_group(form: GroupedForm, numbers_RI: Tensor, own_RG: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Views of the columns of whole groups and of the last one, if it is not; each with what its groups have."""
    columns = numbers_RI.shape[1]
    group = form.group or columns
    groups = columns // group
    whole = groups * group
    if groups:
        yield numbers_RI[:, :whole].view(-1, groups, group), own_RG[:, :groups, None]
    if whole < columns:
        yield numbers_RI[:, whole:], own_RG[:, groups:]
