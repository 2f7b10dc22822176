"""What a device makes of stored weights: whether as exactly as a CPU, and how fast. `scripts/check-device [FILE]`.

For each form: the numbers to the bit, the products of few and of many rows, and their times beside plain reading. With
a FILE also the model: its logits in float32 beside those of the CPU, and the tokens a second in the default dtype. Ends
with 1 if anything is not exact. Nothing of this needs a network, or a second node.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np
import torch

from layerline.frames import Frame, PageRun, Sampling, Span, TensorBytes
from layerline.models.card import ModelCard
from layerline.models.held import INTEGERS
from layerline.models.index import index_model
from layerline.plan import StageSpec
from layerline.step_result import StepResult
from node.load_stage import load_stage
from node.model.linear.stored import StoredLinear, StoredRows
from node.model.stored.numbers import numbers_of
from node.model.stored.products import MOST_ROWS, BlockKernels, block_kernels_on
from node.stage import Stage
from tests.fakes.stored_rows import stored_rows

WITHIN = {torch.float32: 2e-6, torch.bfloat16: 1e-2}  # of what a product adds up
LOGITS_WITHIN = 1e-4  # of the largest logit: docs/exactness.md
MANY_ROWS = 512
PROMPT_TOKENS = 64
ANSWER_TOKENS = 64
PAGE_TOKENS = 16


@dataclass(frozen=True, kw_only=True)
class Checked:
    """A device, the size of the matrices, and how often each time is taken."""

    device: torch.device
    outputs: int
    inputs: int
    repeats: int

    def seconds(self, call: Callable[[], object]) -> float:
        """The least time of a call, the device's work included."""
        call()
        times = []
        for _ in range(self.repeats):
            self.wait()
            begun_s = time.perf_counter()
            call()
            self.wait()
            times.append(time.perf_counter() - begun_s)
        return min(times)

    def wait(self) -> None:
        """Until all is done that was begun."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        elif self.device.type == "mps":
            torch.mps.synchronize()

    def read_bytes_per_s(self) -> float:
        """The pace of plain reading: of a sum over far more than any cache has."""
        numbers = torch.zeros(max(self.outputs * self.inputs, 1 << 20), device=self.device)
        return numbers.nbytes / self.seconds(numbers.sum)


def check_form(checked: Checked, storage: str, kernels: BlockKernels | None) -> Iterator[str]:
    """What is not exact in one form."""
    stored = torch.from_numpy(stored_rows(storage, 77, 1024))
    held = stored.to(checked.device)
    for dtype, within in WITHIN.items():
        if not torch.equal(numbers_of(storage, held, dtype).cpu(), numbers_of(storage, stored, dtype)):
            yield f"{storage}: numbers in {dtype} are not those of the CPU"
        if kernels and not torch.equal(kernels.unpacked(storage, held, dtype), numbers_of(storage, held, dtype)):
            yield f"{storage}: numbers in {dtype} by the kernel are others"
        weight = numbers_of(storage, stored, dtype).double()
        linear = StoredLinear([StoredRows(storage=storage, stored_RB=held, columns=1024)], None, kernels)
        for rows in (1, 5, MOST_ROWS, MOST_ROWS + 1):
            x_TI = torch.randn(rows, 1024, generator=torch.Generator().manual_seed(rows)).to(dtype)
            found = linear(x_TI.to(checked.device)).cpu().double()
            off = (found - x_TI.double() @ weight.t()).abs() / (x_TI.abs().double() @ weight.abs().t())
            if not off.max() < within:  # nor if it is no number
                yield f"{storage}: a product of {rows} rows in {dtype} is off by {off.max():.1e}"


def time_form(checked: Checked, storage: str, kernels: BlockKernels | None, read_bytes_per_s: float) -> str:
    """A line on the times of one form, in bfloat16."""
    block_numbers, block_bytes = INTEGERS[storage]
    nbytes = checked.outputs * checked.inputs // block_numbers * block_bytes
    block = torch.from_numpy(stored_rows(storage, 1, checked.inputs)).to(checked.device)
    rows = StoredRows(storage=storage, stored_RB=block.repeat(checked.outputs, 1), columns=checked.inputs)
    plain, by_kernels = StoredLinear([rows]), StoredLinear([rows], None, kernels)

    def ms(linear: StoredLinear, count: int) -> float:
        x_TI = torch.ones(count, checked.inputs, dtype=torch.bfloat16, device=checked.device)
        return 1e3 * checked.seconds(lambda: linear(x_TI))

    words = [f"one row by plain operations {ms(plain, 1):.3f} ms", f"{MANY_ROWS} rows {ms(plain, MANY_ROWS):.3f} ms"]
    if kernels is not None:
        one = ms(by_kernels, 1)
        share = nbytes / (one / 1e3) / read_bytes_per_s
        few, many = ms(by_kernels, MOST_ROWS), ms(by_kernels, MANY_ROWS)
        own = [f"{MOST_ROWS} rows {few:.3f} ms", f"{MANY_ROWS} rows {many:.3f} ms"]
        words = [f"one row {one:.3f} ms ({share:.2f} of reading)", *own, *words]
    return f"{storage}: {', '.join(words)}"


def loaded(card: ModelCard, file: Path, device: str, dtype: str, weights: str) -> Stage:
    """The whole model as one stage, computed by torch."""
    spec = StageSpec(
        model=file.name,
        digest=card.digest,
        first_layer=0,
        last_layer=card.spec.layers - 1,
        devices=(device,),
        pages=-(-(PROMPT_TOKENS + ANSWER_TOKENS) // PAGE_TOKENS),
        page_tokens=PAGE_TOKENS,
        max_rows=PROMPT_TOKENS,
        dtype=dtype,
        weights=weights,
    )
    return load_stage(card, file, spec, lambda done_bytes, total_bytes: None)


def run(stage: Stage, tokens: np.ndarray, start: int, *, draws: int, logits: bool = False) -> StepResult:
    """One step of one sequence, with draws after its last rows."""
    pages = (PageRun(first=0, count=-(-(start + len(tokens)) // PAGE_TOKENS)),)
    span = Span(
        sequence=1,
        start=start,
        count=len(tokens),
        pages=pages,
        draws=draws,
        sampling=Sampling(return_logits=logits),
    )
    tensor = TensorBytes(dtype="int32", shape=tokens.shape, data=tokens.astype(np.int32).tobytes())
    result = stage.run(Frame(epoch=1, step=start + 1, spans=(span,), tensor=tensor))
    assert isinstance(result, StepResult)
    return result


def all_logits(stage: Stage, tokens: np.ndarray) -> np.ndarray:
    """Those after every token: of one half in one step, of the other token by token."""
    half = len(tokens) // 2
    found = list(run(stage, tokens[:half], 0, draws=half, logits=True).sampled)
    for place in range(half, len(tokens)):
        found += run(stage, tokens[place : place + 1], place, draws=1, logits=True).sampled
    return np.stack([np.frombuffer(each.logits.data, np.float32) for each in found if each.logits])


def check_model(checked: Checked, file: Path, device: str, read_bytes_per_s: float) -> Iterator[str]:
    """What is not exact in a model; says how fast it is."""
    card = index_model(file, file.name, lambda done_bytes, total_bytes: None)
    tokens = np.random.default_rng(0).integers(0, card.spec.vocabulary, PROMPT_TOKENS)
    expected, found = (all_logits(loaded(card, file, where, "float32", "stored"), tokens) for where in ("cpu", device))
    off = float((np.abs(found - expected) / np.abs(expected).max(axis=1, keepdims=True)).max())
    print(f"{file.name}: logits in float32 differ from the CPU's by {off:.1e} of the largest")
    if not off < LOGITS_WITHIN:
        yield f"{file.name}: logits are off by {off:.1e}"
    for weights in ("stored", "bfloat16"):
        stage = loaded(card, file, device, "bfloat16", weights)
        run(stage, tokens, 0, draws=1)
        begun_s = time.perf_counter()
        for place in range(ANSWER_TOKENS):
            run(stage, tokens[:1], PROMPT_TOKENS + place, draws=1)
        pace = ANSWER_TOKENS / (time.perf_counter() - begun_s)
        share = pace * stage.weights_bytes / read_bytes_per_s
        held = f"{stage.weights_bytes / 1e9:.2f} GB of weights"
        print(f"{file.name}, weights {weights}: {pace:.1f} tokens/s, {held}, {share:.2f} of reading")


@click.command()
@click.argument("file", type=click.Path(exists=True, path_type=Path), required=False)
@click.option("--device", default="cuda:0", show_default=True)
@click.option("--outputs", default=14336, show_default=True, help="Rows of the matrices that are timed.")
@click.option("--inputs", default=4096, show_default=True, help="Their columns, a multiple of 256.")
@click.option("--repeats", type=click.IntRange(1), default=20, show_default=True)
@torch.inference_mode()
def main(file: Path | None, device: str, outputs: int, inputs: int, repeats: int) -> None:
    """Check what a GPU makes of stored weights, and measure it; with a FILE of a model also its logits and its pace."""
    checked = Checked(device=torch.device(device), outputs=outputs, inputs=inputs, repeats=repeats)
    kernels, read_bytes_per_s = block_kernels_on(checked.device), checked.read_bytes_per_s()
    by = "plain operations" if kernels is None else "Triton"
    print(f"torch {torch.__version__}, {device}: plain reading {read_bytes_per_s / 1e9:.0f} GB/s, stored rows by {by}")
    wrong = [fault for storage in INTEGERS for fault in check_form(checked, storage, kernels)]
    for storage in INTEGERS:
        print(time_form(checked, storage, kernels, read_bytes_per_s))
    if file is not None:
        wrong += check_model(checked, file, device, read_bytes_per_s)
    print("\n".join(wrong) or "All of it is exact.")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
