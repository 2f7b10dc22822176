"""Which coordinator a command uses: the one named, one found that suits, or its own."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from coordinator.embedded import Embedded
from coordinator.plan_maker import Availability
from coordinator.settings import CoordinatorSettings
from layerline.cli import session
from layerline.cli.options import Finding
from layerline.cli.session import choose, open_session, serves
from layerline.coordinator_search import Found
from layerline.errors import UsageError
from layerline.mdns import CoordinatorAdvert
from layerline.reports import ModelsReport
from layerline.version import WIRE_VERSION
from tests.fakes.coordinator_service import MODELS, FakeCoordinator, serving


def advert(name: str, model: str, address: str = "127.0.0.1:1") -> CoordinatorAdvert:
    return CoordinatorAdvert(name=name, model=model, wire_version=WIRE_VERSION, addresses=(address,))


class Surroundings:
    """The coordinators on the network, and the one that a command may bring up; both are watched."""

    def __init__(self) -> None:
        self.adverts: list[CoordinatorAdvert] = []
        self.searches = 0
        self.own: list[CoordinatorSettings] = []
        self.own_running = 0
        self.hears_nothing = False  # so that the search goes on and on
        self.availability: Availability | None = None  # None: no node has answered

    async def ask_nodes(self, model: str) -> Availability:
        while self.availability is None:
            await asyncio.get_running_loop().create_future()
        return self.availability

    async def search(self, timeout_s: float, enough: Callable[[CoordinatorAdvert], bool]) -> Found:
        self.searches += 1
        if self.hears_nothing:
            await asyncio.get_running_loop().create_future()
        return Found(adverts=tuple(self.adverts), searched=())

    @asynccontextmanager
    async def embedded(self, settings: CoordinatorSettings) -> AsyncIterator[Embedded]:
        self.own.append(settings)
        fake = FakeCoordinator()
        fake.facts = replace(fake.facts, name="own")
        with serving(fake) as address:
            self.own_running += 1
            yield Embedded(address=address, availability=self.ask_nodes)
            self.own_running -= 1


@pytest.fixture
def around(monkeypatch: pytest.MonkeyPatch) -> Surroundings:
    around = Surroundings()
    monkeypatch.setattr(session, "search_coordinators", around.search)
    monkeypatch.setattr(session, "embedded_coordinator", around.embedded)
    return around


async def answering(finding: Finding, model: str = "") -> str:
    """The name of the coordinator that a session with these options has."""
    async with open_session(finding, model) as opened:
        return (await opened.client.describe()).name


async def test_the_coordinator_that_is_named_is_used(around: Surroundings) -> None:
    with serving(FakeCoordinator()) as address:
        assert await answering(Finding(coordinator=address), "tiny") == "fake"
    assert (around.searches, around.own) == (0, [])


async def test_one_found_with_the_model_is_used_and_the_own_one_is_ended(around: Surroundings) -> None:
    with serving(FakeCoordinator()) as address:
        around.adverts = [advert("fake", "tiny.gguf", address)]
        async with open_session(Finding(), "./models/tiny.gguf") as opened:
            assert (await opened.client.describe()).name == "fake"
            assert around.own_running == 0


async def test_one_found_with_the_same_weights_under_another_name_is_used(around: Surroundings) -> None:
    fake = FakeCoordinator()
    listed = (replace(MODELS.models[0], name=name, loaded=True) for name in ("tiny.gguf", "copy.gguf"))
    fake.models = ModelsReport(models=tuple(listed))
    with serving(fake) as address:
        around.adverts = [advert("fake", "tiny.gguf", address)]
        assert await answering(Finding(), "copy") == "fake"
        assert await answering(Finding(), "other") == "own"


async def test_one_found_with_another_model_is_passed_over(around: Surroundings) -> None:
    fake = FakeCoordinator()
    fake.facts = replace(fake.facts, model="other.gguf")
    fake.models = ModelsReport(models=(replace(MODELS.models[0], name="other.gguf", loaded=True),))
    with serving(fake) as address:
        around.adverts = [advert("fake", "other.gguf", address)]
        assert await answering(Finding(), "tiny.gguf") == "own"
        assert await answering(Finding()) == "fake"
    assert around.own_running == 0


async def test_an_advert_that_outlived_its_coordinator_is_passed_over(around: Surroundings) -> None:
    around.adverts = [advert("dead", "tiny")]
    assert await answering(Finding(), "tiny") == "own"


async def test_where_the_nodes_are_free_no_coordinator_is_waited_for(around: Surroundings) -> None:
    around.hears_nothing = True
    around.availability = Availability(free=True)
    assert await answering(Finding(), "tiny") == "own"
    assert around.searches == 1


async def test_where_a_node_is_held_its_coordinator_is_waited_for(around: Surroundings) -> None:
    around.availability = Availability(free=False)
    with serving(FakeCoordinator()) as address:
        around.adverts = [advert("fake", "tiny.gguf", address)]
        assert await answering(Finding(), "tiny") == "fake"


async def test_where_a_node_is_held_its_coordinator_is_asked_at_the_address_that_the_node_says(
    around: Surroundings,
) -> None:
    around.hears_nothing = True
    with socket.socket() as unheard, serving(FakeCoordinator()) as address:
        unheard.bind(("127.0.0.1", 0))
        gone = f"127.0.0.1:{unheard.getsockname()[1]}"
        around.availability = Availability(free=False, coordinators=(gone, address))
        for model in ("tiny", ""):
            assert await answering(Finding(), model) == "fake"
    assert around.own_running == 0


async def test_a_coordinator_that_holds_a_node_for_other_weights_is_passed_over(around: Surroundings) -> None:
    fake = FakeCoordinator()
    fake.models = ModelsReport(models=(replace(MODELS.models[0], name="tiny.gguf", loaded=True),))
    with serving(fake) as address:
        around.availability = Availability(free=False, coordinators=(address,))
        assert await answering(Finding(), "other") == "own"


async def test_nothing_of_a_search_is_left_once_the_session_is_open(around: Surroundings) -> None:
    around.hears_nothing = True
    around.availability = Availability(free=True)
    before = asyncio.all_tasks()
    await answering(Finding(), "tiny")
    assert asyncio.all_tasks() == before


@pytest.mark.parametrize("finding", [Finding(nodes=("h:1",)), Finding(nodes=("h:1",), mdns=False)])
async def test_who_names_nodes_gets_a_coordinator_of_their_own(around: Surroundings, finding: Finding) -> None:
    assert await answering(finding, "tiny") == "own"
    assert around.searches == 0
    assert (around.own[0].nodes, around.own[0].mdns) == (("h:1",), finding.mdns)


def test_options_that_leave_nobody_to_ask_are_refused() -> None:
    with pytest.raises(UsageError, match="--no-mdns leaves nothing"):
        Finding(mdns=False)
    with pytest.raises(UsageError, match="exclude each other"):
        Finding(coordinator="h:1", nodes=("h:2",))


def test_those_that_serve_the_model_come_before_those_that_are_free() -> None:
    adverts = [advert("free", ""), advert("other", "big"), advert("right", "tiny.gguf")]
    assert [chosen.name for chosen in choose(adverts, "tiny")] == ["right", "other", "free"]
    assert [chosen.name for chosen in choose(adverts, "")] == ["free", "other", "right"]


@pytest.mark.parametrize(
    ("reference", "same"),
    [("tiny.gguf", True), ("tiny", True), ("/models/tiny.gguf", True), ("tiny.q4.gguf", False), ("tin", False)],
)
def test_a_model_is_known_by_its_name_or_a_path_to_it(reference: str, same: bool) -> None:
    assert serves("tiny.gguf", reference) is same


async def test_another_coordinator_is_told_its_own_name_of_a_path(
    around: Surroundings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "models" / "org").mkdir(parents=True)
    (tmp_path / "models" / "org" / "tiny.gguf").touch()
    (tmp_path / "link").symlink_to(tmp_path / "models" / "org" / "tiny.gguf")
    (tmp_path / "unknown.gguf").touch()
    monkeypatch.chdir(tmp_path)
    fake = FakeCoordinator()
    fake.models = ModelsReport(models=(replace(MODELS.models[0], name="org/tiny.gguf"),))
    with serving(fake) as address:

        async def told(reference: str) -> str:
            async with open_session(Finding(coordinator=address), reference) as opened:
                return opened.model

        assert await told("org/tiny.gguf") == "org/tiny.gguf"
        assert await told("models/org/tiny.gguf") == "org/tiny.gguf"
        assert await told("link") == "org/tiny.gguf"
        assert await told("unknown.gguf") == str(tmp_path / "unknown.gguf")
        assert await told("models/absent.gguf") == "models/absent.gguf"


async def test_a_coordinator_is_found_that_serves_a_model_one_folder_down(around: Surroundings) -> None:
    fake = FakeCoordinator()
    fake.facts = replace(fake.facts, model="org/tiny.gguf")
    with serving(fake) as address:
        around.adverts = [advert("fake", "org/tiny.gguf", address)]
        assert await answering(Finding(), "org/tiny.gguf") == "fake"
        assert await answering(Finding(), "org/tiny") == "fake"
