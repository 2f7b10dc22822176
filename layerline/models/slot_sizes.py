"""How many slots of recurrent state a model's stages have, and how many bytes they take.

All stages number their slots alike, as they do pages, so that the count follows from what all know: the model, and how
many positions the pages hold.
"""

from __future__ import annotations

from layerline.models.kv_sizes import position_bytes
from layerline.models.recurrent import STATE_NUMBER_BYTES, RecurrentSpec
from layerline.models.spec import ModelSpec

LEAST_SLOTS = 4  # two sequences, and a checkpoint of each
LEAST_SLOT_TOKENS = 64  # positions of pages that there is at most one slot for


def slot_bytes(recurrent: RecurrentSpec) -> int:
    """Bytes of the slot of a layer."""
    return recurrent.state_numbers * STATE_NUMBER_BYTES


def slot_tokens(model: ModelSpec, kv_dtype: str) -> int:
    """Positions of the pages that a slot goes with: so many that both take as much memory in all layers, or more."""
    kinds = [model.kinds[kind] for kind in model.layer_kinds]
    of_slot = sum(slot_bytes(kind.recurrent) for kind in kinds if kind.recurrent is not None)
    of_position = sum(position_bytes(kind.attention, kv_dtype) for kind in kinds if kind.recurrent is None)
    return max(LEAST_SLOT_TOKENS, -(-of_slot // of_position))


def slots_of(model: ModelSpec, kv_dtype: str, tokens: int) -> int:
    """Slots beside pages that hold so many positions; none for a model without recurrent layers.

    `model` is the whole one, so that every rank of every stage has as many.
    """
    return LEAST_SLOTS + tokens // slot_tokens(model, kv_dtype) if model.is_recurrent else 0
