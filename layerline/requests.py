"""What a client asks: a request for answers, and all that it may say of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from layerline.chat import Message, Tool, ToolRules
from layerline.checks import require, require_one_of
from layerline.option import Flag, Listed, Text, Texts, WholeNumber, option, read_options
from layerline.sampling import SamplingKeywords, SamplingOptions

STRUCTURES = ("json_object", "json_schema", "regex", "grammar")
MAX_BIAS, MAX_BIASES = 100, 1024
MAX_ALTERNATIVES = 20  # tokens that are told beside the one that was drawn
MAX_STOP_STRINGS = 16
MAX_ANSWERS = 16
MAX_TOKENS = 1 << 24
MAX_TOKEN_ID = (1 << 32) - 1
MAX_SEED = (1 << 64) - 1


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenBias:
    """What is added to the score of a token before it is drawn, from -100 to 100; these forbid it, or all others."""

    token_id: int
    bias: float

    def __post_init__(self) -> None:
        require(0 <= self.token_id <= MAX_TOKEN_ID, "logit_bias has an id that no token has")
        require(-MAX_BIAS <= self.bias <= MAX_BIAS, f"logit_bias must be from -{MAX_BIAS} to {MAX_BIAS}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Structure:
    """What an answer's text must be: any JSON object, or what a schema, a regular expression or a grammar allows.

    `text` is the JSON schema, the expression (Rust's syntax) or the grammar (llguidance's Lark); empty for an object.
    """

    kind: str
    text: str = ""

    def __post_init__(self) -> None:
        require_one_of(self.kind, STRUCTURES, "kind")
        require(bool(self.text) == (self.kind != "json_object"), f"the structure {self.kind} and its text do not fit")


@dataclass(frozen=True, kw_only=True, slots=True)
class GenerateRequest:
    """One request, by exactly one of `messages`, `prompt` and `token_ids`, which are not empty lists.

    `model` is the one that must be loaded, empty for whichever is; `max_tokens` 0 is as many as fit. `n` answers are
    given, each from its own draws: answer i draws as a request of its own with seed + i would. `tools` and
    `template_variables`, a JSON object as text, are for the template of a chat.
    """

    model: str = option("", Text(), "The model that must be loaded. [default: whichever is]", flag=None)
    messages: tuple[Message, ...] | None = None
    prompt: str | None = None
    token_ids: tuple[int, ...] | None = option(
        None,
        Listed(WholeNumber(0, MAX_TOKEN_ID), "token ids", may_be_none=True),
        "Token ids to continue, in place of text.",
        flag=None,
    )
    max_tokens: int = option(
        0,
        WholeNumber(0, MAX_TOKENS),
        "End the answer after N tokens. [default: 0, as many as the context holds]",
        metavar="N",
    )
    sampling: SamplingOptions = field(default_factory=SamplingOptions)
    seed: int | None = option(
        None,
        WholeNumber(0, MAX_SEED, may_be_none=True),
        "Draw the same tokens whenever the seed is the same. [default: a new one, which is told]",
        metavar="N",
    )
    stop: tuple[str, ...] = option(
        (), Texts(MAX_STOP_STRINGS), "End the answer before this text; may be repeated.", metavar="S"
    )
    n: int = option(1, WholeNumber(1, MAX_ANSWERS), "How many answers are wanted. [default: 1]", flag=None)

    min_tokens: int = option(
        0, WholeNumber(0, MAX_TOKENS), "Do not end the answer before N tokens. [default: 0]", metavar="N", flag=None
    )
    ignore_eos: bool = option(False, Flag(), "Go on after an end-of-sequence token.", flag=None)
    log_probabilities: int | None = option(
        None,
        WholeNumber(0, MAX_ALTERNATIVES, may_be_none=True),
        "Tell how likely each token was, and the N likeliest in its place. [default: do not]",
        metavar="N",
        flag="--logprobs",
    )
    prompt_log_probabilities: int | None = option(
        None, WholeNumber(0, MAX_ALTERNATIVES, may_be_none=True), "The same for the prompt's tokens.", flag=None
    )
    structure: Structure | None = None
    tools: ToolRules | None = None
    template_variables: str = ""
    logit_bias: tuple[TokenBias, ...] = ()

    def __post_init__(self) -> None:
        read_options(self)
        given = [part for part in (self.messages, self.prompt, self.token_ids) if part is not None]
        require(len(given) == 1, "give exactly one of messages, prompt and token_ids")
        require(given[0] != (), "messages and token_ids must not be empty")
        require(not self.max_tokens or self.min_tokens <= self.max_tokens, "min_tokens must be at most max_tokens")
        require(len(self.logit_bias) <= MAX_BIASES, f"logit_bias must be of at most {MAX_BIASES} tokens")
        of_chat = self.messages is not None or not (self.tools or self.template_variables)
        require(of_chat, "tools and template_variables are for messages")


class GenerateOptions(SamplingKeywords, total=False):
    """Options of `chat` and `generate`; what is left out is off.

    `model` is the one that must be loaded (default: whatever is); `max_tokens` 0 means as many as fit; `seed` None lets
    the coordinator choose one, which the answer tells; `stop` is one string or several; `n` is how many answers are
    wanted (1 to 16), of which answer i draws with seed + i. `structure` may be a JSON schema, and `tool_choice` is
    "auto", "none", "required" or the name of the tool that is to be called. The rest is as in `GenerateRequest`, the
    others are those of `SamplingOptions`.
    """

    model: str
    max_tokens: int
    seed: int | None
    stop: str | Sequence[str]
    n: int
    min_tokens: int
    ignore_eos: bool
    log_probabilities: int | None
    prompt_log_probabilities: int | None
    structure: Structure | Mapping[str, Any] | None
    tools: ToolRules | Sequence[Tool | Mapping[str, Any]] | None
    tool_choice: str
    parallel_tool_calls: bool
    template_variables: str | Mapping[str, Any]
    logit_bias: Mapping[int, float] | Sequence[TokenBias]
