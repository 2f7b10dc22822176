"""The sampler: its distribution is that of `transformers`, its noise depends on seed, position and token alone."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from layerline.frames import Sampling
from node.step import sampler
from node.step.sampler import draw, filtered, noise, penalised, uniform
from tests.fakes.logits import random_logits

VOCABULARY = 500
SO_FAR = (3, 5, 499, 0)
FILTERS: list[dict[str, Any]] = [{"top_k": 40}, {"top_p": 0.9}, {"min_p": 0.05}]


def distribution(logits: NDArray[np.float32], sampling: Sampling) -> NDArray[np.float64]:
    """The probabilities that a token is drawn by."""
    weights = np.exp(filtered(penalised(logits, sampling) if sampling.is_changed else logits, sampling))
    probabilities: NDArray[np.float64] = weights / weights.sum()
    return probabilities


def by_inverse(logits: NDArray[np.float32], sampling: Sampling, number: float) -> int:
    """The draw that this one is compared with: the token in whose share of the line from 0 to 1 `number` falls."""
    return int(np.searchsorted(distribution(logits, sampling).cumsum(), number, side="right"))


def reference(logits: NDArray[np.float32], sampling: Sampling) -> NDArray[np.float32]:
    """The probabilities after the processors of `transformers`, in the order of its generation."""
    from transformers import (  # noqa: PLC0415
        LogitsProcessorList,
        MinPLogitsWarper,
        RepetitionPenaltyLogitsProcessor,
        SequenceBiasLogitsProcessor,
        TemperatureLogitsWarper,
        TopKLogitsWarper,
        TopPLogitsWarper,
    )

    processors = LogitsProcessorList()
    if sampling.bias_ids:
        biases: list[list[list[int] | float]] = [
            [[id_], bias] for id_, bias in zip(sampling.bias_ids, sampling.biases, strict=True)
        ]
        processors.append(SequenceBiasLogitsProcessor(biases))
    if sampling.repetition_penalty != 1.0:
        processors.append(RepetitionPenaltyLogitsProcessor(sampling.repetition_penalty))
    processors.append(TemperatureLogitsWarper(sampling.temperature))
    if sampling.top_k:
        processors.append(TopKLogitsWarper(sampling.top_k))
    if sampling.top_p < 1.0:
        processors.append(TopPLogitsWarper(sampling.top_p))
    if sampling.min_p:
        processors.append(MinPLogitsWarper(sampling.min_p))
    prompt_ids = cast("torch.LongTensor", torch.tensor([sampling.prompt_ids or (0,)]))
    scores = processors(prompt_ids, cast("torch.FloatTensor", torch.from_numpy(logits)[None].clone()))
    return torch.softmax(scores[0], -1).numpy()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"temperature": 0.3},
        {"top_k": 1},
        {"top_k": 40},
        {"top_k": 100_000},
        {"top_p": 0.9},
        {"top_p": 0.05},
        {"top_p": 0.999},
        {"min_p": 0.1},
        {"min_p": 1.0},
        {"repetition_penalty": 1.3, "prompt_ids": SO_FAR},
        {"repetition_penalty": 0.8, "prompt_ids": SO_FAR},
        {"bias_ids": (3, 400), "biases": (2.5, -30.0)},
        {"bias_ids": (3, 7), "biases": (-4.0, 1.0), "repetition_penalty": 1.3, "prompt_ids": SO_FAR},
        {"temperature": 1.7, "top_k": 50, "top_p": 0.8, "min_p": 0.02, "repetition_penalty": 1.2, "prompt_ids": SO_FAR},
    ],
)
def test_the_distribution_is_that_of_transformers(settings: dict[str, object], seed: int) -> None:
    sampling = Sampling(**{"temperature": 1.0, **settings})  # type: ignore[arg-type]  # fields by name
    logits = random_logits(seed, VOCABULARY)
    ours = distribution(logits, sampling)
    expected = reference(logits, sampling)
    np.testing.assert_array_equal(ours > 0, expected > 0)
    np.testing.assert_allclose(ours, expected, rtol=2e-5, atol=1e-9)


@pytest.mark.more
@pytest.mark.parametrize("settings", [{"top_k": 10}, {"top_k": 10, "temperature": 2.5}, {"top_k": 10, "top_p": 0.95}])
def test_draws_follow_the_distribution(settings: dict[str, Any]) -> None:
    """Pearson's chi-square over 20,000 positions; 0.999 quantile for the 9 degrees of freedom is 27.9."""
    logits = random_logits(1, VOCABULARY)
    sampling = Sampling(**{"temperature": 1.0, "seed": 11, **settings})
    probabilities = distribution(logits, sampling)
    drawn = [draw(logits, sampling, position) for position in range(20_000)]
    draws = np.bincount([token for token in drawn if token is not None], minlength=VOCABULARY)
    kept = probabilities > 0
    assert draws[~kept].sum() == 0
    expected = 20_000 * probabilities[kept]
    assert ((draws[kept] - expected) ** 2 / expected).sum() < 27.9


