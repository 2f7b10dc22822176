"""The decoder: plain single-device code for every family that a ModelSpec describes.

    x ← x + Wo · attention(rotate(Wqkv · norm(x) + b))
    x ← x + Wdown · (silu(Wgate · norm(x)) * Wup · norm(x))

Owns the order of the operations. How a matrix is held is behind `Linear`, where keys and values lie behind
`KVPool` and `Step`. Holds the layers of one stage, so that the ends (embedding, output) may be absent.

Source: Touvron et al., LLaMA (2023); grouped queries: Ainslie et al., GQA (2023).

Shapes: T rows, C hidden, H query heads, K key-value heads, G = H/K, D numbers per head, F feed-forward, E = 2F,
V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional

from layerline.models.spec import AttentionSpec, ModelSpec
from node.model.attention import AttentionPass, attend
from node.model.embedding import Embedding
from node.model.kv_pool import KVPool, LayerPool
from node.model.linear import Linear
from node.model.norm import Norm
from node.model.rope import Rope, turn_
from node.model.step import Step


@dataclass(frozen=True, kw_only=True, slots=True)
class Layer:
    """One layer: what it is, and its weights. `qkv` has the rows of q, k and v, `gate_up` those of gate and up."""

    attention: AttentionSpec
    rope: Rope | None  # layers with the same rotation share it
    attention_norm: Norm
    qkv: Linear
    attention_output: Linear
    ffn_norm: Norm
    gate_up: Linear
    down: Linear


@dataclass(frozen=True, kw_only=True, slots=True)
class Output:
    """What turns the last layer's rows into logits."""

    norm: Norm
    matrix: Linear


@dataclass(frozen=True, kw_only=True, slots=True)
class Decoder:
    """Neighbouring layers of a model, and those of its ends that belong to them."""

    spec: ModelSpec
    layers: Sequence[Layer]
    embedding: Embedding | None
    output: Output | None
    attend_pass: AttentionPass

    def embed(self, ids_T: Tensor) -> Tensor:
        """The first residual [T, C] of token ids; only where the first layer is."""
        assert self.embedding is not None, "this stage has no embedding"
        return self.embedding(ids_T)

    def layers_(self, x_TC: Tensor, step: Step, pool: KVPool) -> None:
        """Passes the residual through the layers in place, writing the rows' keys and values to the pool."""
        ropes = {layer.rope for layer in self.layers if layer.rope is not None}
        turns = {rope: rope.turns_at(step.positions_T) for rope in ropes}
        for layer, layer_pool in zip(self.layers, pool.layers, strict=True):
            turns_T1P = None if layer.rope is None else turns[layer.rope]
            x_TC += self._attention(layer, layer.attention_norm(x_TC), turns_T1P, step, layer_pool)
            x_TC += _feed_forward(layer, layer.ffn_norm(x_TC))

    def logits(self, x_TC: Tensor) -> Tensor:
        """Logits [T, V] of rows that have passed the last layer, in the dtype of the stage; only where that is."""
        assert self.output is not None, "this stage has no output"
        return self.output.matrix(self.output.norm(x_TC))

    def _attention(
        self, layer: Layer, normed_TC: Tensor, turns_T1P: Tensor | None, step: Step, pool: LayerPool
    ) -> Tensor:
        spec = layer.attention
        heads, kv_heads, head_dim = spec.heads, spec.kv_heads, spec.head_dim
        qkv_TND = layer.qkv(normed_TC).view(-1, heads + 2 * kv_heads, head_dim)
        if turns_T1P is not None:
            turn_(qkv_TND.narrow(1, 0, heads + kv_heads), turns_T1P)
        pool.write(step.slots_T, qkv_TND.narrow(1, heads, 2 * kv_heads).view(-1, 2, kv_heads, head_dim))
        q_TKGD = qkv_TND.narrow(1, 0, heads).view(-1, kv_heads, heads // kv_heads, head_dim)
        out_TKGD = attend(self.attend_pass, q_TKGD, pool, step.groups[spec.window_tokens])
        return layer.attention_output(out_TKGD.flatten(1))


def _feed_forward(layer: Layer, normed_TC: Tensor) -> Tensor:
    """SwiGLU (Shazeer, 2020)."""
    both_TE = layer.gate_up(normed_TC)
    width = both_TE.shape[1] // 2
    gate_TF, up_TF = both_TE.narrow(1, 0, width), both_TE.narrow(1, width, width)
    return layer.down(functional.silu(gate_TF).mul_(up_TF))
