"""Networks that are not as one would like them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lab.asking import ANSWER, answered, ask, nodes_seen
from tests.lab.lab import Lab
from tests.lab.nodes import spare_measuring, start_node
from tests.lab.process import wait_until
from tests.lab.two_nodes import MEMORY, two_nodes

BACK_DEADLINE_S = 30.0


@pytest.mark.slow
def test_a_network_of_ipv6_alone(smollm2: Path) -> None:
    with two_nodes(smollm2, ipv4=False) as cluster:
        seen = nodes_seen(cluster.desk)
        assert f"[{cluster.a.ipv6}]:7355" in seen["a"]["addresses"]
        assert answered(ask(cluster.desk))["text"] == ANSWER


@pytest.mark.slow
def test_link_local_addresses_alone_beside_a_bridge_that_nobody_else_is_on(smollm2: Path) -> None:
    with Lab("a", "b", "desk", link_local=True) as lab:
        lab["a"].add_bridge("docker0", "172.17.0.1/16")
        for name in ("a", "b"):
            lab[name].give_model(smollm2)
            spare_measuring(lab[name])
            start_node(lab[name], "--memory", MEMORY)
        assert "172.17.0.1:7355" in nodes_seen(lab["desk"])["a"]["addresses"]
        for first, last in ("ab", "ba"):  # so that the bridge is in the way of the coordinator, and of a stage
            answer = answered(ask(lab["desk"], "--layers", f"{first}=0-14,{last}=15-29"))
            assert answer["text"] == ANSWER
            assert [stage["node"] for stage in answer["plan"]] == [first, last]


def test_no_node_at_all() -> None:
    with Lab("desk") as lab:
        refused = ask(lab["desk"])
        assert refused.exit_code == 3
        assert f"eth0 ({lab['desk'].ipv4})" in refused.stderr
        assert f"eth0 ({lab['desk'].ipv6})" in refused.stderr
        assert "layerline node" in refused.stderr
        assert "Traceback" not in refused.stderr


def test_a_node_that_is_named_but_not_there() -> None:
    with Lab("a", "desk") as lab:
        refused = ask(lab["desk"], "--node", f"{lab['a'].ipv4}:7355")
        assert refused.exit_code == 3
        assert f"{lab['a'].ipv4}:7355" in refused.stderr


@pytest.mark.slow
def test_nodes_without_mdns_are_used_by_address(smollm2: Path) -> None:
    with Lab("a", "desk") as lab:
        lab["a"].give_model(smollm2)
        spare_measuring(lab["a"])
        start_node(lab["a"], "--no-mdns")
        assert ask(lab["desk"]).exit_code == 3
        answer = answered(ask(lab["desk"], "--no-mdns", "--node", f"{lab['a'].ipv4}:7355"))
        assert answer["text"] == ANSWER
        assert [stage["node"] for stage in answer["plan"]] == ["a"]


@pytest.mark.slow
def test_a_network_that_comes_while_the_node_runs() -> None:
    with Lab("a", "desk") as lab:
        spare_measuring(lab["a"])
        lab["a"].unplug()
        start_node(lab["a"])
        lab["a"].plug()
        looking = ["layerline", "nodes", "--json"]
        wait_until(lambda: lab["desk"].run(looking).exit_code == 0, "finding of a", deadline_s=BACK_DEADLINE_S)
        assert nodes_seen(lab["desk"])["a"]["unusable"] == ""
