"""Shares the prompt rows of a step among the prompts that are being prefilled.

One half of the rows is for the oldest prompt, the other half for those with the fewest rows left; either half gets what
the other does not use. So no prompt waits for ever: each becomes the oldest and then has half of all steps, whatever
comes after it. And a short prompt does not wait for the long ones before it: if it is the shortest and fits into half a
step, all of it goes out with the next one.
"""

from __future__ import annotations

from collections.abc import Collection

from coordinator.scheduling.sequence import Sequence


def share_rows(prompts: Collection[Sequence], rows: int) -> list[tuple[Sequence, int]]:
    """Prompts with the number of rows of each, the oldest first; together `rows`, or as many as there are."""
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
