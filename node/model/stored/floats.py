"""Which dtype floating-point numbers have as they are stored."""

from __future__ import annotations

import torch

FLOATS = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