def test_noise_is_gumbels() -> None:
    """The difference from the distribution function is below 1.95 / sqrt(n) in 999 of 1000 cases (Kolmogorov)."""
    noises = np.sort(np.concatenate([noise(3, position, np.arange(1000)) for position in range(20)]))
    probabilities = np.exp(-np.exp(-noises))
    assert np.abs(probabilities - (np.arange(20_000) + 0.5) / 20_000).max() < 1.95 / np.sqrt(20_000)


def test_a_draw_is_the_same_every_time_and_another_for_other_seeds_and_positions() -> None:
    logits = np.zeros(VOCABULARY, np.float32)
    draws = [[draw(logits, Sampling(temperature=1.0, seed=seed), at) for at in range(50)] for seed in (0, 1, 0)]
    assert draws[0] == draws[2]
    assert len(set(draws[0])) > 40
    assert sum(one == other for one, other in zip(draws[0], draws[1], strict=True)) < 5


def test_the_uniform_numbers_never_change() -> None:
    """An answer that was begun on one node is continued on another, perhaps of another version."""

    def number(seed: int, position: int, token_id: int) -> float:
        return float(uniform(seed, position, np.array([token_id]))[0])

    assert number(0, 0, 0) == 0.011546754286331562
    assert number(0, 0, 5) == 0.2776055768845537
    assert number(0, 1, 0) == 0.21185954403345753
    assert number(1, 0, 0) == 0.3035680343067587
    assert number((1 << 64) - 1, (1 << 24) - 1, 200_000) == 0.17414441747133502
    numbers = np.concatenate([uniform(seed, 9, np.arange(100)) for seed in range(1000)])
    assert 0.0 < numbers.min() < numbers.max() < 1.0
    assert len(np.unique(numbers)) == len(numbers)


@pytest.mark.parametrize("words", [0, (1 << 64) - 1])
def test_noise_is_a_number_at_both_ends(words: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampler, "_words", lambda seed, position, ids: np.full(len(ids), words, np.uint64))
    assert 0.0 < uniform(0, 0, np.arange(1))[0] < 1.0
    assert np.isfinite(noise(0, 0, np.arange(1)))[0]


def test_the_number_of_a_token_depends_on_no_other_token() -> None:
    """Be they few or many, so that jumps and whole runs of numbers meet."""
    whole = uniform(7, 1234, np.arange(50_000))
    for ids in ([0], [49_999], [0, 3, 4, 5, 7, 12, 49_998], range(0, 50_000, 1000), range(0, 50_000, 3), range(400)):
        np.testing.assert_array_equal(uniform(7, 1234, np.array(ids)), whole[np.array(ids)])


def test_a_token_that_wins_among_all_wins_among_those_that_any_filter_keeps() -> None:
    """Filters, penalties of others, and a larger vocabulary take no part in it."""
    logits, changed = random_logits(2, VOCABULARY), 0
    longer = np.concatenate([logits, np.full(1000, -100, np.float32)])
    for position in range(200):
        token = draw(logits, Sampling(temperature=1.0, seed=5), position)
        assert token is not None
        assert draw(longer, Sampling(temperature=1.0, seed=5), position) == token
        least = logits[token]
        fewer = np.where(logits < least, np.float32(-np.inf), logits)
        assert draw(fewer, Sampling(temperature=1.0, seed=5), position) == token
        for settings in FILTERS:
            filtering = Sampling(**{"temperature": 1.0, "seed": 5, **settings})
            kept = distribution(logits, filtering)[token] > 0
            assert (draw(logits, filtering, position) == token) == kept
            changed += not kept
    assert changed > 0


def test_the_same_numbers_in_another_precision_give_the_same_tokens() -> None:
    logits = random_logits(4, VOCABULARY)
    exact = cast("NDArray[np.float32]", logits.astype(np.float64))
    for sampling in (Sampling(temperature=0.9, seed=2), Sampling(temperature=0.9, top_k=30, top_p=0.9, min_p=0.01)):
        assert [draw(logits, sampling, at) for at in range(100)] == [draw(exact, sampling, at) for at in range(100)]


def test_small_errors_of_logits_change_few_tokens_far_fewer_than_by_the_running_sum() -> None:
    """Errors of 1e-4, as between two kernels. The inverse of the running sum is what was used before."""
    sampling = Sampling(temperature=1.0, seed=1)
    luck = np.random.default_rng(0)
    logits = luck.standard_normal(20_000, dtype=np.float32)
    near = logits + np.repeat(np.array([1e-4, -1e-4], np.float32), 10_000)
    changed = changed_by_inverse = 0
    for position, number in enumerate(luck.random(300)):
        changed += draw(logits, sampling, position) != draw(near, sampling, position)
        changed_by_inverse += by_inverse(logits, sampling, number) != by_inverse(near, sampling, number)
    assert changed <= 2
    assert changed_by_inverse > 50


def test_of_equal_sums_the_lowest_id_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampler, "_words", lambda seed, position, ids: np.full(len(ids), 1 << 63, np.uint64))
    logits = np.zeros(VOCABULARY, np.float32)
    logits[[9, 7, 400]] = 1.0
    assert draw(logits, Sampling(temperature=1.0), 0) == 7


