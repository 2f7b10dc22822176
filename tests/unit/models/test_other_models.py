"""Folders that hold something else than a model that writes text are refused by what they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from layerline.errors import ModelUnsupportedError
from layerline.models.headers import read_headers
from layerline.models.other_models import refuse_other_folder
from tests.fakes.model_files import TinyModel, write_folder


@pytest.mark.parametrize(
    ("file", "words"),
    [
        ("adapter_config.json", "LoRA adapter.*merge_and_unload"),
        ("model_index.json", "diffusion"),
        ("__0_0.distcp", "in pieces by rank"),
        ("optimizer.pt", "training run, beside"),
        ("pytorch_model.bin", "weights in pytorch_model.bin.*safetensors"),
    ],
)
def test_folders_without_a_model(tmp_path: Path, file: str, words: str) -> None:
    (tmp_path / file).write_text("{}")
    with pytest.raises(ModelUnsupportedError) as caught:
        refuse_other_folder(tmp_path)
    assert tmp_path.name in caught.value.message
    assert all(word in f"{caught.value.message} {caught.value.remedy}" for word in words.split(".*"))


def test_a_folder_of_which_nothing_is_known(tmp_path: Path) -> None:
    refuse_other_folder(tmp_path)
    refuse_other_folder(tmp_path / "missing")


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"model_type": "bert"}, "an encoder"),
        ({"model_type": "t5", "is_encoder_decoder": True}, "encoder with a decoder"),
        ({"architectures": ["LlamaForSequenceClassification"]}, "classifier"),
        ({"model_type": "whisper", "is_encoder_decoder": True}, "made for sound"),
        ({"model_type": "siglip"}, "made for images"),
    ],
)
def test_models_that_write_no_text(tmp_path: Path, config: dict[str, object], words: str) -> None:
    with pytest.raises(ModelUnsupportedError, match=words):
        read_headers(write_folder(tmp_path / "model", TinyModel(), config=config))


def test_an_embedding_model(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "model", TinyModel())
    (folder / "config_sentence_transformers.json").write_text("{}")
    with pytest.raises(ModelUnsupportedError, match="embedding model"):
        read_headers(folder)


def test_code_of_an_unknown_model_is_named(tmp_path: Path) -> None:
    config = {"model_type": "strange", "auto_map": {"AutoModelForCausalLM": "modeling.Strange"}}
    with pytest.raises(ModelUnsupportedError, match=r"auto_map.*never runs"):
        read_headers(write_folder(tmp_path / "model", TinyModel(), config=config))
