"""GGUF headers: what is read, and that every malformation is named before anything is allocated for it."""

import struct
from pathlib import Path

import pytest

from layerline.errors import ModelCorruptError, ModelUnsupportedError
from layerline.models.gguf_file import read_gguf
from tests.fakes.model_files import EPSILON, TinyModel, write_gguf
from tests.fakes.tiny_tokenizer import tokens

MODEL = TinyModel()
STRING, ARRAY, UINT32, UINT8 = 8, 9, 4, 0


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def tensor(name: str = "a", shape: tuple[int, ...] = (32,), storage: int = 0, offset: int = 0) -> bytes:
    sides = struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
    return text(name) + sides + struct.pack("<IQ", storage, offset)


def gguf_bytes(
    tensors: list[bytes], keys: list[bytes] | None = None, data: int = 4096, *, version: int = 3, magic: bytes = b"GGUF"
) -> bytes:
    keys = keys or []
    header = magic + struct.pack("<IQQ", version, len(tensors), len(keys)) + b"".join(keys) + b"".join(tensors)
    return header + bytes(-len(header) % 32) + bytes(data)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "model.gguf"


def test_metadata_and_tensors_are_as_written(file: Path) -> None:
    header = read_gguf(write_gguf(file, MODEL))
    assert header.metadata["llama.block_count"] == MODEL.layers
    assert header.metadata["llama.attention.layer_norm_rms_epsilon"] == EPSILON
    assert header.metadata["tokenizer.ggml.tokens"] == tokens()
    assert header.metadata["tokenizer.ggml.add_bos_token"] is False
    shapes = {tensor.name: tensor.shape for tensor in header.tensors}
    assert shapes["blk.1.ffn_down.weight"] == (MODEL.hidden, MODEL.intermediate)
    assert header.files == (file,)


def test_every_truncation_of_a_header_is_refused(file: Path) -> None:
    whole = gguf_bytes([tensor()], [text("k") + struct.pack("<I", STRING) + text("v")], data=128)
    for length in range(len(whole)):
        file.write_bytes(whole[:length])
        with pytest.raises(ModelCorruptError):
            read_gguf(file)


def strings(key: str, *items: bytes) -> bytes:
    return text(key) + struct.pack("<IIQ", ARRAY, STRING, len(items)) + b"".join(items)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (gguf_bytes([tensor()], magic=b"GGML"), "letters GGUF"),
        (gguf_bytes([tensor("w", (4096,))], data=4096), "Tensor w of model.gguf ends at byte .* truncated"),
        (gguf_bytes([tensor("w"), tensor("w", offset=128)]), "Tensor w of model.gguf appears twice"),
        (gguf_bytes([tensor("a"), tensor("b", offset=64)]), "Tensor b of model.gguf overlaps tensor a"),
        (gguf_bytes([tensor("w", offset=33)]), "Tensor w .* not aligned"),
        (gguf_bytes([tensor("w", offset=1 << 62)]), "Tensor w .* truncated"),
        (gguf_bytes([tensor("w", (1 << 62, 1 << 62))]), "Tensor w .* impossible shape"),
        (gguf_bytes([tensor("w", (0,))]), "Tensor w .* impossible shape"),
        (gguf_bytes([tensor("w", (1, 1, 1, 1, 1))]), "Tensor w .* 5 dimensions"),
        (gguf_bytes([tensor("w", storage=26)]), "Tensor w .* stored as I32, which is no type for weights"),
        (gguf_bytes([tensor("w", (33,), storage=2)]), "Tensor w .* not whole Q4_0 blocks"),
        (gguf_bytes([], [text("k") + struct.pack("<II", UINT32, 1)] * 2), "key k appears twice"),
        (gguf_bytes([], [text("k") + struct.pack("<I", 77)]), "unknown type 77"),
        (gguf_bytes([], [text("k") + struct.pack("<IIQ", ARRAY, UINT32, 1 << 60)]), "length of k is"),
        (gguf_bytes([], [text("k") + struct.pack("<IIQ", ARRAY, UINT32, 1 << 22)]), "past the end"),
        (gguf_bytes([], [text("k") + struct.pack("<IIQ", ARRAY, UINT32, (1 << 22) + 1)]), "length of k is"),
        (gguf_bytes([], [text("k") + struct.pack("<IIQ", ARRAY, ARRAY, 1)]), "array of arrays"),
        (gguf_bytes([], [struct.pack("<Q", 1 << 60)]), "length of the name of key 0"),
        (gguf_bytes([], [strings("k", text("a"), struct.pack("<Q", 1 << 60))]), "the length of k is"),
        (gguf_bytes([], [strings("k", text("a"), struct.pack("<Q", 1 << 23))]), "k goes past the end"),
        (gguf_bytes([], [strings("k", text("a"), struct.pack("<Q", 2) + b"\xff\xfe")]), "k is not UTF-8"),
        (gguf_bytes([], [struct.pack("<Q", 2) + b"\xff\xfe"]), "not UTF-8"),
        (gguf_bytes([], [text("general.alignment") + struct.pack("<II", UINT32, 3)]), "power of two"),
        (b"GGUF" + struct.pack("<IQQ", 3, 1 << 60, 0), "number of tensors is"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1 << 60), "number of keys is"),
    ],
)
def test_malformed(file: Path, content: bytes, reason: str) -> None:
    file.write_bytes(content)
    with pytest.raises(ModelCorruptError, match=reason) as caught:
        read_gguf(file)
    assert "model.gguf" in caught.value.message


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (gguf_bytes([tensor()], version=1), "version 1"),
        (gguf_bytes([tensor("w", storage=999)]), "Tensor w .* storage type 999"),
    ],
)
def test_unsupported(file: Path, content: bytes, reason: str) -> None:
    file.write_bytes(content)
    with pytest.raises(ModelUnsupportedError, match=reason):
        read_gguf(file)


def test_all_arrays_together_are_bounded(file: Path) -> None:
    keys = [text(f"k{index}") + struct.pack("<IIQ", ARRAY, UINT8, 1 << 20) + bytes(1 << 20) for index in range(5)]
    file.write_bytes(gguf_bytes([], keys))
    with pytest.raises(ModelCorruptError, match=r"length of k4 is 1048576, more than the 0 that can be"):
        read_gguf(file)


def test_the_whole_header_is_bounded(file: Path) -> None:
    keys = [text(f"k{index}") + struct.pack("<I", STRING) + text("x" * (1 << 24)) for index in range(5)]
    file.write_bytes(gguf_bytes([], keys))
    with pytest.raises(ModelCorruptError, match=r"k3 goes past the end of the header, which can have 64 MiB"):
        read_gguf(file)
