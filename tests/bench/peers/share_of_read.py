"""Case decode_share_of_read: how near one stream on one core comes to what reading its weights would take alone."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from statistics import median

from layerline.models.gguf_file import read_gguf
from layerline.models.tensor_table import StoredTensor
from tests.bench.effort import Effort
from tests.bench.figures import Figures, Row
from tests.bench.peers.contest import Contest
from tests.bench.peers.first import run_first
from tests.bench.peers.memory_read import memory_reader
from tests.bench.repetitions import in_turn

EMBEDDING, OUTPUT = "token_embd.weight", "output.weight"


def measure(contest: Contest, case: str, effort: Effort) -> Figures:
    """The bytes of weights that a token needs over its time, as a share of what memory gives."""
    token_bytes = bytes_for_a_token(read_gguf(contest.path).tensors)
    measures = [partial(_decoded, contest, effort), partial(_read, contest)]
    speeds, bandwidths = in_turn(measures, effort.repeats)
    shares = [token_bytes * speed / bandwidth for speed, bandwidth in zip(speeds, bandwidths, strict=True)]
    figures = {
        "layerline_tokens_per_s": median(speeds),
        "token_mb": token_bytes / 1e6,
        "read_mb_per_s": median(bandwidths) / 1e6,
    }
    row = Row(case=case, model=contest.model.key, nodes=1, streams=1, figures=figures)
    return Figures(rows=(row,), ratios={f"{case}.{contest.model.key}": median(shares)})


def bytes_for_a_token(tensors: Iterable[StoredTensor]) -> int:
    """What is read for each token: all tensors, of which the embedding only where it is the output matrix as well."""
    sizes = {tensor.name: tensor.nbytes for tensor in tensors}
    return sum(sizes.values()) - (sizes[EMBEDDING] if OUTPUT in sizes else 0)


def _decoded(contest: Contest, effort: Effort, repetition: int) -> float:
    return contest.layerline.decode(effort, repetition)


def _read(contest: Contest, repetition: int) -> float:
    with memory_reader() as words:
        return float(run_first(contest.nodes[0], words, [0]))