def test_philox_is_the_published_one() -> None:
    """The first known answer of Random123 for philox4x64-10; numpy counts up before it draws, here to zero."""
    assert int(np.random.Philox(key=0, counter=(1 << 256) - 1).random_raw()) == 0x16554D9ECA36314C


def test_a_bias_forbids_a_token_or_all_others() -> None:
    logits = random_logits(0, VOCABULARY)
    likeliest = int(logits.argmax())
    assert draw(logits, Sampling(bias_ids=(likeliest,), biases=(-100.0,)), 0) == int(np.argsort(logits)[-2])
    assert draw(logits, Sampling(bias_ids=(17,), biases=(100.0,)), 0) == 17
    assert int(logits.argmax()) == likeliest, "the logits are left alone"


def test_greedy_takes_the_lowest_id_of_equals() -> None:
    logits = np.zeros(VOCABULARY, np.float32)
    logits[[7, 400]] = 1.0
    assert draw(logits, Sampling(), 0) == 7


def test_greedy_heeds_the_penalty_and_leaves_the_logits_alone() -> None:
    logits = np.zeros(VOCABULARY, np.float32)
    logits[3], logits[9] = 2.0, 1.9
    assert draw(logits, Sampling(repetition_penalty=1.5, prompt_ids=SO_FAR), 0) == 9
    assert logits[3] == 2.0
    assert draw(-1 - logits, Sampling(repetition_penalty=1.5, prompt_ids=(1,)), 0) == 0


@pytest.mark.parametrize(("presence", "frequency"), [(0.7, 0.0), (0.0, 0.3), (-2.0, 2.0), (0.1, 0.25)])
def test_tokens_of_the_answer_are_penalised_once_and_for_each_time(presence: float, frequency: float) -> None:
    logits = random_logits(5, VOCABULARY)
    answer = [7, 9, 7, 7, 499, 0]
    expected = logits.copy()
    for token in answer:
        expected[token] -= np.float32(frequency)
    for token in set(answer):
        expected[token] -= np.float32(presence)
    ids = tuple(dict.fromkeys(answer))
    sampling = Sampling(
        presence_penalty=presence,
        frequency_penalty=frequency,
        prompt_ids=(3, 5),
        answer_ids=ids,
        answer_counts=tuple(answer.count(token) for token in ids),
    )
    np.testing.assert_allclose(penalised(logits, sampling), expected, rtol=0, atol=1e-6)
    assert draw(logits, sampling, 0) == expected.argmax()


def test_the_repetition_penalty_is_of_prompt_and_answer_once_and_comes_first() -> None:
    logits = random_logits(6, VOCABULARY)
    sampling = Sampling(
        repetition_penalty=1.5, presence_penalty=0.5, prompt_ids=(3, 9), answer_ids=(9, 11), answer_counts=(4, 1)
    )
    from transformers import RepetitionPenaltyLogitsProcessor  # noqa: PLC0415

    ids = torch.tensor([[3, 9, 9, 9, 9, 9, 11]])
    expected = RepetitionPenaltyLogitsProcessor(1.5)(ids, torch.from_numpy(logits)[None].clone())[0].numpy()
    expected[[9, 11]] -= np.float32(0.5)
    np.testing.assert_array_equal(penalised(logits, sampling), expected)


def test_penalties_that_are_off_or_have_nothing_to_count_change_nothing() -> None:
    assert not Sampling(prompt_ids=(1,), answer_ids=(2,), answer_counts=(3,)).is_changed
    assert not Sampling(presence_penalty=1.0, frequency_penalty=1.0, prompt_ids=(1,)).is_changed
    assert not Sampling(repetition_penalty=2.0).is_changed


def test_one_token_far_above_the_others_is_always_drawn() -> None:
    logits = np.full(VOCABULARY, -1e30, np.float32)
    logits[42] = 1e30
    for settings in ({"top_p": 1e-6}, {"min_p": 1.0}, {"top_k": 3}, {}):
        assert draw(logits, Sampling(temperature=0.01, **settings), 5) == 42


@pytest.mark.parametrize("temperature", [5e-324, 1e-320, 1e-45, 1e-7])
def test_a_temperature_near_zero_takes_the_likeliest(temperature: float) -> None:
    logits = random_logits(3, VOCABULARY)
    assert draw(logits, Sampling(temperature=temperature, top_p=0.9, min_p=0.1), 5) == int(logits.argmax())


@pytest.mark.parametrize("penalty", [0.01, 100.0])
def test_the_ends_of_the_repetition_penalty_are_taken(penalty: float) -> None:
    logits = np.ones(VOCABULARY, np.float32)
    changed = penalised(logits, Sampling(repetition_penalty=penalty, prompt_ids=(3,)))
    assert changed[3] == pytest.approx(1 / penalty)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_from_logits_that_are_not_numbers_nothing_is_drawn(bad: float, temperature: float) -> None:
    logits = random_logits(0, VOCABULARY)
    logits[17] = bad
    assert draw(logits, Sampling(temperature=temperature), 0) is None
