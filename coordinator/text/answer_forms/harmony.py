"""gpt-oss's answers: messages on channels, each with a header, as OpenAI's harmony format has them.

Source: openai/harmony, docs/format.md.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from coordinator.text.answer_forms.calls import Calls
from coordinator.text.answer_forms.feed import Feed, Waiting

NAME = "gpt_oss"
SIGNS = ("<|channel|>", "<|message|>")
ENDS = ("<|end|>", "<|call|>", "<|return|>")
MARKERS = ("<|channel|>", "<|message|>", "<|start|>", "<|constrain|>", *ENDS)

FINAL = re.compile(rb"<\|channel\|>\s*final[^<]*(?:<\|constrain\|>[^<]*)?<\|message\|>")
"""The header behind which an answer's text begins."""

_CHANNEL = re.compile(r"<\|channel\|>\s*(\w+)")
_RECIPIENT = re.compile(r"to=(?:functions\.)?([^\s<]+)")


def answer(
    feed: Feed, calls: Calls, tell_text: Callable[[str], None], tell_thought: Callable[[str], None]
) -> Waiting[None]:
    """Reads a whole answer; what has no header is text."""
    if not (yield from feed.begins_with("<|channel|>", "<|start|>", " to=", "to=")):
        yield from feed.until(*ENDS, tell=tell_text)
    while (yield from feed.peek()):
        header, word = yield from feed.until("<|message|>")
        if not word:
            if not _CHANNEL.search(header):  # a header that never comes is none
                tell_text(header)
            return
        channel, recipient = _CHANNEL.search(header), _RECIPIENT.search(header)
        if recipient:
            calls.begin(recipient[1])
            yield from feed.until(*ENDS, tell=calls.arguments)
        elif channel and channel[1] == "analysis":
            yield from feed.until(*ENDS, tell=tell_thought)
        else:
            yield from feed.until(*ENDS, tell=tell_text)
