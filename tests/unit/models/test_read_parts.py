"""Reading a part of a tensor gives what cutting it out of the whole gives, whatever it is stored as."""

from __future__ import annotations

import dataclasses
import hashlib
import os
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from layerline.errors import ModelCorruptError
from layerline.models.card import ModelCard
from layerline.models.index import index_model
from layerline.models.read import TensorReader
from layerline.models.storage import FLOAT_STORAGES, stored_bytes
from layerline.models.tensor_table import RowRange, StoredTensor, TensorEntry, stored_tensors
from tests.fakes.model_files import TinyModel, write_folder, write_gguf
from tests.fakes.tensor_entries import falsified, stored_of

ROWS, COLUMNS = 24, 1024  # four blocks of the largest kind
PARTS = [
    (range(24), range(1024)),
    (range(7, 19), range(1024)),
    (range(23, 24), range(1024)),
    (range(24), range(512)),
    (range(24), range(512, 1024)),
    (range(24), range(32, 96)),
    (range(24), range(250, 770)),
    (range(24), range(1023, 1024)),
    (range(5, 20), range(1, 300)),
]


@pytest.fixture(scope="module")
def card(tmp_path_factory: pytest.TempPathFactory) -> ModelCard:
    return index_model(
        write_gguf(tmp_path_factory.mktemp("tiny") / "m.gguf", TinyModel()), "m", lambda _done, _total: None
    )


def raw(folder: Path, card: ModelCard, storage: str) -> tuple[Path, ModelCard, TensorEntry]:
    """A file of one tensor of any bytes, after some that are not its own."""
    path, nbytes = folder / "raw.gguf", stored_bytes(storage, (ROWS, COLUMNS))
    data = np.random.default_rng(len(storage)).integers(0, 256, nbytes, np.uint8).tobytes()
    path.write_bytes(bytes(96) + data)
    stored = StoredTensor(
        name="down", file=path.name, storage=storage, shape=(ROWS, COLUMNS), offset=96, nbytes=nbytes,
        sha256=hashlib.sha256(data).hexdigest(),
    )  # fmt: skip
    entry = TensorEntry(name="down", shape=(ROWS, COLUMNS), ranges=(RowRange.whole(stored),))
    return path, dataclasses.replace(card, tensors=(entry,), size_bytes=96 + nbytes), entry


def joined(reader: TensorReader, entry: TensorEntry, *part: range) -> NDArray[np.float32]:
    blocks = list(reader.blocks(entry, 5, *part))
    assert [first for first, _ in blocks] == np.cumsum([0, *(len(rows) for _, rows in blocks)])[:-1].tolist()
    assert all(rows.flags.writeable and rows.flags.c_contiguous and rows.dtype == np.float32 for _, rows in blocks)
    return np.concatenate([rows for _, rows in blocks])


@pytest.mark.parametrize("storage", sorted(FLOAT_STORAGES))
@pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")  # bytes at random are not always numbers
def test_a_part_of_every_storage_is_the_part_of_the_whole(tmp_path: Path, card: ModelCard, storage: str) -> None:
    path, card, entry = raw(tmp_path, card, storage)
    with TensorReader(path, card) as reader:
        whole = joined(reader, entry)
        for rows, columns in PARTS:
            part = joined(reader, entry, rows, columns)
            np.testing.assert_array_equal(part, whole[rows.start : rows.stop, columns.start : columns.stop])


@pytest.mark.parametrize(
    ("family", "name"),
    [
        ("llama", "layers.0.q"),
        ("llama", "layers.1.k"),
        ("llama", "embedding"),
        ("qwen2", "layers.1.q_bias"),
        ("qwen2", "layers.0.down"),
    ],
)
def test_whole_heads_come_in_order_and_vectors_in_part(tmp_path: Path, family: str, name: str) -> None:
    """GGUF has the rows of llama's queries and keys in another order."""
    tiny = TinyModel(family=family)
    for path in (write_gguf(tmp_path / "m.gguf", tiny), write_folder(tmp_path / "m", tiny)):
        card = index_model(path, "m", lambda done, total: None)
        entry = card.tensor(name)
        assert entry is not None
        with TensorReader(path, card) as reader:
            part = joined(reader, entry, range(16, 32))
        np.testing.assert_array_equal(part, tiny.weights()[name][16:32])


