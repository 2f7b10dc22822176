"""Loading what a recurrent layer has between its two matrices: in float32, since its state is."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from layerline.models.recurrent import DeltaNetSpec, Mamba2Spec, RecurrentSpec
from node.model.linear.load import HeldAs, load_tensor
from node.model.recurrent.convolution import Convolution
from node.model.recurrent.delta_net import DeltaNet
from node.model.recurrent.mamba2 import Mamba2
from node.model.recurrent.recurrence import Recurrence
from node.model.recurrent.short_conv import ShortConv
from node.slices.feed_forward_slices import Slices
from node.slices.recurrent_slices import RecurrentSlices
from node.slices.tensor_source import TensorSource


def load_recurrence(
    source: TensorSource, spec: RecurrentSpec, slices: RecurrentSlices, held_as: HeldAs, norm_epsilon: float
) -> Recurrence:
    """That of a layer of this description, with the weights of these slices."""
    held_as = replace(held_as, dtype=torch.float32)

    def tensor(own: Slices) -> Tensor:
        return load_tensor(source, own, held_as)

    convolution = Convolution(
        weight_CL=tensor(slices.conv), bias_C=tensor(slices.conv_bias) if slices.conv_bias else None
    )
    if isinstance(spec, DeltaNetSpec):
        return DeltaNet(
            spec=spec,
            convolution=convolution,
            decay_H=tensor(slices.decay),
            step_bias_H=tensor(slices.step_bias),
            norm_P=tensor(slices.norm),
            norm_epsilon=norm_epsilon,
        )
    if isinstance(spec, Mamba2Spec):
        return Mamba2(
            spec=spec,
            convolution=convolution,
            decay_H=tensor(slices.decay),
            skip_H=tensor(slices.skip),
            step_bias_H=tensor(slices.step_bias),
            norm_O=tensor(slices.norm),
            norm_epsilon=norm_epsilon,
        )
    return ShortConv(spec=spec, convolution=convolution)
