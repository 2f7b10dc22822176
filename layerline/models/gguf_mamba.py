"""Reading Mamba 2 layers of a GGUF file.

Source: `load_hparams` of llama.cpp, and what its converter writes: how many heads there are it calls time_step_rank.
"""

from __future__ import annotations

from layerline.models.gguf_fields import GgufModel, layer_count_of_gguf
from layerline.models.recurrent import Mamba2Spec


def mamba2_from_gguf(gguf: GgufModel) -> Mamba2Spec:
    """The layer, with a bias of the convolution if any layer has one."""
    heads, numbers = gguf.integer("ssm.time_step_rank"), gguf.integer("ssm.inner_size")
    if heads <= 0 or numbers % heads:
        raise gguf.metadata.wrong(gguf.key("ssm.inner_size"), f"a multiple of {heads} heads")
    return Mamba2Spec(
        heads=heads,
        head_dim=numbers // heads,
        groups=gguf.integer("ssm.group_count", 1),
        state_dim=gguf.integer("ssm.state_size"),
        taps=gguf.integer("ssm.conv_kernel"),
        conv_bias=any(f"blk.{layer}.ssm_conv1d.bias" in gguf.tensors for layer in range(layer_count_of_gguf(gguf))),
    )
