"""What a model says of layers that read the keys and values of others, and what follows for stages."""

from __future__ import annotations

from dataclasses import replace

import pytest

from layerline.models.layer_kinds import FULL, SLIDING, with_shared_pages
from layerline.models.row_layout import StageRows, row_into, widest_row
from layerline.models.spec import AttentionSpec, LayerSpec, ModelSpec
from tests.fakes.sharing import sharing
from tests.fakes.specs import decoder_spec, of_layers

PLAIN = decoder_spec(layers=8)
MODEL = sharing(PLAIN, 4)
KEPT = 2 * PLAIN.layer(0).attention.key_numbers


def test_the_last_layers_read_the_last_of_their_kind() -> None:
    assert [MODEL.layer(layer).source for layer in range(8)] == [None] * 4 + [2, 3, 2, 3]
    assert not PLAIN.shares_pages


@pytest.mark.parametrize(("first", "sources"), [(1, ()), (2, ()), (3, (2,)), (4, (2, 3)), (6, (2, 3)), (7, (3,))])
def test_a_row_carries_what_is_still_read(first: int, sources: tuple[int, ...]) -> None:
    row = row_into(MODEL, first)
    assert (row.sources, row.numbers) == (sources, MODEL.hidden + len(sources) * KEPT)
    assert not row.needs_ids
    inputs = row_into(sharing(PLAIN, 4, token_input=3), first)
    assert inputs.needs_ids
    assert inputs.numbers == row.numbers + MODEL.hidden
    assert [inputs.start_of(source) - 2 * MODEL.hidden for source in sources] == [KEPT * n for n in range(len(sources))]


def test_rows_of_other_models_carry_nothing() -> None:
    rows = StageRows.of(PLAIN, range(2, 5))
    assert not rows.needs_more
    assert rows.all_page_numbers == (0, 1, 2)
    assert widest_row(PLAIN) == PLAIN.hidden
    assert widest_row(MODEL) == MODEL.hidden + 2 * KEPT


def test_a_stage_has_pages_of_what_it_reads() -> None:
    inside = StageRows.of(MODEL, range(2, 6))
    assert (inside.outside, inside.page_numbers, inside.made) == ((), (0, 1, 0, 1), (2, 3))
    behind = StageRows.of(MODEL, range(3, 6))
    assert (behind.outside, behind.all_page_numbers) == ((2,), (0, 3, 0, 3))
    assert (behind.made, behind.passed_on) == ((3,), (2,))
    last = StageRows.of(MODEL, range(7, 8))
    assert (last.outside, last.all_page_numbers, last.passed_on) == ((3,), (1, 1), ())


def changed(layer: int, mixer: AttentionSpec) -> ModelSpec:
    layers = [MODEL.layer(index) for index in range(8)]
    return of_layers(MODEL, [replace(own, mixer=mixer) if n == layer else own for n, own in enumerate(layers)])


def test_what_cannot_be_read_is_refused() -> None:
    reader = MODEL.layer(6).attention
    assert changed(6, reader) == MODEL
    for bad in (
        replace(reader, source=6),
        replace(reader, source=7),
        replace(reader, source=-1),
        replace(reader, source=4),  # which keeps nothing itself
        replace(reader, source=3),  # which has no window
        replace(reader, kv_heads=2 * reader.kv_heads),
    ):
        with pytest.raises(ValueError, match="reads unlike keys"):
            changed(6, bad)
    for makes in ({"value_norm": True}, {"keys_as_values": True}, {"qkv_bias": True}, {"qk_norm": "rows"}):
        with pytest.raises(ValueError, match="a reader of keys makes some"):
            replace(reader, **makes)


@pytest.mark.parametrize("shared", [-1, 7, 8, 9])
def test_each_kind_needs_a_layer_that_keeps_something(shared: int) -> None:
    mixers = [PLAIN.layer(0).attention] * 8
    kinds = [FULL if layer % 2 else SLIDING for layer in range(8)]
    assert with_shared_pages(mixers, kinds, 6)[7].source == 1
    with pytest.raises(ValueError, match="so few"):
        with_shared_pages(mixers, kinds, shared)


def test_layers_have_inputs_of_one_size() -> None:
    layers: list[LayerSpec] = [replace(PLAIN.layer(layer), token_input=layer % 2) for layer in range(8)]
    with pytest.raises(ValueError, match="unlike size"):
        of_layers(PLAIN, layers)
