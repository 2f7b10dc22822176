"""Whether a CPU computes what kernels by Triton would, as Triton itself decides when it is imported."""

import os

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"  # without products of bfloat16; float32 ones are the same
