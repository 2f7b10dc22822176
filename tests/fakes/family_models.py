"""The models by which every family is compared with `transformers`: a family adds its row to one of these tables."""

from __future__ import annotations

from tests.fakes.dense_families import DENSE_FAMILIES
from tests.fakes.expert_families import EXPERT_FAMILIES
from tests.fakes.gemma4_families import GEMMA4_FAMILIES
from tests.fakes.hybrid_families import HYBRID_FAMILIES
from tests.fakes.latent_families import LATENT_FAMILIES
from tests.fakes.mamba_families import MAMBA_FAMILIES

FAMILIES = {
    **DENSE_FAMILIES,
    **EXPERT_FAMILIES,
    **LATENT_FAMILIES,
    **GEMMA4_FAMILIES,
    **HYBRID_FAMILIES,
    **MAMBA_FAMILIES,
}
