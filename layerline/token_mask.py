"""Which tokens may be drawn: what a frame tells the stage that draws. Knows neither logits nor grammars.

Needs no numpy, as every program that knows frames imports it; `layerline.mask_forms` reads and makes whole masks.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass

from layerline.checks import require, require_one_of

FORMS = ("allowed", "forbidden", "bitmap")
MAX_MASK_BYTES = 1 << 18  # a bitmap of two million tokens
GAP = "H"  # array's two bytes without a sign
LONGEST_GAP = (1 << 16) - 1


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenMask:
    """The tokens that may be drawn, in the smallest of three forms.

    "allowed": those that `data` lists, and no others. "forbidden": all but those. "bitmap": token i if bit i % 8 (the
    lowest first) of byte i // 8 is set; a token behind its end may not. A list ascends, and has of each id how much it
    is over the one before, the first over -1, in 16 bits, little-endian; 65535 goes so far and lists none.
    """

    form: str
    data: bytes

    def __post_init__(self) -> None:
        require_one_of(self.form, FORMS, "form of a mask")
        require(0 < len(self.data) <= MAX_MASK_BYTES, "a mask of no size, or over its limit")
        if self.form == "bitmap":
            require(any(self.data), "a mask that allows no token")
        else:
            require(len(self.data) % 2 == 0, "a mask's list is of 16-bit numbers")
            require(self.data[:2] != b"\0\0" and self.data[-2:] != b"\xff\xff", "a mask's list is not of ids")

    @classmethod
    def forbidding(cls, ids: Iterable[int]) -> TokenMask:
        """All tokens but a few, at least one."""
        return cls(form="forbidden", data=listed(ids))

    @classmethod
    def allowing(cls, ids: Iterable[int]) -> TokenMask:
        """A few tokens, at least one."""
        return cls(form="allowed", data=listed(ids))


def listed(ids: Iterable[int]) -> bytes:
    """Ids as a mask lists them; `layerline.mask_forms` does the same for many."""
    gaps, last = array(GAP), -1
    for id_ in sorted(set(ids)):
        whole, rest = divmod(id_ - last, LONGEST_GAP)
        gaps.extend([LONGEST_GAP] * whole)
        gaps.append(rest)
        last = id_
    return gaps.tobytes()
