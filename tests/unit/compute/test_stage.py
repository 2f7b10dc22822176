"""Loading a stage and what it refuses."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from layerline.errors import (
    ModelCorruptError,
    ModelMismatchError,
    PlanInvalidError,
    ProtocolError,
    StageFailedError,
)
from layerline.models.sizes import ModelSizes
from layerline.models.tensor_table import TensorEntry
from node.load_stage import load_stage
from node.model.tensors import bytes_from_tensor, tensor_from_bytes
from tests.fakes.model_files import TinyModel
from tests.fakes.tensor_entries import falsified, shortened
from tests.fakes.tiny_models import Rows, StoredModel, frame_of

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> StoredModel:
    model = TinyModel(family="qwen2", layers=4, tied_output=False)
    return StoredModel.written(tmp_path_factory.mktemp("model"), model)


def changed(stored: StoredModel, name: str, change: Callable[[TensorEntry], TensorEntry] | None = None) -> StoredModel:
    """The model with a card that has the tensor `name` otherwise, or not at all."""
    tensors = tuple(
        change(entry) if change is not None and entry.name == name else entry
        for entry in stored.card.tensors
        if change is not None or entry.name != name
    )
    return dataclasses.replace(stored, card=dataclasses.replace(stored.card, tensors=tensors))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(("first_layer", "last_layer"), [(0, 3), (0, 0), (1, 2), (3, 3)])
def test_progress_counts_the_bytes_that_are_held(
    stored: StoredModel, first_layer: int, last_layer: int, dtype: str
) -> None:
    seen: list[tuple[int, int]] = []
    spec = stored.spec(first_layer, last_layer, dtype=dtype)
    stage = load_stage(stored.card, stored.path, spec, lambda done, total: seen.append((done, total)))
    sizes, layers = ModelSizes.of_stage(stored.card, spec), range(first_layer, last_layer + 1)
    expected = sizes.weights_bytes(layers)
    assert stage.weights_bytes == expected
    assert stage.kv_bytes == 64 * 4 * sizes.kv_bytes_per_token(layers)
    assert seen[-1] == (expected, expected)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


def test_only_the_tensors_of_the_stage_are_read(stored: StoredModel) -> None:
    """Every tensor that is not of layer 1 has a false hash, so that reading it would fail."""
    model = stored
    for entry in stored.card.tensors:
        if not entry.name.startswith("layers.1."):
            model = changed(model, entry.name, falsified)
    model.stage(1, 1)
    with pytest.raises(ModelCorruptError):
        model.stage(1, 2)


@pytest.mark.parametrize("name", ["embedding", "final_norm", "output", "layers.2.q_bias", "layers.0.down"])
def test_a_missing_or_misshapen_tensor_is_named(stored: StoredModel, name: str) -> None:
    with pytest.raises(ModelCorruptError, match=f"has no tensor {name}"):
        changed(stored, name).stage()
    with pytest.raises(ModelCorruptError, match=rf"tensor {name} with shape \(3,\)"):
        changed(stored, name, shortened).stage()


def test_specs_that_no_stage_can_be(stored: StoredModel) -> None:
    with pytest.raises(ModelMismatchError, match="the plan is for other"):
        stored.stage(digest="other")
    with pytest.raises(PlanInvalidError, match=r"Layer 4 .* has 4 layers"):
        stored.stage(2, 4)


@pytest.mark.parametrize("device", ["cuda:99", "cuda:x", "cpu:", "tpu", "cpu:x"])
def test_a_device_that_is_not_there(stored: StoredModel, device: str) -> None:
    with pytest.raises(StageFailedError, match=f"Device {device} is not there"):
        stored.stage(devices=(device,))


def test_a_bad_frame_is_refused_and_the_stage_goes_on(stored: StoredModel) -> None:
    stage = stored.stage(0, 1)
    with pytest.raises(ProtocolError, match="token ids"):
        stage.run(frame_of(Rows(token_ids=[9999])))
    assert stage.run(frame_of(Rows(token_ids=[9]), step=5)).step == 5


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32])
def test_tensors_cross_bit_by_bit_and_are_copies(dtype: torch.dtype) -> None:
    tensor = torch.arange(-6, 6, dtype=dtype).view(3, 4)
    message = bytes_from_tensor(tensor)
    assert message.shape == (3, 4)
    assert message.data == tensor.view(torch.uint8).numpy().tobytes()
    arrived = tensor_from_bytes(message, CPU)
    assert arrived.dtype == dtype
    assert torch.equal(arrived, tensor)
    arrived += 1
    assert torch.equal(tensor_from_bytes(message, CPU), tensor)


def test_a_strided_tensor_crosses_row_by_row() -> None:
    tensor = torch.arange(6, dtype=torch.bfloat16).view(2, 3).t()
    assert torch.equal(tensor_from_bytes(bytes_from_tensor(tensor), CPU), tensor)
    logits = np.frombuffer(bytes_from_tensor(torch.ones(4)).data, np.float32)
    assert logits.tolist() == [1.0] * 4


def test_paths_that_are_gone_are_typed(stored: StoredModel, tmp_path: Path) -> None:
    with pytest.raises(ModelCorruptError, match="is missing"):
        dataclasses.replace(stored, path=tmp_path).stage()
