"""GGUF's forms of few bits that nobody multiplies as they are, in 8 bits and without loss.

In these forms every 32 neighbouring columns have one scale, and each number is that scale times a small integer, one of
a list of ggml's with or without a sign. The integers fit a signed byte, and scale times integer fits 24 bits, so that
the rows of `EIGHT_BITS_FORM` that are made here have the numbers that the `gguf` library makes of a block, to the bit.
The lists are the library's own. Forms whose scales serve 16 columns (IQ1_M, IQ2_XS, IQ2_S) are no such forms: in units
that both halves of 32 columns share their integers may be too large.

Shapes: N blocks, G groups of a block, C cells that are looked up, S integers of a block.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, quants
from numpy.typing import NDArray

from layerline.models.grouped import GroupedForm, grouped_form
from layerline.models.grouped_rows import rows_of
from layerline.models.held import EIGHT_BITS_FORM

Bytes = NDArray[np.uint8]
Integers = NDArray[np.int8]
Scales = NDArray[np.float32]
GROUPS = 8  # of a block


def in_eight_bits(storage: str, rows: Bytes) -> Bytes:
    """Stored rows [rows, bytes] of one of these forms as rows of `EIGHT_BITS_FORM`."""
    form = grouped_form(EIGHT_BITS_FORM)
    assert isinstance(form, GroupedForm), "it is one of these"
    blocks = rows.reshape(-1, GGML_QUANT_SIZES[GGMLQuantizationType[storage]][1])
    scales_NG, integers_NS = _PARTS[storage](blocks)
    codes = integers_NS.view(np.uint8).reshape(len(rows), -1) ^ np.uint8(form.zero)
    return rows_of(form, codes, scales_NG.reshape(len(rows), -1), None)


def _iq1_s(blocks: Bytes) -> tuple[Scales, Integers]:
    """Of 11 bits for 8 numbers, and for all of a group an eighth to be added or taken away; so in eighths."""
    words = _words(blocks, 34, "<u2")
    scales_NG = _half(blocks, 0) * (2 * (words >> 12 & 7) + 1).astype(np.float32) * np.float32(0.125)
    cells = blocks[:, 2:34].reshape(-1, GROUPS, 4).astype(np.intp)
    for place in range(4):
        cells[:, :, place] |= (words >> 3 * place & 7).astype(np.intp) << 8
    cells |= (words >> 15).astype(np.intp)[:, :, None] << 11
    return scales_NG, _looked_up(_eighths(), cells)


def _iq2_xxs(blocks: Bytes) -> tuple[Scales, Integers]:
    """Of 8 bits for 8 numbers; a word for the signs and the scale of a group."""
    words = _words(blocks, 2, "<u4").reshape(-1, GROUPS, 2)
    scales_NG = _halves_of(blocks, words[:, :, 1]) * np.float32(0.25)
    cells = np.ascontiguousarray(words[:, :, 0]).view(np.uint8)
    return scales_NG, _signed(_looked_up(_list("IQ2_XXS"), cells), _seven_bits(words[:, :, 1]))


def _iq3_xxs(blocks: Bytes) -> tuple[Scales, Integers]:
    """Of 8 bits for 4 numbers; words as in IQ2_XXS."""
    words = _words(blocks, 66, "<u4")
    scales_NG = _halves_of(blocks, words) * np.float32(0.5)
    return scales_NG, _signed(_looked_up(_list("IQ3_XXS"), blocks[:, 2:66]), _seven_bits(words))


def _iq3_s(blocks: Bytes) -> tuple[Scales, Integers]:
    """Of 9 bits for 4 numbers, of which one lies apart; a bit for each sign."""
    packed = blocks[:, 106:110]
    fours = np.stack((packed & 15, packed >> 4), axis=2).reshape(-1, GROUPS)
    scales_NG = _half(blocks, 0) * (1 + 2 * fours).astype(np.float32)
    cells = blocks[:, 2:66].astype(np.intp)
    cells |= np.unpackbits(blocks[:, 66:74], axis=1, bitorder="little").astype(np.intp) << 8
    return scales_NG, _signed(_looked_up(_list("IQ3_S"), cells), _sign_masks().take(blocks[:, 74:106]))


def _tq1_0(blocks: Bytes) -> tuple[Scales, Integers]:
    """Five digits to the base of 3 in a byte, as a fraction of 256: each is what times 3 carries out of it."""
    parts = []
    for first, end, digits in ((0, 32, 5), (32, 48, 5), (48, 52, 4)):
        rest = blocks[:, first:end].copy()
        for _ in range(digits):
            parts.append((rest > 85).view(np.int8) + (rest > 170).view(np.int8))
            rest *= np.uint8(3)
    return _of_all(blocks, 52), np.concatenate(parts, axis=1) - np.int8(1)


def _tq2_0(blocks: Bytes) -> tuple[Scales, Integers]:
    """Two bits for each, those of 32 bytes side by side."""
    packed = blocks[:, :64].reshape(-1, 2, 1, 32)
    integers = (packed >> np.array([[0], [2], [4], [6]], np.uint8) & np.uint8(3)).view(np.int8)
    integers -= np.int8(1)
    return _of_all(blocks, 64), integers.reshape(len(blocks), -1)


def _words(blocks: Bytes, first: int, dtype: str) -> NDArray[Any]:
    """The words from that byte on, as many as a block then has."""
    size = np.dtype(dtype).itemsize
    end = blocks.shape[1] - (blocks.shape[1] - first) % size
    return np.ascontiguousarray(blocks[:, first:end]).view(dtype)


def _half(blocks: Bytes, first: int) -> Scales:
    """The 16-bit number at that byte of each block [N, 1]."""
    return np.ascontiguousarray(blocks[:, first : first + 2]).view("<f2").astype(np.float32)


def _of_all(blocks: Bytes, first: int) -> Scales:
    """The same for each group of a block."""
    return np.repeat(_half(blocks, first), GROUPS, axis=1)


def _halves_of(blocks: Bytes, words_NG: NDArray[np.uint32]) -> Scales:
    """A block's scale times a half and what the upper four bits of a word say."""
    return _half(blocks, 0) * (np.float32(0.5) + (words_NG >> 28).astype(np.float32))


