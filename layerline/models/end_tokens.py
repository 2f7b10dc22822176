"""The tokens that end a turn, whatever a model file forgets to say about them."""

from __future__ import annotations

from collections.abc import Iterable

# Control tokens of these names end a turn in every family that has them.
END_OF_TURN = frozenset(
    {"<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "<|end_of_text|>"}
)


def end_ids(named: Iterable[int | None], control_tokens: Iterable[tuple[str, int]]) -> tuple[int, ...]:
    """The ids that the file names as ends, and those of control tokens known to be ends; sorted, each once."""
    known = {token_id for token, token_id in control_tokens if token in END_OF_TURN}
    return tuple(sorted(known.union(token_id for token_id in named if token_id is not None)))
