"""Quantised matrices of folders are read to the bit as their format is defined: whole, in parts, and reordered."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from layerline.errors import ModelCorruptError
from layerline.models.card import ModelCard
from layerline.models.digest import model_digest
from layerline.models.index import index_model
from layerline.models.mismatch import describe_mismatch
from layerline.models.read import TensorReader
from layerline.models.tensor_table import RowRange, TensorEntry
from tests.fakes.model_files import TinyModel
from tests.fakes.quantised import FORMS, QuantisedForm, write_quantised

MODEL = TinyModel(hidden=128, intermediate=288, heads=4, kv_heads=2, head_dim=40, layers=1)


def indexed(folder: Path) -> ModelCard:
    return index_model(folder, "tiny", lambda done_bytes, total_bytes: None)


def tensor(card: ModelCard, name: str) -> TensorEntry:
    entry = card.tensor(name)
    assert entry is not None
    return entry


@pytest.fixture(params=FORMS)
def form(request: pytest.FixtureRequest) -> QuantisedForm:
    return FORMS[request.param]


def test_every_matrix_has_the_numbers_of_its_definition(tmp_path: Path, form: QuantisedForm) -> None:
    quantised, plain = write_quantised(tmp_path, MODEL, form)
    cards = indexed(quantised), indexed(plain)
    assert tensor(cards[0], "layers.0.down").storage == form.storage
    with TensorReader(quantised, cards[0]) as reader, TensorReader(plain, cards[1]) as numbers:
        for entry in cards[1].tensors:
            own = tensor(cards[0], entry.name)
            for rows_per_block in (7, 1 << 20):
                found = [block for _, block in reader.blocks(own, rows_per_block)]
                wanted = [block for _, block in numbers.blocks(entry, rows_per_block)]
                assert np.array_equal(np.concatenate(found), np.concatenate(wanted))


def test_parts_are_those_of_the_whole(tmp_path: Path, form: QuantisedForm) -> None:
    quantised, _ = write_quantised(tmp_path, MODEL, form)
    card = indexed(quantised)
    entry = tensor(card, "layers.0.down")
    with TensorReader(quantised, card) as reader:
        ((_, whole),) = reader.blocks(entry, 1 << 20)
        for columns in (range(288), range(128, 288), range(32, 64), range(5, 131), range(287, 288)):
            for rows in (range(128), range(3, 50), range(127, 128)):
                blocks = list(reader.stored_blocks(entry, 20, rows, columns))
                found = np.concatenate([block.to_float32() for block in blocks])
                assert np.array_equal(found, whole[rows.start : rows.stop, columns.start : columns.stop])
                assert [block.first_row for block in blocks] == list(range(0, len(rows), 20))


def test_rows_of_heads_come_in_another_order(tmp_path: Path, form: QuantisedForm) -> None:
    quantised, _ = write_quantised(tmp_path, MODEL, form)
    card = indexed(quantised)
    entry, order = tensor(card, "layers.0.q"), tuple(np.random.default_rng(1).permutation(40).tolist())
    with TensorReader(quantised, card) as reader:
        ((_, whole),) = reader.blocks(entry, 1 << 20)
        found = [block.to_float32() for block in reader.stored_blocks(entry, 64, head_order=order)]
    assert np.array_equal(np.concatenate(found), whole.reshape(4, 40, 128)[:, order].reshape(160, 128))


def test_a_card_keeps_the_pieces_and_its_digest_covers_each(tmp_path: Path, form: QuantisedForm) -> None:
    quantised, _ = write_quantised(tmp_path, MODEL, form)
    card = indexed(quantised)
    again = ModelCard.from_bytes(card.to_bytes())
    assert again == card
    assert model_digest(again.spec, again.tensors, again.tokenizer) == card.digest
    whole = tensor(card, "layers.0.k").ranges[0].tensor
    file = (quantised / "model.safetensors").read_bytes()
    for piece in whole.pieces:
        changed = bytearray(file)
        changed[piece.offset] ^= 1
        (quantised / "model.safetensors").write_bytes(changed)
        other = indexed(quantised)
        assert other.digest != card.digest
        assert "layers.0.k" in describe_mismatch(card, other)


def test_a_card_whose_pieces_have_other_sizes_is_not_believed(tmp_path: Path) -> None:
    quantised, _ = write_quantised(tmp_path, MODEL, FORMS["awq-128"])
    card = indexed(quantised)
    entry = tensor(card, "layers.0.k")
    whole = entry.ranges[0].tensor
    pieces = tuple(replace(piece, nbytes=piece.nbytes - 4) for piece in whole.pieces)
    forged = replace(entry, ranges=(RowRange.whole(replace(whole, pieces=pieces)),))
    with TensorReader(quantised, card) as reader, pytest.raises(ModelCorruptError, match="does not go with its shape"):
        list(reader.blocks(forged, 7))


def test_a_piece_that_changed_since_it_was_indexed_is_named(tmp_path: Path) -> None:
    quantised, _ = write_quantised(tmp_path, MODEL, FORMS["gptq-4-128"])
    card = indexed(quantised)
    entry = tensor(card, "layers.0.k")
    (piece,) = (piece for piece in entry.ranges[0].tensor.pieces if piece.role == "scales")
    with TensorReader(quantised, card) as reader:
        file = bytearray((quantised / "model.safetensors").read_bytes())
        file[piece.offset] ^= 1
        with (quantised / "model.safetensors").open("r+b") as opened:
            opened.write(file)
        with pytest.raises(ModelCorruptError, match=r"k_proj\.scales of model\.safetensors has changed"):
            list(reader.blocks(entry, 7))