def test_of_the_rest_nothing_is_looked_at(tmp_path: Path, card: ModelCard) -> None:
    """The hash is that of all bytes, so that a part is not compared with it."""
    path, card, entry = raw(tmp_path, card, "F32")
    entry = falsified(entry)
    with TensorReader(path, card) as reader:
        assert joined(reader, entry, range(8), range(1024)).shape == (8, 1024)
        with pytest.raises(ModelCorruptError, match="its hash is another"):
            joined(reader, entry)


def test_vectors_are_compared_with_their_hash_even_in_part(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", TinyModel(family="qwen2"))
    card = index_model(path, "m", lambda done, total: None)
    entry = card.tensor("layers.0.k_bias")
    assert entry is not None
    false = falsified(entry)
    with TensorReader(path, card) as reader, pytest.raises(ModelCorruptError, match="its hash is another"):
        joined(reader, false, range(16))


def test_a_file_that_was_written_to_since_it_was_opened_is_refused(tmp_path: Path, card: ModelCard) -> None:
    path, card, entry = raw(tmp_path, card, "F16")
    written_ns = path.stat().st_mtime_ns
    with TensorReader(path, card) as reader:
        joined(reader, entry, range(4), range(1024))
        os.utime(path, ns=(written_ns, written_ns + 1))
        with pytest.raises(ModelCorruptError, match=r"down of raw\.gguf has changed .*: its file was written to"):
            joined(reader, entry, range(4), range(1024))
        assert joined(reader, entry).shape == (ROWS, COLUMNS), "the whole still has the right hash"


def test_a_file_that_was_replaced_or_is_gone_is_refused(tmp_path: Path, card: ModelCard) -> None:
    path, card, entry = raw(tmp_path, card, "F16")
    other = tmp_path / "other"
    other.write_bytes(path.read_bytes())
    os.utime(other, ns=(path.stat().st_mtime_ns, path.stat().st_mtime_ns))
    with TensorReader(path, card) as reader:
        other.replace(path)
        with pytest.raises(ModelCorruptError, match="its file was written to"):
            joined(reader, entry, range(24), range(32))
        path.unlink()
        with pytest.raises(ModelCorruptError, match="is missing"):
            joined(reader, entry, range(24), range(32))


def cut(entry: TensorEntry, *ranges: tuple[int, int]) -> TensorEntry:
    """A tensor made of these (first row, rows) of what `entry` is stored as."""
    parts = tuple(RowRange(tensor=stored_of(entry), first_row=first, rows=rows) for first, rows in ranges)
    return dataclasses.replace(entry, shape=(sum(rows for _, rows in ranges), COLUMNS), ranges=parts)


@pytest.mark.parametrize("storage", ["F32", "Q4_1", "Q6_K"])
@pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")
def test_a_tensor_may_be_rows_of_a_stored_one_or_several_of_them(tmp_path: Path, card: ModelCard, storage: str) -> None:
    path, card, entry = raw(tmp_path, card, storage)
    pieces = cut(entry, (16, 8), (0, 7), (9, 1))
    with TensorReader(path, dataclasses.replace(card, tensors=(pieces,))) as reader:
        whole = joined(reader, entry)
        rows_of = np.r_[16:24, 0:7, 9:10]
        for rows, columns in [(range(16), range(1024)), (range(6, 10), range(1024)), (range(9, 16), range(30, 600))]:
            part = joined(reader, pieces, rows, columns)
            np.testing.assert_array_equal(part, whole[rows_of[rows.start : rows.stop], columns.start : columns.stop])


@pytest.mark.parametrize("storage", ["F32", "Q4_1", "Q6_K"])
@pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")
def test_rows_may_be_groups_among_others(tmp_path: Path, card: ModelCard, storage: str) -> None:
    path, card, entry = raw(tmp_path, card, storage)
    part = RowRange(tensor=stored_of(entry), first_row=2, rows=12, group=4, step=7)
    groups = dataclasses.replace(entry, shape=(12, COLUMNS), ranges=(part,))
    rows_of = np.r_[2:6, 9:13, 16:20]
    with TensorReader(path, dataclasses.replace(card, tensors=(groups,))) as reader:
        whole = joined(reader, entry)
        for rows, columns in [(range(12), range(1024)), (range(3, 9), range(30, 600)), (range(5, 7), range(1024))]:
            found = joined(reader, groups, rows, columns)
            np.testing.assert_array_equal(found, whole[rows_of[rows.start : rows.stop], columns.start : columns.stop])
        blocks = list(reader.stored_blocks(groups, 1 << 20, range(4, 12), head_order=(1, 3, 0, 2)))
        turned = np.concatenate([block.to_float32() for block in blocks])
        np.testing.assert_array_equal(turned, whole[rows_of[4:].reshape(2, 4)[:, [1, 3, 0, 2]].reshape(-1)])


@pytest.mark.parametrize(
    ("first_row", "rows", "group", "step"), [(0, 16, 0, 6), (0, 16, 8, 6), (0, 16, 4, 3), (0, 17, 4, 6), (5, 16, 4, 6)]
)
def test_groups_that_are_not_within_a_tensor_are_refused(
    tmp_path: Path, card: ModelCard, first_row: int, rows: int, group: int, step: int
) -> None:
    _, _, entry = raw(tmp_path, card, "F32")
    with pytest.raises(ValueError, match="rows out of range"):
        RowRange(tensor=stored_of(entry), first_row=first_row, rows=rows, group=group, step=step)


def test_all_matrices_of_a_stored_tensor_of_three_dimensions_are_its_rows(tmp_path: Path, card: ModelCard) -> None:
    path, card, entry = raw(tmp_path, card, "F32")
    stored = dataclasses.replace(stored_of(entry), shape=(3, 8, COLUMNS))
    second = TensorEntry(name="e", shape=(8, COLUMNS), ranges=(RowRange(tensor=stored, first_row=8, rows=8),))
    with TensorReader(path, card) as reader:
        np.testing.assert_array_equal(joined(reader, second), joined(reader, entry)[8:16])


def test_of_a_stored_tensor_only_the_rows_of_the_entry_are_looked_at(tmp_path: Path, card: ModelCard) -> None:
    path, card, entry = raw(tmp_path, card, "F32")
    with TensorReader(path, card) as reader:
        assert joined(reader, cut(falsified(entry), (3, 10))).shape == (10, COLUMNS)


def test_a_card_with_shared_stored_tensors_survives_its_bytes(tmp_path: Path, card: ModelCard) -> None:
    _, card, entry = raw(tmp_path, card, "F16")
    halves = (cut(entry, (0, 12)), cut(entry, (12, 12)))
    shared = dataclasses.replace(card, tensors=halves)
    assert ModelCard.from_bytes(shared.to_bytes()) == shared
    assert len(stored_tensors(halves)) == 1


@pytest.mark.parametrize("ranges", [((0, 25),), ((20, 5),), ((-1, 3),), ((0, 0),)], ids=str)
def test_rows_that_are_not_stored_are_no_range(
    tmp_path: Path, card: ModelCard, ranges: tuple[tuple[int, int], ...]
) -> None:
    entry = raw(tmp_path, card, "F16")[2]
    with pytest.raises(ValueError, match="rows out of range"):
        cut(entry, *ranges)


@pytest.mark.parametrize("family", ["llama", "qwen2"])
@pytest.mark.parametrize("name", ["layers.0.q", "layers.1.k", "layers.0.q_bias"])
def test_rows_of_each_head_come_in_the_order_that_is_wanted(tmp_path: Path, family: str, name: str) -> None:
    """From either container, whatever order it has itself, in blocks that need not be whole heads."""
    tiny, order = TinyModel(family=family), [int(row) for row in np.random.default_rng(1).permutation(16)]
    for path in (write_gguf(tmp_path / "m.gguf", tiny), write_folder(tmp_path / "m", tiny)):
        card = index_model(path, "m", lambda done, total: None)
        entry = card.tensor(name)
        if entry is None:
            assert (family, name) == ("llama", "layers.0.q_bias")
            continue
        with TensorReader(path, card) as reader:
            blocks = list(reader.stored_blocks(entry, 20, range(16, 32), head_order=order))
        wanted = tiny.weights()[name][16:32][order]
        np.testing.assert_array_equal(np.concatenate([block.to_float32() for block in blocks]), wanted)


def test_stored_blocks_are_the_bytes_of_the_file(tmp_path: Path, card: ModelCard) -> None:
    path, card, entry = raw(tmp_path, card, "Q4_K")
    rows = np.frombuffer(path.read_bytes()[96:], np.uint8).reshape(ROWS, -1)
    with TensorReader(path, card) as reader:
        first, second = reader.stored_blocks(entry, 10, range(4, 19), range(300, 600))
    assert (first.first_row, second.first_row, first.columns) == (0, 10, range(44, 344))
    np.testing.assert_array_equal(first.stored, rows[4:14, 144:432])
    np.testing.assert_array_equal(second.stored, rows[14:19, 144:432])
