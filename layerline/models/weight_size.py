"""How many numbers some weights are, and the bytes that they take."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class WeightSize:
    """Some weights: how many numbers a token is multiplied with, the bytes of these, and those of all that is held.

    They are not the same where a token reads some experts of many. Experts that are whole take `expert_bytes` each at
    most; those that lie on an expert device take `beside_bytes` there, `beside_expert_bytes` each at most, and a token
    reads `beside_read_bytes` of them.
    `converted` are the stored forms of matrices among them that should be held as stored, but cannot be, each with what
    they are held in; `of_latents` those of matrices that make keys and values of latents.
    """

    numbers: int
    read_bytes: int
    held_bytes: int
    converted: frozenset[tuple[str, str]] = frozenset()
    of_latents: frozenset[tuple[str, str]] = frozenset()
    expert_bytes: int = 0
    beside_bytes: int = 0
    beside_read_bytes: int = 0
    beside_expert_bytes: int = 0

    def beside(self, other: WeightSize) -> WeightSize:
        """Both together."""
        return WeightSize(
            numbers=self.numbers + other.numbers,
            read_bytes=self.read_bytes + other.read_bytes,
            held_bytes=self.held_bytes + other.held_bytes,
            converted=self.converted | other.converted,
            of_latents=self.of_latents | other.of_latents,
            expert_bytes=max(self.expert_bytes, other.expert_bytes),
            beside_bytes=self.beside_bytes + other.beside_bytes,
            beside_read_bytes=self.beside_read_bytes + other.beside_read_bytes,
            beside_expert_bytes=max(self.beside_expert_bytes, other.beside_expert_bytes),
        )
