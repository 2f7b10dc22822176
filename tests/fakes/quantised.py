"""Quantised matrices as checkpoints store them: random pieces, and what each format's definition makes of them.

The numbers are made column by column with nothing of the code under test. `write_quantised` writes a tiny model whose
matrices are such, and the same model in float32.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file

from tests.fakes.model_files import TinyModel, stacked, stored_name, write_folder, write_json

Pieces = dict[str, torch.Tensor]
"""By the endings of their names."""
Numbers = NDArray[np.float32]
MATRICES = ("q", "k", "v", "attention_output", "gate", "up", "down", "qkv", "gate_up")
AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)  # the output that each four bits of a word are of


@dataclass(frozen=True, kw_only=True)
class QuantisedForm:
    """What config.json says, random pieces of a matrix [outputs, inputs] with its numbers, and what it is read as."""

    config: Mapping[str, Any]
    make: Callable[[np.random.Generator, int, int], tuple[Pieces, Numbers]]
    storage: str


def _scales(random: np.random.Generator, shape: tuple[int, ...], dtype: torch.dtype, size: float) -> torch.Tensor:
    return torch.from_numpy(np.asarray(random.uniform(0.5, 1.5, shape) * size, np.float32)).to(dtype)


def _words(codes: NDArray[np.int64], bits: int) -> torch.Tensor:
    """Codes [n, m] as words of 32 bits [n, m / codes in a word], the first lowest."""
    in_word = 32 // bits
    padded = np.pad(codes, ((0, 0), (0, -codes.shape[1] % in_word)))
    words = np.zeros((len(codes), padded.shape[1] // in_word), np.uint64)
    for place in range(in_word):
        words |= padded[:, place::in_word].astype(np.uint64) << np.uint64(bits * place)
    return torch.from_numpy(words.astype(np.uint32).view(np.int32).copy())


def gptq(bits: int, group: int, *, version: int = 1, act_order: bool = False, symmetric: bool = False) -> QuantisedForm:
    """w[o, k] = scale[g, o] (code - zero[g, o]), g = g_idx[k]; zeros of the first version are stored less 1, modulo."""
    most = (1 << bits) - 1

    def make(random: np.random.Generator, outputs: int, inputs: int) -> tuple[Pieces, Numbers]:
        own = inputs if group == -1 else group
        groups = -(-inputs // own)
        group_of = np.arange(inputs) // own
        if act_order:
            group_of = random.permutation(group_of)
        codes = random.integers(0, most + 1, (inputs, outputs))
        zeros = random.integers(0, most + 1, (groups, outputs))
        if symmetric:
            zeros[:] = 1 << (bits - 1)
        scales = _scales(random, (groups, outputs), torch.float16, 0.3 / most)
        numbers = np.empty((outputs, inputs), np.float32)
        for k in range(inputs):
            g = group_of[k]
            numbers[:, k] = (codes[k] - zeros[g]).astype(np.float32) * scales[g].float().numpy()
        pieces = {
            ".qweight": _words(codes.T, bits).T.contiguous(),
            ".qzeros": _words(zeros - 1 & most if version == 1 else zeros, bits),
            ".scales": scales,
            ".g_idx": torch.from_numpy(group_of.astype(np.int32)),
        }
        return pieces, numbers

    config = {"quant_method": "gptq", "bits": bits, "group_size": group, "desc_act": act_order, "sym": symmetric}
    config["checkpoint_format"] = "gptq" if version == 1 else "gptq_v2"
    ordered = "_ORDERED" if act_order and group != -1 else ""
    storage = f"INT{bits}_{'ROW' if group == -1 else group}_F16{ordered}"
    return QuantisedForm(config=config, make=make, storage=storage)


def awq(group: int) -> QuantisedForm:
    """w[o, k] = scale[g, o] (code - zero[g, o]); four bits of eight outputs in a word, in AWQ_ORDER."""

    def interleaved(codes: NDArray[np.int64]) -> torch.Tensor:
        return _words(codes.reshape(len(codes), -1, 8)[:, :, AWQ_ORDER].reshape(len(codes), -1), 4)

    def make(random: np.random.Generator, outputs: int, inputs: int) -> tuple[Pieces, Numbers]:
        groups = -(-inputs // group)
        codes, zeros = random.integers(0, 16, (inputs, outputs)), random.integers(0, 16, (groups, outputs))
        scales = _scales(random, (groups, outputs), torch.float16, 0.02)
        numbers = np.empty((outputs, inputs), np.float32)
        for k in range(inputs):
            g = k // group
            numbers[:, k] = (codes[k] - zeros[g]).astype(np.float32) * scales[g].float().numpy()
        return {".qweight": interleaved(codes), ".qzeros": interleaved(zeros), ".scales": scales}, numbers

    config = {"quant_method": "awq", "bits": 4, "group_size": group, "version": "gemm", "zero_point": True}
    return QuantisedForm(config=config, make=make, storage=f"INT4_{group}_F16")


def _compressed_config(layout: str, weights: Mapping[str, object]) -> dict[str, Any]:
    group = {"targets": ["Linear"], "weights": weights, "input_activations": {"num_bits": 8, "dynamic": True}}
    return {
        "quant_method": "compressed-tensors",
        "format": layout,
        "config_groups": {"group_0": group},
        "ignore": ["lm_head"],
        "kv_cache_scheme": None,
        "quantization_status": "compressed",
    }


def compressed(
    layout: str,
    bits: int,
    strategy: str,
    group: int = 0,
    *,
    dtype: torch.dtype = torch.bfloat16,
    symmetric: bool = True,
    act_order: bool = False,
) -> QuantisedForm:
    """w[o, k] = scale[o, g] (code - zero[o, g]), of signed codes and zeros; packed ones are counted from the least."""
    least = -(1 << (bits - 1))

    def make(random: np.random.Generator, outputs: int, inputs: int) -> tuple[Pieces, Numbers]:
        groups = -(-inputs // group) if group else 1
        group_of = np.arange(inputs) // (group or inputs)
        if act_order:
            group_of = random.permutation(group_of)
        shape = (1,) if strategy == "tensor" else (outputs, groups)
        scales = _scales(random, shape, dtype, 0.3 / -least)
        zeros = (
            np.zeros((outputs, groups), np.int64) if symmetric else random.integers(least, -least, (outputs, groups))
        )
        codes = random.integers(least, -least, (outputs, inputs))
        of_all = np.broadcast_to(scales.float().numpy().reshape(-1, groups), (outputs, groups))
        numbers = np.empty((outputs, inputs), np.float32)
        for k in range(inputs):
            g = group_of[k]
            numbers[:, k] = (codes[:, k] - zeros[:, g]).astype(np.float32) * of_all[:, g]
        pieces = {".weight_scale": scales}
        if layout == "pack-quantized":
            pieces[".weight_packed"] = _words(codes - least, bits)
            pieces[".weight_shape"] = torch.tensor([outputs, inputs])
            if not symmetric:
                pieces[".weight_zero_point"] = _words((zeros - least).T, bits).T.contiguous()
            if act_order:
                pieces[".weight_g_idx"] = torch.from_numpy(group_of.astype(np.int32))
        else:
            pieces[".weight"] = torch.from_numpy(codes.astype(np.int8))
            if not symmetric:
                pieces[".weight_zero_point"] = torch.from_numpy(zeros.astype(np.int8))
        return pieces, numbers

    weights = {
        "num_bits": bits,
        "type": "int",
        "strategy": strategy,
        "group_size": group or None,
        "symmetric": symmetric,
    }
    if act_order:
        weights["actorder"] = "group"
    scale = {torch.bfloat16: "BF16", torch.float16: "F16", torch.float32: "F32"}[dtype]
    codes = f"INT{bits if layout == 'pack-quantized' else 8}"
    storage = f"{codes}_{group or 'ROW'}_{scale}{'_ORDERED' * act_order}"
    return QuantisedForm(config=_compressed_config(layout, weights), make=make, storage=storage)


def fp8(
    scaled: str,
    *,
    dtype: torch.dtype = torch.float32,
    codes: torch.dtype = torch.float8_e4m3fn,
    config: Mapping[str, Any] | None = None,
) -> QuantisedForm:
    """w[o, k] = weight[o, k] scale, a scale for each block of 128 by 128, for each row, or for the matrix."""

    def make(random: np.random.Generator, outputs: int, inputs: int) -> tuple[Pieces, Numbers]:
        stored = torch.from_numpy(random.integers(0, 256, (outputs, inputs), dtype=np.uint8)).view(codes)
        stored = torch.where(stored.float().isfinite(), stored.float(), 1.0).to(codes)
        shape = {"block": (-(-outputs // 128), -(-inputs // 128)), "row": (outputs, 1), "matrix": ()}[scaled]
        scales = _scales(random, shape, dtype, 1e-3 if codes == torch.float8_e4m3fn else 1e-5)
        numbers = stored.float().numpy()
        of_all = scales.float().numpy()
        for o in range(outputs):
            for block in range(-(-inputs // 128)):
                own = of_all[o // 128, block] if scaled == "block" else of_all[o, 0] if scaled == "row" else of_all
                numbers[o, 128 * block : 128 * (block + 1)] *= own
        ending = ".weight_scale_inv" if scaled == "block" else ".weight_scale"
        return {".weight": stored, ending: scales, ".input_scale": torch.tensor(0.5)}, numbers

    block = {"weight_block_size": [128, 128], "activation_scheme": "dynamic"} if scaled == "block" else {}
    name = {torch.float8_e4m3fn: "F8_E4M3", torch.float8_e5m2: "F8_E5M2"}[codes]
    scale = {torch.bfloat16: "BF16", torch.float32: "F32"}[dtype]
    return QuantisedForm(
        config=config or {"quant_method": "fp8", **block},
        make=make,
        storage=f"{name}_{128 if scaled == 'block' else 'ROW'}_{scale}",
    )


def mxfp4() -> QuantisedForm:
    """w[o, k] = E2M1 number 2^(scale - 127); a byte has two neighbours, the lower bits first."""
    table = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)

    def make(random: np.random.Generator, outputs: int, inputs: int) -> tuple[Pieces, Numbers]:
        codes = random.integers(0, 16, (outputs, inputs))
        exponents = random.integers(121, 125, (outputs, inputs // 32))
        numbers = np.empty((outputs, inputs), np.float32)
        for k in range(inputs):
            numbers[:, k] = np.ldexp(table[codes[:, k]], exponents[:, k // 32] - 127)
        blocks = (codes[:, 0::2] | codes[:, 1::2] << 4).astype(np.uint8).reshape(outputs, -1, 16)
        return {"_blocks": torch.from_numpy(blocks), "_scales": torch.from_numpy(exponents.astype(np.uint8))}, numbers

    return QuantisedForm(config={"quant_method": "mxfp4"}, make=make, storage="MXFP4")


_FLOAT_ROWS = _compressed_config("float-quantized", {"num_bits": 8, "type": "float", "strategy": "channel"})
FORMS = {
    "gptq-4-128": gptq(4, 128),
    "gptq-4-64-symmetric": gptq(4, 64, symmetric=True),
    "gptq-4-row": gptq(4, -1),
    "gptq-4-48": gptq(4, 48),
    "gptq-4-32-ordered": gptq(4, 32, act_order=True),
    "gptq-8-128-ordered": gptq(8, 128, act_order=True),
    "gptq-8-row-ordered": gptq(8, -1, act_order=True),
    "gptq_v2-4-128": gptq(4, 128, version=2),
    "gptq_v2-8-64": gptq(8, 64, version=2),
    "awq-128": awq(128),
    "awq-32": awq(32),
    "packed-4-128": compressed("pack-quantized", 4, "group", 128),
    "packed-4-128-zeros": compressed("pack-quantized", 4, "group", 128, symmetric=False),
    "packed-4-64-ordered": compressed("pack-quantized", 4, "group", 64, act_order=True, dtype=torch.float16),
    "packed-8-row": compressed("pack-quantized", 8, "channel", dtype=torch.float16),
    "packed-8-row-zeros": compressed("pack-quantized", 8, "channel", symmetric=False),
    "packed-4-tensor": compressed("pack-quantized", 4, "tensor", dtype=torch.float32),
    "bytes-8-row": compressed("int-quantized", 8, "channel"),
    "bytes-8-64-zeros": compressed("int-quantized", 8, "group", 64, symmetric=False),
    "bytes-8-row-float32": compressed("int-quantized", 8, "channel", dtype=torch.float32),
    "bytes-4-tensor": compressed("int-quantized", 4, "tensor"),
    "fp8-block": fp8("block"),
    "fp8-block-bfloat16": fp8("block", dtype=torch.bfloat16),
    "fp8-matrix": fp8("matrix"),
    "fbgemm-row": fp8("row", config={"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0}),
    "float-row": fp8("row", dtype=torch.bfloat16, config=_FLOAT_ROWS),
    "fp8-e5m2-row": fp8("row", codes=torch.float8_e5m2),
    "mxfp4": mxfp4(),
}


def write_quantised(
    folder: Path, model: TinyModel, form: QuantisedForm, changes: Mapping[str, torch.Tensor | None] | None = None
) -> tuple[Path, Path]:
    """Folders of `model` with its layers' matrices in `form`, and of the same numbers in float32.

    `changes` (by stored name) replace or add tensors of the first one, a None takes away.
    """
    random = np.random.default_rng(model.seed)
    weights = stacked(model, model.weights())
    plain = {stored_name(name, "safetensors"): numbers for name, numbers in weights.items()}
    stored = {name: torch.from_numpy(numbers) for name, numbers in plain.items()}
    for name, numbers in weights.items():
        if name.rpartition(".")[2] in MATRICES:
            base = stored_name(name, "safetensors").removesuffix(".weight")
            del stored[f"{base}.weight"]
            pieces, plain[f"{base}.weight"] = form.make(random, *numbers.shape)
            stored |= {base + ending: piece for ending, piece in pieces.items()}
    quantised = write_folder(folder / "quantised", model)
    kept = {name: piece for name, piece in {**stored, **(changes or {})}.items() if piece is not None}
    save_file({name: piece.contiguous() for name, piece in kept.items()}, quantised / "model.safetensors")
    write_json(quantised / "config.json", {**model.config(), "quantization_config": form.config})
    return quantised, write_folder(folder / "plain", model, tensors=plain)
