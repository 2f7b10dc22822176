"""The tensors of layers with a gated delta net, and of the gated attention beside them.

Their canonical names and sides, and where either container has them. Folders of Qwen3-Next have the rows that a key
head belongs to together, those of its queries before those of its keys and so on; later ones have each by themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from layerline.models.expert_rules import with_experts
from layerline.models.spec import LayerSpec
from layerline.models.tensor_rules import (
    ATTENDED,
    HEAD,
    HEADS,
    HIDDEN,
    KEY_HEADS,
    KEYS,
    QUERIES,
    TAPS,
    VALUES,
    TensorRule,
    layer_rule,
    renamed_in_gguf,
    stacked,
    with_norms_from_zero,
)

_QKV = {"q": (), "k": (QUERIES,), "v": (QUERIES, KEYS)}
_SIDES = {"q": QUERIES, "k": KEYS, "v": VALUES}


def qwen3_next_tensors(layer: LayerSpec) -> tuple[TensorRule, ...]:
    """Those of a layer of Qwen3-Next; the first GGUF files have rows in turns, as folders do."""
    if layer.recurrent is None:
        return _attention_tensors(layer)
    *qkvz, b, a = _made_tensors()
    first = _taking_turns(qkvz, KEY_HEADS, "", "ssm_in.weight")
    qkvz = [replace(rule, otherwise=(other.gguf,)) for rule, other in zip(qkvz, first, strict=True)]
    return (
        *_decoder_tensors(layer),
        *_taking_turns(qkvz, KEY_HEADS, "linear_attn.in_proj_qkvz.weight"),
        *_taking_turns((b, a), KEY_HEADS, "linear_attn.in_proj_ba.weight", "ssm_ba.weight"),
        *_state_tensors(),
    )


def qwen3_5_tensors(layer: LayerSpec) -> tuple[TensorRule, ...]:
    """Those of a layer of Qwen3.5."""
    if layer.recurrent is None:
        return _attention_tensors(layer)
    return (*_decoder_tensors(layer), *_made_tensors(), *_state_tensors())


def _decoder_tensors(layer: LayerSpec) -> tuple[TensorRule, ...]:
    return renamed_in_gguf(with_norms_from_zero(with_experts(layer)), {"ffn_norm": "post_attention_norm.weight"})


def _attention_tensors(layer: LayerSpec) -> tuple[TensorRule, ...]:
    """The query of each head has its gate below it."""
    rules = {rule.name: rule for rule in _decoder_tensors(layer)}
    gates = [("", "weight", (HIDDEN,)), *([("_bias", "bias", ())] if layer.attention.qkv_bias else [])]
    for ending, stored, columns in gates:
        gate = layer_rule(f"output_gate{ending}", "", "", ATTENDED, *columns)
        query = rules[f"layers.{{n}}.q{ending}"]
        rules |= _by_name(_taking_turns((query, gate), HEADS, f"self_attn.q_proj.{stored}", f"attn_q.{stored}"))
    return tuple(rules.values())


def _by_name(rules: Iterable[TensorRule]) -> dict[str, TensorRule]:
    return {rule.name: rule for rule in rules}


def _made_tensors() -> tuple[TensorRule, ...]:
    """Those that make q, k, v, their gate, and how heads write and forget, where each has rows of its own."""
    qkv = tuple(layer_rule(name, "", "", side, HIDDEN) for name, side in _SIDES.items())
    return (
        *stacked(qkv, "linear_attn.in_proj_qkv.weight", "attn_qkv.weight", _QKV),
        layer_rule("z", "linear_attn.in_proj_z.weight", "attn_gate.weight", ATTENDED, HIDDEN),
        layer_rule("b", "linear_attn.in_proj_b.weight", "ssm_beta.weight", HEADS, HIDDEN),
        layer_rule("a", "linear_attn.in_proj_a.weight", "ssm_alpha.weight", HEADS, HIDDEN),
    )


def _state_tensors() -> Iterator[TensorRule]:
    """Those by which rows change the state, and what is made of what they read."""
    convs = tuple(layer_rule(f"{name}_conv", "", "", side, TAPS) for name, side in _SIDES.items())
    after = {f"{name}_conv": before for name, before in _QKV.items()}
    yield from stacked(convs, "linear_attn.conv1d.weight", "ssm_conv1d.weight", after)
    decay = layer_rule("decay", "linear_attn.A_log", "ssm_a", HEADS)
    yield replace(decay, safetensors=replace(decay.safetensors, minus_exponential=True))
    yield layer_rule("step_bias", "linear_attn.dt_bias", "ssm_dt.bias", HEADS)
    yield layer_rule("gate_norm", "linear_attn.norm.weight", "ssm_norm.weight", HEAD)
    yield layer_rule("attention_output", "linear_attn.out_proj.weight", "ssm_out.weight", HIDDEN, ATTENDED)


def _taking_turns(rules: Sequence[TensorRule], groups: str, safetensors: str, gguf: str = "") -> tuple[TensorRule, ...]:
    """The same rules of a layer, their rows in turns in one tensor of folders, and in one of GGUF if that has a name.

    In each turn come those of one of so many groups as the side `groups` has.
    """
    one, sides = layer_rule("", safetensors, gguf), tuple(rule.sides[0] for rule in rules)
    placed = []
    for number, rule in enumerate(rules):
        folders, files = (
            replace(place, groups=groups, turns=sides, after=sides[:number]) for place in (one.safetensors, one.gguf)
        )
        placed.append(replace(rule, safetensors=folders, gguf=files if gguf else rule.gguf))
    return tuple(placed)
