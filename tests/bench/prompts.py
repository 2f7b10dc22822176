"""Prompts that share nothing with each other, so that none is answered faster for what came before it."""

from __future__ import annotations

import random

TOKEN_IDS = range(1_000, 40_000)  # plain words in both vocabularies
WORDS = (
    *("lantern", "harbour", "gull", "anchor", "barrel", "candle", "dune", "ember", "feather", "garden"),
    *("hammer", "island", "jacket", "kettle", "ladder", "marble", "needle", "orchard", "pebble", "quarry"),
    *("ribbon", "saddle", "timber", "umbrella", "valley", "window", "yellow", "zebra", "acorn", "bridge"),
    *("copper", "dragon", "engine", "forest", "glacier", "honey", "insect", "jungle", "kitchen", "lemon"),
)
REFRAIN_WORDS = 4
REFRAINS = 2


def random_ids(seed: str, tokens: int) -> list[int]:
    """As many token ids, others for every seed."""
    return random.Random(seed).choices(TOKEN_IDS, k=tokens)


def refrain_ids(seed: str, tokens: int) -> list[int]:
    """As many token ids, the same few over and over; see `refrain`."""
    words = random_ids(seed, REFRAIN_WORDS)
    return [words[position % REFRAIN_WORDS] for position in range(tokens)]


def refrain(seed: str, stream: int) -> str:
    """Some words over and over, which a model goes on with, so that its answer does not end before it has to.

    Each of up to 40 streams begins with another word. It is short, so that many answers begin at about the same time.
    """
    words = [WORDS[stream], *random.Random(f"{seed} {stream}").sample(WORDS, k=REFRAIN_WORDS - 1)]
    return " ".join(words * REFRAINS)
