"""Indexing: digests that follow the weights and nothing else, cards that survive the wire, and mismatches named."""

import dataclasses
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from layerline.errors import ModelCorruptError, ModelNotFoundError
from layerline.models.card import ModelCard
from layerline.models.index import index_model
from layerline.models.mismatch import describe_mismatch
from layerline.models.read import TensorReader
from layerline.models.tensor_table import stored_tensors
from tests.fakes.model_files import TinyModel, stored_name, write_folder, write_gguf, write_json

MODEL = TinyModel()


def indexed(path: Path, name: str = "tiny") -> ModelCard:
    return index_model(path, name, lambda done, total: None)


def test_a_card_survives_the_wire(tmp_path: Path) -> None:
    card = indexed(write_gguf(tmp_path / "model.gguf", MODEL))
    assert ModelCard.from_bytes(card.to_bytes()) == card
    assert (card.name, card.container, card.size_bytes) == ("tiny", "gguf", (tmp_path / "model.gguf").stat().st_size)
    with pytest.raises(ValueError, match="not a model card"):
        ModelCard.from_bytes(card.to_bytes()[:-1])


def test_the_digest_is_of_the_weights_and_not_of_names_and_places(tmp_path: Path) -> None:
    first = write_gguf(tmp_path / "a.gguf", MODEL)
    padded = write_gguf(tmp_path / "b.gguf", MODEL, metadata={"general.description": "moves every offset" * 100})
    folder = write_folder(tmp_path / "one", MODEL)
    sharded = write_folder(tmp_path / "three", MODEL, shards=3)
    assert indexed(first).tensors[0].ranges[0].tensor.offset != indexed(padded).tensors[0].ranges[0].tensor.offset
    assert indexed(first, "a").digest == indexed(padded, "b").digest
    assert indexed(folder).digest == indexed(sharded, "other").digest


def test_one_flipped_bit_gives_another_digest_and_is_named(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "model.gguf", MODEL)
    card = indexed(path)
    entry = card.tensor("layers.1.down")
    assert entry is not None
    with open(path, "r+b") as file:
        offset = entry.ranges[0].tensor.offset
        file.seek(offset)
        file.write(bytes([path.read_bytes()[offset] ^ 1]))
    changed = indexed(path)
    assert changed.digest != card.digest
    assert describe_mismatch(card, changed).startswith(
        "tensor layers.1.down (blk.1.ffn_down.weight) holds other numbers"
    )


def test_a_card_with_two_kinds_of_layers_survives_its_bytes(tmp_path: Path) -> None:
    config = {"use_sliding_window": True, "sliding_window": 16, "max_window_layers": 1}
    card = indexed(write_folder(tmp_path, TinyModel(family="qwen2"), config=config))
    assert len(card.spec.kinds) == 2
    assert ModelCard.from_bytes(card.to_bytes()) == card


def test_mismatches_of_every_kind_are_described(tmp_path: Path) -> None:
    card = indexed(write_gguf(tmp_path / "model.gguf", MODEL))
    half = indexed(write_gguf(tmp_path / "half.gguf", MODEL, storage="F16"))
    longer = indexed(write_gguf(tmp_path / "longer.gguf", MODEL, metadata={"llama.context_length": 512}))
    begun = indexed(write_gguf(tmp_path / "begun.gguf", MODEL, metadata={"tokenizer.ggml.add_bos_token": True}))
    scaling = {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0}
    slower = indexed(write_gguf(tmp_path / "slower.gguf", MODEL, metadata=scaling))
    fewer = dataclasses.replace(card, digest="other", tensors=card.tensors[1:])
    assert describe_mismatch(card, dataclasses.replace(card, name="other")) == ""
    assert describe_mismatch(card, half) == "tensor embedding (token_embd.weight) is stored as F32 and F16"
    assert describe_mismatch(card, longer) == "context_tokens is 256 and 512"
    assert describe_mismatch(card, slower).startswith("layer 0 attention rope ")
    assert describe_mismatch(card, begun) == "tokenizer add_bos is False and True"
    assert describe_mismatch(card, fewer) == "tensor embedding is only in one of them"


