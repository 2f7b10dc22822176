"""What a plan says of the matrices of latents that cannot be held as they are stored."""

from __future__ import annotations

from dataclasses import replace

from coordinator.planning.choices import plan_for
from layerline.models.latent import LatentSpec
from layerline.models.rope_spec import RopeSpec
from layerline.models.spec import AttentionSpec
from layerline.plan_request import PlanRequest
from tests.fakes.cards import model_card
from tests.fakes.worlds import device, model_spec, node

SPEC = model_spec(layers=8, hidden=512, intermediate=1536, heads=8, kv_heads=4, vocabulary=4096)


def test_what_is_turned_round_for_latents_is_named() -> None:
    """Only where it is quantised, and one with what makes values."""
    latent = LatentSpec(query_rank=0, plain_dim=64, value_dim=64, norm_epsilon=1e-6)
    attention = AttentionSpec(
        heads=8, kv_heads=1, head_dim=320, value_dim=256, rope=RopeSpec(theta=1e4, rotated=64), latent=latent
    )

    def noted(attention: AttentionSpec, storage: str) -> list[str]:
        spec = replace(SPEC, family="deepseek_v2", kinds=(replace(SPEC.kinds[0], mixer=attention),))
        card, asked = model_card(spec, storage=storage), PlanRequest(model="m")
        made = plan_for(card, asked, [node("a", device(kernels="avx2"))])
        return [note for note in made.notes if "latents" in note]

    (note,) = noted(attention, "Q4_K")
    assert note.startswith("What makes keys and values of latents is stored as Q4_K and held in float32, as that for")
    assert noted(attention, "BF16") == []
    assert noted(replace(attention, latent=replace(latent, apart=True)), "Q8_0") == []
