"""Reading weights in blocks: the numbers of every storage, rows put back in order, and changed bytes refused."""

import mmap
import os
from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType
from gguf.quants import dequantize, quantize
from numpy.typing import NDArray

from layerline.errors import ModelCorruptError
from layerline.models.card import ModelCard
from layerline.models.index import index_model
from layerline.models.read import TensorReader
from layerline.models.tensor_table import TensorEntry
from tests.fakes.model_files import TinyModel, write_folder, write_gguf

LLAMA = TinyModel(tied_output=False)
QWEN2 = TinyModel(family="qwen2")
BLOCKS = TinyModel(hidden=256, intermediate=256, heads=4, head_dim=64)  # rows of whole blocks of every storage


def indexed(path: Path) -> ModelCard:
    return index_model(path, "tiny", lambda done, total: None)


def read(path: Path, card: ModelCard, rows_per_block: int) -> dict[str, NDArray[np.float32]]:
    with TensorReader(path, card) as reader:
        return {entry.name: joined(reader, entry, rows_per_block) for entry in card.tensors}


def joined(reader: TensorReader, entry: TensorEntry, rows_per_block: int) -> NDArray[np.float32]:
    blocks = list(reader.blocks(entry, rows_per_block))
    firsts = np.cumsum([0, *(len(rows) for _, rows in blocks)])
    assert [first for first, _ in blocks] == firsts[:-1].tolist()
    return np.concatenate([rows for _, rows in blocks])


@pytest.mark.parametrize("rows_per_block", [1, 7, 24, 10_000])
@pytest.mark.parametrize("model", [LLAMA, QWEN2], ids=lambda model: model.family)
def test_every_container_gives_the_same_numbers_in_blocks_of_any_size(
    tmp_path: Path, model: TinyModel, rows_per_block: int
) -> None:
    paths = [write_gguf(tmp_path / "model.gguf", model), write_folder(tmp_path / "folder", model, shards=3)]
    for path in paths:
        numbers = read(path, indexed(path), rows_per_block)
        assert numbers.keys() == model.shapes().keys()
        for name, weights in model.weights().items():
            np.testing.assert_array_equal(numbers[name], weights, err_msg=name)


def test_blocks_are_fresh_float32_that_may_be_written_to_and_kept(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "model.gguf", LLAMA)
    card = indexed(path)
    entry = card.tensors[0]
    with TensorReader(path, card) as reader:
        blocks = [rows for _, rows in reader.blocks(entry, 100)]
    assert all(rows.dtype == np.float32 and rows.flags.writeable and rows.flags.c_contiguous for rows in blocks)
    assert [len(rows) for rows in blocks] == [100, 100, LLAMA.vocabulary - 200]


def test_float16_and_bfloat16_come_without_loss(tmp_path: Path) -> None:
    half = write_folder(tmp_path / "half", LLAMA, dtype=np.float16)
    brain = write_gguf(tmp_path / "brain.gguf", LLAMA, storage="BF16")
    up = LLAMA.weights()["layers.1.up"]
    np.testing.assert_array_equal(
        read(half, indexed(half), 32)["layers.1.up"], up.astype(np.float16).astype(np.float32)
    )
    kind = GGMLQuantizationType.BF16
    np.testing.assert_array_equal(read(brain, indexed(brain), 32)["layers.1.up"], dequantize(quantize(up, kind), kind))


@pytest.mark.parametrize("storage", ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"])
def test_quantised_rows_come_as_the_library_has_them(tmp_path: Path, storage: str) -> None:
    path = write_gguf(tmp_path / "model.gguf", BLOCKS, storage=storage)
    numbers = read(path, indexed(path), 50)
    kind = GGMLQuantizationType[storage]
    for name in ("embedding", "layers.0.q", "layers.1.k", "layers.1.down"):
        wanted = dequantize(quantize(BLOCKS.weights()[name], kind), kind)
        np.testing.assert_array_equal(numbers[name], wanted, err_msg=name)


@pytest.mark.parametrize("name", ["layers.1.v", "layers.0.attention_norm"])
def test_a_flipped_byte_is_refused_with_its_tensor(tmp_path: Path, name: str) -> None:
    path = write_gguf(tmp_path / "model.gguf", LLAMA)
    card = indexed(path)
    entry = card.tensor(name)
    assert entry is not None
    flip(path, entry.ranges[0].tensor.end - 1)
    with (
        TensorReader(path, card) as reader,
        pytest.raises(ModelCorruptError, match=f"{entry.stored_names} .*has changed since it was indexed"),
    ):
        list(reader.blocks(entry, 8))


def test_a_file_of_another_size_is_refused_at_once(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "model.gguf", LLAMA)
    card = indexed(path)
    os.truncate(path, card.size_bytes + 1)
    with pytest.raises(ModelCorruptError, match="changed since it was indexed"), TensorReader(path, card):
        pass
    os.truncate(path, card.size_bytes - 64)
    with (
        pytest.raises(ModelCorruptError, match=r"Tensor \S+ .*changed since it was indexed"),
        TensorReader(path, card),
    ):
        pass


def test_a_file_that_shrinks_while_it_is_read_is_refused(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "model.gguf", LLAMA)
    card = indexed(path)
    with TensorReader(path, card) as reader:
        os.truncate(path, 4096)
        with pytest.raises(ModelCorruptError, match="its file is shorter"):
            list(reader.blocks(card.tensors[-1], 8))


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    folder = write_folder(tmp_path, LLAMA, shards=2)
    card = indexed(folder)
    (folder / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(ModelCorruptError, match="model-00002-of-00002"), TensorReader(folder, card):
        pass


def test_pages_are_given_back_as_they_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given_back: list[tuple[int, int]] = []

    class Mapping(mmap.mmap):
        def madvise(self, option: int, start: int = 0, length: int = 0) -> None:
            assert option == mmap.MADV_DONTNEED
            given_back.append((start, start + length))
            super().madvise(option, start, length)

    monkeypatch.setattr("layerline.models.read.mmap.mmap", Mapping)
    path = write_gguf(tmp_path / "model.gguf", LLAMA)
    card = indexed(path)
    with TensorReader(path, card) as reader:
        list(reader.blocks(card.tensors[0], 100))
    first = card.tensors[0].ranges[0].tensor
    assert given_back[0][0] <= first.offset
    assert given_back[-1][1] == first.end


def flip(path: Path, offset: int) -> None:
    with open(path, "r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 1]))
