"""Masks of tokens: the smallest form, what each means to whoever draws, and what is refused."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerline.errors import ProtocolError
from layerline.frames import MAX_MASKS_BYTES, Frame, PageRun, Sampling, Span, TensorBytes
from layerline.mask_forms import allowed_tokens, ids_end, listed_ids, smallest_mask
from layerline.rpc.convert_frames import frame_from_message, frame_to_message
from layerline.rpc.v1 import ring_pb2
from layerline.token_mask import MAX_MASK_BYTES, TokenMask

VOCABULARY = 151_669


def bitmap_of(ids: list[int], tokens: int) -> bytes:
    bits = np.zeros(tokens, np.uint8)
    bits[ids] = 1
    return np.packbits(bits, bitorder="little").tobytes()


def frame_with(mask: TokenMask | None, spans: int = 1, draws: int = 1) -> Frame:
    """A frame of spans of two rows, each with `mask`."""
    made = tuple(
        Span(
            sequence=n,
            start=0,
            count=2,
            pages=(PageRun(first=n, count=1),),
            draws=draws,
            sampling=Sampling(mask=mask),
        )
        for n in range(spans)
    )
    tensor = TensorBytes(dtype="int32", shape=(2 * spans,), data=bytes(8 * spans))
    return Frame(epoch=1, step=1, spans=made, tensor=tensor)


@given(st.integers(1, 300).flatmap(lambda n: st.tuples(st.just(n), st.sets(st.integers(0, n - 1), min_size=1))))
def test_the_smallest_form_allows_what_the_bitmap_allowed(case: tuple[int, set[int]]) -> None:
    tokens, ids = case
    mask = smallest_mask(bitmap_of(sorted(ids), tokens), tokens)
    assert set(np.flatnonzero(allowed_tokens(mask, tokens))) == ids
    assert len(mask.data) <= -(-tokens // 8)


@pytest.mark.parametrize(
    ("allowed", "form", "nbytes"),
    [(1, "allowed", 6), (400, "allowed", 810), (60_000, "bitmap", 18_959), (VOCABULARY - 400, "forbidden", 810)],
)
def test_the_form_is_the_one_with_the_fewest_bytes(allowed: int, form: str, nbytes: int) -> None:
    ids = random.Random(1).sample(range(VOCABULARY), allowed)
    mask = smallest_mask(bitmap_of(ids, VOCABULARY), VOCABULARY)
    assert mask.form == form
    assert len(mask.data) <= nbytes
    assert sorted(ids) == np.flatnonzero(allowed_tokens(mask, VOCABULARY)).tolist()


@pytest.mark.parametrize("ids", [[0], [65_533], [65_534], [65_535], [65_536], [0, 65_535, 131_070], [151_668]])
def test_few_ids_are_listed_alike_with_and_without_numpy(ids: list[int]) -> None:
    mask = TokenMask.allowing(ids)
    assert mask == smallest_mask(bitmap_of(ids, VOCABULARY), VOCABULARY)
    assert listed_ids(mask).tolist() == ids
    assert ids_end(mask) == ids[-1] + 1


def test_rows_behind_the_end_of_a_mask_are_forbidden_unless_it_only_forbids() -> None:
    """A model may have more rows of logits than its tokenizer has tokens."""
    for mask in (smallest_mask(b"\x05", 8), TokenMask.allowing([0, 2])):
        assert np.flatnonzero(allowed_tokens(mask, 12)).tolist() == [0, 2]
    assert np.flatnonzero(allowed_tokens(TokenMask.forbidding([0, 2]), 5)).tolist() == [1, 3, 4]


def test_a_bitmap_is_cut_to_the_tokens_there_are() -> None:
    assert smallest_mask(b"\xff\xff", 10).data == b"\xff\x03"
    with pytest.raises(ValueError, match="allows no token"):
        smallest_mask(b"\x00\xfc", 10)


@pytest.mark.parametrize(
    ("form", "data", "words"),
    [
        ("", b"\1\0", "form of a mask"),
        ("some", b"\1\0", "form of a mask"),
        ("allowed", b"", "no size"),
        ("bitmap", bytes(3), "allows no token"),
        ("bitmap", b"\1" * (MAX_MASK_BYTES + 1), "over its limit"),
        ("forbidden", b"\1\0\1", "16-bit"),
        ("allowed", b"\1\0\xff\xff", "not of ids"),
        ("allowed", b"\0\0\1\0", "not of ids"),
    ],
)
def test_what_is_no_mask_is_refused(form: str, data: bytes, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        TokenMask(form=form, data=data)


def test_a_span_with_a_mask_draws_once() -> None:
    assert frame_with(None, draws=2).spans[0].draws == 2
    with pytest.raises(ValueError, match="mask draws once"):
        frame_with(TokenMask.allowing([1]), draws=2)


def test_the_masks_of_a_frame_are_bounded_together() -> None:
    mask = TokenMask(form="bitmap", data=b"\1" * MAX_MASK_BYTES)
    most = MAX_MASKS_BYTES // MAX_MASK_BYTES
    assert frame_with(mask, spans=most).rows == 2 * most
    with pytest.raises(ValueError, match="masks too large"):
        frame_with(mask, spans=most + 1)


@pytest.mark.parametrize("mask", [TokenMask.allowing([7]), TokenMask.forbidding([9]), smallest_mask(b"\x55" * 9, 72)])
def test_a_mask_travels_in_its_form(mask: TokenMask) -> None:
    message = frame_to_message(frame_with(mask)).frame
    assert frame_from_message(ring_pb2.Frame.FromString(message.SerializeToString())) == frame_with(mask)


@pytest.mark.parametrize("wrong", [ring_pb2.TokenMask(), ring_pb2.TokenMask(allowed=b"\1")])
def test_a_message_with_no_mask_in_it_is_a_protocol_error(wrong: ring_pb2.TokenMask) -> None:
    message = frame_to_message(frame_with(TokenMask.allowing([7]))).frame
    message.spans[0].sampling.mask.CopyFrom(wrong)
    with pytest.raises(ProtocolError, match="A frame is not valid"):
        frame_from_message(message)
