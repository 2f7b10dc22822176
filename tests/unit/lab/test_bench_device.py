"""The check of a device finds nothing where all is exact, and what is not where something is not."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

from layerline.models.held import INTEGERS
from node.model.stored.numbers import numbers_of
from tests.bench import device
from tests.bench.device import Checked, check_form, main
from tests.fakes.model_files import TinyModel, write_gguf

SMALL = ["--device", "cpu", "--outputs", "4", "--inputs", "256", "--repeats", "1"]
CPU = Checked(device=torch.device("cpu"), outputs=4, inputs=256, repeats=1)


def test_a_cpu_is_as_exact_as_itself(tmp_path: Path) -> None:
    file = write_gguf(tmp_path / "tiny.gguf", TinyModel(hidden=64, intermediate=96), storage="Q8_0")
    result = CliRunner().invoke(main, [*SMALL, str(file)])
    assert (result.exit_code, result.exception) == (0, None)
    lines = result.output.splitlines()
    assert [line.split(":")[0] for line in lines[1 : 1 + len(INTEGERS)]] == list(INTEGERS)
    assert lines[-1] == "All of it is exact."
    assert sum(" tokens/s, " in line for line in lines) == 2


class WrongKernels:
    """Products of zeros, or of what is no number, and unpacking that is right."""

    def multiply_few(
        self,
        storage: str,
        x_TI: torch.Tensor,
        stored_RB: torch.Tensor,
        bias_R: torch.Tensor | None,
        out_TR: torch.Tensor,
    ) -> None:
        out_TR.fill_(float("nan") if len(x_TI) == 1 else 0.0)

    def unpacked(self, storage: str, stored_RB: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        return numbers_of(storage, stored_RB, dtype)


def test_products_that_are_wrong_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    found = list(check_form(CPU, "Q4_K", WrongKernels()))
    assert len(found) == 6, "few rows of both dtypes; many are right"
    assert found[0] == "Q4_K: a product of 1 rows in torch.float32 is off by nan"
    monkeypatch.setattr(device, "block_kernels_on", lambda place: WrongKernels())
    assert CliRunner().invoke(main, SMALL).exit_code == 1


def test_numbers_that_are_wrong_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = iter(range(100))
    monkeypatch.setattr(device, "numbers_of", lambda *given: numbers_of(*given) + (next(calls) == 0))
    assert "Q6_K: numbers in torch.float32 are not those of the CPU" in list(check_form(CPU, "Q6_K", None))