def _looked_up(listed: NDArray[Any], cells_NC: NDArray[Any]) -> Integers:
    """The integers [N, S] of cells, each of which is a number of the list."""
    return listed.take(cells_NC.reshape(len(cells_NC), -1)).view(np.int8)


def _signed(integers_NS: Integers, masks_NC: NDArray[np.int64]) -> Integers:
    """Integers with the signs of masks, which are all ones for those below zero."""
    masks_NS = masks_NC.view(np.int8)
    integers_NS ^= masks_NS
    integers_NS -= masks_NS
    return integers_NS


def _seven_bits(words_NG: NDArray[np.uint32]) -> NDArray[np.int64]:
    """The masks of four times 8 numbers of each group, by 7 bits for each, of which ggml tells the eighth."""
    places = np.arange(0, 28, 7, dtype=np.uint32)
    return _even_masks().take((words_NG[:, :, None] >> places & 127).reshape(len(words_NG), -1))


@functools.cache
def _list(storage: str, factor: int = 1) -> NDArray[Any]:
    """What each cell of a form consists of, its integers together as one number."""
    kind = getattr(quants, storage)
    kind.init_grid()
    integers = (factor * kind.grid).reshape(kind.grid_shape).astype(np.int8)
    whole: NDArray[Any] = integers.view(f"<i{kind.grid_shape[1]}")[:, 0]
    return whole


@functools.cache
def _eighths() -> NDArray[Any]:
    """Those of IQ1_S in eighths: first with an eighth more, then with one less."""
    integers = _list("IQ1_S", factor=8).view(np.int8)
    return np.concatenate((integers + np.int8(1), integers - np.int8(1))).view("<i8")


@functools.cache
def _sign_masks() -> NDArray[np.int64]:
    """For each byte of 8 signs, the first lowest, the masks of these as one number."""
    bits = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little")
    return np.negative(bits.view(np.int8)).view("<i8")[:, 0]


@functools.cache
def _even_masks() -> NDArray[np.int64]:
    """The same for each 7 bits."""
    return _sign_masks()[np.frombuffer(quants.IQ2_XXS.ksigns, np.uint8)]


_PARTS: Mapping[str, Callable[[Bytes], tuple[Scales, Integers]]] = MappingProxyType(
    {
        "IQ1_S": _iq1_s,
        "IQ2_XXS": _iq2_xxs,
        "IQ3_XXS": _iq3_xxs,
        "IQ3_S": _iq3_s,
        "TQ1_0": _tq1_0,
        "TQ2_0": _tq2_0,
    }
)
"""Of each form scales [N, G] and integers [N, S] of blocks."""
