"""Experts: what they add up to, that a row reads no others than it chose, and that nobody else changes its numbers."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file
from safetensors.torch import save_file as save_torch

from layerline.models.held import WeightForm
from layerline.models.sizes import ModelSizes
from layerline.sharing import Sharing
from tests.fakes.family_models import FAMILIES
from tests.fakes.logits import assert_close
from tests.fakes.made_models import HIDDEN, FamilyModel, copied, write_family, write_family_gguf
from tests.fakes.quantised import FORMS
from tests.fakes.ranked_stages import ranked_chain
from tests.fakes.tiny_models import BY_KERNELS, Rows, StoredModel, logits_of, reference_logits

Tensors = Mapping[str, NDArray[np.float32]]
TOKENS = [int(token) for token in np.random.default_rng(8).integers(3, 260, 20)]
COMPUTED = pytest.mark.parametrize("computed", [{}, BY_KERNELS], ids=["torch", "kernels"])
EIGHT = {"num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 96, "norm_topk_prob": True}
STANDARD = {**BY_KERNELS, "precision": "standard"}


def changed(folder: Path, target: Path, change: Callable[[Tensors], Tensors], **config: Any) -> StoredModel:
    """The folder with other tensors, and perhaps with another config."""
    path = copied(folder, target, {**config_of(folder), **config})
    tensors = change(load_file(folder / "model.safetensors"))
    save_file({name: np.ascontiguousarray(rows) for name, rows in tensors.items()}, path / "model.safetensors")
    return StoredModel.at(path)


def config_of(folder: Path) -> dict[str, Any]:
    said: dict[str, Any] = json.loads((folder / "config.json").read_text())
    return said


def logits(stored: StoredModel, tokens: list[int], **computed: Any) -> NDArray[np.float32]:
    (drawn,) = stored.chain(1, **computed).step(Rows(token_ids=tokens))
    return logits_of(drawn)


@COMPUTED
def test_eight_copies_of_a_feed_forward_are_that_feed_forward(tmp_path: Path, computed: dict[str, Any]) -> None:
    folder = write_family(tmp_path / "dense", FAMILIES["qwen3"])
    random = np.random.default_rng(4)

    def copies(tensors: Tensors) -> Tensors:
        made: dict[str, NDArray[np.float32]] = {}
        for name, rows in tensors.items():
            layer, _, part = name.partition(".mlp.")
            if part:
                made |= {f"{layer}.mlp.experts.{expert}.{part}": rows for expert in range(8)}
                made[f"{layer}.mlp.gate.weight"] = random.standard_normal((8, HIDDEN), np.float32)
            else:
                made[name] = rows
        return made

    dense = StoredModel.at(folder)
    experts = changed(folder, tmp_path / "experts", copies, model_type="qwen3_moe", **EIGHT)
    assert_close(logits(experts, TOKENS, **computed), logits(dense, TOKENS, **computed))
    scaled = changed(folder, tmp_path / "scaled", copies, model_type="qwen3_moe", **{**EIGHT, "norm_topk_prob": False})
    with pytest.raises(AssertionError):
        assert_close(logits(scaled, TOKENS, **computed), logits(dense, TOKENS, **computed))


@COMPUTED
def test_only_experts_that_were_chosen_are_read(tmp_path: Path, computed: dict[str, Any]) -> None:
    """All others are poisoned: those of which nobody chose them change nothing, one that somebody chose does."""
    folder = write_family(tmp_path / "folder", FAMILIES["qwen3_moe"])
    stored = StoredModel.at(folder)
    chosen = chosen_in_layers(stored, TOKENS[:2])
    assert all(len(each) < 8 for each in chosen)

    def poisoned(keep: Callable[[int, int], bool]) -> Callable[[Tensors], Tensors]:
        def poison(tensors: Tensors) -> Tensors:
            made = dict(tensors)
            for name, rows in tensors.items():
                words = name.split(".")
                if "experts" in words and not keep(int(words[2]), int(words[5])):
                    made[name] = np.full_like(rows, np.nan)
            return made

        return poison

    expected = logits(stored, TOKENS[:2], **computed)
    others = changed(folder, tmp_path / "others", poisoned(lambda layer, expert: expert in chosen[layer]))
    assert np.array_equal(logits(others, TOKENS[:2], **computed), expected)
    one = (0, min(chosen[0]))
    hit = changed(folder, tmp_path / "hit", poisoned(lambda layer, expert: (layer, expert) != one))
    assert hit.chain(1, **computed).result(Rows(token_ids=TOKENS[:2])).failed == (1,)


@torch.inference_mode()
def chosen_in_layers(stored: StoredModel, tokens: list[int]) -> list[set[int]]:
    """The experts that any of these tokens chooses, layer by layer, as `transformers` has them."""
    reference, chosen = stored.reference(), list[set[int]]()
    for layer in reference.model.layers:
        layer.mlp.gate.register_forward_hook(lambda _, __, made: chosen.append(set(made[2].flatten().tolist())))
    reference(torch.tensor([tokens]))
    return chosen


@pytest.mark.parametrize("family", ["mixtral", "qwen2_moe", "qwen3_moe with dense layers", "llama4_text"])
def test_a_row_has_the_same_bits_alone_and_among_others(tmp_path: Path, family: str) -> None:
    chain = StoredModel.at(write_family(tmp_path / "folder", FAMILIES[family])).chain(1, max_rows=64, **STANDARD)
    alone = [logits_of(chain.step(Rows(token_ids=[token], start=start))[0]) for start, token in enumerate(TOKENS)]
    for count in (2, 5, 20):
        drawn = chain.step(Rows(token_ids=TOKENS[:count], draws=count))
        for found, wanted in zip(drawn, alone[:count], strict=True):
            assert np.array_equal(logits_of(found), wanted)


@COMPUTED
@pytest.mark.parametrize("family", ["mixtral", "qwen2_moe", "qwen3_moe"])
def test_a_folder_with_all_experts_in_one_tensor(tmp_path: Path, family: str, computed: dict[str, Any]) -> None:
    """As transformers 5 writes it if it is told to."""
    folder = write_family(tmp_path / "folder", FAMILIES[family])
    stored = StoredModel.at(folder)
    stored.reference().save_pretrained(tmp_path / "fused", save_original_format=False)
    assert any(name.endswith("experts.gate_up_proj") for name in load_file(tmp_path / "fused" / "model.safetensors"))
    fused = changed(folder, tmp_path / "both", lambda _: load_file(tmp_path / "fused" / "model.safetensors"))
    assert np.array_equal(logits(fused, TOKENS, **computed), logits(stored, TOKENS, **computed))


@COMPUTED
def test_experts_of_llama_4_each_by_itself(tmp_path: Path, computed: dict[str, Any]) -> None:
    """As its quantised folders have them; the published ones have all in one tensor, transposed."""
    folder = write_family(tmp_path / "folder", FAMILIES["llama4_text"])

    def apart(tensors: Tensors) -> Tensors:
        made: dict[str, NDArray[np.float32]] = {}
        for name, rows in tensors.items():
            if rows.ndim < 3:
                made[name] = rows
                continue
            stack, _, part = name.rpartition(".")
            names = ["gate_proj", "up_proj"] if part == "gate_up_proj" else [part]
            for expert, own in enumerate(rows):
                halves = np.split(own.T, len(names))
                made |= {f"{stack}.{expert}.{each}.weight": half for each, half in zip(names, halves, strict=True)}
        return made

    by_themselves = changed(folder, tmp_path / "apart", apart)
    assert np.array_equal(logits(by_themselves, TOKENS, **computed), logits(StoredModel.at(folder), TOKENS, **computed))


@COMPUTED
@pytest.mark.parametrize("storage", ["Q8_0", "Q4_0"])
def test_quantised_experts(tmp_path: Path, storage: str, computed: dict[str, Any]) -> None:
    """Of a file, against `transformers` with the numbers that the file has."""
    from gguf import GGMLQuantizationType, quants  # noqa: PLC0415

    kind = GGMLQuantizationType[storage]
    wide = {**FAMILIES["qwen3_moe"].config, "moe_intermediate_size": 64}
    gguf = FAMILIES["qwen3_moe"].gguf
    assert gguf is not None
    model = FamilyModel(config=wide, gguf=replace(gguf, keys={**gguf.keys, "expert_feed_forward_length": 64}))
    folder = write_family(tmp_path / "folder", model)

    def rounded(tensors: Tensors) -> Tensors:
        return {
            name: quants.dequantize(quants.quantize(rows, kind), kind) if ".experts." in name else rows
            for name, rows in tensors.items()
        }

    exact = changed(folder, tmp_path / "rounded", rounded)
    path = write_family_gguf(
        tmp_path / "model.gguf", folder, model, storage_of=lambda name: storage * ("_exps" in name)
    )
    stored = StoredModel.at(path)
    assert {entry.storage for entry in stored.card.tensors if ".experts." in entry.name} == {storage}
    expected = reference_logits(exact.reference(), TOKENS)
    assert_close(logits(stored, TOKENS, **computed), expected[-1])


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("kernels", [True, False])
def test_all_experts_are_held_and_the_chosen_are_read(tmp_path: Path, ranks: int, *, kernels: bool) -> None:
    config = {**FAMILIES["qwen2_moe"].config, "moe_intermediate_size": 64, "shared_expert_intermediate_size": 64}
    stored = StoredModel.at(write_family(tmp_path / "folder", FamilyModel(config=config), dtype="bfloat16"))
    sizes = ModelSizes.of(stored.card, WeightForm(dtype="float32", weights="stored", kernels=kernels), "float32")
    parts = [sizes.of_rank(part) for part in sizes.parts(Sharing(devices=ranks))]
    experts = [entry for entry in stored.card.tensors if entry.name.startswith("layers.0.experts.")]
    stored_bytes, numbers = sum(each.nbytes for each in experts), sum(np.prod(each.shape) for each in experts)
    held, read = (sum(getattr(part.layers[0], name) for part in parts) for name in ("held_bytes", "read_bytes"))
    assert held - read == stored_bytes * 5 // 8  # of 8 experts 3 are read
    whole = sum(entry.nbytes for entry in stored.card.tensors if entry.name.startswith("layers.0."))
    assert held <= 1.03 * ranks * whole
    assert sum(part.layers[0].numbers for part in parts) < numbers


@COMPUTED
def test_gpt_oss_as_it_is_published(tmp_path: Path, computed: dict[str, Any]) -> None:
    """The matrices of all experts of a layer in pieces of MXFP4, against the same numbers in float32."""
    folder, form, random = (
        write_family(tmp_path / "folder", FAMILIES["gpt_oss"]),
        FORMS["mxfp4"],
        np.random.default_rng(6),
    )
    pieces: dict[str, NDArray[Any]] = {}
    numbers: dict[str, NDArray[np.float32]] = {}
    for name, rows in load_file(folder / "model.safetensors").items():
        if rows.ndim == 3:
            made = [form.make(random, *rows.shape[:0:-1]) for _ in rows]
            numbers[name] = np.stack([own.T for _, own in made])
            for ending in ("_blocks", "_scales"):
                pieces[name + ending] = np.stack([own[ending].numpy() for own, _ in made])
    exact = changed(folder, tmp_path / "exact", lambda tensors: {**tensors, **numbers})
    quantised = changed(
        folder,
        tmp_path / "quantised",
        lambda tensors: {**{name: rows for name, rows in tensors.items() if name not in numbers}, **pieces},
        quantization_config=form.config,
    )
    expected = reference_logits(exact.reference(), TOKENS)[-1]
    for stored in (exact, quantised):
        assert_close(logits(stored, TOKENS, **computed), expected)
    with ranked_chain(quantised, (2,), **computed) as chain:
        (drawn,) = chain.step(Rows(token_ids=TOKENS))
        assert_close(logits_of(drawn), expected)


@COMPUTED
@pytest.mark.parametrize("name", ["gptq-4-32-ordered", "gptq-8-row-ordered", "awq-32", "fp8-block", "packed-8-row"])
def test_experts_of_quantised_folders(tmp_path: Path, name: str, computed: dict[str, Any]) -> None:
    """Each expert's matrices in pieces of their own, in orders of their own."""
    form, random = FORMS[name], np.random.default_rng(7)
    config = {**FAMILIES["qwen3_moe"].config, "moe_intermediate_size": 64}
    folder = write_family(tmp_path / "folder", FamilyModel(config=config))
    pieces: dict[str, torch.Tensor] = {}
    numbers: dict[str, NDArray[np.float32]] = {}
    for tensor, rows in load_file(folder / "model.safetensors").items():
        if ".experts." in tensor:
            made, numbers[tensor] = form.make(random, *rows.shape)
            pieces |= {tensor.removesuffix(".weight") + ending: piece for ending, piece in made.items()}
    exact = changed(folder, tmp_path / "exact", lambda tensors: {**tensors, **numbers})
    path = copied(folder, tmp_path / "quantised", {**config_of(folder), "quantization_config": dict(form.config)})
    kept = {tensor: rows for tensor, rows in load_file(folder / "model.safetensors").items() if tensor not in numbers}
    save_torch(
        {**{tensor: torch.from_numpy(rows) for tensor, rows in kept.items()}, **pieces}, path / "model.safetensors"
    )
    quantised = StoredModel.at(path)
    assert_close(logits(quantised, TOKENS, **computed), logits(exact, TOKENS, **computed))
