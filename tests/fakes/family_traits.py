"""What distinguishes the tiny models of each family: a row for each module in `layerline.models.families`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Traits:
    """`class_name` is that in `transformers`; `pairs_in_gguf`: llama.cpp's converter interleaves the rows of heads.

    `stacks`: which tensors of a layer are stored below each other as one of that canonical name.
    """

    class_name: str
    qkv_bias: bool = False
    qk_norm: bool = False
    in_gguf: bool = True
    pairs_in_gguf: bool = False
    stacks: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


TRAITS = {
    "phi3": Traits(class_name="Phi3ForCausalLM", stacks={"qkv": ("q", "k", "v"), "gate_up": ("gate", "up")}),
    "llama": Traits(class_name="LlamaForCausalLM", pairs_in_gguf=True),
    "mistral": Traits(class_name="MistralForCausalLM", in_gguf=False),
    "qwen2": Traits(class_name="Qwen2ForCausalLM", qkv_bias=True),
    "qwen3": Traits(class_name="Qwen3ForCausalLM", qk_norm=True),
}
