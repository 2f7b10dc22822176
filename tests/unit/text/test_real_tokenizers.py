"""The real models' tokenizers and templates against ids that llama.cpp and transformers gave; needs the model cache."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs
import pytest

from coordinator.text.detokenizer import Detokenizer
from coordinator.text.model_text import model_text
from layerline.chat import Message
from layerline.models.index import index_model

STORY = "Naïve 😀 👩‍👩‍👧 日本語, Grüße…\n\n  def f(x):\n\treturn  x\n" * 5
SMOLLM2 = (
    "SmolLM2-135M-Instruct.Q4_1.gguf",
    "What is the capital of France?",
    "1 9690 198 2683 359 253 5356 11173 30 2 198 1 4093 198 1780 314 260 3575 282 4649 47 2 198 1 520 9531 198",
)
QWEN = (
    "Qwen2.5-Coder-0.5B-Instruct.Q4_K_M.gguf",
    "Write a Python function that adds two numbers.",
    "151644 8948 198 2610 525 264 10950 17847 13 151645 198 151644 872 198 7985 264 13027 729 429 11367 1378 5109 13 "
    "151645 198 151644 77091 198",
)


@pytest.mark.parametrize(("file", "question", "ids"), [SMOLLM2, pytest.param(*QWEN, marks=pytest.mark.slow)])
async def test_a_chat_has_the_known_ids(file: str, question: str, ids: str) -> None:
    path = Path(os.environ.get("LAYERLINE_CACHE") or platformdirs.user_cache_dir("layerline")) / "models" / file
    if not path.exists():
        pytest.skip(f"{path} is not in the cache; scripts/get-model brings it")
    card = index_model(path, file, lambda done_bytes, total_bytes: None)
    async with model_text(card.tokenizer, vocabulary=card.spec.vocabulary) as text:
        await text.read()
        system = Message(role="system", content="You are a helpful assistant.")
        prompt = await text.chat_ids([system, Message(role="user", content=question)], context_tokens=8192)
        story = await text.prompt_ids(STORY, context_tokens=8192)
    assert prompt == tuple(int(id_) for id_ in ids.split())
    pieces = [*map(Detokenizer.after(text.tokens, prompt).push, story)]
    assert "".join(pieces) == STORY
    assert not any("\ufffd" in piece for piece in pieces)
