"""Prompts to token ids, in a child that outlives whatever a tokenizer or a prompt does to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import psutil
import pytest
from tokenizers import Tokenizer, decoders, models

from coordinator.text.model_text import ModelText, model_text
from layerline.chat import Message
from layerline.errors import ModelCorruptError, ModelUnsupportedError, PromptTooLongError, RequestError
from tests.unit.text.tokenizer_cards import BOS, byte_fallback_json, byte_level_json, card, changed, text_of

pytestmark = pytest.mark.system

CONTEXT = 64
CATASTROPHE = {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": False}
EXPLOSION = {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 1_000_000}


@pytest.fixture
async def text() -> AsyncIterator[ModelText]:
    async with text_of(byte_level_json(), add_bos=True) as text:
        yield text


def children() -> set[int]:
    return {child.pid for child in psutil.Process().children()}


async def test_the_ids_are_those_of_the_library(text: ModelText) -> None:
    original = Tokenizer.from_str(byte_level_json())
    for prompt in ("hello w\u00f6rld \U0001f600", "<s>hell</s>", " ", "\x00"):
        ids = await text.prompt_ids(prompt, context_tokens=CONTEXT)
        assert list(ids)[not prompt.startswith(BOS) :] == original.encode(prompt, add_special_tokens=False).ids


async def test_bos_is_there_once_whoever_wrote_it(text: ModelText) -> None:
    (bos,) = await text.prompt_ids("", context_tokens=CONTEXT)
    hello = await text.prompt_ids("hello", context_tokens=CONTEXT)
    assert hello.count(bos) == 1
    assert await text.prompt_ids("<s>hello", context_tokens=CONTEXT) == hello


async def test_a_model_without_bos_gets_none() -> None:
    async with text_of(byte_level_json()) as text:
        assert await text.prompt_ids("", context_tokens=CONTEXT) == ()


@pytest.mark.parametrize(
    ("template", "bos_times"),
    [("{{ messages[0].content }}", 0), ("{{ bos_token }}{{ messages[0].content }}", 1)],
)
async def test_a_chat_has_the_bos_of_its_template_and_no_other(template: str, bos_times: int) -> None:
    async with text_of(byte_level_json(), add_bos=True, chat_template=template) as text:
        (bos,) = await text.prompt_ids("", context_tokens=CONTEXT)
        ids = await text.chat_ids([Message(role="user", content="hello")], context_tokens=CONTEXT)
        assert ids.count(bos) == bos_times


async def test_a_lone_surrogate_is_replaced(text: ModelText) -> None:
    ids = await text.prompt_ids("a\ud800b", context_tokens=CONTEXT)
    assert ids == await text.prompt_ids("a?b", context_tokens=CONTEXT)


async def test_ids_that_the_model_lacks_are_named(text: ModelText) -> None:
    text.check_ids((0, 261), context_tokens=CONTEXT)
    with pytest.raises(RequestError, match=r"Token id -1 at position 2 does not exist: .* 0 to 261"):
        text.check_ids((0, 5, -1), context_tokens=CONTEXT)
    with pytest.raises(PromptTooLongError, match=r"has 65 tokens; the context holds 64"):
        text.check_ids((0,) * 65, context_tokens=CONTEXT)


async def test_text_whose_ids_the_model_lacks_is_refused() -> None:
    async with model_text(card(byte_level_json()), vocabulary=4) as text:
        await text.read()
        with pytest.raises(RequestError, match="0 to 3"):
            await text.prompt_ids("hello", context_tokens=CONTEXT)


async def test_a_prompt_is_refused_by_its_bytes_before_any_work(text: ModelText) -> None:
    assert text.tokens.longest_bytes == len("hello") - 1
    before = children()
    with pytest.raises(PromptTooLongError, match=r"9\.5 MiB; the context holds 64 tokens.*at most 4 bytes each"):
        await text.prompt_ids("a" * 10_000_000, context_tokens=CONTEXT)
    assert children() == before


async def test_a_prompt_is_refused_by_its_tokens(text: ModelText) -> None:
    with pytest.raises(PromptTooLongError, match=r"has 65 tokens; the context holds 64.*longer context"):
        await text.prompt_ids("a" * 65, context_tokens=CONTEXT)


async def test_a_long_prompt_has_a_child_of_its_own_which_ends(text: ModelText) -> None:
    before = children()
    assert len(await text.prompt_ids("a" * 200_000, context_tokens=300_000)) == 200_001
    assert children() == before


@pytest.mark.parametrize("json", ["", "{}", "[1", '{"model": {"type": "BPE"}}'])
async def test_json_that_is_no_tokenizer(json: str) -> None:
    async with model_text(card(json), vocabulary=10) as text:
        with pytest.raises(ModelCorruptError, match="cannot be read"):
            await text.read()


async def test_a_tokenizer_at_which_the_library_panics_is_corrupt() -> None:
    model = Tokenizer(models.BPE(vocab={"a": 0, "b": 1, "ab": 2}, merges=[("a", "b")])).to_str()
    json = model.replace('"continuing_subword_prefix":null', '"continuing_subword_prefix":"' + "x" * 200 + '"')
    assert json != model
    async with model_text(card(json), vocabulary=3) as text:
        with pytest.raises(ModelCorruptError, match=r"cannot be read: .*out of range"):
            await text.read()


async def test_a_decoder_whose_text_is_not_that_of_its_tokens_is_refused_by_name() -> None:
    tokenizer = Tokenizer(models.BPE(vocab={"a": 0}, merges=[]))
    tokenizer.decoder = decoders.CTC()
    async with model_text(card(tokenizer.to_str()), vocabulary=1) as text:
        with pytest.raises(ModelUnsupportedError, match="a decoder that layerline does not know: CTC"):
            await text.read()


@pytest.mark.parametrize(
    ("part", "prompt"),
    [
        ({"pre_tokenizer": CATASTROPHE}, "a" * 30 + "!"),
        ({"normalizer": EXPLOSION}, "a" * 2_000),
    ],
    ids=["a pattern that backtracks", "a normaliser that explodes"],
)
async def test_what_a_hostile_tokenizer_does_to_a_prompt_is_that_prompts_error(
    part: dict[str, object], prompt: str
) -> None:
    async with text_of(changed(byte_level_json(), **part)) as text:
        with pytest.raises(RequestError, match=r"The prompt of .* cannot be tokenised"):
            await text.prompt_ids(prompt, context_tokens=1_000)
        assert len(await text.prompt_ids("b", context_tokens=1_000)) == 1


async def test_a_child_that_dies_is_one_prompts_error_and_is_replaced(text: ModelText) -> None:
    (pid,) = children()
    psutil.Process(pid).kill()
    with pytest.raises(RequestError, match="its process ended"):
        await text.prompt_ids("hello", context_tokens=CONTEXT)
    assert await text.prompt_ids("hello", context_tokens=CONTEXT)


async def test_a_prompt_whose_asker_leaves_disturbs_nobody(text: ModelText) -> None:
    before = children()
    leaving = asyncio.create_task(text.prompt_ids("hell", context_tokens=CONTEXT))
    await asyncio.sleep(0)
    leaving.cancel()
    ids = await asyncio.gather(*(text.prompt_ids("a" * n, context_tokens=CONTEXT) for n in range(20)))
    assert [len(found) for found in ids] == [1 + n for n in range(20)]
    assert children() == before


async def test_sentencepieces_bytes_bound_a_prompt_too() -> None:
    async with text_of(byte_fallback_json()) as text:
        assert text.tokens.longest_bytes == 3 * len("<unk>")
