"""Kernels by Triton, where a device has them: after a trial, since a compiler or a driver may be missing."""

from __future__ import annotations

import logging
import subprocess
from collections.abc import Callable
from typing import TypeVar

import torch

from node.kernels.triton_here import triton_here

_MISSING = (ImportError, AttributeError, TypeError, RuntimeError, OSError, subprocess.SubprocessError)
"""What fails where a compiler or a driver is missing, or Triton is of a version that has other functions."""

Kernel = TypeVar("Kernel")
log = logging.getLogger(__name__)


def tried(
    device: torch.device, load: Callable[[], Kernel], trial: Callable[[Kernel], object], otherwise: str
) -> Kernel | None:
    """The kernel that `load` imports, if `trial` of it goes well; None where it does not, and the log says `otherwise`.

    None too for a device that has none anyway.
    """
    if device.type != "cuda" or not triton_here(torch.cuda.get_device_capability(device)):
        return None
    try:
        from triton.errors import TritonError  # noqa: PLC0415  # it is there on few machines, and takes long
    except ImportError:  # an old version
        return None
    try:
        kernel = load()
        trial(kernel)
    except (TritonError, *_MISSING) as failure:
        log.warning("Triton makes no kernels for %s: %s. %s", device, otherwise, failure)
        return None
    return kernel
