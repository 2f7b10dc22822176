"""Every family with all that distinguishes it: logits and greedy tokens of `transformers`, however it is computed."""

from __future__ import annotations

import functools
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from layerline.frames import PageRun
from layerline.models.known_families import known_families
from tests.fakes.cases import cases
from tests.fakes.crowd import Crowd
from tests.fakes.family_models import FAMILIES
from tests.fakes.logits import assert_close
from tests.fakes.made_models import write_family, write_family_gguf
from tests.fakes.ranked_stages import ranked_chain
from tests.fakes.slot_book import BORDER_TOKENS
from tests.fakes.tiny_models import (
    BY_KERNELS,
    Rows,
    StageChain,
    StoredModel,
    chunks,
    logits_of,
    reference_greedy,
    reference_logits,
)

SLOW = pytest.mark.slow
TOKENS = [int(token) for token in np.random.default_rng(21).integers(3, 260, 70)]  # past every window
STRANGERS = [int(token) for token in np.random.default_rng(22).integers(3, 260, 30)]
MAX_ROWS = 80
PROMPT = TOKENS[:21]
MOSTLY_BY_KERNELS = pytest.mark.parametrize(
    "computed", [pytest.param({}, marks=SLOW), BY_KERNELS], ids=["torch", "kernels"]
)
PAGES = (PageRun(first=0, count=32),)
CROWD = (50, 50, 33, 50, 17)  # tokens that prompts of a crowd have in common
CROWD_CONTEXT, CROWD_PAGES = 70, 10  # of which one alone takes five
LAST_BORDER = len(TOKENS) // BORDER_TOKENS * BORDER_TOKENS
SCATTERED = tuple(PageRun(first=63 - 2 * page, count=1) for page in range(16))  # a stranger's


class Case:
    """A model in every container that has the family, and what the whole model says of TOKENS."""

    def __init__(self, folder: Path, family: str) -> None:
        model = FAMILIES[family]
        self.most_ranks = model.most_ranks
        self.path = write_family(folder / "folder", model)
        self.stored = [StoredModel.at(self.path)]
        self.reference = self.stored[0].reference()
        self.expected = reference_logits(self.reference, TOKENS)
        self.strangers = reference_logits(self.reference, STRANGERS)
        self.greedy = reference_greedy(self.reference, PROMPT, 6)
        if model.gguf is not None:
            self.stored.append(StoredModel.at(write_family_gguf(folder / "model.gguf", self.path, model)))


@functools.cache
def case_in(folder: Path, family: str) -> Case:
    return Case(folder / family, family)


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("family_models")


FIRST = {model.config["model_type"]: name for name, model in reversed(FAMILIES.items())}
"""The first row of each family; what is less likely to go wrong in its other rows is left to `--slow`."""


@pytest.fixture(params=cases(list(FAMILIES), more=[]))
def case(request: pytest.FixtureRequest, folder: Path) -> Case:
    return case_in(folder, request.param)


@pytest.fixture(params=[pytest.param(name, marks=[] if name in FIRST.values() else SLOW) for name in FAMILIES])
def first_case(request: pytest.FixtureRequest, folder: Path) -> Case:
    return case_in(folder, request.param)


def assert_exact(case: Case, chain: StageChain, sizes: Sequence[int] = (64, 16, 7)) -> None:
    """The prompt in chunks of several sizes beside another one, its end token by token, and what follows it."""
    for size in sizes:
        for index, (start, token_ids) in enumerate(chunks(TOKENS, size)):
            rows = [Rows(token_ids=token_ids, start=start, pages=PAGES)]
            if index < len(STRANGERS) // 5:
                own = STRANGERS[5 * index : 5 * index + 5]
                rows.append(Rows(token_ids=own, start=5 * index, pages=SCATTERED, sequence=2))
            drawn = chain.step(*rows)
            assert_close(logits_of(drawn[0]), case.expected[start + len(token_ids) - 1])
            if len(rows) > 1:
                assert_close(logits_of(drawn[1]), case.strangers[5 * index + 4])
    for start in range(LAST_BORDER, len(TOKENS)):
        (token,) = chain.step(Rows(token_ids=TOKENS[start : start + 1], start=start, pages=PAGES))
        assert_close(logits_of(token), case.expected[start])
    assert chain.greedy(PROMPT, len(case.greedy)) == case.greedy