def test_progress_grows_to_the_whole(tmp_path: Path) -> None:
    calls: list[tuple[int, int]] = []
    card = index_model(write_folder(tmp_path, MODEL, shards=2), "tiny", lambda done, total: calls.append((done, total)))
    total = sum(entry.nbytes for entry in card.tensors)
    assert [done for done, _ in calls] == sorted(done for done, _ in calls)
    assert calls[-1] == (total, total)


def test_an_output_that_may_be_a_copy_of_the_embedding_is_read_once_and_as_progress(tmp_path: Path) -> None:
    calls: list[tuple[int, int]] = []
    embedding = MODEL.weights()["embedding"]
    folder = write_folder(tmp_path, MODEL, tensors={"lm_head.weight": embedding})
    card = index_model(folder, "tiny", lambda done, total: calls.append((done, total)))
    total = sum(entry.nbytes for entry in card.tensors) + embedding.nbytes
    assert card.spec.tied_output
    assert calls[-1] == (total, total)


def test_a_file_that_changes_while_it_is_indexed_is_refused(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "model.gguf", MODEL)
    with pytest.raises(ModelCorruptError, match="changed while it was indexed"):
        index_model(path, "tiny", lambda done, total: os.utime(path, ns=(0, done)))


def test_a_file_that_shrinks_while_it_is_indexed_is_refused(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "model.gguf", MODEL)
    with pytest.raises(ModelCorruptError, match=r"Tensor \S+ .* the file shrank|changed while"):
        index_model(path, "tiny", lambda done, total: os.truncate(path, 100))


def test_no_model_there(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match=r"none\.gguf"):
        indexed(tmp_path / "none.gguf")


def test_what_transformers_saves_is_read_with_its_numbers(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    fake = write_folder(tmp_path / "fake", MODEL)
    shutil.copytree(fake, tmp_path / "saved")
    for file in (tmp_path / "saved").glob("*.safetensors"):
        file.unlink()
    config = transformers.AutoConfig.from_pretrained(fake)
    model = transformers.AutoModelForCausalLM.from_config(config)
    model.save_pretrained(tmp_path / "saved", max_shard_size="100KB")
    card = indexed(tmp_path / "saved")
    assert len({tensor.file for tensor in stored_tensors(card.tensors)}) > 1
    with TensorReader(tmp_path / "saved", card) as reader:
        for entry in card.tensors:
            rows = np.concatenate([rows for _, rows in reader.blocks(entry, 50)])
            np.testing.assert_array_equal(rows, model.state_dict()[entry.stored_names].numpy())


@pytest.mark.parametrize("unused", ["lm_head.weight", "model.layers.0.self_attn.rotary_emb.inv_freq"])
def test_a_shard_of_which_nothing_is_used_is_no_part_of_the_model(tmp_path: Path, unused: str) -> None:
    extra = MODEL.weights()["embedding"] if unused == "lm_head.weight" else np.zeros(8, np.float32)
    weights = {stored_name(name, "safetensors"): rows for name, rows in MODEL.weights().items()}
    write_folder(tmp_path, MODEL)
    save_file({unused: extra}, tmp_path / "spare.safetensors")
    weight_map = {**dict.fromkeys(weights, "model.safetensors"), unused: "spare.safetensors"}
    write_json(tmp_path / "model.safetensors.index.json", {"metadata": {}, "weight_map": weight_map})
    card = indexed(tmp_path)
    assert card.size_bytes == (tmp_path / "model.safetensors").stat().st_size
    with TensorReader(tmp_path, card) as reader:
        (_, rows), *_ = reader.blocks(card.tensors[0], 1 << 20)
    np.testing.assert_array_equal(rows, MODEL.weights()["embedding"])
