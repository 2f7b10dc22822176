"""What Python and the kernels hand each other: the same structures as in `src/kernels.h` and `src/library.h`."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_float, c_int32, c_int64, c_void_p
from enum import IntEnum

VERSION = 2  # of all that is said here; the library must have the same

FORMATS = (
    *("F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"),
    *("Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS", "MXFP4"),
)  # in the order of their numbers
KV_STORAGES = {"float32": 0, "bfloat16": 1, "int8": 2}
TILE = 16  # positions whose keys and values lie together; also the rows of a panel


class OperationKind(IntEnum):
    """What an operation does."""

    NORM = 0
    HEAD_NORM = 1
    PRODUCT = 2
    TURN = 3
    ATTEND = 4
    GATE = 5
    ADD = 6


class Segment(ctypes.Structure):
    """Rows of a matrix in one format, in panels."""

    _fields_ = (("panels", c_void_p), ("format", c_int32), ("rows", c_int32), ("first_output", c_int64))


class Matrix(ctypes.Structure):
    """Segments one below the other, and a bias or null."""

    _fields_ = (
        ("segments", POINTER(Segment)),
        ("bias", c_void_p),
        ("inputs", c_int64),
        ("segment_count", c_int32),
        ("padding", c_int32),
    )


class Rows(ctypes.Structure):
    """Rows of float32, `stride` numbers apart."""

    _fields_ = (("data", c_void_p), ("stride", c_int64))


class Pages(ctypes.Structure):
    """The keys and values of a layer; a tile has 16 positions of one head."""

    _fields_ = (
        ("tiles", c_void_p),
        ("tile_bytes", c_int64),
        ("kv_heads", c_int32),
        ("head_dim", c_int32),
        ("value_dim", c_int32),
        ("storage", c_int32),
    )


class AttentionForm(ctypes.Structure):
    """How a layer's queries read; `sinks` is null if no head has one."""

    _fields_ = (
        ("sinks", c_void_p),
        ("scale", c_float),
        ("soft_cap", c_float),
        ("heads", c_int32),
        ("window", c_int32),
    )


class LayerState(ctypes.Structure):
    """A layer's pages, and how they are read."""

    _fields_ = (("pages", Pages), ("form", AttentionForm))


class Operation(ctypes.Structure):
    """One operation on numbered buffers of rows."""

    _fields_ = (
        ("kind", c_int32),
        ("source", c_int32),
        ("target", c_int32),
        ("index", c_int32),
        ("count", c_int32),
        ("flag", c_int32),
        ("size", c_int64),
        ("number", c_float),
        ("padding", c_int32),
        ("weight", c_void_p),
        ("matrix", POINTER(Matrix)),
    )


class StepSpan(ctypes.Structure):
    """Neighbouring rows of one sequence, and the tiles of its positions from `first_position` on."""

    _fields_ = (
        ("first_row", c_int32),
        ("rows", c_int32),
        ("first_position", c_int32),
        ("start", c_int32),
        ("tiles", c_void_p),
    )


class Step(ctypes.Structure):
    """The rows of a step; `turns` has an array for each rotation."""

    _fields_ = (("rows", c_int64), ("span_count", c_int64), ("spans", POINTER(StepSpan)), ("turns", POINTER(c_void_p)))


class Work(ctypes.Structure):
    """What operations work with: buffers, layers, places for prepared rows."""

    _fields_ = (
        ("buffers", POINTER(Rows)),
        ("layers", POINTER(LayerState)),
        ("prepared", c_void_p),
        ("prepared_floats", c_void_p),
        ("digits", c_int32),
        ("padding", c_int32),
    )
