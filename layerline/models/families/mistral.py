"""Mistral: Llama with a window in every layer, unless a config leaves it out. In GGUF it calls itself llama."""

from layerline.models.families.family import DECODER_TENSORS, Family

MISTRAL = Family(
    name="mistral",
    config_model_type="mistral",
    tensors=DECODER_TENSORS,
    qkv_bias=False,
    windows=True,
)
