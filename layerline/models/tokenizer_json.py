"""The tokenizer of a model's folder: tokenizer.json as it is, and what the files beside it say.

Where there is none, it is made of tekken.json, tiktoken.model or tokenizer.model. Reads tokenizer_config.json (special
tokens, chat template), chat_template.jinja and generation_config.json, each of which may be absent. Does not render
templates.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer

from layerline.errors import LayerlineError, ModelCorruptError, ModelUnsupportedError
from layerline.models.card import TokenizerCard
from layerline.models.end_tokens import UNMISTAKABLE_ENDS, end_ids
from layerline.models.fields import REMEDY, Fields
from layerline.models.json_file import read_json, read_text
from layerline.models.sentencepiece_file import CONVERT, read_vocabulary, sentencepiece_tokenizer
from layerline.models.tekken import BOS, EOS, tekken_tokenizer
from layerline.models.tiktoken_file import tiktoken_tokenizer

MAX_VOCABULARY = 1 << 24
MAX_TOKENIZER_BYTES = 64 << 20  # one with 262,144 tokens has 32 MiB
TEMPLATE_NAME = "chat_template.jinja"


def tokenizer_from_folder(folder: Path, config: Fields) -> TokenizerCard:
    """The tokenizer of the model in `folder`, whose config.json is `config`."""
    settings = _optional(folder, "tokenizer_config.json")
    read = _read(folder, settings, config.text("model_type", ""))
    tokenizer = read.tokenizer
    bos_token = _special_token(settings, "bos_token") or read.bos_token
    eos_token = _special_token(settings, "eos_token") or read.eos_token
    bos_id = _token_id(tokenizer, settings, bos_token, _ids(config, "bos_token_id"))
    control = [
        (token.content, token_id)
        for token_id, token in tokenizer.get_added_tokens_decoder().items()
        if token.special or token.content in UNMISTAKABLE_ENDS
    ]
    named = [
        _token_id(tokenizer, settings, eos_token, []),
        *_ids(config, "eos_token_id"),
        *_ids(_optional(folder, "generation_config.json"), "eos_token_id"),
    ]
    return TokenizerCard(
        json=read.json or tokenizer.to_str(),
        add_bos=settings.flag("add_bos_token", _adds_bos(read, bos_id)) and bos_id is not None,
        bos_id=bos_id,
        eos_ids=end_ids(named, control),
        chat_template=_chat_template(folder, settings),
        bos_token=bos_token,
        eos_token=eos_token,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Read:
    """A tokenizer, its JSON if that was in the file, and the texts of its beginning and end if the file says them.

    `adds_bos` is what models with such a file do unless they say otherwise; one with JSON says it there.
    """

    tokenizer: Tokenizer
    json: str = ""
    bos_token: str = ""
    eos_token: str = ""
    adds_bos: bool = True


def _read(folder: Path, settings: Fields, model_type: str) -> _Read:
    """The tokenizer in the first of the files that there is."""
    if (folder / "tokenizer.json").exists():
        text = read_text(folder / "tokenizer.json", MAX_TOKENIZER_BYTES)
        return _Read(tokenizer=_built(folder / "tokenizer.json", lambda: Tokenizer.from_str(text)), json=text)
    if (folder / "tekken.json").exists():
        tokenizer = _built(folder / "tekken.json", lambda: tekken_tokenizer(folder / "tekken.json"))
        return _Read(tokenizer=tokenizer, bos_token=BOS, eos_token=EOS)
    path = folder / "tiktoken.model"
    if path.exists():
        return _Read(tokenizer=_built(path, lambda: tiktoken_tokenizer(path, model_type, settings)), adds_bos=False)
    path = folder / "tokenizer.model"
    if not path.exists():
        raise _without_tokenizer(folder)
    if (folder / "added_tokens.json").exists() and "added_tokens_decoder" not in settings:
        message = f"{folder} says what tokens it adds to tokenizer.model only in added_tokens.json, an older form."
        raise ModelUnsupportedError(message, remedy=CONVERT)
    vocabulary = read_vocabulary(path)
    tokenizer = _built(path, lambda: sentencepiece_tokenizer(path, vocabulary, settings))
    bos_token, eos_token = (vocabulary.piece(token_id) for token_id in (vocabulary.bos_id, vocabulary.eos_id))
    return _Read(tokenizer=tokenizer, bos_token=bos_token, eos_token=eos_token)


def _without_tokenizer(folder: Path) -> ModelCorruptError:
    older = sorted(name for name in ("vocab.json", "merges.txt") if (folder / name).exists())
    message = f"{folder} has no tokenizer.json, tekken.json or tokenizer.model, one of which layerline needs"
    found = f"; it has {' and '.join(older)}, another form" if older else ""
    return ModelCorruptError(f"{message}{found}.", remedy=f"Fetch it too, or make one. {CONVERT}")


def _built(path: Path, build: Callable[[], Tokenizer]) -> Tokenizer:
    """What `build` makes of the file at `path`; ModelCorruptError if the library fails at it."""
    try:
        return build()
    except (KeyboardInterrupt, SystemExit, LayerlineError):
        raise
    except BaseException as error:  # the library raises no narrower class, and its panics are not even an Exception
        raise ModelCorruptError(f"{path} is not a tokenizer: {error}.", remedy=REMEDY) from error


def _optional(folder: Path, name: str) -> Fields:
    path = folder / name
    return Fields(read_json(path) if path.exists() else {}, str(path))


def _special_token(settings: Fields, key: str) -> str:
    """A special token's text, which is a string or an object that holds one; empty if there is none."""
    if isinstance(settings.raw(key), dict):
        return settings.section(key).text("content")
    return settings.text(key, "")


def _token_id(tokenizer: Tokenizer, settings: Fields, token: str, otherwise: list[int]) -> int | None:
    if not token:
        return otherwise[0] if otherwise else None
    token_id = tokenizer.token_to_id(token)
    if token_id is None:
        message = f"{settings.where} names the token {token!r}, which is not in the vocabulary."
        raise ModelCorruptError(message, remedy=REMEDY)
    return token_id


def _ids(fields: Fields, key: str) -> list[int]:
    """One id or a list of them; empty if there are none."""
    if key not in fields:
        return []
    ids = fields.list_of(int, key) if isinstance(fields.raw(key), list) else [fields.integer(key)]
    if not all(0 <= token_id < MAX_VOCABULARY for token_id in ids):
        raise fields.wrong(key, f"one or more token ids below {MAX_VOCABULARY}")
    return ids


def _adds_bos(read: _Read, bos_id: int | None) -> bool:
    """Whether the beginning comes before a text where no setting says so."""
    if not read.json:
        return read.adds_bos
    return read.tokenizer.encode("", add_special_tokens=True).ids[:1] == [bos_id]


def _chat_template(folder: Path, settings: Fields) -> str | None:
    """The template in its own file, or the setting: a text, or a list of named ones of which "default" is meant."""
    if (folder / TEMPLATE_NAME).exists():
        return read_text(folder / TEMPLATE_NAME)
    if not isinstance(settings.raw("chat_template"), list):
        return settings.text("chat_template", "") or None
    for template in settings.list_of(dict, "chat_template"):
        fields = Fields(template, f"{settings.where}, chat_template")
        if fields.text("name") == "default":
            return fields.text("template")
    return None
