"""Whose prompt rows go into a step: the rule that shares a step among the prompts that are being prefilled.

One half of the rows is for the oldest prompt, the other half for those with the fewest rows left, and what one side
does not use the other has. So every prompt becomes the oldest and then has half of all steps, whatever comes
after it: none waits for ever. And a short one need not wait for the long ones before it: if it is the shortest and
fits into half a step, it goes out whole with the next one.
"""

from __future__ import annotations

from collections.abc import Collection

from coordinator.scheduling.sequence import Sequence


def share_rows(prompts: Collection[Sequence], rows: int) -> list[tuple[Sequence, int]]:
    """The rows of each prompt that gets some, `rows` together or as many as there are; the oldest comes first."""
    if not prompts or rows <= 0:
        return []
    oldest = min(prompts, key=lambda prompt: prompt.arrival)
    others = sorted(
        (prompt for prompt in prompts if prompt is not oldest),
        key=lambda prompt: (prompt.rows_to_issue, prompt.arrival),
    )
    left = rows - min(oldest.rows_to_issue, rows - rows // 2)
    shares: list[tuple[Sequence, int]] = []
    for prompt in others:
        if left == 0:
            break
        share = min(left, prompt.rows_to_issue)
        shares.append((prompt, share))
        left -= share
    of_oldest = min(oldest.rows_to_issue, rows - sum(share for _, share in shares))
    return [(oldest, of_oldest), *shares]
