"""How many bytes a stage needs beside weights, KV pages and slots while it computes a step."""

from __future__ import annotations

from layerline.models.held import WeightForm
from layerline.models.recurrent import DeltaNetSpec, RecurrentSpec
from layerline.models.row_layout import widest_row
from layerline.models.slot_sizes import slot_bytes
from layerline.models.spec import LayerSpec, ModelSpec
from layerline.plan import DTYPE_BYTES

LOGITS_ROWS = 64  # rows whose logits are computed at once: the output matrix is large, so the fewer times the better
FURTHER_BYTES = 32 << 20  # for all that is small

NUMBER_BYTES = 4  # float32: what the kernels compute in, and torch what is made beside numbers of the dtype
PREPARED_BYTES = 9  # of a number of a row that the kernels prepare for a product, at most
TILE_NUMBERS = 1 << 22  # of a matrix that torch unpacks at a time: a launch for each operation is little beside them
TILE_BYTES = 12  # of each while it is unpacked, at most
CHUNK_ROWS = 64  # of a delta net that torch computes by products of matrices
STATES_BYTES = 64 << 20  # of states that torch changes at a time, or those of one sequence if they take more


def workspace_bytes(
    model: ModelSpec, part: ModelSpec, form: WeightForm, max_rows: int, *, unpacks: bool, has_output: bool
) -> int:
    """Those of a stage that computes up to `max_rows` rows; `part` is what it, or a rank of it, has of `model`.

    An upper bound of what is alive at once: the residual, rows that carry more as they come, go and are brought
    together, what layers get of tokens, the widest products and their float32 copies, what torch makes of them for
    a state and what it `unpacks` of a matrix, the attention scores of one block of queries, and the logits of
    LOGITS_ROWS rows, of one of them in float32. Where the vocabulary is split, these may have to be brought together,
    in parts and whole.
    """
    widest, carried = max(map(_widest_numbers, part.kinds)), widest_row(model)
    beside = 3 * carried * (carried > model.hidden) + 3 * model.layers * model.token_input
    rows = rows_of_all = max_rows * (3 * part.hidden + 2 * widest + beside) * NUMBER_BYTES
    prepared = max_rows * max(part.hidden, widest)
    for kind in part.kinds:
        pairs, widths = max_rows * kind.feed_forward.experts_of_a_row, kind.feed_forward.widths
        rows = max(rows, rows_of_all + pairs * (2 * part.hidden + 3 * max(widths)) * NUMBER_BYTES)
        prepared = max(prepared, pairs * max(part.hidden, *widths))
    if form.kernels:
        rows += prepared * PREPARED_BYTES
    else:
        rows += unpacks * TILE_NUMBERS * TILE_BYTES
        rows += max((recurrent_bytes(kind.recurrent, max_rows) for kind in part.kinds if kind.recurrent), default=0)
    return rows + has_output * _logits_bytes(model, part, form, max_rows) + FURTHER_BYTES


def recurrent_bytes(recurrent: RecurrentSpec, max_rows: int) -> int:
    """Bytes that torch takes between the two matrices of a recurrent layer, beside what these take and make.

    Of a delta net, each head has a query and a key as they are taken, and both and its value in chunks; then what is
    made of these for a chunk, and the parts of the chunk that each row has. Of states there are two, of as many
    sequences as are computed at once: what they become, and what is added to them.
    """
    states = 2 * min(max_rows * slot_bytes(recurrent), max(STATES_BYTES, slot_bytes(recurrent)))
    numbers = recurrent.made_numbers + 3 * recurrent.conv_channels
    if isinstance(recurrent, DeltaNetSpec):
        numbers += recurrent.value_heads * (8 * recurrent.key_dim + 4 * recurrent.value_dim + 4 * CHUNK_ROWS)
    return max_rows * numbers * NUMBER_BYTES + states


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
