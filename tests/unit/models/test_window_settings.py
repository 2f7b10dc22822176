"""The window of each layer, from config.json and GGUF metadata."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from layerline.errors import ModelUnsupportedError
from layerline.models.headers import read_headers
from layerline.models.spec import ModelSpec
from tests.fakes.model_files import TinyModel, write_folder, write_gguf

LLAMA = TinyModel()
QWEN2 = TinyModel(family="qwen2", tied_output=False)
MISTRAL = TinyModel(family="mistral")
QWEN2_WINDOW = {"use_sliding_window": True, "sliding_window": 16}


def windows_of(spec: ModelSpec) -> list[int]:
    return [spec.layer(index).attention.window_tokens for index in range(spec.layers)]


@pytest.mark.parametrize(
    "config",
    [
        {"use_sliding_window": False, "sliding_window": 16},
        {"use_sliding_window": True, "sliding_window": 16, "max_window_layers": 2},
        {"use_sliding_window": True, "sliding_window": 1 << 20},
    ],
)
def test_a_window_that_is_not_in_use_is_no_matter(tmp_path: Path, config: Mapping[str, object]) -> None:
    spec = read_headers(write_folder(tmp_path, QWEN2, config=config)).spec
    assert (spec.reach_tokens, windows_of(spec)) == (0, [0, 0])


@pytest.mark.parametrize(
    ("model", "config", "windows", "reach_tokens"),
    [
        (MISTRAL, {"sliding_window": 16}, [16, 16], 16),
        (MISTRAL, {"sliding_window": None}, [0, 0], 0),
        (QWEN2, {"use_sliding_window": True, "sliding_window": 16, "max_window_layers": 1}, [0, 16], 0),
        (QWEN2, {**QWEN2_WINDOW, "layer_types": ["full_attention", "sliding_attention"]}, [0, 16], 0),
        (QWEN2, {**QWEN2_WINDOW, "layer_types": ["sliding_attention"] * 2}, [16, 16], 16),
        (QWEN2, {**QWEN2_WINDOW, "layer_types": ["full_attention"] * 2}, [0, 0], 0),
        (QWEN2, {**QWEN2_WINDOW, "layer_types": ["sliding_attention", "full_attention"]}, [16, 0], 0),
        (MISTRAL, {"sliding_window": 16, "max_window_layers": 1}, [16, 16], 16),
        (MISTRAL, {"max_position_embeddings": 8192}, [4096, 4096], 4096),
        (QWEN2, {"use_sliding_window": True, "max_window_layers": 1, "max_position_embeddings": 8192}, [0, 4096], 0),
        (QWEN2, QWEN2_WINDOW, [0, 0], 0),  # max_window_layers is 28 where it is not said
        (QWEN2, {"use_sliding_window": True, "sliding_window": None, "max_window_layers": 0}, [0, 0], 0),
        (QWEN2, {"use_sliding_window": False, "sliding_window": 0}, [0, 0], 0),
    ],
)
def test_the_window_of_each_layer(
    tmp_path: Path, model: TinyModel, config: Mapping[str, object], windows: list[int], reach_tokens: int
) -> None:
    spec = read_headers(write_folder(tmp_path, model, config=config)).spec
    assert windows_of(spec) == windows
    assert spec.reach_tokens == reach_tokens


def test_a_window_in_a_gguf_is_that_of_every_layer(tmp_path: Path) -> None:
    """Mistral calls itself llama there. Of Qwen2 it does not say which layers have it."""
    window = {"llama.attention.sliding_window": 16}
    assert read_headers(write_gguf(tmp_path / "m.gguf", LLAMA, metadata=window)).spec.reach_tokens == 16
    as_context = {"llama.attention.sliding_window": LLAMA.context_tokens}
    assert read_headers(write_gguf(tmp_path / "c.gguf", LLAMA, metadata=as_context)).spec.reach_tokens == 0
    with pytest.raises(ModelUnsupportedError, match="in which layers"):
        read_headers(write_gguf(tmp_path / "q.gguf", QWEN2, metadata={"qwen2.attention.sliding_window": 16}))
