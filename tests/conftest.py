"""Options that all tests share, and which tests they leave out."""

from __future__ import annotations

import gc
import os

import pytest
from hypothesis import settings
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

os.environ.setdefault("TRITON_INTERPRET", "1")  # a CPU stands for the GPU; scripts/check-device is for a real one
os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # gRPC logs lost peers on its own, which tests lose by the hundred


COMPARING = ("/exactness/", "test_cluster.py", "test_sampler.py", "test_chat_template.py", "test_real_templates.py")

settings.register_profile("few", max_examples=20, deadline=None)
settings.register_profile("many", max_examples=200, deadline=None)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="also run what takes long or needs the Qwen model (491 MB)")
    parser.addoption("--quick", action="store_true", help="leave out what starts other programs, and further cases")


def pytest_configure(config: pytest.Config) -> None:
    settings.load_profile("many" if config.getoption("--slow") else "few")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    quick = config.getoption("--quick")
    left_out = {"system": quick, "more": quick, "slow": not config.getoption("--slow")}
    deselected = [item for item in items if any(left_out[name] and name in item.keywords for name in left_out)]
    config.hook.pytest_deselected(items=deselected)
    kept = set(items).difference(deselected)
    items[:] = [item for item in items if item in kept]


def pytest_collection_finish() -> None:
    """What is loaded by now stays: without this, each collection in a test reads through all of torch's modules."""
    gc.collect()
    gc.freeze()


class Scheduling(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
    """Files at a time to each process, and all that compare with `transformers`, which takes long to load, to one."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return "transformers" if any(part in file for part in COMPARING) else file


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling:
    """The way in which tests are handed to processes."""
    return Scheduling(config, log)
