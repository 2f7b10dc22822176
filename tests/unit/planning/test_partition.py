"""The split is as good as the best that trying all of them finds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import permutations

from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator.planning.footprint import FIRST, LAST, MIDDLE
from coordinator.planning.partition import TOLERANCE, Offer, Partition, Share, best_partition

OFFER = st.builds(
    lambda layer_ps, output_layers, room: {"layer_ps": layer_ps, "output_ps": output_layers * layer_ps, "room": room},
    layer_ps=st.sampled_from([10, 11, 20, 45, 100, 1000]),
    output_layers=st.integers(0, 4),
    room=st.tuples(st.integers(0, 8), st.integers(0, 8), st.integers(0, 8)),
)


def offer(node: int, hand: int, numbers: dict) -> Offer:
    most = dict(zip((FIRST, MIDDLE, LAST), numbers["room"], strict=True))
    return Offer(
        node=node,
        hand=hand,
        layer_ps=numbers["layer_ps"],
        output_ps=numbers["output_ps"],
        most_layers=most,
    )


def offers(world: Sequence[Sequence[dict]]) -> list[list[Offer]]:
    return [[offer(n, h, numbers) for h, numbers in enumerate(hands)] for n, hands in enumerate(world)]


def all_partitions(nodes: list[list[Offer]], layers: int, hop_ps: int) -> Iterator[Partition]:
    def extended(order: tuple[int, ...], left: int, shares: tuple[Share, ...]) -> Iterator[tuple[Share, ...]]:
        place = len(shares)
        ends = FIRST if place == 0 else LAST if place == len(order) - 1 else MIDDLE
        if place == len(order):
            if left == 0:
                yield shares
            return
        for one in nodes[order[place]]:
            for count in range(1, min(left, one.most_layers[ends]) + 1):
                yield from extended(order, left - count, (*shares, Share(offer=one, ends=ends, layers=count)))

    for size in range(2, len(nodes) + 1):
        for order in permutations(range(len(nodes)), size):
            for shares in extended(order, layers, ()):
                yield Partition(shares=shares, hop_ps=hop_ps)


@settings(max_examples=150, deadline=None)
@given(
    world=st.lists(st.lists(OFFER, min_size=1, max_size=2), min_size=1, max_size=3),
    layers=st.integers(1, 9),
    hop_ps=st.sampled_from([0, 5, 50, 500]),
)
def test_no_split_is_better_by_more_than_the_tolerance(world: list[list[dict]], layers: int, hop_ps: int):
    nodes = offers(world)
    best = min(all_partitions(nodes, layers, hop_ps), key=lambda each: each.cost_ps, default=None)
    found = best_partition(nodes, layers, hop_ps)
    if best is None:
        assert found is None
        return
    assert found is not None
    assert best.cost_ps <= found.cost_ps <= best.cost_ps / (1 - TOLERANCE)


def test_four_equal_nodes_share_as_evenly_as_can_be():
    equal = {"layer_ps": 100, "output_ps": 0, "room": (30, 30, 30)}
    found = best_partition(offers([[equal]] * 4), 30, 1)
    assert found is not None
    assert sorted(share.layers for share in found.shares) == [7, 7, 8, 8]
    assert [share.offer.node for share in found.shares] == [0, 1, 2, 3]


def test_a_hop_dearer_than_what_it_saves_is_not_taken():
    equal = {"layer_ps": 100, "output_ps": 0, "room": (15, 15, 15)}
    found = best_partition(offers([[equal]] * 4), 30, 100_000)
    assert found is not None
    assert len(found.shares) == 2


def test_no_nodes_and_nodes_without_room_give_no_split():
    full = {"layer_ps": 100, "output_ps": 0, "room": (0, 0, 0)}
    assert best_partition([], 4, 1) is None
    assert best_partition(offers([[full], [full]]), 4, 1) is None
    assert best_partition([[], []], 4, 1) is None
