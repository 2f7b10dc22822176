"""The grammars of one model's requests, by llguidance: made off the event loop, within limits, and kept for a while.

What a grammar leaves no choice about is given as tokens at once. They are the longest that fit, and the last of them is
left to be drawn, as a longer token may begin there; a text's own tokens may be others, but no text is another one.
"""

from __future__ import annotations

import asyncio
import functools
import json
import threading
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from llguidance import LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper

from coordinator.text.structure.closed_objects import closed
from coordinator.text.structure.json_options import JSON_OPTIONS
from coordinator.text.structure.model_tokens import ModelTokens
from coordinator.text.token_text import TokenText
from layerline.errors import RequestError
from layerline.mask_forms import smallest_mask
from layerline.requests import Structure
from layerline.token_mask import TokenMask

MAX_TEXT_BYTES = 256 << 10
MAX_NESTING = 64
MAX_KEPT = 64  # grammars
LIMITS = LLParserLimits(
    max_items_in_row=2000,
    initial_lexer_fuel=2_000_000,
    step_lexer_fuel=400_000,
    step_max_items=100_000,
    max_lexer_states=250_000,
    max_grammar_size=1_000_000,
)
MOST_COMPILING = 2  # at a time; what takes long is not to hold up the others


Try = Callable[[Structure], Awaitable[str]]
"""Says why a structure is not to be compiled in this process; "" if it may be."""


async def unbounded(_: Structure) -> str:
    """Everything may be."""
    return ""


class GrammarConstraint:
    """One answer by a grammar; `matcher` is its own."""

    def __init__(self, matcher: LLMatcher, tokenizer: LLTokenizer, vocabulary: int) -> None:
        self._matcher = matcher
        self._tokenizer = tokenizer
        self._vocabulary = vocabulary

    @property
    def is_over(self) -> bool:
        """Whether the answer is whole and nothing can follow."""
        return self._matcher.is_stopped() and not self._matcher.is_error()

    @property
    def failure(self) -> str:
        """Why it cannot be followed any further."""
        return self._matcher.get_error() if self._matcher.is_error() else ""

    def mask(self) -> TokenMask | None:
        """Which tokens may come next."""
        return mask_of(self._matcher.compute_bitmask(), self._vocabulary)

    def take(self, token_id: int) -> tuple[int, ...]:
        """A token was drawn; the tokens that can only come now."""
        self._matcher.consume_token(token_id)
        if self._matcher.is_error() or self._matcher.is_stopped():
            return ()
        forced = self._matcher.compute_ff_bytes()
        tokens = self._tokenizer.greedy_tokenize(_whole_characters(forced))[:-1] if len(forced) > 1 else []
        if not tokens or self._matcher.validate_tokens(tokens) != len(tokens):
            return ()
        self._matcher.consume_tokens(tokens)
        return tuple(tokens)

    def fork(self) -> GrammarConstraint:
        """One for another answer, from the same place."""
        return GrammarConstraint(self._matcher.deep_copy(), self._tokenizer, self._vocabulary)


