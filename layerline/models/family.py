"""What a family of models is: how its spec is read from either container, and which tensors it has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from layerline.models.config_fields import ConfigFields
from layerline.models.decoder_rules import ENDS, decoder_tensors
from layerline.models.gguf_fields import GgufModel
from layerline.models.spec import LayerSpec, ModelSpec
from layerline.models.tensor_rules import TensorRule


@dataclass(frozen=True, kw_only=True, slots=True)
class Family:
    """A decoder family. `layer_tensors` gives the tensors of a layer, `end_tensors` those of the ends.

    `from_config` and `from_gguf` raise a ModelError for what the spec cannot express, by name, and ValueError for sizes
    that cannot be. `model_type` is what config.json calls it, `architecture` what GGUF does; empty, and without a
    `from_gguf`, if GGUF has it under another family's name.
    """

    model_type: str
    from_config: Callable[[ConfigFields], ModelSpec]
    architecture: str = ""
    from_gguf: Callable[[GgufModel], ModelSpec] | None = None
    layer_tensors: Callable[[LayerSpec], Sequence[TensorRule]] = decoder_tensors
    end_tensors: Sequence[TensorRule] = ENDS
    unread_tensors: Callable[[LayerSpec], Sequence[TensorRule]] | None = None  # that files have nevertheless
    has_further_layers: bool = False  # checkpoints may have some behind the last, which guess further tokens
    text_parts: Sequence[str] = ()  # what config.json calls the text part of multimodal models of the family
