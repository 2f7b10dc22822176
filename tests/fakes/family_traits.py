"""What distinguishes the tiny models of each family: a row for each module in `layerline.models.families`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Traits:
    """`class_name` is that in `transformers`; `pairs_in_gguf`: llama.cpp's converter interleaves the rows of heads."""

    class_name: str
    qkv_bias: bool = False
    qk_norm: bool = False
    in_gguf: bool = True
    pairs_in_gguf: bool = False


TRAITS = {
    "llama": Traits(class_name="LlamaForCausalLM", pairs_in_gguf=True),
    "mistral": Traits(class_name="MistralForCausalLM", in_gguf=False),
    "qwen2": Traits(class_name="Qwen2ForCausalLM", qkv_bias=True),
}
