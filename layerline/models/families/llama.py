"""Llama and what follows its config and names to the letter: Llama 2 and 3, SmolLM2, TinyLlama."""

from layerline.models.families.family import DECODER_TENSORS, Family

LLAMA = Family(
    name="llama",
    config_model_type="llama",
    gguf_architecture="llama",
    tensors=DECODER_TENSORS,
    qkv_bias=False,
    gguf_rope_pairs=frozenset({"q", "k"}),
    refused_flags=("attention_bias", "mlp_bias"),
)
