"""What a REF means to a coordinator: a listed name, or a path of its machine by what it ends in or what is there."""

from __future__ import annotations

from pathlib import Path

import pytest

from layerline.errors import ModelCorruptError, ModelMismatchError, ModelNotFoundError
from layerline.models.card import ModelCard
from layerline.models.card_cache import CardCache
from layerline.plan import Plan
from layerline.plan_request import PlanRequest
from tests.fakes.coordinators import two_nodes
from tests.fakes.model_files import TinyModel, write_folder, write_gguf
from tests.fakes.node_service import tiny_card


async def planned(card: ModelCard, reference: str, listed: tuple[str, ...]) -> Plan:
    """The plan for `reference` where both nodes list the model by these names."""
    async with two_nodes(card) as (coordinator, nodes):
        for node in nodes:
            node.listed = listed
        return await coordinator.plan(PlanRequest(model=reference))


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A models folder with the card's model one folder down; the current folder is beside it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "models" / "org").mkdir(parents=True)
    tiny_card(tmp_path / "models" / "org")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "models"


async def test_a_path_means_the_model_that_it_ends_in_and_says_so(card: ModelCard, models: Path) -> None:
    path = next((models / "org").iterdir())
    for reference in (str(path), f"models/org/{path.name}"):
        plan = await planned(card, reference, (f"org/{path.name}", "other.gguf"))
        assert plan.model == f"org/{path.name}"
        assert f"{path} was taken as a path; nodes have it as org/{path.name}." in plan.notes


async def test_a_link_means_the_model_that_it_leads_to(card: ModelCard, models: Path, tmp_path: Path) -> None:
    path = next((models / "org").iterdir())
    (tmp_path / "favourite").symlink_to(path)
    assert (await planned(card, "favourite", (f"org/{path.name}",))).model == f"org/{path.name}"


async def test_a_path_means_the_model_with_the_same_weights_under_another_name(card: ModelCard, models: Path) -> None:
    path = next((models / "org").iterdir())
    assert (await planned(card, str(path), ("renamed.gguf",))).model == "renamed.gguf"


async def test_a_path_whose_weights_differ_is_refused(card: ModelCard, models: Path) -> None:
    path = next((models / "org").iterdir())
    write_gguf(path, TinyModel(layers=3))
    with pytest.raises(ModelMismatchError, match="this machine and node a have unlike files"):
        await planned(card, str(path), (f"org/{path.name}",))


async def test_a_listed_name_comes_before_a_folder_of_that_name(
    card: ModelCard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tiny").mkdir()
    monkeypatch.chdir(tmp_path)
    plan = await planned(card, "tiny", ("tiny.gguf",))
    assert plan.model == "tiny.gguf"
    assert "taken as a path" not in " ".join(plan.notes)


async def test_a_path_that_holds_no_model_is_no_model(card: ModelCard, tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match=r"They have tiny\.gguf"):
        await planned(card, str(tmp_path), ("tiny.gguf",))


async def test_a_name_may_be_written_in_another_form(card: ModelCard) -> None:
    assert (await planned(card, "cafe\u0301", ("caf\u00e9.gguf",))).model == "caf\u00e9.gguf"


async def test_files_of_this_machine_are_read_in_a_process_of_their_own(
    card: ModelCard, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def in_this_process(*_: object) -> ModelCard:
        raise AssertionError("the coordinator has read the files itself")

    monkeypatch.setattr(CardCache, "card", in_this_process)
    path = next((models / "org").iterdir())
    for _ in range(2):
        assert (await planned(card, str(path), (f"org/{path.name}",))).model == f"org/{path.name}"


@pytest.mark.system
@pytest.mark.slow
async def test_a_path_to_headers_that_take_all_memory_is_refused(card: ModelCard, tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "bomb", TinyModel())
    header = b'{"a": [' + b"[]," * 30_000_000 + b"[]]}"
    (folder / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    with pytest.raises(ModelCorruptError, match="The headers of model bomb take"):
        await planned(card, str(folder), ("bomb.gguf",))
