"""Finding the family of a model by what its file calls itself.

Which modules `layerline.models.families` has is all that needs to be known; each has a FAMILY.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil

import layerline.models.families
from layerline.errors import ModelUnsupportedError
from layerline.models.family import Family


@functools.cache
def known_families() -> tuple[Family, ...]:
    """The family of each module in `layerline.models.families`."""
    package = layerline.models.families
    names = sorted(module.name for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."))
    return tuple(importlib.import_module(name).FAMILY for name in names)


def family_of_config(model_type: str) -> Family:
    """The family of config.json's `model_type`; ModelUnsupportedError names those that are known."""
    return _known(_by_model_type(), model_type)


def is_known_family(model_type: str) -> bool:
    """Whether there is one of config.json's `model_type`."""
    return model_type in _by_model_type()


def family_of_gguf(architecture: str) -> Family:
    """The family of GGUF's `general.architecture`; ModelUnsupportedError names those that are known."""
    return _known({family.architecture: family for family in known_families() if family.from_gguf}, architecture)


@functools.cache
def _by_model_type() -> dict[str, Family]:
    return {name: family for family in known_families() for name in (family.model_type, *family.text_parts)}


def _known(families: dict[str, Family], found: str) -> Family:
    if found not in families:
        raise ModelUnsupportedError(
            f"The model is of the family {found!r}, which layerline does not know.",
            remedy=f"It knows {', '.join(sorted(families))}.",
        )
    return families[found]
