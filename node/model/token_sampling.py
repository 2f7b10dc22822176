"""The tokens after the rows of a step: drawn or scored on rank 0, while each rank has the logits of its part of all.

Owns what is brought together for it. Where only the likeliest token counts each rank's likeliest will do; for anything
else it is all logits of the row, which a group of one has anyway. How a token is drawn is the sampler's business, how a
known one is scored that of `node.step.token_scores`.

Shapes: N rows, V the tokens of this rank, W the vocabulary, R ranks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from layerline.frames import Sampling
from layerline.step_result import SampledToken
from node.ranks.group import RankGroup
from node.step.sampled_token import WantedToken, sampled_token
from node.step.span_scores import KnownToken
from node.step.token_scores import Likelihoods, likelihoods


@dataclass(frozen=True, kw_only=True, slots=True)
class _Candidates:
    """The tokens that may be drawn after a row. Only the row that is drawn from is held in float32 as well."""

    logits: Tensor  # on the CPU
    ids: Tensor | None = None  # of the candidates; None: they are the vocabulary


class TokenSampling:
    """Draws and scores for the ranks of `group`; this one has the logits of the tokens from `first_id` on."""

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

    def scores(self, blocks: Iterable[tuple[Tensor, Sequence[KnownToken]]]) -> list[Likelihoods]:
        """How likely known tokens are, by blocks of (this rank's logits [N, V], the token after each row).

        To be called on every rank; only rank 0 gets any. NaN after a row whose logits are not numbers.
        """
        scores: list[Likelihoods] = []
        for logits_NV, tokens in blocks:
            whole_NW = self._whole(logits_NV)
            if whole_NW is not None:
                rows = zip(whole_NW.float().numpy(), tokens, strict=True)
                scores += [likelihoods(logits_W, token.id, token.likeliest) for logits_W, token in rows]
        return scores

    def _candidates(self, logits_NV: Tensor, draws: Sequence[WantedToken]) -> list[_Candidates]:
        """Those of each row; none on other ranks than 0."""
        if self._group.count == 1:
            return self._all(logits_NV)
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
        whole_NW = self._whole(logits_NV)
        return [] if whole_NW is None else [_Candidates(logits=logits_W) for logits_W in whole_NW]

    def _whole(self, logits_NV: Tensor) -> Tensor | None:
        """All logits of the rows, on the CPU; None on other ranks than 0."""
        parts = self._group.gather(logits_NV)
        if parts is None:
            return None
        return (parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)).cpu()


def _likeliest_will_do(sampling: Sampling) -> bool:
    changed = sampling.is_changed or sampling.mask is not None
    told = sampling.return_logits or sampling.log_probabilities is not None
    return sampling.temperature == 0.0 and not changed and not told


def _drawn(candidates: _Candidates, wanted: WantedToken) -> SampledToken | None:
    ids = None if candidates.ids is None else candidates.ids.long().numpy()
    return sampled_token(candidates.logits.float().numpy(), wanted, ids)
