"""What Python and the kernels hand each other: the same structures as in `src/kernels.h` and `src/library.h`."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_char_p, c_float, c_int32, c_int64, c_void_p
from enum import IntEnum

from layerline.models.grouped import CELL_COLUMNS, grouped_form

VERSION = 15  # of all that is said here; the library must have the same

FORMATS = (
    *("F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"),
    *("Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS", "MXFP4"),
)  # in the order of their numbers
GROUPED_FORMATS = ("F8_E4M3", "F8_E5M2", "INT4", "INT8")  # those after them, of which the number says the groups too
SCALES = ("F16", "BF16", "F32")
KV_STORAGES = {"float32": 0, "bfloat16": 1, "int8": 2, "float16": 3}
DELTA_COLUMNS = 32  # of the state of a delta net's head that go together
TILE = 16  # positions whose keys and values lie together; also the rows of a panel


def format_number(storage: str) -> int:
    """What the kernels call a storage."""
    form = grouped_form(storage)
    if form is None:
        return FORMATS.index(storage)
    number = len(FORMATS) + GROUPED_FORMATS.index(form.codes)
    return number | SCALES.index(form.scale) << 8 | form.group // CELL_COLUMNS << 12


class OperationKind(IntEnum):
    """What an operation does."""

    EMBED = 0
    TAKE = 1
    PLACE = 2
    NORM = 3
    HEAD_NORM = 4
    PRODUCT = 5
    TURN = 6
    ATTEND = 7
    GATE = 8
    ADD = 9
    PICK = 10
    ROUND = 11
    SCALE = 12
    CAP = 13
    GROW = 14
    ROUTE = 15
    EXPERTS = 16
    HEAD_PRODUCT = 17
    CONVOLVE = 18
    HEAD_COPY = 19
    KEEP = 20
    COPY = 21
    TIMES_SIGMOID = 22
    DELTA = 23
    MAMBA2 = 24
    GATED_NORM = 25


class GateKind(IntEnum):
    """What the gate of a feed-forward is passed through."""

    SILU = 0
    GELU_TANH = 1
    CLAMPED_SWIGLU = 2


class ScoringKind(IntEnum):
    """How logits become scores of experts."""

    SOFTMAX = 0
    SOFTMAX_OF_CHOSEN = 1
    SIGMOID = 2
    SIGMOID_OF_CHOSEN = 3


class Segment(ctypes.Structure):
    """Rows of a matrix in one format, in panels; `order` tells which input each column belongs to, null: its own."""

    _fields_ = (
        ("panels", c_void_p),
        ("format", c_int32),
        ("rows", c_int32),
        ("first_output", c_int64),
        ("order", c_void_p),
    )


class Matrix(ctypes.Structure):
    """Segments one below the other, and a bias or null."""

    _fields_ = (
        ("segments", POINTER(Segment)),
        ("bias", c_void_p),
        ("inputs", c_int64),
        ("segment_count", c_int32),
        ("padding", c_int32),
    )


class Experts(ctypes.Structure):
    """The experts of a layer, the shared one the last if there is one, how they are chosen, and for which rows."""

    _fields_ = (
        ("gate_up", POINTER(Matrix)),
        ("down", POINTER(Matrix)),
        ("choice_bias", c_void_p),
        ("scales", c_void_p),
        ("count", c_int32),
        ("chosen", c_int32),
        ("groups", c_int32),
        ("chosen_groups", c_int32),
        ("group_best", c_int32),
        ("scoring", c_int32),
        ("normalised", c_int32),
        ("shared", c_int32),
        ("shared_gate", c_int32),
        ("activation", c_int32),
        ("scale", c_float),
        ("weighs_input", c_int32),
        ("copies", c_void_p),
        ("turns", c_void_p),
        ("rows", c_void_p),
    )


class Rows(ctypes.Structure):
    """Rows of float32, `stride` numbers apart."""

    _fields_ = (("data", c_void_p), ("stride", c_int64))


class Pages(ctypes.Structure):
    """The keys and values of a layer; a tile has 16 positions of one head.

    With `value_from` values are the numbers of keys from that one on.
    """

    _fields_ = (
        ("tiles", c_void_p),
        ("tile_bytes", c_int64),
        ("kv_heads", c_int32),
        ("head_dim", c_int32),
        ("value_dim", c_int32),
        ("storage", c_int32),
        ("value_from", c_int32),
        ("padding", c_int32),
    )


class AttentionForm(ctypes.Structure):
    """How a layer's queries read; `sinks` is null if no head has one."""

    _fields_ = (
        ("sinks", c_void_p),
        ("scale", c_float),
        ("soft_cap", c_float),
        ("heads", c_int32),
        ("window", c_int32),
        ("chunk", c_int32),
        ("padding", c_int32),
    )


class States(ctypes.Structure):
    """The slots of a recurrent layer, `slot_numbers` apart."""

    _fields_ = (("numbers", c_void_p), ("slot_numbers", c_int64))


class LayerState(ctypes.Structure):
    """A layer's pages and how they are read, or its slots."""

    _fields_ = (("pages", Pages), ("form", AttentionForm), ("states", States))


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


class PageRun(ctypes.Structure):
    """Pages that lie next to each other."""

    _fields_ = (("first", c_int32), ("count", c_int32))


class StateRun(ctypes.Structure):
    """Neighbouring rows of one sequence, and the slots of their state before them, -1 for none, and after them."""

    _fields_ = (("first_row", c_int32), ("rows", c_int32), ("source", c_int32), ("target", c_int32))


class StepSpan(ctypes.Structure):
    """Neighbouring rows of one sequence; which of the step's runs are its pages from `first_position` on, or states."""

    _fields_ = (
        ("first_row", c_int32),
        ("rows", c_int32),
        ("first_position", c_int32),
        ("start", c_int32),
        ("first_run", c_int32),
        ("run_count", c_int32),
        ("first_state", c_int32),
        ("state_count", c_int32),
    )


class Step(ctypes.Structure):
    """The rows of a step: `input` has ids or numbers, `ids` their ids if needed, `picked` those wanted in the end."""

    _fields_ = (
        ("rows", c_int64),
        ("span_count", c_int64),
        ("spans", POINTER(StepSpan)),
        ("runs", POINTER(PageRun)),
        ("states", POINTER(StateRun)),
        ("input", c_char_p),
        ("ids", c_char_p),
        ("picked", POINTER(c_int32)),
        ("picked_count", c_int64),
    )


class Rotation(ctypes.Structure):
    """The frequencies of a rotation's pairs, and what is turned is multiplied by."""

    _fields_ = (("frequencies", c_void_p), ("pairs", c_int32), ("amplitude", c_float))


class Work(ctypes.Structure):
    """What operations work with: buffers, layers, rotations, places for prepared and for rounded rows."""

    _fields_ = (
        ("buffers", POINTER(Rows)),
        ("layers", POINTER(LayerState)),
        ("rotations", POINTER(Rotation)),
        ("prepared", c_void_p),
        ("prepared_floats", c_void_p),
        ("rounded", c_void_p),
        ("rotation_count", c_int32),
        ("page_tiles", c_int32),
        ("digits", c_int32),
        ("padding", c_int32),
    )
