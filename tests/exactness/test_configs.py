"""Configurations whose meaning is in a default or a precedence of `transformers` give what `transformers` gives."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.fakes.logits import assert_close
from tests.fakes.model_files import TinyModel, stored_name, write_folder, write_json
from tests.fakes.tiny_models import Rows, StoredModel, chunks, logits_of, reference_logits

TOKENS = [int(token) for token in np.random.default_rng(3).integers(3, 260, 40)]
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
LINEAR = {"rope_type": "linear", "factor": 4.0}
QWEN2: dict[str, object] = {"use_sliding_window": True, "sliding_window": 7}
CONFIGS: dict[str, tuple[str, dict[str, object]]] = {
    "rope_scaling goes before rope_parameters": (
        "llama",
        {"rope_scaling": {**LINEAR, "factor": 2.0}, "rope_parameters": {**LINEAR, "rope_theta": 500.0}},
    ),
    "an empty rope_scaling does not": (
        "llama",
        {"rope_scaling": {}, "rope_parameters": {**LINEAR, "rope_theta": 500.0}},
    ),
    "llama3 without its original context": ("llama", {"rope_scaling": LLAMA3}),
    "llama3 with its original context beside": (
        "llama",
        {"rope_scaling": {**LLAMA3, "original_max_position_embeddings": 128}, "original_max_position_embeddings": 32},
    ),
    "rope_type goes before type": ("llama", {"rope_scaling": {**LINEAR, "rope_type": "default", "type": "linear"}}),
    "a mistral looks at no max_window_layers": ("mistral", {"sliding_window": 7, "max_window_layers": 1}),
    "windows after layer 28": ("qwen2", QWEN2),
    "windows in any layers": (
        "qwen2",
        {**QWEN2, "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention"]},
    ),
}


def assert_exact(model: StoredModel) -> None:
    """In one stage and two, in chunks of several sizes."""
    expected = reference_logits(model.reference(), TOKENS)
    for stages, size in ((1, len(TOKENS)), (1, 1), (2, 9)):
        chain = model.chain(stages)
        for start, token_ids in chunks(TOKENS, size):
            (drawn,) = chain.step(Rows(token_ids=token_ids, start=start))
            wanted = expected[start + len(token_ids) - 1]
            assert_close(logits_of(drawn), wanted)


@pytest.mark.parametrize("name", CONFIGS)
def test_what_transformers_makes_of_it(tmp_path: Path, name: str) -> None:
    family, config = CONFIGS[name]
    assert_exact(StoredModel.written(tmp_path, TinyModel(family=family, layers=4), config))


def test_a_tied_model_with_another_output_matrix_uses_it(tmp_path: Path) -> None:
    tiny = TinyModel()
    other = {"lm_head.weight": TinyModel(seed=9).weights()["embedding"]}
    model = StoredModel.at(write_folder(tmp_path, tiny, tensors=other))
    assert not model.card.spec.tied_output
    assert len(model.card.notes) == 1
    assert_exact(model)


def test_a_base_model_without_its_prefix(tmp_path: Path) -> None:
    tiny = TinyModel()
    named = {stored_name(name, "safetensors"): rows for name, rows in tiny.weights().items()}
    bare = {name.removeprefix("model."): rows for name, rows in named.items()}
    assert_exact(StoredModel.at(write_folder(tmp_path, tiny, tensors={**dict.fromkeys(named), **bare})))


@pytest.mark.parametrize("missing", ["sliding_window", "num_key_value_heads", "rms_norm_eps", "rope_theta"])
def test_what_a_mistral_does_not_say(tmp_path: Path, missing: str) -> None:
    tiny = TinyModel(family="mistral", heads=8, kv_heads=8, head_dim=8)
    folder = write_folder(tmp_path, tiny)
    write_json(folder / "config.json", {key: value for key, value in tiny.config().items() if key != missing})
    assert_exact(StoredModel.at(folder))
