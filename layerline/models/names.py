"""The names of models: what a models folder calls one, and which listed name a REF means.

The one rule for everybody who compares names: nodes, coordinators and commands. Names are compared in Unicode's
composed form (NFC), since some systems store file names decomposed. Opens no file.
"""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Iterable, Iterator
from pathlib import PurePath

from layerline.models.part_names import whole_name

GGUF_SUFFIX = ".gguf"


def composed(name: str) -> str:
    """`name` in NFC, and without which part of a model a file is: the form in which names are listed and compared."""
    return unicodedata.normalize("NFC", whole_name(name))


def same_name(name: str, reference: str) -> bool:
    """Whether `reference` means the model listed as `name`."""
    return listed_name(reference, [name]) is not None


def name_as_listed(reference: str, listed: Iterable[str]) -> str | None:
    """The one of the `listed` names that `reference` is, a GGUF file's with or without its suffix."""
    known, wanted = {composed(name): name for name in listed}, composed(reference)
    for name in (wanted, wanted + GGUF_SUFFIX, wanted.removesuffix(GGUF_SUFFIX)):
        if name in known:
            return known[name]
    return None


def listed_name(reference: str, listed: Iterable[str]) -> str | None:
    """The one of the `listed` names that `reference` means, None if it means none of them.

    A listed name comes first. After that a `reference` that is a path (it exists on this machine, or begins like none
    but a path) means the longest listed name in which it ends: as it is written, from the root of this machine, or
    where its links lead.
    """
    names = tuple(listed)
    for candidate in (reference, *_path_ends(reference)):
        if (name := name_as_listed(candidate, names)) is not None:
            return name
    return None


def path_here(reference: str) -> str | None:
    """The path from the root if `reference` is something on this machine, else None."""
    present = bool(reference) and "\0" not in reference and os.path.lexists(reference)
    return os.path.abspath(reference) if present else None


def _path_ends(reference: str) -> Iterator[str]:
    """What `reference` ends in if it is a path, the longest first."""
    if not reference or "\0" in reference:
        return
    paths = [reference] if reference.startswith(("/", "./", "../")) else []
    if here := path_here(reference):
        paths += [here, os.path.realpath(reference)]
    for path in paths:
        parts = [part for part in PurePath(path).parts if part not in ("/", "..")]
        for first in range(len(parts)):
            yield "/".join(parts[first:])
