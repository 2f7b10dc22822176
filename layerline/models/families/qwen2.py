"""Qwen2 and Qwen2.5: Llama with biases on queries, keys and values, and a window that a flag switches on."""

from layerline.models.families.family import DECODER_TENSORS, QKV_BIASES, Family

QWEN2 = Family(
    name="qwen2",
    config_model_type="qwen2",
    gguf_architecture="qwen2",
    tensors=DECODER_TENSORS + QKV_BIASES,
    qkv_bias=True,
    windows=True,
    window_flag="use_sliding_window",
)
