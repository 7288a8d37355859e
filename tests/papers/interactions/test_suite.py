"""Jobs of the suite interactions: what their models compute and learn, and how seeds determine them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from madbench.errors import BudgetError, ConfigError, LabelError
from madbench.jobs import StopTraining
from madbench.papers.interactions.model import InteractionModel, interaction_mixer
from madbench.papers.interactions.profile import TASKS, InteractionProfile, world_of
from madbench.papers.interactions.suite import INTERACTIONS
from madbench.suites import job_from_dict, size_of
from sample_jobs import train_job

SMALL = {
    "colliding": ["positions=8", "length=4", "test_lengths=[2,4,6]", "samples=300", "test_samples=100"],
    "hunters": ["cells=2", "length=4", "test_lengths=[2,4]", "samples=300", "test_samples=100"],
    "alliances": ["types=4", "length=4", "test_lengths=[3,4,6]", "samples=300", "test_samples=100"],
}


def profile(*more: str) -> InteractionProfile:
    small = [f"tasks.{task}.setting.{change}" for task, changes in SMALL.items() for change in changes]
    return InteractionProfile.load("quick", [*small, *more])


def jobs(*labels: str, task: str, more=(), seeds=(0,)):
    return INTERACTIONS.jobs(labels, profile(*more), tasks=[task], seeds=seeds)


def train(job, folder, report=lambda progress: None, **how):
    folder.mkdir(exist_ok=True)
    return train_job(job, folder, report, **how)


def test_the_quick_profile_plans_every_embedding_and_control():
    found = INTERACTIONS.jobs((), InteractionProfile.load("quick"), seeds=(0, 1))
    assert len({job.id for job in found}) == len(found) == 34
    about = [(job.task, job.setting.get("embedding"), job.setting.get("control"), job.label) for job in found[::2]]
    assert about[:3] == [("colliding", "one_hot", control, "hfa:C1") for control in ("", "without_itself", "distinct")]
    heads = {(job.task, job.label): job.model.n_head for job in found}
    assert heads[("hunters", "hfa:C1")] == 9 and heads[("alliances", "hfa:C1")] == 8
    rates = {job.setting["embedding"]: job.training.learning_rate for job in found if job.task == "colliding"}
    assert rates == {"one_hot": 0.02, "sinusoidal": 0.003}
    assert job_from_dict(found[0].to_dict()).id == found[0].id


@pytest.mark.slow
def test_an_override_of_one_task_takes_precedence_over_one_of_all():
    def trained(*more: str) -> tuple[int, float]:
        (job,) = jobs("hfa:C3", task="hunters", more=more)
        return job.training.steps, job.training.learning_rate

    assert trained() == (4000, 0.02)
    assert trained("training.steps=5", "training.learning_rate=0.5") == (5, 0.5)
    both = ("tasks.hunters.training.steps=6", "training.steps=5")
    assert trained(*both) == trained(*reversed(both)) == (6, 0.02)
    (job, *_) = jobs("hfa:C1", task="colliding", more=["training.learning_rate=0.5"])
    assert job.training.learning_rate == 0.5
    with pytest.raises(ConfigError, match="'learning_rate' has no effect: learning_rates has all embeddings"):
        profile("tasks.colliding.training.learning_rate=0.5")


def test_compared_labels_have_nearly_equal_parameters():
    of = {
        (job.task, job.label): size_of(job).parameters
        for job in INTERACTIONS.jobs((), InteractionProfile.load("quick"))
    }
    d, k = 4 + 3 * 6, 8
    assert of[("hunters", "hfa:C3")] == 9 * d**2 + 3 * d and of[("hunters", "hfa:C1")] == 9 * d**2 + 9 * d
    assert of[("alliances", "ha:C3")] == of[("alliances", "hfa:C1")] == k**3 + k**2


def test_choosing_embeddings_and_controls_keeps_the_ids_of_jobs():
    every = {job.id for job in INTERACTIONS.jobs((), InteractionProfile.load("quick"), tasks=["colliding"])}
    few = InteractionProfile.load("quick", ["embeddings=sinusoidal", "controls=distinct"])
    jobs = INTERACTIONS.jobs((), few, tasks=["colliding"])
    assert [job.setting["control"] for job in jobs] == ["", "distinct"]
    assert {job.setting["embedding"] for job in jobs} == {"sinusoidal"} and {job.id for job in jobs} < every


@pytest.mark.parametrize("word", ["embeddings=one_hot", "controls=[]"])
def test_embeddings_and_controls_without_colliding_agents_are_refused(word):
    with pytest.raises(ConfigError, match="has no effect without colliding agents"):
        INTERACTIONS.jobs((), InteractionProfile.load("quick", [word]), tasks=["hunters"])


def test_a_profile_without_an_embedding_is_refused():
    with pytest.raises(ConfigError, match="embeddings: expected one_hot or sinusoidal or both, got an empty list"):
        InteractionProfile.load("quick", ["embeddings=[]"])


def test_the_full_profile_has_the_size_of_the_paper():
    world = InteractionProfile.load("full").world("colliding")
    assert (world.positions, world.radius, world.length, world.samples) == (360, 5, 20, 100_000)
    assert {*world.test_lengths} == {2, 5, 10, 20, 30, 40}


@pytest.mark.parametrize(
    ("task", "label", "heads"),
    [
        ("colliding", "hfa:C1", 2),
        ("colliding", "hfa:L2w!", 2),
        ("hunters", "hfa:C1+3", 2),
        ("alliances", "ha:C3", 2),
        ("alliances", "ha:C3a", 1),
    ],
)
def test_model_outputs_are_sums_of_the_learned_effects(task, label, heads):
    (job, *_) = jobs(label, task=task, more=[f"model.n_head={heads}"])
    world = world_of(job)
    vectors = torch.from_numpy(np.random.default_rng(0).normal(size=world.vectors.shape))
    model = InteractionModel(vectors, interaction_mixer(label, vectors.shape[1], 9, n_head=heads)).double()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    model.requires_grad_(False)
    symbols = torch.from_numpy(world.data("test", 4, 0)[0][:5])
    effects, given = model.effects(), model(symbols)
    assert given.shape == (5, 4)
    for row, values in zip(symbols, given):
        for i, value in zip(row, values):
            others = [(row[j],) for j in range(4)]
            if effects.ndim == 3:
                others = [(row[j], row[k]) for j in range(4) for k in range(j + 1)]
                if label.endswith("a"):  # a doubled token counts once, and has both orders in the tensor
                    doubled = sum(effects[i, j, j] for j in row) / 2
                    expected = sum(effects[(i, *pair)] for pair in others) - doubled
                    torch.testing.assert_close(value, expected)
                    continue
            torch.testing.assert_close(value, sum(effects[(i, *pair)] for pair in others))
    torch.testing.assert_close(given, model.readout(model.mixer(model.vectors[symbols])).squeeze(-1))


@pytest.mark.parametrize("embedding", ["one_hot", "sinusoidal"])
def test_linear_attention_starts_from_no_couplings_and_a_value_of_one(embedding):
    (job,) = jobs("hfa:C1", task="colliding", more=[f"embeddings={embedding}", "controls=[]"])
    model = INTERACTIONS.Trial.build(job)
    assert not model.mixer.c.any()
    torch.testing.assert_close(model.vectors @ model.mixer.w[0, 0, :, 0], torch.ones(8).double())


def test_a_relu_layer_changes_the_job_and_initially_clips_at_one():
    plain, clipped = jobs(
        "hfa:C1", task="genotype", more=["tasks.genotype.variants={}", "tasks.genotype.setting.length=4"]
    )
    assert (plain.model.relu, clipped.model.relu) == (False, True) and plain.id != clipped.id
    assert "relu" not in str(plain.to_dict()["model"]) or not plain.to_dict()["model"]["relu"]
    assert size_of(clipped).parameters == size_of(plain).parameters + 4
    model = INTERACTIONS.Trial.build(clipped)
    model.mixer.c.data = torch.linspace(-2, 3, 12 * 12).double().view(1, 1, 12, 12)
    symbols = torch.tensor([[0, 3, 5, 7], [2, 1, 12, 12]])
    given = model(symbols)
    model.relu = None
    torch.testing.assert_close(given, model(symbols).clamp(max=1))
    assert (given == 1).any() and (given < 0).any() and not given[1, 2:].any()  # an empty place is 0


def test_variants_of_a_setting_are_each_trained():
    found = INTERACTIONS.jobs((), InteractionProfile.load("quick"), tasks=["genotype"])
    assert [(job.setting["fewest"], job.model.relu) for job in found] == [(0, False), (0, True), (2, False), (2, True)]
    with pytest.raises(ConfigError, match="tasks.colliding.variants has no effect"):
        profile("tasks.colliding.variants={a: {radius: 2}}")
    with pytest.raises(ConfigError, match="unknown key 'fewst'"):
        profile("tasks.genotype.variants={a: {fewst: 2}}")


def test_products_of_factors_do_not_start_from_zero():
    (job,) = jobs("hfa:C3", task="hunters")
    assert INTERACTIONS.Trial.build(job).mixer.c.std().item() == pytest.approx(0.3, rel=0.1)


@pytest.mark.slow
def test_a_quick_run_is_exact_at_every_length_and_finds_the_matrix(tmp_path):
    (job,) = jobs("hfa:C1", task="colliding", more=["embeddings=one_hot", "controls=[]", "training.steps=600"])
    metrics = train(job, tmp_path).metrics
    assert all(metrics[f"mse_{n}"] < 1e-12 < metrics[f"variance_{n}"] for n in (2, 4, 6))
    assert metrics["effects_error"] < 1e-12 and metrics["mse"] == metrics["mse_4"]


@pytest.mark.slow
def test_a_value_without_the_agent_itself_is_learned_at_one_length_only(tmp_path):
    found = jobs("hfa:C1", task="colliding", more=["embeddings=one_hot", "training.steps=600"])
    metrics = train(found[1], tmp_path).metrics
    assert found[1].setting["control"] == "without_itself"
    assert [metrics[f"mse_{n}"] for n in (2, 4, 6)] == pytest.approx([0.25, 0, 0.25], abs=1e-6)


@pytest.mark.slow
def test_ha_c3_learns_alliances(tmp_path):
    (job,) = jobs("ha:C3", task="alliances", more=["training.steps=300"])
    metrics = train(job, tmp_path).metrics
    assert max(metrics[f"mse_{n}"] for n in (3, 4, 6)) < 1e-3 and metrics["effects_error"] < 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("label", ["hfa:2", "hfa:L1", "ha:3"])
def test_other_mixers_are_read_out_by_a_linear_map(label, tmp_path):
    (job,) = jobs(label, task="colliding", more=["embeddings=one_hot", "controls=[]", "training.steps=4"])
    record = train(job, tmp_path)
    assert record.status == "finished" and ("effects_error" in record.metrics) == (label == "hfa:L1")
    assert record.details["model_parameters"] == record.details["mixer_parameters"] + 8


@pytest.mark.slow
def test_a_stopped_run_resumes_with_the_same_numbers(tmp_path, monkeypatch):
    monkeypatch.setattr("madbench.training.loop.REPORT_SECONDS", 0)
    (job,) = jobs("hfa:C3", task="hunters", more=["training.steps=20"])
    whole = train(job, tmp_path / "whole")

    def stop(progress):
        if progress["step"] == 7:
            raise StopTraining

    with pytest.raises(StopTraining):
        train(job, tmp_path / "parts", stop)
    resumed = train(job, tmp_path / "parts")
    assert resumed.metrics == whole.metrics and resumed.curve == whole.curve


@pytest.mark.slow
def test_micro_batches_give_the_result_of_the_whole_batch(tmp_path):
    (job,) = jobs("hfa:C3", task="hunters", more=["training.steps=3"])
    parts = train(job, tmp_path / "parts", micro_batch=48)
    whole = train(job, tmp_path / "whole")
    assert parts.metrics["mse"] == pytest.approx(whole.metrics["mse"], rel=1e-9)
    with pytest.raises(ConfigError, match="micro_batch must be at least 1, got 0"):
        train(job, tmp_path / "none", micro_batch=0)


@pytest.mark.slow
def test_seeds_differ_in_start_data_and_order():
    first, second = (INTERACTIONS.Trial.build(job) for job in jobs("hfa:C3", task="hunters", seeds=(0, 1)))
    assert (first.mixer.c != second.mixer.c).any()
    (job,) = jobs("hfa:C3", task="hunters")
    assert {replace(job, seed=seed).derived_seed("data") for seed in (0, 1)} != {job.derived_seed("data")}


@pytest.mark.slow
def test_the_precision_is_the_profile_s():
    (job,) = jobs("hfa:C3", task="hunters", more=["precision=float32"])
    assert INTERACTIONS.Trial.build(job).mixer.c.dtype == torch.float32
    with pytest.raises(ConfigError, match="set the interaction profile's own 'precision'"):
        profile("training.precision=float32")
    with pytest.raises(ConfigError, match="bfloat16"):
        profile("precision=bfloat16")


def test_wrong_labels_tasks_and_settings_of_interactions_are_refused():
    with pytest.raises(LabelError, match="cd:id-dg sees only earlier tokens"):
        jobs("cd:gla", task="hunters")
    with pytest.raises(BudgetError, match="n_head 1 is not a multiple of 2"):
        jobs("hfa:C1+2", task="hunters")
    with pytest.raises(ConfigError, match="unknown task 'hunter'; did you mean 'hunters'"):
        jobs("hfa:C1", task="hunter")
    with pytest.raises(ConfigError, match="unknown key 'cell'; did you mean 'cells'"):
        profile("tasks.hunters.setting.cell=3")
    with pytest.raises(ConfigError, match="unknown task 'agents'"):
        profile("tasks.agents.setting.cells=3")
    with pytest.raises(ConfigError, match="step"):
        profile("training.step=3")
    with pytest.raises(LabelError, match="hfa:D3"):
        profile("tasks.hunters.heads={'hfa:D3': 3}")
    assert INTERACTIONS.tasks() == TASKS
