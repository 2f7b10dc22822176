"""The text part of a multimodal checkpoint: its config, and its tensors by the names of a model of text alone.

Checkpoints put a language model below names of their own, and have beside it what turns images and sounds into its
rows. Only the language model is read here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from layerline.models.config_fields import ConfigFields
from layerline.models.tensor_table import StoredTensor

NOTE = "It is multimodal: its text part is used, and what it has for images and sounds is left out."
_SENSES = ("vision_config", "audio_config", "vision_tower_config")
_SECTION = "text_config"
_TIED = "tie_word_embeddings"
_OF_ALL = (
    *("quantization_config", "rope_scaling", "rope_parameters"),
    *("eos_token_id", "bos_token_id"),
)
_PREFIXES = {
    "model.language_model.": "model.",
    "language_model.model.": "model.",
    "language_model.lm_head.": "lm_head.",
}
_OF_TEXT = (
    *("model.layers.", "model.embed_tokens.", "model.norm.", "model.embedding_norm.", "lm_head."),
    *("model.embed_tokens_per_layer.", "model.per_layer_model_projection.", "model.per_layer_projection_norm."),
)


def is_multimodal(config: ConfigFields) -> bool:
    """Whether the config is that of a model which takes more than text."""
    return any(isinstance(config.raw(key), Mapping) for key in _SENSES)


def text_config(config: ConfigFields) -> ConfigFields:
    """What the config says of the language model, in a section of its own or beside the others."""
    if not isinstance(config.raw(_SECTION), Mapping):
        return config
    section = config.section(_SECTION)
    if config.raw(_TIED) is not None:  # what is said of the whole counts
        section = section.replaced({_TIED: config.raw(_TIED)})
    return section.with_missing({key: config.raw(key) for key in _OF_ALL if config.has(key)})


def text_tensors(stored: Iterable[StoredTensor]) -> tuple[StoredTensor, ...]:
    """The language model's tensors, by the names that they would have alone."""
    named = (replace(tensor, name=_own_name(tensor.name)) for tensor in stored)
    return tuple(tensor for tensor in named if tensor.name.startswith(_OF_TEXT))


def _own_name(name: str) -> str:
    for prefix, own in _PREFIXES.items():
        if name.startswith(prefix):
            return own + name.removeprefix(prefix)
    return name
