"""Finding the family of a model by what its file calls itself."""

from __future__ import annotations

from layerline.errors import ModelUnsupportedError
from layerline.models.families.family import Family
from layerline.models.families.llama import LLAMA
from layerline.models.families.mistral import MISTRAL
from layerline.models.families.qwen2 import QWEN2

FAMILIES = (LLAMA, MISTRAL, QWEN2)


def family_of_config(model_type: str) -> Family:
    """The family of config.json's `model_type`; ModelUnsupportedError names those that are known."""
    return _known({family.config_model_type: family for family in FAMILIES}, model_type)


def family_of_gguf(architecture: str) -> Family:
    """The family of GGUF's `general.architecture`; ModelUnsupportedError names those that are known."""
    return _known({family.gguf_architecture: family for family in FAMILIES if family.gguf_architecture}, architecture)


def _known(families: dict[str, Family], found: str) -> Family:
    if found not in families:
        raise ModelUnsupportedError(
            f"The model is of the family {found!r}, which layerline does not know.",
            remedy=f"It knows {', '.join(sorted(families))}.",
        )
    return families[found]
