"""Small tokenizers of the two kinds that there are, as cards: bytes, and words with bytes to fall back on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from json import dumps, loads

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers

from coordinator.text.model_text import ModelText, model_text
from coordinator.text.token_text import TokenText
from layerline.models.card import TokenizerCard

BOS, END = "<s>", "</s>"


def byte_level_json() -> str:
    """Every byte is a token (GPT-2's kind), plus a few longer ones and two control tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [("h", "e"), ("l", "l"), ("he", "ll"), ("Ġ", "w")]
    words = [*alphabet, *(left + right for left, right in merges)]
    tokenizer = Tokenizer(models.BPE(vocab={word: index for index, word in enumerate(words)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    return _with_control_tokens(tokenizer)


def byte_fallback_json() -> str:
    """SentencePiece's kind as llama 2 has it: spaces belong to words, the first one is not shown."""
    words = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", *"abcdehlorw", "▁w", "he", "▁he"]
    merges = [("▁", "w"), ("h", "e"), ("▁", "he")]
    vocabulary = {word: index for index, word in enumerate(words)}
    tokenizer = Tokenizer(
        models.BPE(vocab=vocabulary, merges=merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True)
    )
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return _with_control_tokens(tokenizer)


def card(
    json: str, *, add_bos: bool = False, bos_id: int | None = None, chat_template: str | None = None
) -> TokenizerCard:
    """A card around a tokenizer's JSON."""
    return TokenizerCard(
        json=json,
        add_bos=add_bos,
        bos_id=bos_id,
        eos_ids=(),
        chat_template=chat_template,
        bos_token=BOS,
        eos_token=END,
    )


@asynccontextmanager
async def text_of(json: str, *, add_bos: bool = False, chat_template: str | None = None) -> AsyncIterator[ModelText]:
    """The text side of a model that has exactly the tokenizer's tokens."""
    tokenizer = Tokenizer.from_str(json)
    made = card(json, add_bos=add_bos, bos_id=tokenizer.token_to_id(BOS), chat_template=chat_template)
    async with model_text(made, vocabulary=tokenizer.get_vocab_size(with_added_tokens=True)) as text:
        await text.read()
        yield text


def tokens_of(json: str) -> TokenText:
    """The text of every token, made in this process."""
    tokenizer = Tokenizer.from_str(json)
    return TokenText.of_tokenizer(tokenizer, tokenizer.get_vocab_size(with_added_tokens=True))


def changed(json: str, **parts: object) -> str:
    """A tokenizer's JSON with other parts."""
    return dumps({**loads(json), **parts})


def _with_control_tokens(tokenizer: Tokenizer) -> str:
    tokenizer.add_special_tokens([AddedToken(text, normalized=False, special=True) for text in (BOS, END)])
    text: str = tokenizer.to_str()
    return text
