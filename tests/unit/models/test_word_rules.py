"""How byte-pair tokenizers of GGUF files cut text: each name that llama.cpp knows, on text that tells them apart."""

from __future__ import annotations

import pytest

from layerline.models.pre_tokenizers import WORD_RULES

# What llama.cpp's `llama_vocab::impl::load` compares `tokenizer.ggml.pre` with, but for "whitespace", an encoder's.
NAMES = """
a.x-4.0 afmoe bailingmoe bailingmoe2 bloom chameleon chatglm-bpe codeshell cohere2moe command-r dbrx deepseek-coder
deepseek-llm deepseek-r1-qwen deepseek-v3 default exaone exaone-moe exaone4 f2llmv2 falcon falcon-h1 falcon3 gemma4
gigachat glm4 gpt-2 gpt-4o gpt3-finnish granite-docling granite-embed-multi-311m granite-embed-multi-97m grok-2 hunyuan
hunyuan-dense jais jais-2 jina-de jina-es jina-v1-en jina-v2-code jina-v2-de jina-v2-es jina-v5-nano joyai-llm kanana2
kimi-k2 kormo laguna lfm2 llada-moe llama-bpe llama-v3 llama3 llama4 megrez mellum mellum2 midm-2.0 minerva-7b minicpm5
minimax-m2 modern-bert mpt olmo phi-2 pixtral poro-chat qwen2 qwen35 refact roberta-bpe sarvam-moe seed-coder smaug-bpe
smollm solar-open stablelm2 starcoder superbpe talkie tekken tiny_aya trillion viking youtu
"""
TEXT = "it's 1234567 IT'Sok\r\n\n  Hi,all/!\n?1我爱abcHTML e\u0301 x 2²"
LLAMA3 = "it|'s|Ġ|123|456|7|ĠIT|'S|ok|čĊĊ|Ġ|ĠHi|,all|/!Ċ|?|1|我爱abcHTML|Ġe|Ìģ|Ġx|Ġ|2²"
QWEN2 = "it|'s|Ġ|1|2|3|4|5|6|7|ĠIT|'S|ok|čĊĊ|Ġ|ĠHi|,all|/!Ċ|?|1|我爱abcHTML|Ġe|Ìģ|Ġx|Ġ|2|²"


def words_of(name: str, text: str = TEXT) -> str:
    """The words of `text`, in GPT-2's alphabet of bytes but for the two ideograms, joined by bars."""
    found = WORD_RULES[name].pre_tokenizer().pre_tokenize_str(text)
    return "|".join(word for word, _ in found).replace("æĪĳçĪ±", "我爱").replace("Â²", "²")


def test_every_name_of_llama_cpp_has_rules() -> None:
    assert sorted(WORD_RULES) == sorted(["", *NAMES.split()])


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ("gpt-2 exaone4 olmo", "it|'s|Ġ1234567|ĠIT|'|Sok|čĊĊĠ|ĠHi|,|all|/!|Ċ|?|1|我爱abcHTML|Ġe|Ìģ|Ġx|Ġ2²"),
        ("smollm command-r", "it|'s|Ġ|1|2|3|4|5|6|7|ĠIT|'|Sok|čĊĊĠ|ĠHi|,|all|/!|Ċ|?|1|我爱abcHTML|Ġe|Ìģ|Ġx|Ġ|2|²"),
        ("llama-bpe dbrx glm4", LLAMA3),
        ("qwen2 grok-2 stablelm2", QWEN2),
        ("laguna", QWEN2.replace("čĊĊ", "č|ĊĊ").replace("/!Ċ", "/!|Ċ")),
        ("minicpm5", LLAMA3),
        ("jais-2", LLAMA3),
        ("qwen35", QWEN2.replace("e|Ìģ", "eÌģ")),
        ("seed-coder", QWEN2.replace("/!Ċ", "/!|Ċ")),
        ("bailingmoe", QWEN2),
        ("exaone-moe", QWEN2.replace("abcHTML|Ġe|Ìģ|Ġx", "abcHTMLĠeÌģĠx")),
        ("gpt-4o llama4", "it's|Ġ|123|456|7|ĠIT'S|ok|čĊĊ|Ġ|ĠHi|,all|/!Ċ|?|1|我爱abc|HTML|ĠeÌģ|Ġx|Ġ|2²"),
        ("cohere2moe", "it's|Ġ|1|234|567|ĠIT'S|ok|čĊĊ|Ġ|ĠHi|,all|/!Ċ|?|1|我爱abc|HTML|ĠeÌģ|Ġx|Ġ|2²"),
        ("tekken", "it|'s|Ġ|1|2|3|4|5|6|7|ĠIT|'Sok|čĊĊ|Ġ|ĠHi|,all|/!Ċ|?|1|我爱abc|HTML|ĠeÌģ|Ġx|Ġ|2|²"),
        ("kimi-k2", "it's|Ġ|123|456|7|ĠIT'S|ok|čĊĊ|Ġ|ĠHi|,all|/!Ċ|?|1|我爱|abc|HTML|ĠeÌģ|Ġx|Ġ|2²"),
        ("youtu", "it's|Ġ|1|2|3|4|5|6|7|ĠIT'S|ok|čĊĊ|Ġ|ĠHi|,all|/!Ċ|?|1|我爱|abc|HTML|ĠeÌģ|Ġx|Ġ|2|²"),
        ("deepseek-v3", "it|'s|Ġ|123|456|7|ĠIT|'Sok|čĊĊ|Ġ|ĠHi|,all|/!Ċ|?|1|我爱|abcHTML|ĠeÌģ|Ġx|Ġ|2²"),
        ("afmoe", "it|'s|Ġ|1|234|567|ĠIT|'Sok|čĊĊ|Ġ|ĠHi|,all|/!Ċ|?|1|我爱|abcHTML|ĠeÌģ|Ġx|Ġ|2²"),
        ("bloom", "it's|Ġ1234567|ĠIT'Sok|čĊĊĠ|ĠHi|,|all/|!Ċ?|1我爱abcHTML|ĠeÌģ|Ġx|Ġ2²"),
        ("viking", "it's|Ġ|1|2|3|4|5|6|7|ĠIT'Sok|čĊĊĠ|ĠHi|,|all/|!Ċ?|1|我爱abcHTML|ĠeÌģ|Ġx|Ġ|2|²"),
        ("superbpe", "it'sĠ|1|234|567|ĠIT'SokčĊĊĠĠHi,all/!Ċ?|1|我爱abcHTMLĠeÌģĠxĠ|2²"),
        ("default", "it|'|s|Ġ|123|456|7|ĠIT|'|Sok|čĊĊĠ|ĠHi|,|all|/!|Ċ|?|1|我爱abcHTML|Ġe|Ìģ|Ġx|Ġ|2²"),
    ],
)
def test_words_are_cut_by_the_rules_of_each_name(names: str, words: str) -> None:
    assert {words_of(name) for name in names.split()} == {words}


