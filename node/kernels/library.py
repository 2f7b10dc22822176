"""Finds the kernels' library, and says which instruction sets it has for this processor. Imports nothing heavy.

Whatever keeps the library from being used is one sentence, which nodes say and which leaves everything to torch.
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys
from ctypes import POINTER, c_char_p, c_int32, c_int64, c_void_p
from pathlib import Path

from node.kernels.structures import VERSION, Operation, Step, Work, format_number

PATH = Path(__file__).with_name("kernels.dylib" if sys.platform == "darwin" else "kernels.so")
SWITCH = "LAYERLINE_KERNELS"  # an instruction set, or "off"


class KernelsMissingError(Exception):
    """Why the kernels cannot be used, in a sentence."""


class Library:
    """The library at `path`; KernelsMissingError if it cannot be used."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            raise KernelsMissingError("They were not built when layerline was installed; `pip install -v` says why.")
        try:
            self.calls = _declared(ctypes.CDLL(str(path)))
        except (OSError, AttributeError) as failure:
            raise KernelsMissingError(f"{path.name} cannot be loaded ({failure}).") from failure
        if self.calls.layerline_version() != VERSION:
            raise KernelsMissingError(f"{path.name} is of another version of layerline; install it again.")
        self.instruction_sets = tuple(self._instruction_sets())
        if not self.instruction_sets:
            raise KernelsMissingError(f"{path.name} was built for other processors than this one.")

    def panel_bytes(self, storage: str, columns: int) -> int:
        """Bytes of 16 rows of a matrix."""
        size: int = self.calls.layerline_panel_bytes(format_number(storage), columns)
        return size

    def _instruction_sets(self) -> list[str]:
        names: list[str] = []
        while name := self.calls.layerline_instruction_set(len(names)):
            names.append(name.decode())
        return names


@functools.cache
def library() -> Library:
    """The library that came with this package; KernelsMissingError says why there is none."""
    if os.environ.get(SWITCH) == "off":
        raise KernelsMissingError(f"They are switched off by {SWITCH}.")
    return Library(PATH)


def chosen_instruction_set() -> str:
    """The fastest instruction set that can be used, or the one that the environment names; else KernelsMissingError."""
    sets = library().instruction_sets
    wanted = os.environ.get(SWITCH) or sets[0]
    if wanted not in sets:
        raise KernelsMissingError(f"{SWITCH} is {wanted}, but this processor and library have {', '.join(sets)}.")
    return wanted


def check_choice() -> None:
    """KernelsMissingError if the environment asks for an instruction set that cannot be used."""
    if os.environ.get(SWITCH, "off") != "off":
        chosen_instruction_set()


def kernels_here() -> str:
    """The instruction set that is chosen; empty where the kernels cannot be used."""
    try:
        return chosen_instruction_set()
    except KernelsMissingError:
        return ""


def _declared(calls: ctypes.CDLL) -> ctypes.CDLL:
    """Says what each function takes and gives."""
    signatures = {
        "version": (c_int32, ()),
        "instruction_set": (c_char_p, (c_int32,)),
        "engine": (c_void_p, (c_char_p, c_int32, c_int64)),
        "attention_bytes": (c_int64, (c_int64, c_int64, c_int64, c_int64)),
        "end": (None, (c_void_p,)),
        "row_bytes": (c_int64, (c_int32, c_int64)),
        "panel_bytes": (c_int64, (c_int32, c_int64)),
        "prepared_bytes": (c_int64, (c_void_p, c_int32, c_int32, c_int64, c_int64)),
        "pack": (None, (c_int32, c_void_p, c_int64, c_int64, c_int64, c_int64, c_void_p)),
        "run": (c_int32, (c_void_p, POINTER(Operation), c_int64, POINTER(Work), POINTER(Step))),
    }
    for name, (gives, takes) in signatures.items():
        function = getattr(calls, f"layerline_{name}")
        function.restype, function.argtypes = gives, takes
    return calls
