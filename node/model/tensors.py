"""Tensors to and from the bytes of a frame, with one copy each way."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from layerline.frames import TensorBytes

TORCH_DTYPES = {
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "float32": torch.float32,
    "int32": torch.int32,
    "int8": torch.int8,
}
_DTYPE_NAMES = {dtype: name for name, dtype in TORCH_DTYPES.items()}
_SAME_SIZE = {torch.bfloat16: torch.int16}  # numpy has no bfloat16; its bits travel as integers


def tensor_from_bytes(message: TensorBytes, device: torch.device) -> Tensor:
    """A tensor of its own on `device`."""
    tensor = torch.empty(message.shape, dtype=TORCH_DTYPES[message.dtype])
    bits = tensor.view(_SAME_SIZE.get(tensor.dtype, tensor.dtype)).numpy()
    bits[...] = np.frombuffer(message.data, bits.dtype).reshape(message.shape)
    return tensor.to(device)


def bytes_from_tensor(tensor: Tensor) -> TensorBytes:
    """The bytes of `tensor`, wherever it is; waits until it has been computed."""
    bits = tensor.view(_SAME_SIZE.get(tensor.dtype, tensor.dtype)).cpu().numpy()
    return TensorBytes(dtype=_DTYPE_NAMES[tensor.dtype], shape=tuple(tensor.shape), data=bits.tobytes())
