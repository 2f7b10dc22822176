"""Tensor parallelism, put on a decoder from outside: the decoder itself is plain single-device code.

Each rank has a decoder of its part of the model (`ModelPart.part_of`). What its mixers and its feed-forward make of
the residual is only a part of a sum, and its embedding knows only some tokens; here the sums are completed over the
ranks, so that every rank goes on with the whole residual. The output is left in parts: each rank has the logits of its
tokens.

Source: Shoeybi et al., Megatron-LM (2019).

Shapes: T rows, I inputs, C hidden.
"""

from __future__ import annotations

import dataclasses

from torch import Tensor

from node.model.branched_feed_forward import BranchedFeedForward
from node.model.decoder import Decoder, Layer
from node.model.embedding import Embedding
from node.model.feed_forward import FeedForward
from node.model.linear.forms import Linear
from node.model.no_mixer import NoMixer
from node.ranks.group import RankGroup


class RowParallel:
    """A matrix of which each rank has the columns for its own inputs: every rank gets the whole product."""

    def __init__(self, linear: Linear, group: RankGroup) -> None:
        self._linear = linear
        self._group = group

    def __call__(self, x_TI: Tensor) -> Tensor:
        product_TC = self._linear(x_TI)
        self._group.all_reduce_(product_TC)
        return product_TC


class SummedFeedForward:
    """One of which each rank has some columns, of every expert too, or some experts: every rank gets the whole sum."""

    def __init__(self, feed_forward: FeedForward, group: RankGroup) -> None:
        self._feed_forward = feed_forward
        self._group = group

    def __call__(self, x_TC: Tensor) -> Tensor:
        sum_TC = self._feed_forward(x_TC)
        self._group.all_reduce_(sum_TC)
        return sum_TC


class SplitEmbedding:
    """An embedding of which this rank has the rows of the token ids in `vocabulary`, and the others the rest."""

    def __init__(self, embedding: Embedding, vocabulary: range, group: RankGroup) -> None:
        self._embedding = embedding
        self._vocabulary = vocabulary
        self._group = group

    def __call__(self, ids_T: Tensor) -> Tensor:
        first_id, last_row = self._vocabulary.start, len(self._vocabulary) - 1
        rows_T = ids_T - first_id
        foreign_T = (rows_T < 0) | (rows_T > last_row)
        x_TC = self._embedding(rows_T.clamp_(0, last_row))
        x_TC.masked_fill_(foreign_T[:, None], 0)
        self._group.all_reduce_(x_TC)
        return x_TC


def joined(decoder: Decoder, vocabulary: range, group: RankGroup) -> Decoder:
    """The decoder of a rank's part, made one with those of the other ranks; `vocabulary` is this rank's."""
    embedding = decoder.embedding
    if embedding is not None:
        embedding = SplitEmbedding(embedding, vocabulary, group)
    inputs = decoder.token_inputs
    if inputs is not None:
        inputs = dataclasses.replace(inputs, table=SplitEmbedding(inputs.table, vocabulary, group))
    return dataclasses.replace(
        decoder,
        embedding=embedding,
        token_inputs=inputs,
        layers=[_joined_layer(layer, group) for layer in decoder.layers],
    )


def _joined_layer(layer: Layer, group: RankGroup) -> Layer:
    mixer = layer.mixer
    whole = (
        NoMixer(group.all_reduce_)
        if isinstance(mixer, NoMixer)
        else dataclasses.replace(mixer, output=RowParallel(mixer.output, group))
    )
    return dataclasses.replace(
        layer,
        mixer=whole,
        feed_forward=_joined_feed_forward(layer.feed_forward, group),
    )


def _joined_feed_forward(feed_forward: FeedForward, group: RankGroup) -> FeedForward:
    """Sums are whole before they are normed, so branches with norms of their own have one each."""
    if isinstance(feed_forward, BranchedFeedForward):
        return dataclasses.replace(feed_forward, add_up_=group.all_reduce_)
    return SummedFeedForward(feed_forward, group)
