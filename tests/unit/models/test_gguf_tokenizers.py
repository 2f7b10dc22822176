"""Tokenizers from GGUF metadata, kind by kind, with vocabularies of a few words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from tokenizers import Tokenizer

from layerline.errors import ModelCorruptError, ModelUnsupportedError
from layerline.models.card import TokenizerCard
from layerline.models.fields import Fields
from layerline.models.gguf_tokenizer import tokenizer_from_gguf
from tests.fakes.tiny_tokenizer import tokenizer_metadata

BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
PIECES = ["\u2581", "h", "e", "l", "o", "he", "ll", "hell", "hello", "\u2581hello", "el", "\u2581h", "\n", "\n\n"]
TOKENS = ["<unk>", "<s>", "</s>", "<|user|>", *BYTES, *PIECES]
SENTENCEPIECE: dict[str, object] = {
    "tokenizer.ggml.model": "llama",
    "tokenizer.ggml.tokens": TOKENS,
    "tokenizer.ggml.scores": [0.0] * 260 + [-float(rank) for rank in range(100, 100 + len(PIECES))],
    "tokenizer.ggml.token_type": [2, 3, 3, 3] + [6] * 256 + [1] * len(PIECES),
}
GEMMA4: dict[str, object] = {
    "tokenizer.ggml.model": "gemma4",
    "tokenizer.ggml.tokens": TOKENS,
    "tokenizer.ggml.token_type": SENTENCEPIECE["tokenizer.ggml.token_type"],
    "tokenizer.ggml.merges": ["h e", "l l", "he ll", "hell o", "\u2581 hello", "\u2581 h", "\n \n"],
    "tokenizer.ggml.bos_token_id": 1,
    "tokenizer.ggml.eos_token_id": 2,
}


def from_gguf(metadata: Mapping[str, object]) -> TokenizerCard:
    return tokenizer_from_gguf(Fields(metadata, "tiny.gguf"))


def byte_pairs(metadata: Mapping[str, object]) -> TokenizerCard:
    return from_gguf({**tokenizer_metadata(), **metadata})


def pieces_of(card: TokenizerCard, text: str) -> list[str]:
    return Tokenizer.from_str(card.json).encode(text, add_special_tokens=False).tokens


def with_tokens(*added: tuple[str, int]) -> dict[str, object]:
    """The tiny byte-pair vocabulary with more tokens, each with its kind."""
    metadata = tokenizer_metadata()
    tokens, kinds = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.token_type"]
    assert isinstance(tokens, list)
    assert isinstance(kinds, list)
    return {
        "tokenizer.ggml.tokens": [*tokens, *(token for token, _ in added)],
        "tokenizer.ggml.token_type": [*kinds, *(kind for _, kind in added)],
    }


def ends_of(*added: tuple[str, int]) -> list[str]:
    """The texts of the ends among tokens added to a vocabulary whose own are <|endoftext|> and <|im_end|>."""
    metadata = with_tokens(*added)
    tokens = metadata["tokenizer.ggml.tokens"]
    assert isinstance(tokens, list)
    return [tokens[token_id] for token_id in byte_pairs(metadata).eos_ids[2:]]


def test_sentencepiece_joins_by_score_and_falls_back_to_bytes() -> None:
    card = from_gguf(SENTENCEPIECE)
    made = Tokenizer.from_str(card.json)
    ids = made.encode("hello h\u00e9", add_special_tokens=False).ids
    assert [TOKENS[token_id] for token_id in ids] == ["\u2581hello", "\u2581h", "<0xC3>", "<0xA9>"]
    assert made.decode(ids) == "hello h\u00e9"
    assert made.encode("<unk>", add_special_tokens=False).ids == [0]
    assert made.decode([0, *ids]) == "hello h\u00e9"


def test_sentencepiece_files_need_not_say_their_beginning_and_end() -> None:
    card = from_gguf(SENTENCEPIECE)
    assert (card.add_bos, card.bos_token, card.eos_token, card.eos_ids) == (True, "<s>", "</s>", (2,))
    said = from_gguf({**SENTENCEPIECE, "tokenizer.ggml.bos_token_id": 3, "tokenizer.ggml.add_bos_token": False})
    assert (said.add_bos, said.bos_token) == (False, "<|user|>")


def test_sentencepiece_puts_a_space_first_unless_told_not_to() -> None:
    assert pieces_of(from_gguf(SENTENCEPIECE), "hello") == ["\u2581hello"]
    bare = from_gguf({**SENTENCEPIECE, "tokenizer.ggml.add_space_prefix": False})
    assert pieces_of(bare, "hello hello") == ["hello", "\u2581hello"]


def test_scores_may_be_whole_numbers() -> None:
    scores = [0] * 260 + list(range(-100, -100 - len(PIECES), -1))
    assert from_gguf({**SENTENCEPIECE, "tokenizer.ggml.scores": scores}) == from_gguf(SENTENCEPIECE)


@pytest.mark.parametrize(
    ("tokens", "scores", "reason"),
    [
        ([f"x{token}" for token in TOKENS], [0.0] * len(TOKENS), "no token for the byte <0x00>"),
        (TOKENS, [0.0] * (len(TOKENS) - 1), "a list of 274 numbers"),
        (TOKENS, ["high"] * len(TOKENS), "a list of float values"),
    ],
)
def test_malformed_sentencepiece(tokens: Sequence[str], scores: Sequence[object], reason: str) -> None:
    with pytest.raises(ModelCorruptError, match=reason):
        from_gguf({**SENTENCEPIECE, "tokenizer.ggml.tokens": tokens, "tokenizer.ggml.scores": scores})


@pytest.mark.parametrize(
    ("of_model", "takes_spaces"),
    [
        ({"general.architecture": "phi3"}, True),
        ({"general.name": "Phi-3 mini 4k"}, True),
        ({"general.name": "A Llama"}, False),
    ],
)
def test_the_marks_of_phi_3_take_the_spaces_after_them(of_model: Mapping[str, object], takes_spaces: bool) -> None:
    card = from_gguf({**SENTENCEPIECE, **of_model})
    ids = Tokenizer.from_str(card.json).encode("<|user|>\n hello<s>\n", add_special_tokens=False).ids
    pieces = [TOKENS[token_id] for token_id in ids]
    assert pieces == ["<|user|>", *([] if takes_spaces else ["\u2581", "\n"]), "\u2581hello", "<s>", "\u2581", "\n"]


def test_gemma_4_joins_by_its_merges_across_words_and_falls_back_to_bytes() -> None:
    card = from_gguf(GEMMA4)
    assert pieces_of(card, "hello hello\n\nh\u00e9") == ["hello", "\u2581hello", "\n\n", "h", "<0xC3>", "<0xA9>"]
    made = Tokenizer.from_str(card.json)
    assert made.decode(made.encode("hello hello\n\nh\u00e9").ids) == "hello hello\n\nh\u00e9"
    assert (card.add_bos, card.bos_token, card.eos_ids) == (True, "<s>", (2,))


def test_words_that_are_tokens_are_taken_whole_where_the_rules_say_so() -> None:
    unmerged = with_tokens(("hers", 1))
    assert pieces_of(byte_pairs(unmerged), "hers") == ["he", "r", "s"]
    assert pieces_of(byte_pairs({**unmerged, "tokenizer.ggml.pre": "llama-bpe"}), "hers") == ["hers"]
    assert pieces_of(byte_pairs({**unmerged, "tokenizer.ggml.pre": "dbrx"}), "hers") == ["he", "r", "s"]


def test_characters_are_composed_where_the_model_does() -> None:
    assert pieces_of(byte_pairs({"tokenizer.ggml.pre": "qwen2"}), "e\u0301") == ["\u00c3", "\u00a9"]
    assert len(pieces_of(byte_pairs({}), "e\u0301")) == 3


def test_control_tokens_have_no_text_and_user_defined_ones_have() -> None:
    made = Tokenizer.from_str(byte_pairs(with_tokens(("<think>", 4), ("<pad>", 3), ("<plain>", 1))).json)
    encoding = made.encode("h<think><pad>he", add_special_tokens=False)
    assert encoding.tokens == ["h", "<think>", "<pad>", "he"]
    assert made.decode(encoding.ids) == "h<think>he"
    assert "<plain>" not in made.encode("<plain>").tokens


def test_tokens_without_text_are_given_one() -> None:
    assert pieces_of(byte_pairs(with_tokens(("", 5), ("", 5))), "hello") == ["hello"]


@pytest.mark.parametrize(
    ("added", "ends"),
    [
        ([("<|im_start|>x", 3), ("<|eot_id|>", 1), ("<|eom_id|>", 4)], ["<|eot_id|>", "<|eom_id|>"]),
        ([("</s>", 1), ("<eos>", 4)], []),
        ([("</s>", 3), ("<eos>", 3)], ["</s>", "<eos>"]),
        ([("<|end|>", 3)], ["<|end|>"]),
        ([("<|end|>", 3), ("<|return|>", 3), ("<|call|>", 3)], ["<|return|>", "<|call|>"]),
        ([("<|end|>", 3), ("<|flush|>", 3), ("<|calls|>", 3)], ["<|flush|>", "<|calls|>"]),
        ([("<|end|>", 3), ("<|return|>", 3)], ["<|end|>", "<|return|>"]),
        ([("<turn|>", 3), ("<|tool_response>", 4)], ["<turn|>", "<|tool_response>"]),
        (
            [("<\uff5cend\u2581of\u2581sentence\uff5c>", 3), ("[e~[", 3)],
            ["<\uff5cend\u2581of\u2581sentence\uff5c>", "[e~["],
        ),
        ([("<|file_sep|>", 4), ("<reponame>", 3)], ["<|file_sep|>", "<reponame>"]),
    ],
)
def test_texts_known_to_end_a_turn_are_ends(added: list[tuple[str, int]], ends: list[str]) -> None:
    assert ends_of(*added) == ends


def test_an_end_that_a_file_calls_an_ordinary_token_is_read_as_one() -> None:
    assert pieces_of(byte_pairs(with_tokens(("<|eot_id|>", 1))), "h<|eot_id|>") == ["h", "<|eot_id|>"]


@pytest.mark.parametrize(
    ("metadata", "named"),
    [
        ({"tokenizer.ggml.model": "bert"}, "'bert' .WordPiece"),
        ({"tokenizer.ggml.model": "t5"}, "'t5' .a unigram vocabulary"),
        ({"tokenizer.ggml.model": "new"}, "'new', which layerline does not have"),
        ({"tokenizer.ggml.pre": "whitespace"}, "'whitespace'.*smollm"),
    ],
)
def test_unknown_tokenizers_are_refused_by_name(metadata: Mapping[str, object], named: str) -> None:
    with pytest.raises(ModelUnsupportedError, match=named):
        byte_pairs(metadata)


def test_a_merge_may_begin_with_a_space() -> None:
    more = with_tokens((" ", 4), (" h", 1))
    merges = tokenizer_metadata()["tokenizer.ggml.merges"]
    assert isinstance(merges, list)
    byte_pairs({**more, "tokenizer.ggml.merges": [*merges, "  h"]})
    with pytest.raises(ModelCorruptError, match="merge ' h'"):
        byte_pairs({**more, "tokenizer.ggml.merges": [*merges, " h"]})
