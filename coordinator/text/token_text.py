"""The text of every token as bytes: what the coordinator needs of a tokenizer to show an answer.

A text child makes the table once, from the tokenizer's decoder; the coordinator then joins bytes, which takes a
microsecond a token whatever the model file has put into its decoder. Known are the decoders whose text is that of the
tokens one after the other, but for spaces that are dropped at the beginning: byte-level ones, SentencePiece's steps,
Metaspace, and none at all. Source: `decode_chain` of each decoder in the tokenizers library.
"""

from __future__ import annotations

import bisect
import functools
import json
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from layerline.checks import require
from layerline.models.byte_letters import bytes_of_letters

if TYPE_CHECKING:
    from tokenizers import Tokenizer  # loaded in the child alone

MAX_TOKEN_BYTES = 64 << 10
MAX_TABLE_BYTES = 64 << 20
MAX_CONTROL, MAX_CONTROL_LENGTH = 16384, 256
COUNT = "I"  # array's four bytes without a sign
BYTE_TOKENS = {f"<0x{byte:02X}>": bytes([byte]) for byte in range(256)}

Step = Callable[[str | bytes], str | bytes]


class UnknownDecoderError(Exception):
    """The tokenizer's text is not that of its tokens one after the other."""


class OversizeTokenError(Exception):
    """A token, or all of them, have more text than may be."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenText:
    """Token `id` has the bytes `joined[ends[id - 1] : ends[id]]`; a control token has none.

    `control` has the names of those. Of spaces, `drops_spaces` are not shown at the beginning of a text.
    `longest_bytes` is the most that one token can have of a prompt, 0 if there is no such bound.
    """

    joined: bytes
    ends: array[int]
    drops_spaces: int
    longest_bytes: int
    control: Mapping[int, str] = field(default_factory=dict)
    _overrunning: dict[bytes, tuple[int, ...]] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        require(len(self.joined) == (self.ends[-1] if self.ends else 0), "a table of tokens whose ends are not its own")

    def of(self, token_id: int) -> bytes:
        """The bytes of a token; none for an id without one."""
        if not 0 <= token_id < len(self.ends):
            return b""
        return self.joined[self.ends[token_id - 1] if token_id else 0 : self.ends[token_id]]

    def text_of(self, ids: Iterable[int]) -> str:
        """The text of tokens in a row; bytes that are no character become U+FFFD."""
        return b"".join(map(self.of, ids)).decode(errors="replace")

    def shown(self, token_id: int) -> bytes:
        """The bytes of a token, or the name of one that has none."""
        return self.of(token_id) or self.control.get(token_id, "").encode()

    def markers(self, names: Sequence[str]) -> dict[int, bytes]:
        """The ids of control tokens with one of these names, and the bytes that they stand for."""
        return {id_: name.encode() for id_, name in self.control.items() if name in names}

    def overrunning(self, text: bytes) -> tuple[int, ...]:
        """The tokens that begin with `text` and have more behind it; looked up once for each text."""
        found = self._overrunning.get(text)
        if found is None:
            found = tuple(self._begun_by(text))
            self._overrunning[text] = found
        return found

    def _begun_by(self, text: bytes) -> Iterator[int]:
        place = self.joined.find(text)
        while place >= 0:
            id_ = bisect.bisect_right(self.ends, place)
            start = self.ends[id_ - 1] if id_ else 0
            if start == place and self.ends[id_] > place + len(text):
                yield id_
            place = self.joined.find(text, place + 1)

    def id_of(self, text: bytes, markers: Mapping[int, bytes]) -> int | None:
        """The token that is `text` and nothing else, be it among those control tokens; None if there is none."""
        if found := next((id_ for id_, marker in markers.items() if marker == text), None):
            return found
        place = self.joined.find(text)
        while place >= 0:
            id_ = bisect.bisect_right(self.ends, place)
            if self.of(id_) == text:
                return id_
            place = self.joined.find(text, place + 1)
        return None

    @classmethod
    def of_tokenizer(cls, tokenizer: Tokenizer, vocabulary: int) -> TokenText:
        """The texts of the ids below `vocabulary`; UnknownDecoderError or OversizeTokenError if there is no table."""
        decoder = json.loads(tokenizer.decoder.__getstate__()) if tokenizer.decoder else None
        steps, drops_spaces = steps_of(decoder)
        control = {id_ for id_, token in tokenizer.get_added_tokens_decoder().items() if token.special}
        texts = [b""] * vocabulary
        longest = 0
        for token, id_ in tokenizer.get_vocab(with_added_tokens=True).items():
            text = _text(token, steps)
            longest = max(longest, len(token.encode()) if id_ in control else len(text))
            if id_ < vocabulary and id_ not in control:
                texts[id_] = text
        if longest > MAX_TOKEN_BYTES or sum(map(len, texts)) > MAX_TABLE_BYTES:
            raise OversizeTokenError(f"a token of {longest} bytes, or all of them over {MAX_TABLE_BYTES >> 20} MiB")
        if not _any_byte(tokenizer, decoder):
            longest = 0
        elif tokenizer.normalizer is not None:
            longest *= 3  # the most that composing characters, as normalisers do, shortens a text
        names = {id_: tokenizer.id_to_token(id_) or "" for id_ in sorted(control)[:MAX_CONTROL] if id_ < vocabulary}
        return cls(
            joined=b"".join(texts),
            ends=_ends(texts),
            drops_spaces=drops_spaces,
            longest_bytes=longest,
            control={id_: name[:MAX_CONTROL_LENGTH] for id_, name in names.items()},
        )

    def message(self) -> dict[str, Any]:
        """The table as a text child sends it."""
        return {
            "joined": self.joined,
            "ends": self.ends.tobytes(),
            "drops_spaces": self.drops_spaces,
            "longest_bytes": self.longest_bytes,
            "control": [[id_, name] for id_, name in self.control.items()],
        }

    @classmethod
    def from_message(cls, message: dict[str, Any]) -> TokenText:
        """The table in a message; ValueError, TypeError or KeyError if it holds none."""
        return cls(
            joined=bytes(message["joined"]),
            ends=array(COUNT, bytes(message["ends"])),
            drops_spaces=int(message["drops_spaces"]),
            longest_bytes=int(message["longest_bytes"]),
            control={int(id_): str(name) for id_, name in message["control"]},
        )


def steps_of(decoder: dict[str, Any] | None) -> tuple[list[Step], int]:
    """What a decoder, in the library's JSON, does to each token, and how many spaces it drops at the beginning."""
    if decoder is None:
        return [_after_a_space], 1
    steps: list[Step] = []
    drops_spaces, joined = 0, False
    for part in decoder["decoders"] if decoder["type"] == "Sequence" else [decoder]:
        kind = part["type"]
        if kind == "Strip" and joined and part["content"] == " " and not part["stop"]:
            drops_spaces += part["start"]
        elif kind == "Fuse":
            joined = True
        elif joined:
            raise UnknownDecoderError(f"{kind} after the tokens are joined")
        elif kind == "ByteLevel":
            steps.append(_byte_level)
            joined = True
        elif kind == "ByteFallback":
            steps.append(_byte_fallback)
        elif kind == "Replace" and "String" in part["pattern"]:
            steps.append(functools.partial(_replaced, old=part["pattern"]["String"], new=part["content"]))
        elif kind == "Metaspace":
            steps.append(functools.partial(_replaced, old=part["replacement"], new=" "))
            drops_spaces += part.get("prepend_scheme", "always") != "never"
        else:
            raise UnknownDecoderError(kind)
    return steps, drops_spaces


