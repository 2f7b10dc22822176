"""How many bytes the parts of a model take once held in a dtype: what planning and loading agree on.

Of a stage that is split over several devices, what one rank takes is what `RankShare.part_of` the model takes, and
`rank_workspace_bytes`.
"""

from __future__ import annotations

import math
from collections import Counter

from layerline.models.shares import RankShare
from layerline.models.spec import AttentionSpec, LayerSpec, ModelSpec
from layerline.plan import DTYPE_BYTES

LOGITS_ROWS = 64  # rows whose logits are computed at once: the output matrix is large, so the fewer times the better


def layer_parameters(spec: ModelSpec) -> int:
    """Numbers in one decoder layer, the largest where they are not alike."""
    return max(_parameters_of(spec, kind) for kind in spec.kinds)


def _parameters_of(spec: ModelSpec, layer: LayerSpec) -> int:
    attention = layer.attention
    qkv_numbers = attention.query_numbers + attention.key_numbers + attention.value_numbers
    biases = qkv_numbers if attention.qkv_bias else 0
    matrices = qkv_numbers + attention.output_numbers + 3 * layer.feed_forward.intermediate
    return matrices * spec.hidden + biases + 2 * spec.hidden


def embedding_parameters(spec: ModelSpec) -> int:
    """Numbers in the embedding, and as many in the output matrix."""
    return spec.vocabulary * spec.hidden


def stage_weights_bytes(spec: ModelSpec, first_layer: int, last_layer: int, dtype: str) -> int:
    """Bytes of the weights that a stage holds: its layers, and embedding and output where it has those.

    A stage that has both ends of a model whose output is tied holds that matrix once.
    """
    kinds = Counter(spec.layer_kinds[first_layer : last_layer + 1])
    parameters = sum(count * _parameters_of(spec, spec.kinds[kind]) for kind, count in kinds.items())
    has_first, has_last = first_layer == 0, last_layer == spec.layers - 1
    matrices = has_first + has_last - (has_first and has_last and spec.tied_output)
    parameters += matrices * embedding_parameters(spec)
    parameters += spec.hidden if has_last else 0
    return parameters * DTYPE_BYTES[dtype]


def kv_bytes_per_token(spec: ModelSpec, layers: int, kv_dtype: str) -> int:
    """Bytes that one position takes in the KV pages of `layers` layers, those that take most where they are not alike.

    In int8 every group of a head's numbers has a scale of two bytes beside it.
    """
    return layers * max(_kv_bytes_of(kind.attention, kv_dtype) for kind in spec.kinds)


def _kv_bytes_of(attention: AttentionSpec, kv_dtype: str) -> int:
    numbers = attention.key_numbers + attention.value_numbers
    if kv_dtype != "int8":
        return numbers * DTYPE_BYTES[kv_dtype]
    keys, values = (
        attention.key_numbers // int8_group(attention.head_dim),
        attention.value_numbers // int8_group(attention.value_dim),
    )
    return numbers + 2 * (keys + values)


def int8_group(head_dim: int) -> int:
    """How many neighbouring numbers of a key or value share a scale in int8: 32, or what divides the head."""
    return math.gcd(head_dim, 32)


def most_sequence_pages(reach_tokens: int, context_tokens: int, max_rows: int, page_tokens: int) -> int:
    """Pages that a sequence of `context_tokens` needs at a time, in steps of at most `max_rows` of its rows.

    If every layer has a window, of `reach_tokens` (0: none), they are those that the rows of a step are in, and those
    before that the first of these pages reaches back to.
    """
    pages = -(-context_tokens // page_tokens)
    if not reach_tokens:
        return pages
    return min(pages, reach_pages(reach_tokens, page_tokens) + 1 + -(-(max_rows - 1) // page_tokens))


def reach_pages(reach_tokens: int, page_tokens: int) -> int:
    """How many pages before its own the first row of a page reads with a window of `reach_tokens`, but at least 1."""
    return max(1, -(-(reach_tokens - 1) // page_tokens))


def workspace_bytes(spec: ModelSpec, max_rows: int, dtype: str, *, has_output: bool) -> int:
    """Bytes that a stage needs beside weights and KV while it computes a step of `max_rows` rows.

    An upper bound of what is alive at once: the residual, the widest products and their float32 copies, the
    attention scores of one block of queries, and the logits of LOGITS_ROWS rows, of one of them in float32.
    """
    widest = max(_widest(kind) for kind in spec.kinds)
    rows = max_rows * (3 * spec.hidden + 2 * widest) * max(4, DTYPE_BYTES[dtype])
    logits = spec.vocabulary * (min(LOGITS_ROWS, max_rows) * DTYPE_BYTES[dtype] + 4) if has_output else 0
    return rows + logits + (32 << 20)


def _widest(layer: LayerSpec) -> int:
    attention = layer.attention
    qkv_numbers = attention.query_numbers + attention.key_numbers + attention.value_numbers
    return max(2 * layer.feed_forward.intermediate, qkv_numbers)


def rank_workspace_bytes(model: ModelSpec, share: RankShare, max_rows: int, dtype: str, *, has_output: bool) -> int:
    """Bytes that one rank of a stage needs beside weights and KV; `workspace_bytes` where it has the whole model.

    Where the vocabulary is split, the logits of a block of rows may have to be brought together, in parts and whole.
    """
    own_bytes = workspace_bytes(share.part_of(model), max_rows, dtype, has_output=has_output)
    if not has_output or len(share.vocabulary) == model.vocabulary:
        return own_bytes
    gathered = 2 * min(LOGITS_ROWS, max_rows) * DTYPE_BYTES[dtype] + 4
    return own_bytes + model.vocabulary * gathered
