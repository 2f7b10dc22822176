"""Models with gated delta nets: what their configs mean, what is left out, and what of them is refused by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from layerline.errors import ModelCorruptError, ModelError, ModelUnsupportedError
from layerline.models.config_fields import ConfigFields
from layerline.models.headers import read_headers
from layerline.models.known_families import family_of_config
from layerline.models.model_parts import model_parts
from layerline.models.recurrent import DeltaNetSpec
from layerline.models.sizes import ModelSizes
from layerline.models.spec import AttentionSpec, ModelSpec
from layerline.models.unevenness import unevenness
from node.load_stage import load_stage
from tests.fakes.family_models import FAMILIES
from tests.fakes.made_models import write_family, write_family_gguf
from tests.fakes.specs import decoder_spec, hybrid
from tests.fakes.tiny_models import BY_KERNELS, StoredModel

NEXT = "qwen3_next"
SMALL: dict[str, object] = {
    "hidden_size": 2048,
    "intermediate_size": 512,
    "num_hidden_layers": 4,
    "num_attention_heads": 16,
    "vocab_size": 1000,
}


def spec_of(model_type: str, changes: Mapping[str, object]) -> ModelSpec:
    fields = ConfigFields({**SMALL, "model_type": model_type, **changes}, "config.json")
    return family_of_config(model_type).from_config(fields)


@pytest.mark.parametrize(
    ("model_type", "kv_heads", "experts"),
    [(NEXT, 2, (512, 10, 512)), ("qwen3_5_text", 4, None), ("qwen3_5_moe_text", 2, (256, 8, 512))],
)
def test_a_config_that_says_little_has_what_transformers_has(
    model_type: str, kv_heads: int, experts: tuple[int, int, int] | None
) -> None:
    spec = spec_of(model_type, {})
    full, net = spec.layer(3).mixer, spec.layer(0).mixer
    assert isinstance(full, AttentionSpec)
    assert (full.kv_heads, full.head_dim, full.output_gate, full.qk_norm) == (kv_heads, 256, True, "heads")
    assert full.rope is not None
    assert (full.rope.theta, full.rope.rotated) == (10000.0, 64)
    assert net == DeltaNetSpec(value_heads=32, key_heads=16, key_dim=128, value_dim=128, taps=4)
    assert [spec.layer(layer).recurrent is None for layer in range(4)] == [False, False, False, True]
    own = spec.layer(0).feed_forward.experts
    assert (own and (own.count, own.chosen, own.shared_intermediate)) == experts
    assert spec.context_tokens == 1 << 15


@pytest.mark.parametrize(
    ("changes", "feature"),
    [
        ({"hidden_act": "gelu_pytorch_tanh"}, "a delta net with hidden_act 'gelu_pytorch_tanh'"),
        ({"layer_types": ["sliding_attention", "full_attention"] * 2}, "layer_types other than .* linear_attention"),
        ({"layer_types": ["linear_attention"] * 3}, "layer_types"),
        ({"rope_parameters": {"rope_type": "ntk", "factor": 2.0}}, "rope scaling 'ntk'"),
    ],
)
def test_what_is_not_there_is_refused_by_name(changes: dict[str, Any], feature: str) -> None:
    with pytest.raises(ModelUnsupportedError, match=feature):
        spec_of(NEXT, changes)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"full_attention_interval": 0}, "full_attention_interval must be 1 or more"),
        ({"linear_num_value_heads": 33}, "value_heads is not a multiple of key_heads"),
        ({"linear_conv_kernel_dim": 1}, "taps out of range"),
        ({"layer_types": ["linear_attention"] * 4}, "no layer has attention"),
    ],
)
def test_what_cannot_be_is_refused(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises((ModelError, ValueError), match=reason):
        spec_of(NEXT, changes)


@pytest.mark.parametrize(
    ("key", "value", "error"),
    [
        ("attention.recurrent_layers", [True, False], ModelCorruptError),
        ("full_attention_interval", 0, ModelCorruptError),
        ("ssm.inner_size", 63, ModelCorruptError),
        ("attention.sliding_window", 8, ModelUnsupportedError),
    ],
)
def test_gguf_files_that_cannot_be_are_refused(
    tmp_path: Path, key: str, value: object, error: type[ModelError]
) -> None:
    model = FAMILIES["qwen3_5_text"]
    assert model.gguf is not None
    other = replace(model, gguf=replace(model.gguf, keys={**model.gguf.keys, key: value}))
    with pytest.raises(error, match=key.rpartition(".")[2].partition("_")[0]):
        read_headers(write_family_gguf(tmp_path / "model.gguf", write_family(tmp_path / "whole", model), other))


def with_further(folder: Path, name: str) -> Path:
    """The folder with a further tensor."""
    stored = load_file(folder / "model.safetensors")
    save_file({**stored, name: np.zeros(4, np.float32)}, folder / "model.safetensors")
    return folder


def test_what_guesses_further_tokens_is_left_out_of_a_folder(tmp_path: Path) -> None:
    folder = write_family(tmp_path / "model", FAMILIES[NEXT])
    tensors = len(read_headers(folder).tensors)
    assert len(read_headers(with_further(folder, "mtp.pre_fc_norm_hidden.weight")).tensors) == tensors
    with pytest.raises(ModelUnsupportedError, match="mtpx"):
        read_headers(with_further(folder, "mtpx.weight"))


def test_what_guesses_further_tokens_is_left_out_of_a_file(tmp_path: Path) -> None:
    """The last layer of the file, whose attention the files have like that of others, stands for it."""
    model = FAMILIES["qwen3_5_text"]
    assert model.gguf is not None
    keys = {**model.gguf.keys, "nextn_predict_layers": 1}
    path = write_family_gguf(
        tmp_path / "model.gguf",
        write_family(tmp_path / "whole", model),
        replace(model, gguf=replace(model.gguf, keys=keys)),
    )
    spec = read_headers(path).spec
    assert [spec.layer(layer).recurrent is None for layer in range(spec.layers)] == [False, True, False]


def net_of(value_heads: int, key_heads: int, *, tiled: bool) -> ModelSpec:
    net = DeltaNetSpec(value_heads=value_heads, key_heads=key_heads, key_dim=8, value_dim=8, taps=4, tiled=tiled)
    return hybrid(decoder_spec(layers=4, heads=16, kv_heads=4), net)


@pytest.mark.parametrize(
    ("value_heads", "key_heads", "tiled", "count", "expected"),
    [
        (8, 4, False, 2, [(range(4), range(2)), (range(4, 8), range(2, 4))]),
        (8, 4, True, 2, [(range(4), range(4)), (range(4, 8), range(4))]),
        (8, 8, False, 2, [(range(4), range(4)), (range(4, 8), range(4, 8))]),
        (8, 4, True, 4, [(range(2 * i, 2 * i + 2), range(2 * i % 4, 2 * i % 4 + 2)) for i in range(4)]),
        (12, 4, True, 2, [(range(8), range(4)), (range(8, 12), range(4))]),
    ],
)
def test_ranks_have_value_heads_with_the_keys_that_they_read(
    value_heads: int, key_heads: int, *, tiled: bool, count: int, expected: list[tuple[range, range]]
) -> None:
    spec = net_of(value_heads, key_heads, tiled=tiled)
    place = next(place for place, kind in enumerate(spec.kinds) if kind.recurrent is not None)
    parts = model_parts(spec, count)
    assert [(part.kinds[place].heads, part.kinds[place].kv_heads) for part in parts] == expected
    for part, (heads, _) in zip(parts, expected, strict=True):
        own = part.part_of(spec).kinds[place].recurrent
        assert isinstance(own, DeltaNetSpec)
        readers = own.value_heads // own.key_heads
        for number, head in enumerate(heads):
            whole = head % key_heads if tiled else head // (value_heads // key_heads)
            read = number % own.key_heads if tiled else number // readers
            assert part.kinds[place].kv_heads[read] == whole
    repeated = sum(len(kv_heads) for _, kv_heads in expected) > key_heads
    assert ("recurrent heads" in unevenness(spec, parts)) == repeated


@pytest.mark.parametrize("family", [NEXT, "qwen3_5_text"])
@pytest.mark.parametrize("changes", [{}, {"dtype": "bfloat16"}, BY_KERNELS], ids=["float32", "bfloat16", "kernels"])
def test_what_is_counted_is_what_is_held(tmp_path: Path, family: str, changes: dict[str, Any]) -> None:
    stored, seen = StoredModel.at(write_family(tmp_path / "model", FAMILIES[family])), [(0, 0)]
    spec = stored.spec(0, stored.card.spec.layers - 1, **changes)
    stage = load_stage(stored.card, stored.path, spec, lambda done, total: seen.append((done, total)))
    expected = ModelSizes.of_stage(stored.card, spec).weights_bytes(range(stored.card.spec.layers))
    assert stage.weights_bytes == expected
    assert seen[-1] == (expected, expected)