def _text(token: str, steps: Iterable[Step]) -> bytes:
    text: str | bytes = token
    for step in steps:
        text = step(text)
        if len(text) > MAX_TOKEN_BYTES:
            raise OversizeTokenError(f"a token of more than {MAX_TOKEN_BYTES} bytes")
    return text if isinstance(text, bytes) else text.encode()


def _ends(texts: Iterable[bytes]) -> array[int]:
    ends, end = array(COUNT), 0
    for text in texts:
        end += len(text)
        ends.append(end)
    return ends


def _any_byte(tokenizer: Tokenizer, decoder: dict[str, Any] | None) -> bool:
    """Whether every byte of a text becomes part of some token: otherwise a token may stand for any length."""
    return bool(getattr(tokenizer.model, "byte_fallback", False)) or "ByteLevel" in json.dumps(decoder)


def _after_a_space(text: str | bytes) -> str | bytes:
    return f" {text}" if isinstance(text, str) else text


def _replaced(text: str | bytes, *, old: str, new: str) -> str | bytes:
    if isinstance(text, bytes) or not old:
        return text
    if text.count(old) * len(new.encode()) > MAX_TOKEN_BYTES:
        raise OversizeTokenError(f"a token of more than {MAX_TOKEN_BYTES} bytes")
    return text.replace(old, new)


def _byte_fallback(text: str | bytes) -> str | bytes:
    return BYTE_TOKENS.get(text, text) if isinstance(text, str) else text


def _byte_level(text: str | bytes) -> str | bytes:
    if isinstance(text, bytes):
        return text
    try:
        return bytes(map(bytes_of_letters().__getitem__, text))
    except KeyError:
        return text.encode()
