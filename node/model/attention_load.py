"""Loading a layer's attention: its matrices, norms and sinks, of slices of a model's tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from layerline.models.rope_spec import RopeSpec
from layerline.models.spec import AttentionSpec
from node.model.attention.backend import LayerAttention
from node.model.latent_attention import LatentAttention, QueryLatent
from node.model.linear.forms import Linear
from node.model.linear.load import HeldAs, load_linear, load_tensor
from node.model.norm import Norm
from node.model.rope import Rope
from node.model.self_attention import HeadsNorm, RowsNorm, SelfAttention
from node.slices.attention_slices import AttentionSlices
from node.slices.latent_slices import LatentSlices
from node.slices.rope_frequencies import value_order
from node.slices.tensor_source import TensorSlice, TensorSource


@dataclass(frozen=True, slots=True)
class AttentionLoading:
    """Loads attention whose matrices are held as `held_as` says; layers share the `ropes`."""

    source: TensorSource
    held_as: HeldAs
    norm_epsilon: float
    ropes: Mapping[tuple[RopeSpec, int], Rope]

    def attention(
        self, spec: AttentionSpec, slices: AttentionSlices | LatentSlices, output: Linear
    ) -> SelfAttention | LatentAttention:
        """That of these slices, whose second matrix is `output`."""
        if isinstance(slices, LatentSlices):
            return self._with_latent(spec, slices, output)
        return self._plain(spec, slices, output)

    def _plain(self, spec: AttentionSpec, slices: AttentionSlices, output: Linear) -> SelfAttention:
        order = value_order(spec)
        return SelfAttention(
            core=LayerAttention(spec=spec, sinks_KG=self._sinks(slices, spec)),
            rope=None if spec.rope is None else self.ropes[spec.rope, spec.head_dim],
            qk_norm=self._qk_norm(slices, spec),
            turned_norm=self._turned_norm(spec),
            qkv=self._linear(slices.qkv, slices.qkv_bias),
            output=output,
            value_norm=self._value_norm(spec),
            value_order_E=torch.tensor(order, device=self.held_as.device) if order else None,
        )

    def _value_norm(self, spec: AttentionSpec) -> Norm | None:
        ones_E = torch.ones(spec.value_dim, dtype=self.held_as.dtype, device=self.held_as.device)
        return Norm(ones_E, self.norm_epsilon) if spec.value_norm else None

    def _with_latent(self, spec: AttentionSpec, slices: LatentSlices, output: Linear) -> LatentAttention:
        latent, query_latent = spec.latent, None
        assert latent is not None, "it has slices of a latent"
        assert spec.rope is not None, "the key beside a latent is turned"
        if latent.query_rank:
            norm = Norm(load_tensor(self.source, slices.query_norm, self.held_as), latent.norm_epsilon)
            query_latent = QueryLatent(down=self._linear(slices.query_down), norm=norm)
        up = [load_tensor(self.source, [part], self.held_as) for part in slices.up]
        if latent.apart:
            keys_NPL = up[0].view(spec.heads, spec.value_dim, -1).transpose(1, 2)
            values_NEL = up[1].view(spec.heads, -1, spec.value_dim)
        else:
            made_NML = up[0].view(spec.heads, -1, spec.value_dim)
            keys_NPL, values_NEL = torch.split(made_NML, [latent.plain_dim, latent.value_dim], dim=1)
        return LatentAttention(
            core=LayerAttention(spec=spec),
            rope=self.ropes[spec.rope, spec.head_dim],
            query_latent=query_latent,
            queries=self._linear(slices.queries),
            latent=self._linear(slices.latent),
            latent_norm=Norm(load_tensor(self.source, slices.latent_norm, self.held_as), latent.norm_epsilon),
            keys_NPL=keys_NPL,
            values_NEL=values_NEL,
            output=output,
        )

    def _qk_norm(self, slices: AttentionSlices, spec: AttentionSpec) -> HeadsNorm | RowsNorm | None:
        """The heads of q and k share a weight each, if each head is normed by itself."""
        if spec.qk_norm in ("none", "turned_heads"):
            return None
        epsilon = self.norm_epsilon
        q = load_tensor(self.source, slices.q_norm, self.held_as)
        if spec.source is not None:
            return HeadsNorm(Norm(q.expand(spec.heads, -1), epsilon))
        k = load_tensor(self.source, slices.k_norm, self.held_as)
        if spec.qk_norm == "rows":
            return RowsNorm(Norm(q, epsilon), Norm(k, epsilon), spec.heads)
        return HeadsNorm(Norm(torch.cat([q.expand(spec.heads, -1), k.expand(spec.kv_heads, -1)]), epsilon))

    def _turned_norm(self, spec: AttentionSpec) -> HeadsNorm | None:
        """It has no weight."""
        if spec.qk_norm != "turned_heads":
            return None
        ones_D = torch.ones(spec.head_dim, dtype=self.held_as.dtype, device=self.held_as.device)
        return HeadsNorm(Norm(ones_D, self.norm_epsilon))

    def _sinks(self, slices: AttentionSlices, spec: AttentionSpec) -> Tensor | None:
        """Of each head, in float32."""
        if not spec.sinks:
            return None
        return load_tensor(self.source, slices.sinks, self.held_as).float().view(spec.kv_heads, -1)

    def _linear(self, slices: Sequence[TensorSlice], bias: Sequence[TensorSlice] = ()) -> Linear:
        return load_linear(self.source, slices, self.held_as, bias)
