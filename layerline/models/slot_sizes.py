"""How many slots of recurrent state a model's stages have, and how many bytes they take.

All stages number their slots alike, as they do pages, so that the count follows from what all know: the model, and how
many positions the pages hold.
"""

from __future__ import annotations

from layerline.models.kv_sizes import position_bytes
from layerline.models.recurrent import STATE_NUMBER_BYTES, RecurrentSpec
from layerline.models.spec import LayerSpec, ModelSpec

LEAST_SLOTS = 4  # two sequences, and a checkpoint of each
LEAST_SLOT_TOKENS = 64  # positions of pages that there is at most one slot for


def slot_bytes(recurrent: RecurrentSpec) -> int:
    """Bytes of the slot of a layer."""
    return recurrent.state_numbers * STATE_NUMBER_BYTES


def slot_tokens(model: ModelSpec, kv_dtype: str) -> int:
    """Positions of the pages that a slot goes with: so many that both take as much memory in all layers, or more."""
    of_slot = of_position = 0
    for place, kind in enumerate(model.kinds):
        layers = model.layer_kinds.count(place)
        if kind.recurrent is None:
            of_position += layers * position_bytes(kind.attention, kv_dtype)
        else:
            of_slot += layers * slot_bytes(kind.recurrent)
    return max(LEAST_SLOT_TOKENS, -(-of_slot // of_position))


def slots_of(model: ModelSpec, kv_dtype: str, tokens: int) -> int:
    """Slots beside pages that hold so many positions; none for a model without recurrent layers.

    `model` is the whole one, so that every rank of every stage has as many.
    """
    return LEAST_SLOTS + tokens // slot_tokens(model, kv_dtype) if model.is_recurrent else 0


def sequence_bytes(layer: LayerSpec, model: ModelSpec, kv_dtype: str) -> tuple[int, int]:
    """Bytes of what a layer of `model`, or a rank's part of it, holds of sequences.

    First those of the slots that there are with any pages, then those for each position that the pages hold: its keys
    and values, or its share of the slots that go with the pages, rounded up.
    """
    if layer.recurrent is None:
        return 0, position_bytes(layer.attention, kv_dtype)
    own = slot_bytes(layer.recurrent)
    return LEAST_SLOTS * own, -(-own // slot_tokens(model, kv_dtype))
