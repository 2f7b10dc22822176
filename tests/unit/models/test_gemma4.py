"""What config.json and GGUF metadata of Gemma 4 say, in each form, and what is refused of it by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from layerline.errors import ModelCorruptError, ModelUnsupportedError
from layerline.models.config_fields import ConfigFields
from layerline.models.families.gemma4_text import FAMILY
from layerline.models.fields import Fields
from layerline.models.gguf_fields import GgufModel
from layerline.models.gguf_gemma4 import model_of_gguf
from layerline.models.gguf_rope import RopeTensors
from layerline.models.headers import read_headers
from layerline.models.spec import ModelSpec
from tests.fakes.gemma4_families import DENSE, GEMMA4_FAMILIES, KEYS, SHARING, TENSORS
from tests.fakes.made_models import GGUF_SIZES, SIZES, write_family

FACTORS = tuple(TENSORS["rope_freqs.weight"].tolist())
STORED = frozenset({"blk.0.attn_v.weight", "blk.2.attn_v.weight", "blk.0.layer_output_scale.weight"})


def of_config(values: Mapping[str, object], **changes: object) -> ModelSpec:
    return FAMILY.from_config(ConfigFields({**SIZES, **values, **changes}, "config.json"))


def of_gguf(factors: tuple[float, ...] | None = FACTORS, **changes: object) -> ModelSpec:
    keys = {**GGUF_SIZES, **KEYS, **{key.replace("__", "."): value for key, value in changes.items()}}
    metadata = {f"gemma4.{key}": value for key, value in keys.items() if value is not None}
    fields = Fields({**metadata, "tokenizer.ggml.tokens": ["a"] * 300}, "model.gguf")
    rope = RopeTensors(factors=factors)
    return model_of_gguf(
        GgufModel(metadata=fields, architecture="gemma4", tensors=STORED, rope_tensors=rope), "gemma4_text"
    )


@pytest.mark.parametrize("number", [str, "{:02}".format])
def test_sizes_of_full_layers_are_said_in_either_form(number: Callable[[int], str]) -> None:
    """As published, and as transformers 5 writes it, of ten layers or fewer and of more."""
    by_layer = {
        **{key: value for key, value in DENSE.items() if "global" not in key},
        "per_layer_config": {number(layer): {"head_dim": 32, "num_key_value_heads": 1} for layer in (1, 3)},
    }
    spec = of_config(DENSE)
    assert of_config(by_layer) == spec
    sizes = [(own.head_dim, own.kv_heads) for own in (spec.layer(layer).attention for layer in range(4))]
    assert sizes == [(16, 2), (32, 1)] * 2
    apart = of_config(DENSE, attention_k_eq_v=False).layer(1).attention
    assert (apart.kv_heads, apart.keys_as_values) == (2, False)  # heads of full layers count only with keys as values


def test_the_last_layer_is_a_full_one_whatever_is_said() -> None:
    kinds = ["full_attention", "sliding_attention"] * 2
    windows = [of_config(DENSE, layer_types=kinds).layer(layer).attention.window_tokens for layer in range(4)]
    assert windows == [0, 9, 0, 0]


def test_what_a_config_leaves_out() -> None:
    """The 12B says less than the others, and has no inputs of layers."""
    values = {key: DENSE[key] for key in ("layer_types", "tie_word_embeddings")}
    unified = of_config(values, model_type="gemma4_unified_text", max_position_embeddings=1 << 18)
    assert (unified.token_input, unified.layer(0).attention.window_tokens) == (0, 1024)
    assert unified.layer(1).attention.head_dim == 512
    other = of_config(values, model_type="gemma4_text", vocab_size=262144, max_position_embeddings=1 << 17)
    assert (other.token_input, other.layer(0).attention.window_tokens) == (256, 512)
    rope = other.layer(1).attention.rope
    assert rope is not None
    assert (rope.scaling, rope.theta, rope.rotated) == ("proportional", 1e6, 128)


@pytest.mark.parametrize(
    ("changes", "feature"),
    [
        ({"use_bidirectional_attention": "all"}, "use_bidirectional_attention"),
        ({"attention_bias": True}, "attention_bias"),
        ({"per_layer_config": {"1": {"head_dim": 32, "num_attention_heads": 2}}}, "per_layer_config with num_att"),
        ({"vocab_size_per_layer_input": 7}, "vocab_size_per_layer_input"),
        ({"layer_types": ["chunked_attention"] * 6}, "layer_types"),
    ],
)
def test_refused_configs(changes: dict[str, Any], feature: str) -> None:
    with pytest.raises(ModelUnsupportedError, match=feature):
        of_config(SHARING, **changes)


@pytest.mark.parametrize("shared", [-1, 5, 6, 7])
def test_as_many_layers_as_have_another_to_read_from_share_pages(shared: int) -> None:
    assert of_config(SHARING, num_kv_shared_layers=4).layer(5).source == 1
    with pytest.raises(ModelCorruptError, match="num_kv_shared_layers must be so few"):
        of_config(SHARING, num_kv_shared_layers=shared)


def test_both_containers_say_the_same() -> None:
    ours = replace(of_config(DENSE), vocabulary=300)
    made = of_gguf()
    assert made.layer(0).output_scale
    assert [layer.mixer for layer in made.kinds][:2] == [layer.mixer for layer in ours.kinds]


@pytest.mark.parametrize(
    ("changes", "feature"),
    [
        ({"factors": None}, "without a rope_freqs.weight"),
        ({"factors": (1e30,) * 16}, "without a rope_freqs.weight"),
        ({"factors": (1.0, 1e30) * 8}, "without a rope_freqs.weight"),
        ({"factors": (1.0,) * 4 + (8.0,) * 12}, "not that of Gemma 4"),
        ({"factors": FACTORS[:8]}, "not that of Gemma 4"),
        ({"rope__scaling__type": "linear"}, "rope scaling"),
        ({"rope__dimension_count_swa": 8}, "a part of each head"),
        ({"attention__value_length": 16}, "unlike length"),
    ],
)
def test_refused_files(changes: dict[str, Any], feature: str) -> None:
    with pytest.raises(ModelUnsupportedError, match=feature):
        of_gguf(**changes)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("attention__sliding_window_pattern", [True] * 3),
        ("attention__head_count_kv", [2] * 5),
        ("feed_forward_length", [96]),
        ("attention__shared_kv_layers", 3),
    ],
)
def test_unsound_files(key: str, value: Any) -> None:
    with pytest.raises(ModelCorruptError, match=key.replace("__", ".")):
        of_gguf(**{key: value})


def test_files_may_have_what_makes_keys_that_nobody_reads(tmp_path: Path) -> None:
    """As published ones do, but only of layers that read the keys of others."""
    folder = write_family(tmp_path / "model", GEMMA4_FAMILIES["gemma4_text with inputs"])
    weights, spec = load_file(folder / "model.safetensors"), read_headers(folder).spec
    for name in ("k_proj.weight", "v_proj.weight", "k_norm.weight"):
        weights[f"model.layers.4.self_attn.{name}"] = weights[f"model.layers.2.self_attn.{name}"]
    save_file(weights, folder / "model.safetensors")
    assert read_headers(folder).spec == spec
    weights["model.layers.4.self_attn.v_proj.bias"] = np.zeros(32, np.float32)
    save_file(weights, folder / "model.safetensors")
    with pytest.raises(ModelUnsupportedError, match=r"v_proj\.bias is none"):
        read_headers(folder)