class Grammars:
    """Makes constraints for the requests to one model; `stop_ids` are the tokens that end an answer."""

    def __init__(self, tokens: TokenText, stop_ids: Sequence[int], try_first: Try = unbounded) -> None:
        self._tokens = tokens
        self._stop_ids = sorted(stop_ids)
        self._tokenizer: LLTokenizer | None = None
        self._kept: OrderedDict[Structure, LLMatcher] = OrderedDict()
        self._try = try_first
        self._making_tokenizer = threading.Lock()
        self._compiling = asyncio.Semaphore(MOST_COMPILING)

    async def constraint(self, structure: Structure) -> GrammarConstraint:
        """The constraint for an answer; RequestError for a structure that cannot be held to, with the reason."""
        _check_size(structure)
        matcher = self._kept.get(structure)
        if matcher is None:
            async with self._compiling:
                matcher = await self._made(structure)
        self._kept[structure] = matcher
        self._kept.move_to_end(structure)
        if len(self._kept) > MAX_KEPT:
            self._kept.popitem(last=False)
        assert self._tokenizer is not None
        return GrammarConstraint(matcher.deep_copy(), self._tokenizer, len(self._tokens.ends))

    async def _made(self, structure: Structure) -> LLMatcher:
        """Compiled here, in a thread, once another process has shown that it takes neither long nor much memory."""
        if why := await self._try(structure):
            raise _refused(structure, why)
        return await asyncio.to_thread(self._make, structure)

    def _make(self, structure: Structure) -> LLMatcher:
        """In a thread: llguidance lets go of the interpreter meanwhile."""
        with self._making_tokenizer:
            if self._tokenizer is None:
                self._tokenizer = self._made_tokenizer()
        grammar = _grammar(structure)
        is_error, told = LLMatcher.validate_grammar_with_warnings(grammar, self._tokenizer, limits=LIMITS)
        if is_error or told:  # a warning says of a keyword that it would not be held to
            raise _refused(structure, "; ".join(told))
        matcher = LLMatcher(self._tokenizer, grammar, log_level=0, limits=LIMITS)
        matcher.compute_bitmask()
        if matcher.is_error():
            raise _refused(structure, matcher.get_error())
        return matcher

    def _made_tokenizer(self) -> LLTokenizer:
        """The model's tokens, and the longest that fit for any text."""
        vocabulary, eos_id = len(self._tokens.ends), self._stop_ids[0] if self._stop_ids else 0
        told = ModelTokens(self._tokens, eos_id)
        told.cut = LLTokenizer(TokenizerWrapper(told), n_vocab=vocabulary, eos_token=self._stop_ids).greedy_tokenize
        return LLTokenizer(TokenizerWrapper(told), n_vocab=vocabulary, eos_token=self._stop_ids)


@functools.lru_cache(maxsize=512)
def mask_of(bitmap: bytes, vocabulary: int) -> TokenMask:
    """The mask of a bitmap; the same ones come again and again, as inside every string of JSON."""
    return smallest_mask(bitmap, vocabulary)


def tried(structure: Structure) -> None:
    """Compiles it with bytes for tokens, which takes about as long; for a process that can be ended meanwhile."""
    LLMatcher(LLTokenizer("byte"), _grammar(structure), log_level=0, limits=LIMITS).compute_bitmask()


def _grammar(structure: Structure) -> str:
    if structure.kind == "regex":
        return LLMatcher.grammar_from_regex(structure.text)
    if structure.kind == "grammar":
        return LLMatcher.grammar_from_lark(structure.text)
    text = schema_text(structure)
    try:
        return LLMatcher.grammar_from_json_schema(text, overrides=JSON_OPTIONS)
    except ValueError as error:
        raise _refused(structure, str(error)) from None


def schema_text(structure: Structure) -> str:
    """The JSON schema that a structure of JSON is held to."""
    return json.dumps(closed(json.loads(structure.text))) if structure.kind == "json_schema" else '{"type": "object"}'


def _check_size(structure: Structure) -> None:
    if len(structure.text.encode()) > MAX_TEXT_BYTES:
        raise _refused(structure, f"it has over {MAX_TEXT_BYTES >> 10} KiB")
    if structure.kind == "json_schema":
        try:
            value = json.loads(structure.text)
        except (ValueError, RecursionError) as error:
            raise _refused(structure, str(error)) from None
        if not isinstance(value, dict | bool):
            raise _refused(structure, "it is no object")
        if _nesting(value) > MAX_NESTING:
            raise _refused(structure, f"it is nested over {MAX_NESTING} deep")


def _nesting(value: Any) -> int:
    """How deep lists and objects are in each other."""
    depth, layer = 0, [value]
    while layer:
        layer = [
            inner
            for outer in layer
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
        depth += 1
    return depth


def _refused(structure: Structure, why: str) -> RequestError:
    what = {"json_schema": "JSON schema", "json_object": "JSON object", "regex": "regular expression"}
    name = what.get(structure.kind, structure.kind)
    return RequestError(f"Answers cannot be held to this {name}: {_first(why)}.")


def _first(why: str) -> str:
    """What llguidance says without its state, of which nobody can make anything."""
    return why.partition("<state>")[0].strip().rstrip(".")[:300]


def _whole_characters(data: bytes) -> str:
    """The text of bytes without a character that is not whole."""
    return data.decode(errors="ignore")
