"""What Python hands the kernels of recurrent layers: the same structures as in `src/kernels.h`.

What has changed of them is told by the version in `structures`.
"""

from __future__ import annotations

import ctypes
from ctypes import c_float, c_int32, c_int64, c_void_p


class Convolution(ctypes.Structure):
    """A causal convolution of some columns of rows, and where the numbers are that these are multiplied by."""

    _fields_ = (
        ("weight", c_void_p),
        ("bias", c_void_p),
        ("channels", c_int32),
        ("taps", c_int32),
        ("column", c_int32),
        ("times_before", c_int32),
        ("times_after", c_int32),
        ("out_column", c_int32),
        ("silu", c_int32),
        ("padding", c_int32),
    )


class DeltaNet(ctypes.Structure):
    """A gated delta net: vectors of its value heads, its sizes, and where in a slot the states of heads are."""

    _fields_ = (
        ("decay", c_void_p),
        ("step_bias", c_void_p),
        ("norm", c_void_p),
        ("state_offset", c_int64),
        ("value_heads", c_int32),
        ("key_heads", c_int32),
        ("key_dim", c_int32),
        ("value_dim", c_int32),
        ("tiled", c_int32),
        ("epsilon", c_float),
    )


class Mamba2(ctypes.Structure):
    """A Mamba 2 layer: vectors of its heads, its sizes, and where in a slot the states of heads are."""

    _fields_ = (
        ("decay", c_void_p),
        ("skip", c_void_p),
        ("step_bias", c_void_p),
        ("state_offset", c_int64),
        ("heads", c_int32),
        ("head_dim", c_int32),
        ("groups", c_int32),
        ("state_dim", c_int32),
    )
