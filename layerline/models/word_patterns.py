"""The regular expressions by which byte-pair tokenizers cut text into words, in the syntax of Oniguruma.

Sources: the models' own tokenizer.json or tiktoken files, which src/llama-vocab.cpp of llama.cpp quotes where it has
another form of them; where it quotes none, that form. Does not know which tokenizer uses which.
"""

from __future__ import annotations

_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_UPPER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}"
_LOWER = r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_CASED_LETTERS = (
    "A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373"
    "\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f"
    "\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77"
    "\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-"
    "\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec"
    "\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-"
    "\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3"
    "\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17"
    "\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-\U000104fb\U00010c80-"
    "\U00010cb2\U00010cc0-\U00010cf2\U000118a0-\U000118df\U0001e900-\U0001e943"
)


def _words(*, letters: str = r"\p{L}", marks: str = "", digits: str, spaces: str = _SPACES) -> str:
    """Llama 3's pattern and its kin: contractions, words, numbers, signs with the line ends after them, spaces."""
    signs = rf" ?[^\s\p{{L}}{marks}\p{{N}}]+[\r\n]*"
    return rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?{letters}+|{digits}|{signs}|{spaces}"


def _cased(*, contractions: str, digits: str, line_ends: str = r"[\r\n/]*", without: str = "") -> str:
    """GPT-4o's pattern and its kin, whose words are cut where a lower-case letter meets an upper-case one."""
    upper, lower = rf"[{_UPPER}{without}]", rf"[{_LOWER}{without}]"
    words = "|".join(
        rf"[^\r\n\p{{L}}\p{{N}}]?{form}{contractions}" for form in (f"{upper}*{lower}+", f"{upper}+{lower}*")
    )
    return rf"{words}|{digits}| ?[^\s\p{{L}}\p{{N}}]+{line_ends}|{_SPACES}"


DIGIT = r"\p{N}"
DIGITS = r"\p{N}+"
THREE_DIGITS = "[0-9][0-9][0-9]"
UP_TO_THREE_DIGITS = r"\p{N}{1,3}"
DIGITS_FROM_THE_RIGHT = r"\d{1,3}(?=(?:\d{3})*\b)"
ALL_DIGITS_FROM_THE_RIGHT = r"\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))"
BEFORE_EACH_THREE_DIGITS = r"(?=(\d{3})+(?!\d))"
LINES = r"[^\n]+|\n+"

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = _words(digits=UP_TO_THREE_DIGITS)
QWEN2 = _words(digits=DIGIT)
QWEN35 = _words(letters=r"[\p{L}\p{M}]", marks=r"\p{M}", digits=DIGIT)
MINICPM5 = _words(digits=DIGITS)
JAIS2 = _words(
    digits=UP_TO_THREE_DIGITS,
    spaces=r"\s*[\r\n]+|"
    + "|".join(rf"\s{{{count}}}(?!\S)" for count in ("512", "256", "128", "64", "32", "16", "8", "4", "1,2"))
    + r"|\s{1}",
)
SEED_CODER = rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|{_SPACES}"
BAILING = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
EXAONE_MOE = (
    rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?(?:\p{{L}}\p{{M}}*(?: \p{{L}}\p{{M}}*)*)+|\p{{N}}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+"
)

GPT4O = _cased(contractions=f"{_CONTRACTIONS}?", digits=UP_TO_THREE_DIGITS)
YOUTU = _cased(contractions=f"{_CONTRACTIONS}?", digits=DIGIT)
TEKKEN = _cased(contractions="", digits=DIGIT)
KIMI = r"\p{Han}+|" + _cased(
    contractions=f"{_CONTRACTIONS}?", digits=UP_TO_THREE_DIGITS, line_ends=r"[\r\n]*", without=r"&&[^\p{Han}]"
)
YOUTU_SCRIPTS = (
    "[\uac00-\ud7a3\u3131-\u318e]+|[\uff01\u2026\u201c\u201d\u2018\u2019\u2014\uff1a\uff1b\uff0c\u3001-\u303f\ufe30-\ufe4f]+"
    "|[\u3105-\u312f]+|[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
)

DEEPSEEK_LINE_END = r"[\r\n]"
DEEPSEEK_CASED = rf"\s?[{_CASED_LETTERS}]+"
DEEPSEEK_SIGNS = "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+"
DEEPSEEK_LAST_SPACES = r"\s+$"
DEEPSEEK_LETTERS = r"\s?\p{L}+"
DEEPSEEK_PUNCTUATION = r"\s?\p{P}+"
DEEPSEEK_IDEOGRAMS = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
DEEPSEEK3_IDEOGRAMS = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
DEEPSEEK3 = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    rf"| ?[\p{{P}}\p{{S}}]+[\r\n]*|{_SPACES}"
)
AFMOE_SCRIPTS = (
    "[\u4e00-\u9fff\u3400-\u4dbf\u8c48-\ufaff\u3040-\u309f\u30a0-\u30ff\uff65-\uff9f\u2f00-\u2fdf\u0e40-\u0e7f"
    "\u0e80-\u0eff\u1780-\u17ff\u1000-\u109f\uaa60-\uaa7f\ua9e0-\ua9ff\uac00-\ud7af\u1100-\u11ff]+"
)

FALCON_PUNCTUATION = r"[\p{P}\$\+<=>\^~\|`]+"
DEFAULT_PUNCTUATION = r"[\p{P}\$\+<=>\^~\|]+"
BLOOM = " ?[^(\\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+"
CHAMELEON = (
    "<sentinel:[0-9]+>",
    "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z",
    r"([\t\n]|    |  )",
    DIGIT,
    r"[\p{P}!-/:-@\[-`{-~]",
    GPT2,
)
