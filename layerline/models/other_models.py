"""What a folder is that is no model which layerline runs, and what can be done with it.

Told by the files that the tools put there which make such folders, and by what config.json says of itself.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from layerline.errors import ModelUnsupportedError
from layerline.models.config_fields import ConfigFields


class _Kind(NamedTuple):
    """What something is, as the end of a sentence, and what can be done."""

    what: str
    remedy: str

    def refused(self, folder: Path, file: str = "") -> ModelUnsupportedError:
        """`file` is by what it was told."""
        return ModelUnsupportedError(f"{folder.name} {self.what.format(file=file)}.", remedy=self.remedy)


_ADAPTER = _Kind(
    "is a LoRA adapter, which changes another model",
    "Merge the two (peft: merge_and_unload, then save_pretrained), and use what that saves.",
)
_RUNS = "layerline runs models that write text, such as Llama or Qwen."
_DIFFUSION = _Kind("is a diffusion model, which makes images", _RUNS)
_EMBEDDING = _Kind("is an embedding model, which makes one vector of a text and writes none", _RUNS)
_ENCODER = _Kind("is an encoder, which does not write text", _RUNS)
_TRANSLATOR = _Kind("is an encoder with a decoder", "layerline runs decoders alone, such as Llama or Qwen.")
_VISION = _Kind("is made for images", _RUNS)
_SOUND = _Kind("is made for sound", _RUNS)
_CLASSIFIER = _Kind("has the head of a classifier, which gives scores and no text", "Use the model it was made of.")
_TRAINING = _Kind(
    "is a checkpoint of a training run, beside the state of its optimizer",
    "Save the model by itself, as safetensors (save_pretrained), and use that folder.",
)
_SHARDED = _Kind(
    "is a checkpoint of a training run, in pieces by rank",
    "Merge them with the tool of the trainer that wrote them, as safetensors, and use what that saves.",
)
_PICKLED = _Kind(
    "has its weights in {file}, a kind of file that can run code when it is opened",
    "Fetch the model as safetensors, or save it anew: from_pretrained(...).save_pretrained(...).",
)

_BY_FILES = (
    ("adapter_config.json", _ADAPTER),
    ("model_index.json", _DIFFUSION),
    ("*.distcp", _SHARDED),
    ("global_step*", _SHARDED),
    ("pytorch_model_fsdp*", _SHARDED),
    ("optimizer.*", _TRAINING),
    ("*.bin", _PICKLED),
    ("*.pt", _PICKLED),
    ("*.pth", _PICKLED),
)
_BY_TYPE = {
    _ENCODER: (
        *("albert", "bert", "camembert", "deberta", "deberta-v2", "distilbert", "electra", "eurobert"),
        *("modernbert", "mpnet", "nomic_bert", "roberta", "xlm-roberta"),
    ),
    _VISION: ("clip", "siglip", "siglip2", "vit", "dinov2", "dinov3_vit", "sam", "swin", "convnext", "detr"),
    _SOUND: ("whisper", "wav2vec2", "hubert", "encodec", "bark", "musicgen", "speecht5"),
}
_TYPES = {model_type: kind for kind, types in _BY_TYPE.items() for model_type in types}


def refuse_other_folder(folder: Path) -> None:
    """ModelUnsupportedError for a folder without a model, if it is known what it holds instead."""
    try:
        found = [(kind, min(folder.glob(pattern), default=None)) for pattern, kind in _BY_FILES]
    except OSError:
        return
    for kind, path in found:
        if path is not None:
            raise kind.refused(folder, path.name)


def refuse_other_models(config: ConfigFields, folder: Path) -> None:
    """ModelUnsupportedError for a model that does not write text, by its files and its config."""
    classes = config.raw("architectures")
    names = [name for name in classes if isinstance(name, str)] if isinstance(classes, list) else []
    kind = _TYPES.get(config.text("model_type", ""))
    if (folder / "adapter_config.json").exists():
        kind = _ADAPTER
    elif (folder / "config_sentence_transformers.json").exists():
        kind = _EMBEDDING
    elif any("Classification" in name or "RewardModel" in name for name in names):
        kind = _CLASSIFIER
    elif kind is None and config.raw("is_encoder_decoder") is True:
        kind = _TRANSLATOR
    if kind is not None:
        raise kind.refused(folder)
