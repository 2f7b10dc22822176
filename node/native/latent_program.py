"""What is done for the rows of a step by attention with a latent, which node/model/latent_attention.py tells."""

from __future__ import annotations

from layerline.models.spec import AttentionSpec
from node.kernels.structures import Operation, OperationKind
from node.native.latent import HeadMatrices, NativeLatent
from node.native.operations import Buffer, Operations, norm, product, turn


def latent_attended(
    attention: AttentionSpec, rotation: int, own: NativeLatent, source: Buffer, index: int
) -> Operations:
    """What attention gives for the rows of `source`, in Buffer.NARROW; `index` is the layer's number in the stage.

    Of each query and of the key the numbers that are turned come first.
    """
    latent = attention.latent
    assert latent is not None, "it has weights of a latent"
    made_of = source
    if own.query_down is not None and own.query_norm is not None:
        made_of = Buffer.NARROW
        yield product(source, made_of, own.query_down)
        yield norm(made_of, made_of, own.query_norm, latent.norm_epsilon)
    yield product(made_of, Buffer.WIDE, own.queries)
    yield product(source, Buffer.KEY, own.latent)
    yield turn(Buffer.WIDE, rotation, attention.heads, attention.made_query_dim)
    yield turn(Buffer.KEY, rotation, 1, attention.head_dim)
    yield norm(Buffer.LATENT, Buffer.LATENT, own.latent_norm, latent.norm_epsilon)
    yield _head_product(Buffer.WIDE, Buffer.READING, own.keys, attention.heads, kept=attention.turned_dim)
    yield Operation(kind=OperationKind.ATTEND, source=Buffer.READING, target=Buffer.READ, index=index)
    yield _head_product(Buffer.READ, Buffer.NARROW, own.values, attention.heads)


def _head_product(source: Buffer, target: Buffer, matrices: HeadMatrices, heads: int, kept: int = 0) -> Operation:
    return Operation(
        kind=OperationKind.HEAD_PRODUCT,
        source=source,
        target=target,
        index=kept,
        count=heads,
        size=kept + matrices.inputs,
        matrix=matrices.structures,
    )
