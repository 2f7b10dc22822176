"""What of quantised folders is refused, by name, and which files cannot be: the tensor and the file are told."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from layerline.errors import ModelCorruptError, ModelUnsupportedError
from layerline.models.headers import read_headers
from layerline.models.index import index_model
from layerline.models.read import TensorReader
from tests.fakes.model_files import TinyModel, write_folder
from tests.fakes.quantised import FORMS, write_quantised

MODEL = TinyModel(hidden=128, intermediate=128, head_dim=32, layers=1)
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 128}
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128, "version": "gemm"}
PACKED = FORMS["packed-4-128"].config
MATRIX = "model.layers.0.mlp.down_proj"


def of_weights(layout: str = "pack-quantized", **weights: object) -> dict[str, Any]:
    group = {"weights": {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128, **weights}}
    return {**PACKED, "format": layout, "config_groups": {"group_0": group}}


@pytest.mark.parametrize(
    ("config", "feature"),
    [
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "quant_method 'bitsandbytes'"),
        ({"quant_method": "modelopt"}, "quant_method 'modelopt'"),
        ({**GPTQ, "bits": 3}, "bits 3"),
        ({**GPTQ, "bits": 2}, "bits 2"),
        ({**GPTQ, "group_size": 0}, "group_size 0"),
        ({**GPTQ, "group_size": 12}, "group_size 12"),
        ({**GPTQ, "group_size": 1 << 40}, "group_size"),
        ({**GPTQ, "checkpoint_format": "marlin"}, "checkpoint_format 'marlin'"),
        ({**GPTQ, "is_marlin_format": True}, "is_marlin_format"),
        ({**GPTQ, "pack_dtype": "int16"}, "pack_dtype 'int16'"),
        ({**GPTQ, "dynamic": {r"+:.*down.*": {"bits": 8}}}, "dynamic"),
        ({**AWQ, "version": "gemv"}, "version 'gemv'"),
        ({**AWQ, "bits": 8}, "bits 8"),
        ({**AWQ, "zero_point": False}, "zero_point"),
        ({"quant_method": "fp8", "weight_block_size": [1, 128]}, "weight_block_size"),
        ({**PACKED, "kv_cache_scheme": {"num_bits": 8}}, "kv_cache_scheme"),
        ({**PACKED, "sparsity_config": {"format": "sparse-24-bitmask"}}, "sparsity_config"),
        ({**PACKED, "transform_config": {"config_groups": {"u": {}}}}, "transform_config"),
        ({**PACKED, "config_groups": {"group_0": {"input_activations": {"num_bits": 8}}}}, "no quantised weights"),
        (of_weights(num_bits=3), "num_bits 3"),
        (of_weights(strategy="tensor_group"), "strategy 'tensor_group'"),
        (of_weights(strategy="token"), "strategy 'token'"),
        (of_weights("marlin-24"), "format 'marlin-24'"),
        (of_weights("nvfp4-pack-quantized", type="float"), "format 'nvfp4-pack-quantized'"),
        (of_weights("pack-quantized", type="float"), "format 'pack-quantized' with weights of type 'float'"),
        (of_weights("float-quantized", type="float"), "num_bits 4"),
        (of_weights("float-quantized", type="float", num_bits=8, strategy="block", block_structure=[64, 128]), "block"),
    ],
)
def test_what_is_not_known_is_refused_with_what_is(tmp_path: Path, config: Mapping[str, Any], feature: str) -> None:
    folder = write_folder(tmp_path, MODEL, config={"quantization_config": config})
    with pytest.raises(ModelUnsupportedError, match=feature) as caught:
        read_headers(folder)
    assert "layerline reads fp8, gptq" in caught.value.remedy


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ("gptq", "quantization_config must be an object"),
        ({"bits": 4}, "quant_method is missing"),
        ({"quant_method": "gptq"}, "bits is missing"),
        ({**PACKED, "config_groups": {}}, "config_groups must be"),
        ({**PACKED, "config_groups": {"group_0": 7}}, "group_0 must be an object"),
        (of_weights(num_bits="4"), "num_bits must be a whole number"),
    ],
)
def test_a_malformed_config_is_told(tmp_path: Path, config: object, reason: str) -> None:
    with pytest.raises(ModelCorruptError, match=reason):
        read_headers(write_folder(tmp_path, MODEL, config={"quantization_config": config}))


def test_output_activations_are_refused(tmp_path: Path) -> None:
    config = of_weights()
    config["config_groups"]["group_0"]["output_activations"] = {"num_bits": 8}
    with pytest.raises(ModelUnsupportedError, match="output_activations"):
        read_headers(write_folder(tmp_path, MODEL, config={"quantization_config": config}))


def test_groups_that_are_stored_alike_are_one(tmp_path: Path) -> None:
    form = FORMS["packed-4-128"]
    quantised, _ = write_quantised(tmp_path, MODEL, form)
    own = form.config["config_groups"]["group_0"]
    config = {**form.config, "config_groups": {"group_0": own, "group_1": {**own, "targets": ["re:.*down.*"]}}}
    write_folder(tmp_path / "config", MODEL, config={"quantization_config": config})
    (quantised / "config.json").write_bytes((tmp_path / "config" / "config.json").read_bytes())
    assert read_headers(quantised).spec.layers == 1
    config["config_groups"]["group_1"] = of_weights(num_bits=8)["config_groups"]["group_0"]
    with pytest.raises(ModelUnsupportedError, match="stored in different ways"):
        read_headers(write_folder(tmp_path / "other", MODEL, config={"quantization_config": config}))


def changed(ending: str, tensor: torch.Tensor | None) -> dict[str, torch.Tensor | None]:
    return {MATRIX + ending: tensor}


INT = torch.int32
HEADERS: list[tuple[str, dict[str, torch.Tensor | None], str]] = [
    ("gptq-4-128", changed(".scales", None), r"down_proj\.qweight of .* of which .*down_proj\.scales is missing"),
    ("gptq-4-128", changed(".qzeros", None), r"down_proj\.qweight of .*down_proj\.qzeros is missing"),
    ("gptq-4-128", changed(".qzeros", torch.zeros((1, 8), dtype=INT)), r"down_proj\.qzeros of .*the shape \[1, 8\]"),
    ("gptq-4-128", changed(".scales", torch.ones((2, 128))), r"down_proj\.scales of .*the shape \[2, 128\]"),
    ("gptq-4-128", changed(".scales", torch.ones((1, 128), dtype=INT)), r"down_proj\.scales of .*stored as I32"),
    ("gptq-4-128", changed(".g_idx", torch.zeros(100, dtype=INT)), r"down_proj\.g_idx of .*the shape \[100\]"),
    ("gptq-4-128", changed(".qweight", torch.zeros((16, 128))), r"down_proj\.qweight of .*stored as F32"),
    ("gptq-4-128", changed(".qweight", torch.zeros(16, dtype=INT)), r"down_proj\.qweight of .*has 1 dimensions"),
    ("gptq-4-128", changed(".weight", torch.zeros((128, 128))), r"down_proj\.weight of .*whole, and in pieces"),
    ("gptq-8-128-ordered", changed(".g_idx", None), r"down_proj\.qweight of .*down_proj\.g_idx is missing"),
    ("awq-128", changed(".qzeros", torch.zeros((1, 8), dtype=INT)), r"down_proj\.qzeros of .*the shape \[1, 8\]"),
    ("packed-4-128", changed(".weight_scale", None), r"down_proj\.weight_packed of .*weight_scale is missing"),
    ("packed-4-128-zeros", changed(".weight_zero_point", None), r"down_proj\.weight_zero_point is missing"),
    ("bytes-8-64-zeros", changed(".weight_zero_point", None), r"down_proj\.weight of .*weight_zero_point is missing"),
    ("packed-4-64-ordered", changed(".weight_g_idx", None), r"down_proj\.weight_g_idx is missing"),
    ("packed-4-128", changed(".weight_shape", None), r"down_proj\.weight_packed of .*weight_shape is missing"),
    ("packed-4-128", changed(".weight_scale", torch.ones((128, 2))), r"down_proj\.weight_scale of .*the shape"),
    ("bytes-8-row", changed(".weight_scale", torch.ones((127, 1))), r"down_proj\.weight_scale of .*the shape"),
    ("fp8-block", changed(".weight_scale_inv", None), r"down_proj\.weight of .*weight_scale_inv or .* is missing"),
    ("fp8-block", changed(".weight_scale_inv", torch.ones((2, 1))), r"down_proj\.weight_scale_inv of .*the shape"),
    ("mxfp4", changed("_scales", torch.zeros((128, 3), dtype=torch.uint8)), r"down_proj_blocks of .*the shape"),
]


@pytest.mark.parametrize(("form", "changes", "reason"), HEADERS)
def test_pieces_that_do_not_go_together(
    tmp_path: Path, form: str, changes: dict[str, torch.Tensor | None], reason: str
) -> None:
    quantised, _ = write_quantised(tmp_path, MODEL, FORMS[form], changes)
    with pytest.raises(ModelCorruptError, match=reason) as caught:
        read_headers(quantised)
    assert "model.safetensors" in caught.value.message


@pytest.mark.parametrize(
    ("ending", "kind"),
    [
        (".k_scale", ModelUnsupportedError),
        (".weight_global_scale", ModelUnsupportedError),
        (".g_idx", ModelCorruptError),
    ],
)
def test_a_piece_that_belongs_to_none_is_refused(tmp_path: Path, ending: str, kind: type[Exception]) -> None:
    dtype = INT if ending == ".g_idx" else torch.float32
    quantised, _ = write_quantised(tmp_path, MODEL, FORMS["awq-128"], changed(ending, torch.ones(1, dtype=dtype)))
    with pytest.raises(kind, match=f"down_proj{ending}"):
        read_headers(quantised)


def test_a_bias_of_zeros_that_the_model_does_not_have_is_read_over(tmp_path: Path) -> None:
    form = FORMS["gptq-4-128"]
    zeros = torch.zeros(128, dtype=torch.float16)
    quantised, _ = write_quantised(tmp_path / "zeros", MODEL, form, changed(".bias", zeros))
    plain, _ = write_quantised(tmp_path / "none", MODEL, form)
    assert len(read_headers(quantised).tensors) == len(read_headers(plain).tensors)
    zeros[127] = 1
    quantised, _ = write_quantised(tmp_path / "other", MODEL, form, changed(".bias", zeros))
    with pytest.raises(ModelUnsupportedError, match=r"down_proj\.bias is none that a llama model is known to have"):
        read_headers(quantised)


def test_a_matrix_that_is_kept_whole_is_float(tmp_path: Path) -> None:
    form = FORMS["gptq-4-128"]
    kept = dict.fromkeys([MATRIX + ending for ending in (".qweight", ".qzeros", ".scales", ".g_idx")])
    quantised, _ = write_quantised(tmp_path, MODEL, form, {**kept, f"{MATRIX}.weight": torch.ones((128, 128))})
    entries = {entry.name: entry for entry in read_headers(quantised).tensors}
    assert (entries["layers.0.down"].storage, entries["layers.0.up"].storage) == ("F32", form.storage)


def test_columns_that_are_no_whole_cells_are_unsupported(tmp_path: Path) -> None:
    model = TinyModel(hidden=64, intermediate=72, layers=1)
    quantised, _ = write_quantised(tmp_path, model, FORMS["gptq-4-row"])
    with pytest.raises(ModelUnsupportedError, match=r"down_proj\.weight has 72 columns in INT4"):
        read_headers(quantised)


def fp8_code(code: int) -> torch.Tensor:
    codes = torch.zeros((128, 128), dtype=torch.uint8)
    codes[100, 77] = code
    return codes


GROUPS = torch.arange(128, dtype=INT) // 32
CONTENTS: list[tuple[str, dict[str, torch.Tensor | None], str]] = [
    (
        "gptq-4-128",
        changed(".scales", torch.full((1, 128), torch.inf, dtype=torch.float16)),
        r"down_proj\.scales of .*infinite or no number",
    ),
    (
        "packed-4-128",
        changed(".weight_scale", torch.full((128, 1), torch.nan, dtype=torch.bfloat16)),
        r"down_proj\.weight_scale of .*infinite or no number",
    ),
    ("fp8-matrix", changed(".weight_scale", torch.tensor(torch.nan)), r"down_proj\.weight_scale of .*no number"),
    ("fp8-matrix", changed(".weight_scale", torch.tensor(-130.0)), r"down_proj\.weight_scale of .*more than 128"),
    ("gptq-4-32-ordered", changed(".g_idx", GROUPS + 1), r"down_proj\.g_idx of .*out of range: there are 4"),
    ("gptq-4-32-ordered", changed(".g_idx", GROUPS - 1), r"down_proj\.g_idx of .*out of range"),
    ("gptq-4-32-ordered", changed(".g_idx", GROUPS // 2), r"down_proj\.g_idx of .*every group 32 columns"),
    ("gptq-4-128", changed(".g_idx", torch.ones(128, dtype=INT)), r"down_proj\.g_idx of .*out of range"),
    ("gptq_v2-8-64", changed(".g_idx", GROUPS.flip(0) // 2), r"down_proj\.g_idx of .*64 neighbouring columns"),
    ("packed-4-128", changed(".weight_shape", torch.tensor([128, 120])), r"down_proj\.weight_shape of .*\[128, 128\]"),
    (
        "fp8-block",
        changed(".weight", fp8_code(0xFF).view(torch.float8_e4m3fn)),
        r"down_proj\.weight of .*no finite number",
    ),
    (
        "fp8-e5m2-row",
        changed(".weight", fp8_code(0x7C).view(torch.float8_e5m2)),
        r"down_proj\.weight of .*no finite number",
    ),
    ("mxfp4", changed("_scales", torch.full((128, 4), 255, dtype=torch.uint8)), r"down_proj_scales of .*exponent"),
]


@pytest.mark.parametrize(("form", "changes", "reason"), CONTENTS)
def test_what_is_no_number_is_told_as_it_is_read(
    tmp_path: Path, form: str, changes: dict[str, torch.Tensor | None], reason: str
) -> None:
    quantised, _ = write_quantised(tmp_path, MODEL, FORMS[form], changes)
    card = index_model(quantised, "tiny", lambda done_bytes, total_bytes: None)
    entry = card.tensor("layers.0.down")
    assert entry is not None
    with TensorReader(quantised, card) as reader, pytest.raises(ModelCorruptError, match=reason) as caught:
        list(reader.blocks(entry, 64))
    assert "model.safetensors" in caught.value.message


def test_a_truncated_file_is_told(tmp_path: Path) -> None:
    quantised, _ = write_quantised(tmp_path, MODEL, FORMS["gptq-4-128"])
    file = quantised / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(ModelCorruptError, match=r"of model\.safetensors .*truncated"):
        read_headers(quantised)
