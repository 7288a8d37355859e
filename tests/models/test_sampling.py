"""Sampling: greedy and random draws, what limits them, windows, and settings that are refused."""

from __future__ import annotations

import itertools

import pytest
import torch

from madbench.errors import ConfigError, TrainingError
from madbench.mixers import build
from madbench.mixers.srg.dynamic_mlp import DynamicMLP
from madbench.models.gpt import GPT, generate


@pytest.fixture(scope="module")
def make():
    def make(label="R-12o!", positions="none", seq_len=8):
        torch.manual_seed(0)
        model = GPT(11, 16, 2, lambda: build(label, 16, seq_len, budget="paper"), seq_len, positions)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.normal_(std=0.4)
        return model

    return make


def sample(model, prompt=(3, 1), count=5, seed=0, **how):
    return list(generate(model, prompt, count, generator=torch.Generator().manual_seed(seed), **how))


@pytest.mark.parametrize("label", ["S-p", "R-cg-q", "G-cg-q-12o"])
def test_temperature_zero_takes_the_likeliest_id_of_the_whole_sequence_each_time(make, label):
    model, ids = make(label), [3, 1]
    for _ in range(6):
        ids.append(int(model(torch.tensor([ids]))[0, -1].argmax()))
    assert sample(model, count=6, temperature=0) == ids[2:]


@pytest.mark.slow
def test_draws_follow_the_probabilities_of_the_logits(make):
    model = make("S")
    expected = (model(torch.tensor([[3, 1]]))[0, -1] / 1.5).softmax(-1)
    generator = torch.Generator().manual_seed(0)
    draws = [next(generate(model, [3, 1], 1, generator=generator, temperature=1.5)) for _ in range(200)]
    observed = torch.bincount(torch.tensor(draws), minlength=11) / 200
    assert (observed - expected).abs().max() < 4 * 0.5 / 200**0.5


def test_one_seed_gives_one_text_and_another_seed_another(make):
    model = make()
    assert sample(model, count=8) == sample(model, count=8) != sample(model, count=8, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("label", ["S-p", "G-cg-q-12o", "R-q-12"])
def test_a_prompt_read_at_once_gives_the_text_of_one_read_step_by_step(make, label, monkeypatch):
    model = make(label)
    texts = [sample(model, prompt, count=14) for prompt in ([3], [3, 1, 4, 1, 5], list(range(11)))]
    monkeypatch.delattr(DynamicMLP, "prefill")
    assert texts == [sample(model, prompt, count=14) for prompt in ([3], [3, 1, 4, 1, 5], list(range(11)))]


def test_top_k_draws_among_the_likeliest_only(make):
    model = make()
    likeliest = set(model(torch.tensor([[3, 1]]))[0, -1].topk(2).indices.tolist())
    drawn = {sample(model, count=1, seed=seed, temperature=50.0, top_k=2)[0] for seed in range(30)}
    assert drawn == likeliest
    assert sample(model, top_k=1) == sample(model, temperature=0)
    assert sample(model, top_k=99) == sample(model)


@pytest.mark.parametrize("temperature", [1e-3, 1e-30, 1e-300, 5e-324])
def test_a_temperature_near_zero_takes_the_likeliest_id(make, temperature):
    model = make("S")
    assert sample(model, temperature=temperature) == sample(model, temperature=0)


@pytest.mark.slow
def test_a_huge_temperature_draws_every_id_with_equal_probability(make):
    model, generator = make("S"), torch.Generator().manual_seed(0)
    drawn = [next(generate(model, [3, 1], 1, generator=generator, temperature=1e300)) for _ in range(220)]
    assert torch.bincount(torch.tensor(drawn), minlength=11).min() > 5


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ({"temperature": float("nan")}, "temperature nan: expected a finite number"),
        ({"temperature": float("inf")}, "temperature inf: expected a finite number"),
        ({"temperature": -1.0}, "temperature -1.0: expected a finite number"),
        ({"top_k": 0}, "top_k 0: expected at least 1"),
        ({"top_k": -3}, "top_k -3: expected at least 1"),
    ],
)
def test_invalid_sampling_settings_are_refused_before_anything_is_drawn(make, setting, says):
    with pytest.raises(ConfigError, match=says):
        generate(make("S"), [1], 1, generator=torch.Generator(), **setting)


def test_padding_rows_of_the_embedding_are_never_drawn(make):
    model = make()
    drawn = set(itertools.chain(*(sample(model, count=6, seed=s, temperature=50.0, vocab_size=4) for s in range(10))))
    assert drawn == {0, 1, 2, 3}


def test_text_goes_on_beyond_the_context_in_a_sliding_window(make):
    assert len(sample(make(seq_len=4), prompt=[1, 2, 3, 4, 5, 6], count=9)) == 9


def test_generate_draws_each_id_lazily(make):
    assert next(generate(make(), [1], 10**9, generator=torch.Generator())) < 11


def test_a_diverged_model_gives_no_text(make):
    model = make()
    model.norm.weight.data.fill_(float("nan"))
    with pytest.raises(TrainingError, match="no finite logits"):
        sample(model)


def test_sampling_beyond_the_learned_positions_is_refused(make):
    model = make("S", positions="learned", seq_len=4)
    assert len(sample(model, prompt=[1, 2], count=3)) == 3  # the last one drawn is not read
    with pytest.raises(TrainingError, match="5 tokens, but the model learned positions for seq_len = 4"):
        sample(model, prompt=[1, 2], count=4)
