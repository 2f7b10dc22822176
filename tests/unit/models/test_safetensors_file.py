"""Safetensors headers and the index of shards: what is read, and every malformation by name."""

import json
from pathlib import Path

import pytest

from layerline.errors import ModelCorruptError, ModelUnsupportedError
from layerline.models.safetensors_file import INDEX_NAME, read_safetensors
from tests.fakes.model_files import TinyModel, write_folder, write_json

MODEL = TinyModel()


def write_header(folder: Path, header: object, data: int = 64) -> None:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + bytes(data))


def entry(dtype: str = "F32", shape: object = (4, 4), offsets: object = (0, 64)) -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


@pytest.mark.parametrize("shards", [1, 3])
def test_tensors_are_found_in_every_shard(tmp_path: Path, shards: int) -> None:
    tensors = read_safetensors(write_folder(tmp_path, MODEL, shards=shards))
    assert len(tensors) == len(MODEL.shapes())
    assert len({tensor.file for tensor in tensors}) == shards
    shapes = {tensor.name: tensor.shape for tensor in tensors}
    assert shapes["model.layers.1.mlp.down_proj.weight"] == (MODEL.hidden, MODEL.intermediate)


def test_metadata_is_no_tensor(tmp_path: Path) -> None:
    write_header(tmp_path, {"__metadata__": {"format": "pt"}, "w": entry()})
    assert [tensor.name for tensor in read_safetensors(tmp_path)] == ["w"]


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        ({"w": entry(offsets=(0, 60))}, r"tensor w .*takes 64 bytes"),
        ({"w": entry(offsets=(-4, 60))}, "tensor w"),
        ({"w": entry(offsets=(64, 128))}, "tensor w .*truncated"),
        ({"a": entry(shape=[8], offsets=(0, 32)), "b": entry(shape=[8], offsets=(16, 48))}, "b .*overlaps tensor a"),
        ({"w": entry(dtype="I64", shape=[8])}, "tensor w .*I64, which is no type for weights"),
        ({"w": entry(shape=[1 << 60, 1 << 60])}, "tensor w .*impossible shape"),
        ({"w": entry(shape=[-4, -4])}, "tensor w .*impossible shape"),
        ({"w": entry(shape=[], offsets=(0, 4))}, "tensor w .*0 dimensions"),
        ({"w": entry(shape="4")}, "tensor w.*shape must be a list"),
        ({"w": {"dtype": "F32"}}, "tensor w.*shape is missing"),
        ({"w": 7}, "tensor w .*not described"),
        ([1], "not an object"),
        (b"{nonsense", "not JSON"),
        (b'{"w": {}, "w": {}}', "'w' appears twice"),
        (b"[" * 100_000, "not JSON"),
    ],
)
def test_malformed_header(tmp_path: Path, header: object, reason: str) -> None:
    write_header(tmp_path, header)
    with pytest.raises(ModelCorruptError, match=f"(?i){reason}") as caught:
        read_safetensors(tmp_path)
    assert "model.safetensors" in caught.value.message


@pytest.mark.parametrize("content", [b"1234567", (1 << 40).to_bytes(8, "little") + b"{}", bytes(8) + b"{}"])
def test_absurd_header_length(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(ModelCorruptError, match="a header of"):
        read_safetensors(tmp_path)


def test_a_type_that_cannot_be_read_is_unsupported(tmp_path: Path) -> None:
    write_header(tmp_path, {"w": entry(dtype="F8_E4M3", offsets=(0, 16))})
    with pytest.raises(ModelUnsupportedError, match=r"w of model\.safetensors is stored as F8_E4M3"):
        read_safetensors(tmp_path)


@pytest.mark.parametrize("file", ["../../x.safetensors", "/etc/x.safetensors", "a/b.safetensors", "..\\x", "x.bin", 3])
def test_the_index_cannot_lead_out_of_the_folder(tmp_path: Path, file: object) -> None:
    write_folder(tmp_path, MODEL, shards=2)
    write_json(tmp_path / INDEX_NAME, {"weight_map": {"w": file}})
    with pytest.raises(ModelCorruptError, match=r"tensor w .*not a file of this folder"):
        read_safetensors(tmp_path)


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    write_folder(tmp_path, MODEL, shards=2)
    (tmp_path / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(ModelCorruptError, match="model-00002-of-00002"):
        read_safetensors(tmp_path)


def test_a_tensor_that_is_not_where_the_index_says_is_named(tmp_path: Path) -> None:
    write_folder(tmp_path, MODEL, shards=2)
    index = json.loads((tmp_path / INDEX_NAME).read_text())
    index["weight_map"]["phantom"] = "model-00001-of-00002.safetensors"
    write_json(tmp_path / INDEX_NAME, index)
    with pytest.raises(ModelCorruptError, match=r"Tensor phantom of model-00001-of-00002\.safetensors is missing"):
        read_safetensors(tmp_path)


def test_a_tensor_in_two_shards_is_named(tmp_path: Path) -> None:
    write_folder(tmp_path, MODEL, shards=2)
    (tmp_path / "model-00002-of-00002.safetensors").write_bytes(
        (tmp_path / "model-00001-of-00002.safetensors").read_bytes()
    )
    with pytest.raises(ModelCorruptError, match="is also in model-00001-of-00002"):
        read_safetensors(tmp_path)


@pytest.mark.parametrize("weight_map", [None, {}, [1]])
def test_an_index_without_a_map_is_refused(tmp_path: Path, weight_map: object) -> None:
    write_folder(tmp_path, MODEL)
    write_json(tmp_path / INDEX_NAME, {"weight_map": weight_map})
    with pytest.raises(ModelCorruptError, match="weight_map"):
        read_safetensors(tmp_path)
