"""Quantised models whose matrices hold rows in turns, or those of recurrent layers, give the logits of their numbers.

The same model in float32 is compared with transformers elsewhere.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.fakes.family_models import FAMILIES
from tests.fakes.logits import assert_close
from tests.fakes.made_models import write_family
from tests.fakes.model_files import write_json
from tests.fakes.quantised import FORMS
from tests.fakes.ranked_stages import ranked_chain
from tests.fakes.tiny_models import BY_KERNELS, Rows, StoredModel, logits_of

TOKENS = [int(token) for token in np.random.default_rng(7).integers(3, 260, 20)]
PLAIN = ("router", "mlp.gate.", "feed_forward.gate.", "shared_expert_gate", "in_proj_ba", "in_proj_a", "in_proj_b")
QUANTISED = [
    *(("qwen3_next", form) for form in ("fp8-block", "awq-32", "gptq-4-32-ordered")),
    *(("qwen3_5_text", "packed-4-128"), ("qwen3_5_moe_text", "fp8-block")),
    *(("lfm2", "awq-32"), ("lfm2_moe", "gptq-4-32-ordered")),
    *(("gemma4_text with inputs", "fp8-block"), ("llama4_text layer by layer", "fp8-block")),
]


def write_both(folder: Path, family: str, form: str) -> tuple[StoredModel, StoredModel]:
    """The family's model with its layers' matrices in that form, and of the same numbers in float32."""
    paths = [write_family(folder / name, FAMILIES[family]) for name in ("quantised", "plain")]
    random, numbers = np.random.default_rng(1), load_file(paths[0] / "model.safetensors")
    stored = dict(numbers)
    for name, matrix in load_file(paths[0] / "model.safetensors").items():
        is_whole = matrix.ndim == 2 and matrix.shape[0] % 8 == 0 and matrix.shape[1] % 32 == 0
        if ".layers." in name and name.endswith(".weight") and is_whole and not any(part in name for part in PLAIN):
            pieces, made = FORMS[form].make(random, *matrix.shape)
            numbers[name] = torch.from_numpy(np.ascontiguousarray(made))
            del stored[name]
            stored |= {name.removesuffix(".weight") + ending: piece.contiguous() for ending, piece in pieces.items()}
    save_file(stored, paths[0] / "model.safetensors")
    save_file(numbers, paths[1] / "model.safetensors")
    config = json.loads((paths[0] / "config.json").read_text())
    write_json(paths[0] / "config.json", {**config, "quantization_config": dict(FORMS[form].config)})
    quantised, plain = map(StoredModel.at, paths)
    return quantised, plain


@pytest.mark.parametrize(("family", "form"), QUANTISED)
def test_logits_are_those_of_the_numbers(tmp_path: Path, family: str, form: str) -> None:
    quantised, plain = write_both(tmp_path, family, form)
    rows = Rows(token_ids=TOKENS)
    (expected,) = plain.chain(1).step(rows)
    for computed in ({}, {"weights": "stored"}, BY_KERNELS):
        (drawn,) = quantised.chain(2, **computed).step(rows)
        assert_close(logits_of(drawn), logits_of(expected))
    with ranked_chain(quantised, (2,), **BY_KERNELS) as chain:
        (drawn,) = chain.step(rows)
        assert_close(logits_of(drawn), logits_of(expected))
