"""Whether Triton can make kernels for this machine's GPUs. Imports nothing heavy."""

from __future__ import annotations

import importlib.util
import os
import shutil

from node.kernels.library import SWITCH

NAME = "triton"
LEAST_CAPABILITY = (8, 0)  # of a GPU, for products in bfloat16


def triton_here(capability: tuple[int, int]) -> str:
    """Its name, for a GPU of that CUDA compute capability.

    Empty where that is too little, and where it is not installed, has no C compiler to make its launchers, or is
    switched off.
    """
    compilers = (os.environ.get("CC"), "cc", "gcc", "clang")
    can_compile = any(shutil.which(compiler) for compiler in compilers if compiler)
    installed = importlib.util.find_spec(NAME) is not None
    wanted = capability >= LEAST_CAPABILITY and os.environ.get(SWITCH) != "off"
    return NAME if installed and can_compile and wanted else ""