def test_older_deepseeks_cut_line_ends_scripts_and_digits_apart() -> None:
    text = "it's 12\n\n  ok!?\u5df2 h\u00e9\u00df  "
    assert words_of("deepseek-coder", text) == "it|'|s|Ġ|1|2|Ċ|Ċ|Ġ|Ġok|!?|å·²|ĠhÃ©ÃŁ|ĠĠ"
    assert words_of("deepseek-llm", text) == "it|'|s|Ġ|1|2|Ċ|Ċ|Ġ|Ġok|!?|å·²|Ġh|Ã©ÃŁ|ĠĠ"


def test_chameleon_cuts_its_pictures_apart() -> None:
    assert words_of("chameleon", "<sentinel:12>IMGIMGABZ  a!?") == "<|sentinel|:|1|2|>|IMGIMGABZ|ĠĠ|a|!|?"


def test_falcon_cuts_digits_among_the_letters_of_bytes() -> None:
    assert words_of("falcon", "4 \u00bd 1234`") == "4|ĠÂ|½|Ġ|123|4|`"
    assert words_of("default", "4 \u00bd") == "4|Ġ|Â½"


def test_jais_cuts_runs_of_spaces_in_halves() -> None:
    assert words_of("jais-2", "a" + " " * 25 + "b") == "|".join(("a", "Ġ" * 16, "Ġ" * 8, "Ġb"))
    assert words_of("llama-bpe", "a" + " " * 25 + "b") == "|".join(("a", "Ġ" * 24, "Ġb"))


def test_letters_of_any_case_are_words_of_gpt_4o_and_of_kimi() -> None:
    assert words_of("gpt-4o", "\u00c9T\u00c9\u00e9t\u00e9") == "ÃīTÃīÃ©tÃ©"
    assert words_of("gpt-4o", "\u00e9t\u00c9\u00e9") == "Ã©t|ÃīÃ©"
    assert words_of("kimi-k2", "\u3042\u6211") == "ãģĤ|æĪĳ"


def test_gemma_4_does_not_cut() -> None:
    assert words_of("gemma4", "a\u2581b\n\nc") == "a\u2581b\n\nc"


@pytest.mark.parametrize(
    ("name", "whole_words", "adds_bos", "nfc"),
    [
        ("llama-bpe", True, True, False),
        ("lfm2", True, True, False),
        ("smaug-bpe", False, False, False),
        ("tekken", True, True, False),
        ("minicpm5", True, False, False),
        ("youtu", True, False, False),
        ("chameleon", False, True, False),
        ("gemma4", False, True, False),
        ("sarvam-moe", False, False, False),
        ("qwen2", False, False, True),
        ("qwen35", False, False, True),
        ("command-r", False, False, True),
        ("olmo", False, False, True),
        ("deepseek-v3", False, False, False),
    ],
)
def test_rules_beside_the_patterns(name: str, whole_words: bool, adds_bos: bool, nfc: bool) -> None:
    rules = WORD_RULES[name]
    assert (rules.whole_words, rules.adds_bos, rules.nfc) == (whole_words, adds_bos, nfc)
