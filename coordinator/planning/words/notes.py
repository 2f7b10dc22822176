"""The notes of a plan: why it has so many stages, what speed to expect, who is left out, what memory allows."""

from __future__ import annotations

from coordinator.planning.candidates import Candidates
from coordinator.planning.decision import Decision
from coordinator.planning.footprint import PAGE_TOKENS
from coordinator.planning.problem import Problem
from coordinator.planning.room import useful_pages
from coordinator.planning.split import Split
from coordinator.planning.stages import pages_of, tightest_of
from coordinator.planning.ways import Way
from coordinator.planning.words.experts import experts_note
from coordinator.planning.words.reasons import left_out_sentence
from coordinator.planning.words.speeds import speed_notes
from layerline.models.grouped import storage_words
from layerline.models.held import CONVERTED, EIGHT_BITS_FORM, WeightForm
from layerline.models.unevenness import unevenness
from layerline.plan import form_in_words
from layerline.units import format_bytes, format_seconds

_HELD_WORDS = {storage: words for words, storage in CONVERTED.items()} | {EIGHT_BITS_FORM: "8 bits, without loss"}


def plan_notes(decision: Decision) -> list[str]:
    """Every note of the plan, the most telling first."""
    return [
        *_stages_notes(decision),
        *_unevenness_notes(decision),
        *_experts_notes(decision),
        *_ways_notes(decision),
        *_converted_notes(decision),
        *_latent_notes(decision),
        *speed_notes(decision.candidates),
        *(left_out_sentence(each) for each in decision.left_out),
        *_context_notes(decision),
        _pages_note(decision),
    ]


def _stages_notes(decision: Decision) -> list[str]:
    """Why there are so many stages."""
    if decision.problem.request.layers:
        return ["The layers are as --layers says."]
    if decision.split:
        return _split_notes(decision, decision.split)
    (assignment,) = decision.assignments
    group, layers = assignment.group, assignment.layers
    needed, offered = group.needed_bytes(layers, decision.sequence_pages), group.budget_bytes
    name, devices = group.node.name, len(group.ranks)
    where = f"{name} offers" if devices == 1 else f"{devices} devices of {name} offer"
    return [f"The model needs {format_bytes(needed)} and {where} {format_bytes(offered)}, so it is not split."]


def _experts_notes(decision: Decision) -> list[str]:
    """What sharing experts costs, and what the other way would."""
    reasons = ((each.group.node.name, each.experts_reason) for each in decision.assignments)
    notes = (experts_note(name, reason) for name, reason in reasons if reason is not None)
    return [note for note in notes if note]


def _ways_notes(decision: Decision) -> list[str]:
    """Who computes how, unless all do it alike and as they hold the weights."""
    problem, nodes = decision.problem, dict[Way, list[str]]()
    for each in decision.assignments:
        nodes.setdefault(each.group.way, []).append(each.group.node.name)
    if len(nodes) == 1 and not any(problem.footprint_of(way).sizes.unpacks for way in nodes):
        return []
    return [f"{', '.join(names)}: {_way_words(problem, way)}." for way, names in nodes.items()]


def _way_words(problem: Problem, way: Way) -> str:
    if way.precision:
        return f"kernels in {way.precision} precision over weights {form_in_words(way.weights)}"
    unpacked = ", unpacked for each product" if problem.footprint_of(way).sizes.unpacks else ""
    return f"torch in {problem.request.dtype} over weights {form_in_words(way.weights)}{unpacked}"


def _converted_notes(decision: Decision) -> list[str]:
    """What takes more memory than it is stored in, since it cannot be multiplied as it is."""
    found: dict[tuple[WeightForm, str], set[str]] = {}
    for each in decision.assignments:
        for sizes in (rank.footprint.sizes for rank in each.group.ranks):
            for storage, held_in in sorted(sizes.converted(each.layers)):
                found.setdefault((sizes.form, held_in), set()).add(storage)
    return [_converted_note(form, held_in, storages) for (form, held_in), storages in found.items()]


def _converted_note(form: WeightForm, held_in: str, storages: set[str]) -> str:
    names = ", ".join(sorted(map(storage_words, storages)))
    why = f"as {'the kernels do' if form.kernels else 'torch does'} not multiply them as they are"
    if all(map(form.multiplies, storages)):
        why = "as ranks divide their blocks"
    return f"Matrices stored as {names} are held in {_HELD_WORDS[held_in]}, {why}."


