"""What `transformers` makes of FP8 and MXFP4 by itself is what the tests' own definitions make of them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers.integrations.finegrained_fp8 import _dequantize_fp8_weight
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

from tests.fakes.quantised import FORMS


@pytest.mark.parametrize("name", ["fp8-block", "fp8-block-bfloat16", "fp8-matrix"])
def test_fp8(name: str) -> None:
    pieces, numbers = FORMS[name].make(np.random.default_rng(1), 300, 200)
    block = [128, 128] if "block" in name else None
    scale = pieces[".weight_scale_inv" if block else ".weight_scale"]
    assert np.array_equal(_dequantize_fp8_weight(pieces[".weight"], scale, block, torch.float32).numpy(), numbers)


def test_mxfp4() -> None:
    """transformers gives an expert's matrix [inputs, outputs]."""
    pieces, numbers = FORMS["mxfp4"].make(np.random.default_rng(1), 64, 96)
    made = convert_moe_packed_tensors(pieces["_blocks"][None], pieces["_scales"][None], dtype=torch.float32)
    assert np.array_equal(made[0].numpy().T, numbers)
