"""How many bytes a stage needs beside weights, KV pages and slots while it computes a step."""

from __future__ import annotations

from layerline.models.held import WeightForm
from layerline.models.row_layout import widest_row
from layerline.models.spec import LayerSpec, ModelSpec
from layerline.plan import DTYPE_BYTES

LOGITS_ROWS = 64  # rows whose logits are computed at once: the output matrix is large, so the fewer times the better
FURTHER_BYTES = 32 << 20  # for all that is small

NUMBER_BYTES = 4  # float32: what the kernels compute in, and torch what is made beside numbers of the dtype
PREPARED_BYTES = 9  # of a number of a row that the kernels prepare for a product, at most
TILE_NUMBERS = 1 << 22  # of a matrix that torch unpacks at a time: a launch for each operation is little beside them
TILE_BYTES = 12  # of each while it is unpacked, at most


def workspace_bytes(
    model: ModelSpec, part: ModelSpec, form: WeightForm, max_rows: int, *, unpacks: bool, has_output: bool
) -> int:
    """Those of a stage that computes up to `max_rows` rows; `part` is what it, or a rank of it, has of `model`.

    An upper bound of what is alive at once: the residual, what rows carry beside it and what layers get of tokens, the
    widest products and their float32 copies, what torch `unpacks` of a matrix, the attention scores of one block of
    queries, and the logits of LOGITS_ROWS rows, of one of them in float32. Where the vocabulary is split, these may
    have to be brought together, in parts and whole.
    """
    widest = max(map(_widest_numbers, part.kinds))
    beside = 2 * (widest_row(model) - model.hidden) + 3 * model.layers * model.token_input
    rows = rows_of_all = max_rows * (3 * part.hidden + 2 * widest + beside) * NUMBER_BYTES
    prepared = max_rows * max(part.hidden, widest)
    for kind in part.kinds:
        pairs, widths = max_rows * kind.feed_forward.experts_of_a_row, kind.feed_forward.widths
        rows = max(rows, rows_of_all + pairs * (2 * part.hidden + 3 * max(widths)) * NUMBER_BYTES)
        prepared = max(prepared, pairs * max(part.hidden, *widths))
    if form.kernels:
        rows += prepared * PREPARED_BYTES
    elif unpacks:
        rows += TILE_NUMBERS * TILE_BYTES
    return rows + has_output * _logits_bytes(model, part, form, max_rows) + FURTHER_BYTES


def _logits_bytes(model: ModelSpec, part: ModelSpec, form: WeightForm, max_rows: int) -> int:
    own = min(LOGITS_ROWS, max_rows) * (NUMBER_BYTES if form.kernels else DTYPE_BYTES[form.dtype])
    logits = part.vocabulary * (own + NUMBER_BYTES)
    if part.vocabulary < model.vocabulary:
        logits += model.vocabulary * (2 * own + NUMBER_BYTES)
    return logits


def _widest_numbers(layer: LayerSpec) -> int:
    """Numbers of the widest products of one row."""
    if layer.recurrent is not None:
        own = layer.recurrent
        return max(2 * layer.feed_forward.intermediate, own.made_numbers + own.conv_channels + own.output_numbers)
    attention = layer.attention
    qkv_numbers = attention.query_numbers + attention.key_numbers + attention.value_numbers
    qkv_numbers += attention.output_numbers * attention.output_gate
    if attention.latent is not None:  # queries as they are made, and what is read of latents, are numbers beside these
        qkv_numbers += attention.heads * (attention.made_query_dim + attention.value_dim)
    return max(2 * layer.feed_forward.intermediate, qkv_numbers)
