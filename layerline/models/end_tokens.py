"""The tokens that end a turn, whatever a model file forgets to say about them.

Source: the list of `special_eog_ids` in src/llama-vocab.cpp of llama.cpp.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

# No text has these by chance: they end a turn, or part two files, even where a file calls them ordinary tokens.
UNMISTAKABLE_ENDS = frozenset(
    {
        *("<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "<|end_of_text|>"),
        *("<end_of_utterance>", "<turn|>", "<|tool_response>", "<|return|>", "<|call|>", "<|calls|>", "<|flush|>"),
        *("<\uff5cend\u2581of\u2581sentence\uff5c>", "[e~["),
        *("<|fim_pad|>", "<|fim_repo|>", "<|repo_name|>", "<|file_sep|>"),
    }
)
# These do only as control tokens: "</s>" is also HTML, and Gemma has it as a token of that.
CONTROL_ENDS = frozenset(
    {
        *("</s>", "<eos>", "[EOS]", "<EOT>", "_<EOT>", "[EOT]"),
        *("<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]", "<fim-repo>", "<REPO>", "<reponame>"),
    }
)
# Where these are there, "<|end|>" ends one message of a turn.
MESSAGES_IN_A_TURN = ({"<|return|>", "<|call|>"}, {"<|flush|>", "<|calls|>"}, {"<|flush|>", "<|call|>"})


def end_ids(named: Iterable[int | None], control_tokens: Collection[tuple[str, int]]) -> tuple[int, ...]:
    """The ids that the file names as ends, and those of control tokens known to be ends; sorted, each once."""
    ends = {token: token_id for token, token_id in control_tokens if token in UNMISTAKABLE_ENDS | CONTROL_ENDS}
    if any(ends.keys() >= messages for messages in MESSAGES_IN_A_TURN):
        ends.pop("<|end|>", None)
    return tuple(sorted({*ends.values(), *(token_id for token_id in named if token_id is not None)}))
