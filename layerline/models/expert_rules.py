"""The tensors of a feed-forward of experts: their canonical names, and where either container has them.

A folder has each expert's matrices by themselves, as they are published, or all experts' in one, as transformers 5
computes with them: gate and up of an expert one below the other. GGUF has all gates in one, all ups, and all downs, or
the first two together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from layerline.models.decoder_rules import decoder_tensors
from layerline.models.feed_forward_spec import ExpertsSpec, FeedForwardSpec
from layerline.models.spec import LayerSpec
from layerline.models.tensor_rules import EXPERTS, FEED_FORWARD, HIDDEN, ONE, SHARED, Place, TensorRule, layer_rule

FOLDER_LAYER, GGUF_LAYER = "model.layers.{n}.", "blk.{n}."
GATE, UP, DOWN = "gate", "up", "down"
_GGUF = {GATE: "ffn_gate", UP: "ffn_up", DOWN: "ffn_down"}
_GATE_UP_IN_GGUF = f"{GGUF_LAYER}ffn_gate_up_exps.weight"
_SIDES = {GATE: (FEED_FORWARD, HIDDEN), UP: (FEED_FORWARD, HIDDEN), DOWN: (HIDDEN, FEED_FORWARD)}


@dataclass(frozen=True, kw_only=True, slots=True)
class ExpertNames:
    """What a folder calls the tensors of a layer's experts; `routers_otherwise` are further names of the router.

    Stacks have the recipe `stacked_as`, if they are not rows as they are multiplied.
    """

    router: str = "mlp.gate.weight"
    routers_otherwise: tuple[str, ...] = ()
    choice_bias: str = "mlp.gate.e_score_correction_bias"
    expert: str = "mlp.experts.{e}"
    gate: str = "gate_proj"
    up: str = "up_proj"
    down: str = "down_proj"
    stacks: tuple[tuple[str, str], ...] = (("mlp.experts.gate_up_proj", "mlp.experts.down_proj"),)
    stacked_as: str = ""
    shared: str = "mlp.shared_expert"

    def matrix(self, expert: int, part: str) -> str:
        """One of an expert's matrices."""
        own = {GATE: self.gate, UP: self.up, DOWN: self.down}[part]
        return f"{self.expert.format(e=expert)}.{own}.weight"


def with_experts(layer: LayerSpec, names: ExpertNames = ExpertNames()) -> tuple[TensorRule, ...]:
    """The tensors of a layer that most families have, with those of its experts if it has any."""
    return (*decoder_tensors(layer), *expert_tensors(layer.feed_forward, names))


def expert_tensors(feed_forward: FeedForwardSpec, names: ExpertNames) -> tuple[TensorRule, ...]:
    """Those of experts; none of a dense feed-forward."""
    experts = feed_forward.experts
    if experts is None:
        return ()
    return (
        *router_tensors(experts, names.router, names.routers_otherwise, names.choice_bias),
        *(rule for expert in range(experts.count) for rule in _expert(expert, names)),
        *(_shared(names) if experts.shared_intermediate else ()),
        *((_SHARED_LOGIT,) if experts.shared_gate else ()),
    )


_SHARED_LOGIT = layer_rule("shared_logit", "mlp.shared_expert_gate.weight", "ffn_gate_inp_shexp.weight", ONE, HIDDEN)


def router_tensors(
    experts: ExpertsSpec, name: str, otherwise: Sequence[str] = (), choice_bias: str = ""
) -> Iterator[TensorRule]:
    """Those of the router, which a folder calls `name` or, instead, one of `otherwise`."""
    rule = layer_rule("router", name, "ffn_gate_inp.weight", EXPERTS, HIDDEN)
    others = tuple(Place(name=FOLDER_LAYER + other) for other in otherwise)
    yield replace(rule, otherwise=others)
    if experts.router_bias:
        yield layer_rule("router_bias", _bias(name), "ffn_gate_inp.bias", EXPERTS)
    if experts.choice_bias:
        yield layer_rule("choice_bias", choice_bias, "exp_probs_b.bias", EXPERTS)


def _expert(expert: int, names: ExpertNames) -> Iterator[TensorRule]:
    for part, sides in _SIDES.items():
        after = (FEED_FORWARD,) if part == UP else ()
        stacks = (
            Place(name=FOLDER_LAYER + stack[part == DOWN], after=after, expert=expert, recipe=names.stacked_as)
            for stack in names.stacks
        )
        in_gguf = () if part == DOWN else (Place(name=_GATE_UP_IN_GGUF, after=after, expert=expert),)
        yield TensorRule(
            name=f"layers.{{n}}.experts.{expert}.{part}",
            sides=sides,
            safetensors=Place(name=FOLDER_LAYER + names.matrix(expert, part)),
            otherwise=(*stacks, *in_gguf),
            gguf=Place(name=f"{GGUF_LAYER}{_GGUF[part]}_exps.weight", expert=expert),
            expert=expert,
        )


def _shared(names: ExpertNames) -> Sequence[TensorRule]:
    own = {GATE: "gate_proj", UP: "up_proj", DOWN: "down_proj"}
    sides = {part: tuple(SHARED if side == FEED_FORWARD else side for side in own) for part, own in _SIDES.items()}
    return [
        layer_rule(f"shared.{part}", f"{names.shared}.{own[part]}.weight", f"{_GGUF[part]}_shexp.weight", *sides[part])
        for part in _SIDES
    ]


def _bias(name: str) -> str:
    return name.removesuffix(".weight") + ".bias"
