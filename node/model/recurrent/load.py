"""Loading what a recurrent layer has between its two matrices: in float32, since its state is."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from layerline.models.recurrent import RecurrentSpec, ShortConvSpec
from node.model.linear.load import HeldAs, load_tensor
from node.model.recurrent.convolution import Convolution
from node.model.recurrent.recurrence import Recurrence
from node.model.recurrent.short_conv import ShortConv
from node.slices.feed_forward_slices import Slices
from node.slices.recurrent_slices import RecurrentSlices
from node.slices.tensor_source import TensorSource


def load_recurrence(source: TensorSource, spec: RecurrentSpec, slices: RecurrentSlices, held_as: HeldAs) -> Recurrence:
    """That of a layer of this description, with the weights of these slices."""
    assert isinstance(spec, ShortConvSpec), "no other is known"
    held_as = replace(held_as, dtype=torch.float32)

    def tensor(own: Slices) -> Tensor:
        return load_tensor(source, own, held_as)

    convolution = Convolution(
        weight_CL=tensor(slices.conv), bias_C=tensor(slices.conv_bias) if slices.conv_bias else None
    )
    return ShortConv(spec=spec, convolution=convolution)
