"""The tokens after the rows of a step: drawn on rank 0, while each rank has the logits of its part of the vocabulary.

Owns what is brought together for it. Where only the likeliest token counts each rank's likeliest will do; for anything
else it is all logits of the row, which a group of one has anyway. How a token is drawn is the sampler's business.

Shapes: N rows, V the tokens of this rank, R ranks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from layerline.frames import SampledToken, Sampling
from node.model.sampler import draw
from node.model.tensors import bytes_from_tensor
from node.ranks.group import RankGroup


@dataclass(frozen=True, kw_only=True, slots=True)
class _Candidates:
    """The tokens that may be drawn after a row. Only the row that is drawn from is held in float32 as well."""

    logits: Tensor  # on the CPU
    ids: Tensor | None = None  # of the candidates; None: they are the vocabulary


@dataclass(frozen=True, kw_only=True, slots=True)
class WantedToken:
    """A token that is wanted: of which sequence, for which position, and how."""

    sequence: int
    position: int
    sampling: Sampling


class TokenSampling:
    """Draws for the ranks of `group`; this one has the logits of the tokens from `first_id` on."""

    def __init__(self, first_id: int, group: RankGroup) -> None:
        self._first_id = first_id
        self._group = group

    def after(self, blocks: Iterable[tuple[Tensor, Sequence[WantedToken]]]) -> list[SampledToken]:
        """The tokens after the rows of blocks of (this rank's logits [N, V], what is wanted of each); in order.

        To be called on every rank; only rank 0 gets any. There is none after a row whose logits are not numbers.
        """
        drawn: list[SampledToken | None] = []
        for logits_NV, draws in blocks:
            candidates = self._candidates(logits_NV, draws)
            drawn.extend(_drawn(row, wanted) for row, wanted in zip(candidates, draws, strict=False))
        return [token for token in drawn if token is not None]

    def _candidates(self, logits_NV: Tensor, draws: Sequence[WantedToken]) -> list[_Candidates]:
        """Those of each row; none on other ranks than 0."""
        if self._group.count == 1:
            return [_Candidates(logits=logits_V) for logits_V in logits_NV.cpu()]
        greedy = [row for row, wanted in enumerate(draws) if _likeliest_will_do(wanted.sampling)]
        others = [row for row, wanted in enumerate(draws) if not _likeliest_will_do(wanted.sampling)]
        candidates = self._likeliest(logits_NV[greedy]) if greedy else []
        candidates += self._all(logits_NV[others]) if others else []
        by_row = dict(zip([*greedy, *others], candidates, strict=False))
        return [by_row[row] for row in sorted(by_row)]

    def _likeliest(self, logits_NV: Tensor) -> list[_Candidates]:
        """Of each rank its likeliest token, of equals the first; ids are below 2**24, so that float32 has them all."""
        most_N, places_N = logits_NV.float().max(dim=1)
        parts = self._group.gather(torch.stack([most_N, (places_N + self._first_id).float()], dim=1))
        if parts is None:
            return []
        best_2NR = torch.stack(parts, dim=2).permute(1, 0, 2).cpu()
        return [_Candidates(logits=logits_R, ids=ids_R) for logits_R, ids_R in zip(*best_2NR, strict=True)]

    def _all(self, logits_NV: Tensor) -> list[_Candidates]:
        parts = self._group.gather(logits_NV)
        return [] if parts is None else [_Candidates(logits=row) for row in torch.cat(parts, dim=1).cpu()]


def _likeliest_will_do(sampling: Sampling) -> bool:
    return sampling.temperature == 0.0 and not sampling.is_changed and not sampling.return_logits


def _drawn(candidates: _Candidates, wanted: WantedToken) -> SampledToken | None:
    logits = candidates.logits.float()
    place = draw(logits.numpy(), wanted.sampling, wanted.position)
    if place is None:
        return None
    token_id = place if candidates.ids is None else int(candidates.ids[place])
    returned = bytes_from_tensor(logits) if wanted.sampling.return_logits else None
    return SampledToken(sequence=wanted.sequence, position=wanted.position, token_id=token_id, logits=returned)