STAGES = pytest.mark.parametrize("stages", [pytest.param(1, marks=SLOW), 2, pytest.param(3, marks=SLOW)])


@STAGES
def test_stages(case: Case, stages: int) -> None:
    for stored in case.stored:
        assert_exact(case, stored.chain(stages, max_rows=MAX_ROWS, **BY_KERNELS))


@STAGES
def test_stages_by_torch(first_case: Case, stages: int) -> None:
    for stored in first_case.stored:
        assert_exact(first_case, stored.chain(stages, max_rows=MAX_ROWS))


@MOSTLY_BY_KERNELS
def test_ranks(first_case: Case, computed: dict[str, Any]) -> None:
    if first_case.most_ranks < 2:
        pytest.skip("devices cannot share a layer of this family")
    for stored in first_case.stored:
        with ranked_chain(stored, (2, 2), max_rows=MAX_ROWS, **computed) as chain:
            assert_exact(first_case, chain, sizes=(16,))


@MOSTLY_BY_KERNELS
@pytest.mark.usefixtures("first_case")
def test_weights_in_bfloat16(tmp_path: Path, request: pytest.FixtureRequest, computed: dict[str, Any]) -> None:
    """As most checkpoints are; computed in float32."""
    family = request.node.callspec.params["first_case"]
    stored = StoredModel.at(write_family(tmp_path / "folder", FAMILIES[family], dtype="bfloat16"))
    expected: NDArray[np.float32] = reference_logits(stored.reference(), TOKENS)
    (drawn,) = stored.chain(2, **computed).step(Rows(token_ids=TOKENS[:64], pages=PAGES))
    assert_close(logits_of(drawn), expected[63])


@MOSTLY_BY_KERNELS
def test_crowd(first_case: Case, computed: dict[str, Any]) -> None:
    """Prompts that begin alike, in chunks of any size, with too few pages for all of them."""
    model = first_case.stored[0]
    chain = model.chain(2, **{**computed, "page_tokens": 16, "pages": CROWD_PAGES})
    reach_tokens = model.card.spec.reach_tokens
    crowd = Crowd(
        chain,
        random.Random(5),
        pages=CROWD_PAGES,
        context_tokens=CROWD_CONTEXT,
        page_tokens=16,
        reach_tokens=reach_tokens,
        slots=chain.slots,
    )
    prompts = [[*TOKENS[:length], *STRANGERS[number : number + 3]] for number, length in enumerate(CROWD)]
    for number, prompt in enumerate(prompts):
        crowd.ask(number, prompt, max_tokens=0)
    crowd.drain()
    figures = crowd.scheduler.figures()
    assert figures.hit_tokens > 0
    assert reach_tokens or figures.preemptions > 0, "a sequence that slides along takes few pages"
    for number, prompt in enumerate(prompts):
        answer = crowd.answers[number]
        assert len(answer) == CROWD_CONTEXT - len(prompt)
        likely = reference_logits(first_case.reference, [*prompt, *answer])[len(prompt) - 1 : -1].argmax(axis=-1)
        assert answer == likely.tolist()


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3_moe"])
def test_a_file_may_have_several_matrices_in_one(folder: Path, tmp_path: Path, family: str) -> None:
    case, model = case_in(folder, family), FAMILIES[family]
    stored = StoredModel.at(write_family_gguf(tmp_path / "model.gguf", case.path, model, in_one=True))
    assert any("attn_qkv" in entry.stored_names for entry in stored.card.tensors)
    (drawn,) = stored.chain(1, **BY_KERNELS).step(Rows(token_ids=TOKENS[:64], pages=PAGES))
    assert_close(logits_of(drawn), case.expected[63])


def test_both_containers_have_one_spec(case: Case) -> None:
    """But for the name, for how what is made of latents lies in a file, and for the order of heads of delta nets."""
    specs = {repr(replace(stored.card.spec, family="")) for stored in case.stored}
    for own in ("apart", "tiled"):
        specs = {spec.replace(f"{own}=True", f"{own}=False") for spec in specs}
    assert len(specs) == 1, specs


def test_every_family_is_compared() -> None:
    compared = {model.config["model_type"] for model in FAMILIES.values()}
    assert {family.model_type for family in known_families()} == compared
