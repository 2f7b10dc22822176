"""The text part of a multimodal checkpoint is the model of text that it would be alone."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from layerline.models.text_part import NOTE
from tests.fakes.family_models import FAMILIES
from tests.fakes.logits import assert_close
from tests.fakes.made_models import write_family
from tests.fakes.model_files import write_json
from tests.fakes.tiny_models import Rows, StoredModel, logits_of, reference_logits

TOKENS = [int(token) for token in np.random.default_rng(7).integers(3, 260, 20)]
TEXT_PARTS = [
    ("gemma3_text", "gemma3_text"),
    ("gemma4_text", "gemma4_text"),
    ("gemma4_text", "gemma4_unified_text"),
    ("gemma4_text with inputs", "gemma4_text"),
    ("qwen2", "qwen2_5_vl_text"),
    ("llama4_text", "llama4_text"),
    ("lfm2", "lfm2"),
    ("qwen3_5_text", "qwen3_5_text"),
    ("qwen3_5_moe_text", "qwen3_5_moe_text"),
]
VISION = {"model_type": "siglip_vision_model", "hidden_size": 32}


def as_newest(name: str) -> str:
    return name.replace("model.", "model.language_model.", 1) if name.startswith("model.") else name


def as_earlier(name: str) -> str:
    return f"language_model.{name}"


@pytest.mark.parametrize(("family", "text_type"), TEXT_PARTS)
@pytest.mark.parametrize("named", [as_newest, as_earlier])
def test_a_section_of_its_own(tmp_path: Path, family: str, text_type: str, named: object) -> None:
    folder = write_family(tmp_path / "model", FAMILIES[family])
    expected = reference_logits(StoredModel.at(folder).reference(), TOKENS)
    text = {**json.loads((folder / "config.json").read_text()), "model_type": text_type}
    tied = text.pop("tie_word_embeddings")
    config = {"model_type": "some_vl", "tie_word_embeddings": tied, "text_config": text, "vision_config": VISION}
    write_json(folder / "config.json", config)
    assert callable(named)
    stored = {named(name): rows for name, rows in load_file(folder / "model.safetensors").items()}
    stored["model.vision_tower.patch.weight"] = np.zeros((2, 3, 2, 2), np.float32)
    stored["mtp.norm.weight"] = np.zeros(4, np.float32)
    stored["mtp.layers.0.input_layernorm.weight"] = np.zeros(64, np.float32)
    stored["multi_modal_projector.norm.weight"] = np.zeros(4, np.float32)
    save_file(stored, folder / "model.safetensors")
    model = StoredModel.at(folder)
    assert model.card.notes == (NOTE,)
    (drawn,) = model.chain(2).step(Rows(token_ids=TOKENS))
    assert_close(logits_of(drawn), expected[-1])
