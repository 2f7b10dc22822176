"""Whether Triton can make kernels for this machine's GPUs. Imports nothing heavy."""

from __future__ import annotations

import importlib.util
import os
import shutil

from node.kernels.library import SWITCH

NAME = "triton"


def triton_here() -> str:
    """Its name; empty where it is not installed, has no C compiler to make its launchers, or is switched off."""
    compilers = (os.environ.get("CC"), "cc", "gcc", "clang")
    can_compile = any(shutil.which(compiler) for compiler in compilers if compiler)
    installed = importlib.util.find_spec(NAME) is not None
    return NAME if installed and can_compile and os.environ.get(SWITCH) != "off" else ""
