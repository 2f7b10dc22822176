"""The decoder: plain single-device code for every family that a ModelSpec describes.

    x ← x + mixer(norm(x))
    x ← x + feed_forward(norm(x))

where what mixes tokens is attention or recurrent. A family may norm what is added instead, or as well, and may have
both read the same x.

Owns the order of the operations. How a matrix is held is behind `Linear`, where keys, values and states lie behind
`Step`. Holds the layers of one stage, so that the ends (embedding, output) may be absent.

Source: Touvron et al., LLaMA (2023).

Shapes: T rows, C hidden, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from layerline.models.spec import ModelSpec
from node.model.attention.backend import StepAttention
from node.model.embedding import Embedding
from node.model.feed_forward import FeedForward
from node.model.latent_attention import LatentAttention
from node.model.linear.forms import Linear
from node.model.no_mixer import NoMixer
from node.model.norm import Norm
from node.model.recurrent.slots import StepSlots
from node.model.recurrent_layer import RecurrentLayer
from node.model.self_attention import SelfAttention
from node.model.step import Step
from node.model.token_inputs import TokenBranch, TokenInputs


@dataclass(frozen=True, kw_only=True, slots=True)
class Branch:
    """How the mixer or feed-forward is joined to the residual: through norms before and after it, if it has those."""

    before: Norm | None
    after: Norm | None
    scale: float

    def read(self, x_TC: Tensor) -> Tensor:
        """What the mixer or feed-forward gets of the residual."""
        return x_TC if self.before is None else self.before(x_TC)

    def add_(self, x_TC: Tensor, made_TC: Tensor) -> None:
        """Adds what it made of that to the residual, in place."""
        x_TC.add_(made_TC if self.after is None else self.after(made_TC), alpha=self.scale)


@dataclass(frozen=True, kw_only=True, slots=True)
class Layer:
    """One layer: what mixes tokens, and the feed-forward.

    Without a `feed_forward_branch` both read the same normed residual.
    """

    mixer_branch: Branch
    mixer: SelfAttention | LatentAttention | RecurrentLayer | NoMixer
    feed_forward_branch: Branch | None
    feed_forward: FeedForward
    output_scale: Tensor | None  # [1]
    token_branch: TokenBranch | None

    def __call__(self, x_TC: Tensor, step: Step, index: int, input_TP: Tensor | None = None) -> None:
        """Passes the residual of a step's rows through, in place, as layer number `index` of the stage.

        With a `token_branch` it has an input of its own of each row's token.
        """
        first, second = self.mixer_branch, self.feed_forward_branch
        read_TC = first.read(x_TC)
        first.add_(x_TC, self.mixer(read_TC, step, index))
        if second is None:
            first.add_(x_TC, self.feed_forward(read_TC))
        else:
            second.add_(x_TC, self.feed_forward(second.read(x_TC)))
        if self.token_branch is not None:
            assert input_TP is not None, "this layer has an input of its own"
            self.token_branch.add_(x_TC, input_TP)
        if self.output_scale is not None:
            x_TC.mul_(self.output_scale)


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
    token_inputs: TokenInputs | None

    def embed(self, ids_T: Tensor) -> Tensor:
        """The first residual [T, C] of token ids; only where the first layer is."""
        assert self.embedding is not None, "this stage has no embedding"
        x_TC = self.embedding(ids_T)
        return x_TC if self.spec.embedding_scale == 1.0 else x_TC * self.spec.embedding_scale

    def layers_(self, x_TC: Tensor, attention: StepAttention, slots: StepSlots, inputs: Sequence[Tensor] = ()) -> None:
        """Passes the residual of a step's rows through the layers, in place.

        `inputs` are what each layer has of tokens, if they have any.
        """
        mixers = [layer.mixer for layer in self.layers]
        attentions = [mixer for mixer in mixers if not isinstance(mixer, RecurrentLayer | NoMixer)]
        ropes = {mixer.rope for mixer in attentions if mixer.rope is not None}
        turns = {rope: rope.turns_at(attention.positions_T) for rope in ropes}
        step = Step(attention=attention, slots=slots, turns=turns)
        for index, layer in enumerate(self.layers):
            layer(x_TC, step, index, inputs[index] if inputs else None)

    def normed(self, x_TC: Tensor) -> Tensor:
        """Rows that have passed the last layer, after the norm behind it; only where that is."""
        assert self.output is not None, "this stage has no output"
        return self.output.norm(x_TC)

    def logits(self, x_TC: Tensor) -> Tensor:
        """Logits [T, V] of rows that have passed the last layer, in the dtype of the stage; only where that is."""
        assert self.output is not None, "this stage has no output"
        logits_TV, spec = self.output.matrix(self.normed(x_TC)), self.spec
        if spec.logit_scale != 1.0:
            logits_TV = logits_TV * spec.logit_scale
        return (logits_TV / spec.logit_cap).tanh_().mul_(spec.logit_cap) if spec.logit_cap else logits_TV