def _latent_notes(decision: Decision) -> list[str]:
    """What is held otherwise than it is stored for the sake of latents."""
    ranks = ((each.layers, rank.footprint.sizes) for each in decision.assignments for rank in each.group.ranks)
    held = (size for layers, sizes in ranks for size in sizes.layers[layers.start : layers.stop])
    found = {pair for size in held for pair in size.of_latents}
    return [
        f"What makes keys and values of latents is stored as {storage_words(storage)} and held in"
        f" {_HELD_WORDS[held_in]}, as that for keys is multiplied the other way round."
        for storage, held_in in sorted(found)
    ]


def _split_notes(decision: Decision, split: Split) -> list[str]:
    """Why there are several stages, what speed to expect, and what of it was given for KV pages."""
    notes = [f"{_too_large(decision.candidates, decision.sequence_pages)}, so it is split."]
    if all(assignment.group.is_measured for assignment in decision.assignments):
        hops, hop_s = len(split.ranges) + 1, split.chosen.choice.hop * split.tick_s
        notes.append(
            f"Expected for one stream: {format_seconds(split.through_s)} a token, of which {hops} hops take"
            f" {format_seconds(hop_s)} each, so {1 / split.through_s:.3g} tokens/s."
        )
    return notes + _moved_notes(split)


def _too_large(candidates: Candidates, pages: int) -> str:
    """Why no node has the whole model, by the group that offers most."""
    largest = max(candidates.all_groups, key=lambda group: group.budget_bytes)
    footprint = candidates.problem.footprint_of(largest.way)
    if len(largest.ranks) == 1:
        needed, most = footprint.needed_bytes(footprint.layers, pages), largest.budget_bytes
        return f"The model needs {format_bytes(needed)} on one node and no node offers more than {format_bytes(most)}"
    tightest = max(largest.ranks, key=lambda rank: rank.missing_bytes(footprint.layers, pages))
    needed, offered = tightest.footprint.needed_bytes(footprint.layers, pages), tightest.device.budget_bytes
    return (
        f"The model does not fit one node: over {len(largest.ranks)} devices of {largest.node.name} it needs"
        f" {format_bytes(needed)} on {tightest.device.device}, which offers {format_bytes(offered)}"
    )


def _moved_notes(split: Split) -> list[str]:
    """What more KV pages cost, if they do."""
    if split.chosen is split.fastest:
        return []
    slower = split.chosen.cost / split.fastest.cost - 1
    return [
        f"Layers are moved to where there is memory for their KV pages: the fastest split would hold"
        f" {split.fastest.pages * PAGE_TOKENS} tokens, this one {split.chosen.pages * PAGE_TOKENS}"
        f" and is {slower:.1%} slower."
    ]


def _unevenness_notes(decision: Decision) -> list[str]:
    """What could not be split in proportion."""
    uneven = (
        (
            each.group.node.name,
            unevenness(decision.problem.spec, [rank.part for rank in each.group.ranks], each.group.sharing.proportions),
        )
        for each in decision.assignments
    )
    return [f"On {name}: {sentence}" for name, sentence in uneven if sentence]


def _context_notes(decision: Decision) -> list[str]:
    """What became of the wish for a long context."""
    tokens, wished_tokens = decision.context_tokens, decision.problem.contexts[0]
    if tokens == wished_tokens:
        return []
    return [f"The context is {tokens} tokens instead of {wished_tokens}, as more KV pages do not fit."]


def _pages_note(decision: Decision) -> str:
    """How many tokens are kept at the same time, and which node bounds them."""
    pages, sequence_pages = pages_of(decision), decision.sequence_pages
    sequences = f"{pages / sequence_pages:.3g}"
    counted = "1 sequence" if sequences == "1" else f"{sequences} sequences"
    note = f"The KV pages hold {pages * PAGE_TOKENS} tokens, {counted} of the whole context"
    if pages >= useful_pages(sequence_pages):
        return f"{note}."
    return f"{note}; {tightest_of(decision).group.node.name} has no memory for more."
