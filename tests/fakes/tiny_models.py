"""Tiny models loaded as stages, frames to drive them, and the same files in `transformers` as the reference."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from layerline.frames import Frame, PageRun, Sampling, Span, StateRun, TensorBytes
from layerline.models.card import ModelCard
from layerline.models.index import index_model
from layerline.models.slot_sizes import slots_of
from layerline.plan import StageSpec
from layerline.step_result import SampledToken, StepResult
from node.load_stage import load_stage
from node.stage import Stage
from node.worker.stage_compute import RankCompute
from tests.fakes.model_files import TinyModel, write_folder
from tests.fakes.slot_book import SlotBook

if TYPE_CHECKING:
    from transformers import PreTrainedModel  # which takes seconds, and only whoever compares needs it

LOGITS = Sampling(return_logits=True)
PAGE_TOKENS = 4
BY_KERNELS: dict[str, Any] = {
    "precision": "full",
    "weights": "stored",
    "kv_dtype": "float32",
    "page_tokens": 16,
}  # changes of a spec


@dataclass(frozen=True, kw_only=True)
class StoredModel:
    """A model's files and their card."""

    path: Path
    card: ModelCard

    @classmethod
    def at(cls, path: Path) -> StoredModel:
        """Indexes the file or folder."""
        return cls(path=path, card=index_model(path, "tiny", lambda done_bytes, total_bytes: None))

    @classmethod
    def written(cls, folder: Path, model: TinyModel, config: Mapping[str, object] | None = None) -> StoredModel:
        """Writes `model` as a safetensors folder."""
        return cls.at(write_folder(folder, model, config=config))

    def reference(self, dtype: torch.dtype = torch.float32) -> PreTrainedModel:
        """The whole model in `transformers`; only of a folder."""
        from transformers import AutoModelForCausalLM  # noqa: PLC0415

        reference: PreTrainedModel = AutoModelForCausalLM.from_pretrained(
            self.path, dtype=dtype, attn_implementation="eager"
        )
        reference.train(mode=False)
        return reference

    def spec(self, first_layer: int = 0, last_layer: int | None = None, **changes: Any) -> StageSpec:
        """The spec of those layers on one CPU."""
        fields: dict[str, Any] = {
            "model": "tiny",
            "digest": self.card.digest,
            "first_layer": first_layer,
            "last_layer": self.card.spec.layers - 1 if last_layer is None else last_layer,
            "dtype": "float32",
            "devices": ("cpu",),
            "pages": 64,
            "page_tokens": PAGE_TOKENS,
            "max_rows": 64,
        }
        return StageSpec(**{**fields, **changes})

    def stage(self, first_layer: int = 0, last_layer: int | None = None, **changes: Any) -> Stage:
        """Those layers, loaded."""
        spec = self.spec(first_layer, last_layer, **changes)
        return load_stage(self.card, self.path, spec, lambda done_bytes, total_bytes: None)

    def chain(self, stages: int, **changes: Any) -> StageChain:
        """The whole model in that many stages."""
        edges = [self.card.spec.layers * index // stages for index in range(stages + 1)]
        loaded = [self.stage(first, end - 1, **changes) for first, end in pairwise(edges)]
        return StageChain(loaded, self.slots(self.spec(**changes)))

    def slots(self, spec: StageSpec) -> int:
        """How many slots of state its stages have."""
        return slots_of(self.card.spec, spec.held_kv_dtype, spec.pages * spec.page_tokens)


class StageChain:
    """Stages that hand each other frames, as the ring does."""

    def __init__(self, stages: Sequence[RankCompute], slots: int = 0) -> None:
        self.stages = stages
        self.slots = slots
        self._book = SlotBook(slots)
        self._step = 0

    def step(self, *rows: Rows) -> list[SampledToken]:
        """One step of these rows through all stages; what was drawn, in order."""
        result = self.result(*rows)
        assert result.failed == ()
        return list(result.sampled)

    def result(self, *rows: Rows) -> StepResult:
        """One step of these rows through all stages."""
        self._step += 1
        states = self._book.step(*((each.sequence, each.start, len(each.token_ids)) for each in rows))
        product: Frame | StepResult = frame_of(*rows, step=self._step, states=states)
        for stage in self.stages:
            assert isinstance(product, Frame)
            product = stage.run(product)
        assert isinstance(product, StepResult)
        return product

    def greedy(self, prompt: Sequence[int], count: int) -> list[int]:
        """`count` tokens after `prompt`, the likeliest each time."""
        tokens: list[int] = []
        rows, pages = list(prompt), pages_in_order(len(prompt) + count)
        for _ in range(count):
            start = len(prompt) + len(tokens) - len(rows)
            drawn = self.step(Rows(token_ids=rows, start=start, pages=pages, sampling=Sampling()))
            tokens.append(drawn[0].token_id)
            rows = tokens[-1:]
        return tokens


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Neighbouring tokens of one sequence for a step."""

    token_ids: Sequence[int]
    start: int = 0
    pages: tuple[PageRun, ...] = (PageRun(first=0, count=64),)
    skipped_pages: int = 0
    sequence: int = 1
    draws: int = 1
    sampling: Sampling | None = LOGITS
    next_ids: Sequence[int] = ()  # of known tokens to be scored; none is drawn then
    likeliest: int = 0  # tokens to be told beside each of them
    summed: int = 0  # of the last rows


def frame_of(*rows: Rows, step: int = 1, states: Sequence[tuple[StateRun, ...]] = ()) -> Frame:
    """The frame into stage 0; `states` are the runs of each of `rows`, if the model is recurrent."""
    spans = tuple(
        Span(
            sequence=r.sequence,
            start=r.start,
            count=len(r.token_ids),
            pages=r.pages,
            skipped_pages=r.skipped_pages,
            draws=r.draws if r.sampling and not r.next_ids else 0,
            sampling=None if r.next_ids else r.sampling,
            next_ids=tuple(r.next_ids),
            likeliest=r.likeliest,
            summed=r.summed,
            states=own,
        )
        for r, own in zip(rows, states or [()] * len(rows), strict=True)
    )
    token_ids = np.array([token for r in rows for token in r.token_ids], np.int32)
    tensor = TensorBytes(dtype="int32", shape=token_ids.shape, data=token_ids.tobytes())
    return Frame(epoch=1, step=step, spans=spans, tensor=tensor)


def pages_in_order(positions: int) -> tuple[PageRun, ...]:
    """The first pages of the pool, enough for that many positions."""
    return (PageRun(first=0, count=-(-positions // PAGE_TOKENS)),)


def pages_of(page_ids: Sequence[int]) -> tuple[PageRun, ...]:
    """One run for each page, also where they are neighbours."""
    return tuple(PageRun(first=page, count=1) for page in page_ids)


def chunks(token_ids: Sequence[int], size: int) -> Iterator[tuple[int, Sequence[int]]]:
    """(start, tokens) of neighbouring chunks."""
    for start in range(0, len(token_ids), size):
        yield start, token_ids[start : start + size]


def logits_of(token: SampledToken) -> NDArray[np.float32]:
    """The logits [vocabulary] that came with a drawn token."""
    assert token.logits is not None
    return np.frombuffer(token.logits.data, np.float32)


@torch.inference_mode()
def reference_logits(reference: PreTrainedModel, token_ids: Sequence[int]) -> NDArray[np.float32]:
    """Logits [tokens, vocabulary] of the whole model in one pass."""
    logits: Tensor = reference(torch.tensor([list(token_ids)])).logits[0]
    array: NDArray[np.float32] = logits.float().numpy()
    return array


def reference_greedy(reference: PreTrainedModel, prompt: Sequence[int], count: int) -> list[int]:
    """`count` tokens after `prompt` from `generate`, past any end of sequence."""
    from transformers import GenerationMixin  # noqa: PLC0415

    ids = torch.tensor([list(prompt)])
    assert isinstance(reference, GenerationMixin)
    config = reference.generation_config
    config.eos_token_id, config.pad_token_id, config.do_sample = None, 0, False
    generated = reference.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=count)
    tokens: list[int] = generated[0, len(prompt) :].tolist()
    return tokens
