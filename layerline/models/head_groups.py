"""Which key/value heads some neighbouring heads read, and where they may be cut so that a part is of the same kind."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from layerline.models.recurrent import DeltaNetSpec, RecurrentSpec
from layerline.models.spec import AttentionSpec


@dataclass(frozen=True, kw_only=True, slots=True)
class HeadGroups:
    """So many heads; those that read the same key/value head are neighbours or, if `tiled`, `kv_heads` apart."""

    heads: int
    kv_heads: int
    tiled: bool = False

    @classmethod
    def of(cls, mixer: AttentionSpec | RecurrentSpec) -> HeadGroups:
        """Those of what mixes tokens."""
        tiled = isinstance(mixer, DeltaNetSpec) and mixer.tiled
        return cls(heads=mixer.heads, kv_heads=mixer.kv_heads, tiled=tiled)

    def read_by(self, heads: range) -> range:
        """The key/value heads that these read."""
        if not self.tiled:
            group = self.heads // self.kv_heads
            return range(heads.start // group, (heads.stop - 1) // group + 1)
        first = heads.start % self.kv_heads
        return range(first, first + min(len(heads), self.kv_heads))

    def ends(self, first: int) -> Iterator[int]:
        """Where a range that begins at `first` may end so that it has as many heads of each group it touches.

        It lies within a group, takes the last heads of one and as many of the next, or has whole groups. Of tiles it
        lies within one, or has whole ones.
        """
        unit = self.kv_heads if self.tiled else self.heads // self.kv_heads
        left = unit - first % unit
        yield from range(first + 1, first + left + 1)
        if left == unit:
            yield from range(first + 2 * unit, self.heads + 1, unit)
        elif first + left < self.heads and not self.tiled:
            yield first + 2 * left
