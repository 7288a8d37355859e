"""Overrides without effect are refused, or left out of the jobs of labels on which they have none."""

from __future__ import annotations

import functools
import hashlib
import re
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from madbench.errors import BudgetError, ConfigError
from madbench.jobs import Job
from madbench.papers.interactions.suite import INTERACTIONS
from madbench.suites.language.suite import LANGUAGE
from madbench.suites.language.trial import LanguageTrial
from madbench.suites.mad.suite import MAD
from madbench.suites.token_trial import TokenTrial
from madbench.suites.tokens import setting_of
from small_profiles import profile_text, with_setting

LABELS = (
    "S", "S-p", "R-c", "R-q-12o", "R-12!", "G-pcg-q-1", "D-p", "R-k-q", "S-pa-v", "cd:exp-sum-p", "cd:mamba2-cg",
    "cd:id-1.05-pow", "hfa:2w-p-q", "hfa:C1", "ha:3s-q",
)  # fmt: skip
EQUIVALENT_VALUE_MESSAGE = r".* trains the same as (\S+); use \1"
"""The message about a value that has a canonical spelling."""
MIXER_OVERRIDES = (
    "model.mix_rank=1", "model.mix_rank=2", "model.mix_rank=16", "model.rank_multiple=2", "model.rope=mispaired",
    "model.rope_order=after_gate", "model.registers=2", "model.adapter_rank=2", "model.lambda_init=0.5",
    "model.position_rows=from_end", "model.qk_rank=8", "model.qk_rank=32", "model.init_std=0.1",
)  # fmt: skip
MODEL_OVERRIDES = ("model.n_head=4", "model.n_layer=1", "model.mlp_width=96", "model.mlp_width=32")
TRAINING_OVERRIDES = (
    "training.warmup_steps=2", "training.warmup_steps=1000000",
    "training.min_learning_rate=1e-5", "training.stop_accuracy=2", "training.epochs=3",
    "training.batch_size=8", "training.batch_size=64", "training.batch_size=128", "training.beta2=0.9",
    "weight_decays=0.1", "learning_rates=1e-2",
)  # fmt: skip
LABELS_FOR_TRAINING_OVERRIDES = ("S", "R-12!", "G-pcg-q-1")
"""Labels tested with all overrides, also those of training. Other labels are tested with overrides of mixers."""
PLAN_OPTIONS = (
    {"fidelity": "corrected", "task": "memorization", "budget": "strict"},
    {"fidelity": "published", "task": "memorization", "budget": "paper"},
    {"fidelity": "published", "task": "compression", "budget": "strict"},
)
_COUNTS = {"num_train_examples": 40, "num_test_examples": 24}
TINY = profile_text(
    model={"d_model": 32, "mix_rank": 8},
    training={"batch_size": 16, "epochs": 2},
    tasks=with_setting(["memorization"], vocab_size=16, **_COUNTS)
    | with_setting(["compression"], vocab_size=8, **_COUNTS),
)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory) -> str:
    path = tmp_path_factory.mktemp("profile") / "tiny.yaml"
    path.write_text(TINY)
    return str(path)


def plan(tiny, labels, *overrides, task="memorization", **how):
    return MAD.jobs(labels, MAD.Profile.load(tiny, overrides), tasks=[task], **how)


JOBS: dict[str, Job] = {}
"""Jobs by id, for :func:`what_is_trained`. Jobs themselves cannot be keys of a cache."""


@functools.cache
def hash_of_start(trial, job_id: str) -> str:
    """A hash of the initial weights of a job in ``JOBS``, and of the outputs of its model on some tokens."""
    job, digest = JOBS[job_id], hashlib.sha256()
    model = trial.build(job)
    length = setting_of(job).input_len if job.suite == "mad" else 12
    tokens = torch.arange(length)[None] % model.readout[0].shape[0]
    with torch.no_grad():
        logits = model(tokens)
    for tensor in (*model.state_dict().values(), logits):
        digest.update(tensor.numpy().tobytes())
    return digest.hexdigest()


def what_is_trained(job) -> tuple:
    """Everything that decides a run, computed from the code that trains it: weights, outputs, rates, batches, and
    evaluation."""
    JOBS[job.id] = job
    if job.suite == "language":
        config, of_run = job.training, (job.training.eval_every, job.training.eval_sequences, job.training.grad_clip)
        rates = [LANGUAGE.schedule(job).rate(step) for step in range(config.steps)]
        return (
            hash_of_start(LanguageTrial, job.id),
            rates,
            config.tokens_per_step,
            config.betas,
            config.weight_decay,
            of_run,
        )
    config, setting = job.training, setting_of(job)
    examples, is_published = setting.num_train_examples, job.fidelity == "published"
    sizes = [min(config.batch_size, examples - at) for at in range(0, examples, config.batch_size)] * config.epochs
    rates = [MAD.schedule(job).rate(step) for step in range(len(sizes))]
    judged = min(config.batch_size, setting.num_test_examples) if is_published else 0
    optimizer = (config.betas, config.weight_decay, min(config.stop_accuracy, 1.0001))
    return hash_of_start(TokenTrial, job.id), sizes, rates, judged, optimizer


def overrides_of(label: str) -> tuple[str, ...]:
    return MIXER_OVERRIDES + MODEL_OVERRIDES + (TRAINING_OVERRIDES if label in LABELS_FOR_TRAINING_OVERRIDES else ())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("label", "way"),
    [
        (label, way)
        for i, label in enumerate(LABELS)
        for way in range(3)
        if label in LABELS_FOR_TRAINING_OVERRIDES or way == i % 3
    ],
)
def test_overrides_that_change_the_id_of_a_job_change_its_training(tiny, label, way):
    how = PLAN_OPTIONS[way]
    (plain,) = plan(tiny, [label], **how)
    accepted, refused = 0, 0
    for override in overrides_of(label):
        try:
            (job,) = plan(tiny, [label], override, **how)
        except ConfigError as error:
            assert "no effect" in str(error) or re.fullmatch(EQUIVALENT_VALUE_MESSAGE, str(error))
            refused += 1
            continue
        except BudgetError:
            continue
        accepted += job.id != plain.id
        assert (what_is_trained(job) == what_is_trained(plain)) is (job.id == plain.id), override
    assert accepted >= (8 if label in LABELS_FOR_TRAINING_OVERRIDES else 3) and refused >= 6


@pytest.mark.slow
@pytest.mark.parametrize("label", LABELS)
def test_refused_overrides_would_not_change_training(tiny, label):
    """The jobs are planned without the check."""
    (plain,) = plan(tiny, [label])
    for override in overrides_of(label):
        profile = MAD.Profile.load(tiny, [override])
        try:
            planned = MAD.plan([label], profile, tasks=["memorization"])
        except (ConfigError, BudgetError):
            continue
        assert (planned.jobs[0].id == plain.id) or not planned.without_effect
        if planned.without_effect:
            raw = replace(plain, model=profile.model_config(), mixer=profile.identifying_settings(label))
            raw = replace(raw, training=profile.trainings("memorization", "float32")[0])
            assert what_is_trained(raw) == what_is_trained(plain), override


def test_labels_that_an_override_does_not_affect_keep_their_ids(tiny):
    plain = {job.label: job.id for job in plan(tiny, ["S", "R-12!", "D-p"])}
    changed = {job.label: job.id for job in plan(tiny, ["S", "R-12!", "D-p"], "model.mix_rank=2")}
    assert changed["S"] == plain["S"] and changed["D-p"] == plain["D-p"] and changed["R-12!"] != plain["R-12!"]
    both = plan(tiny, ["S-p", "R-12!"], "model.mix_rank=2", "model.rope=mispaired", "training.epochs=3")
    alone = [
        plan(tiny, [label], own, "training.epochs=3")[0]
        for label, own in (("S-p", "model.rope=mispaired"), ("R-12!", "model.mix_rank=2"))
    ]
    assert [job.id for job in both] == [job.id for job in alone]


def test_a_setting_is_part_of_job_ids_only_at_lengths_that_it_affects(tiny):
    length = "tasks.memorization.setting.seq_len=200"  # tables so long that the budget leaves a rank of 1
    tasks = ["memorization", "compression"]
    profiles = [MAD.Profile.load(tiny, [length, *more]) for more in ((), ("model.mix_rank=2",))]
    of_task = [{job.task: job for job in MAD.jobs(["R-q-12o"], one, tasks=tasks)} for one in profiles]
    assert of_task[0]["memorization"].id == of_task[1]["memorization"].id
    assert of_task[0]["compression"].id != of_task[1]["compression"].id


@pytest.mark.parametrize(
    ("labels", "overrides", "how", "says"),
    [
        (["S"], ["model.mix_rank=4"], {}, "has no effect on 'S'; settings of its mixer: model.rank_multiple"),
        (["S", "R-c", "D"], ["model.rope=mispaired"], {}, "model.rope has no effect on 'S', 'R-c', 'D'; settings"),
        (["S"], ["model.rope=rotation"], {}, "model.rope has no effect on 'S'"),
        (["hfa:C1"], ["model.rank_multiple=2"], {"budget": "paper"}, "settings of its mixer: none"),
        (["S"], ["training.warmup_steps=7"], {"fidelity": "published"}, "warmup_steps=7 in the publ"),
        (["S"], ["training.epochs=3", "training.warmup_steps=7"], {"fidelity": "published"}, "warmup_steps has"),
        (["S"], ["tasks.memorization.training.min_learning_rate=0"], {"fidelity": "published"}, "rate has"),
        (["S"], ["model.mlp_width=96"], {}, "model.mlp_width has no effect on 'S'"),
        (["S"], ["model.d_model=64", "model.mlp_width=176"], {}, "model.mlp_width has no effect on 'S'"),
        (["R-12!"], ["model.position_rows=from_end"], {}, "its runs are the same without model.position_rows=from"),
        (["R-12o!"], ["model.position_rows=from_end"], {}, "model.position_rows has no effect on 'R-12o!'"),
        (["R-q-12o"], ["model.mix_rank=1000"], {}, "its runs are the same without model.mix_rank=1000"),
        (["cd:gla"], ["model.init_std=0.5"], {"fidelity": "published"}, "model.init_std has no effect on 'cd:id-dg'"),
    ],
)  # fmt: skip
def test_overrides_without_effect_are_refused_with_key_and_label(tiny, labels, overrides, how, says):
    with pytest.raises(ConfigError, match="has no effect on") as caught:
        plan(tiny, labels, *overrides, **how)
    assert says in str(caught.value)


def test_position_rows_is_part_of_job_ids_only_for_inputs_shorter_than_the_tables(tiny):
    override, tasks = "model.position_rows=from_end", ["memorization", "in_context_recall"]
    setting = "tasks.in_context_recall.setting.seq_len=16"
    plain, changed = (
        {job.task: job.id for job in MAD.jobs(["R-12!"], MAD.Profile.load("quick", [setting, *more]), tasks=tasks)}
        for more in ((), (override,))
    )
    assert plain["memorization"] == changed["memorization"]
    assert plain["in_context_recall"] != changed["in_context_recall"]


@pytest.mark.parametrize("override", ["training.epochs=2", "model.mix_rank=8", "model.d_model=32", "precision=float32"])
def test_overriding_a_key_with_its_own_value_keeps_the_job_id(tiny, override):
    assert [job.id for job in plan(tiny, ["R-12!"], override)] == [job.id for job in plan(tiny, ["R-12!"])]


@pytest.mark.parametrize(
    ("labels", "overrides", "how", "ids"),
    [
        (["S", "D-pcgk-q", "hfa:2w-p-q"], [], {}, ["ef15efc309d145b1", "73bce7076904e53a", "047fd0adb38cf5db"]),
        (["R-12!"], ["model.mix_rank=4"], {}, ["a2cdf766488d937c"]),
        (["S-p"], ["model.rope=mispaired"], {}, ["bb7574300c67dbd5"]),
        (["S"], ["training.epochs=20"], {}, ["2f757a349b5972f6"]),
        (["S-p", "R-k-q"], [], {"fidelity": "published", "budget": "paper"}, ["f6e05aed7b1be441", "02871475d4f332c0"]),
        (["R-k-q"], ["model.registers=8"], {"seeds": [3]}, ["66227b2923489804"]),
    ],
)
def test_job_ids_never_change(labels, overrides, how, ids):
    """So runs that were stored long ago are found."""
    jobs = MAD.jobs(labels, MAD.Profile.load("quick", overrides), tasks=["memorization"], **how)
    assert [job.id for job in jobs] == ids


@pytest.fixture
def corpus():
    return SimpleNamespace(digest="c0ffee0123456789", padded_vocab_size=320)


@pytest.mark.slow
@pytest.mark.parametrize("label", ["S", "S-p", "R-12!", "cd:exp-sum-p", "hfa:C1"])
def test_overrides_that_change_the_id_of_a_language_model_change_its_training(label, corpus):
    small = ["model.n_layer=1", "model.d_model=32", "model.seq_len=16", "training.tokens_per_step=64"]
    (plain,) = LANGUAGE.jobs([label], LANGUAGE.Profile.load("tiny", small), corpus=corpus)
    overrides = MIXER_OVERRIDES + (
        "model.mlp_width=128", "model.mlp_width=64", "model.mlp=swiglu", "model.output=untied", "model.norm=rmsnorm",
        "model.positions=learned",
        "training.warmup_steps=7", "training.min_learning_rate=1e-5", "training.beta2=0.9", "training.grad_clip=0",
        "training.eval_sequences=32", "training.lr_decay_steps=600000", "training.lr_decay_steps=200",
    )  # fmt: skip
    refused = 0
    for override in overrides:
        try:
            (job,) = LANGUAGE.jobs([label], LANGUAGE.Profile.load("tiny", [*small, override]), corpus=corpus)
        except ConfigError:
            refused += 1
            continue
        assert (what_is_trained(job) == what_is_trained(plain)) is (job.id == plain.id), override
    assert refused >= 6


def test_settings_of_a_schedule_that_never_leaves_its_warm_up_are_refused(corpus):
    long = ["training.warmup_steps=100000"]
    LANGUAGE.jobs(["S"], LANGUAGE.Profile.load("tiny", long), corpus=corpus)
    with pytest.raises(ConfigError, match="training.min_learning_rate has no effect on 'S'"):
        LANGUAGE.jobs(["S"], LANGUAGE.Profile.load("tiny", [*long, "training.min_learning_rate=1e-5"]), corpus=corpus)


NO_EARLY_STOPPING = ["training.stop_accuracy=2"]


@pytest.mark.parametrize(
    ("overrides", "how", "says"),
    [
        (["training.stop_accuracy=3"], {}, "training.stop_accuracy=3 trains the same as training.stop_accuracy=2"),
        (["training.stop_accuracy=1.0001"], {}, "use training.stop_accuracy=2"),
        (["training.stop_accuracy=1e6"], {"fidelity": "published"}, "use training.stop_accuracy=2"),
        (["tasks.memorization.training.stop_accuracy=9"], {}, "use tasks.memorization.training.stop_accuracy=2"),
        (["training.batch_size=41"], {}, "training.batch_size=41 trains the same as training.batch_size=40"),
        ([*NO_EARLY_STOPPING, "training.batch_size=4000"], {}, "use training.batch_size=40"),
    ],
)
def test_a_value_equivalent_to_another_one_is_refused(tiny, overrides, how, says):
    with pytest.raises(ConfigError) as caught:
        plan(tiny, ["S", "R-12!"], *overrides, **how)
    assert says in str(caught.value) and re.fullmatch(EQUIVALENT_VALUE_MESSAGE, str(caught.value))


def test_values_up_to_the_last_effective_one_give_different_jobs(tiny):
    accuracies = ("training.stop_accuracy=0.5", "training.stop_accuracy=1", *NO_EARLY_STOPPING)
    batches = ("training.batch_size=39", "training.batch_size=40")
    jobs = [plan(tiny, ["S"], *overrides)[0] for overrides in ([], *([one] for one in accuracies + batches))]
    assert len({job.id for job in jobs}) == len(jobs) == len({repr(what_is_trained(job)) for job in jobs})


def test_a_window_beyond_every_input_is_refused(tiny):
    length = MAD.Profile.load(tiny).settings("memorization")[0]["seq_len"]
    longest = f"model.window={length}"
    for labels in (["S-pw"], ["S", "R-w-q-12"], ["S/S-w"]):
        with pytest.raises(ConfigError, match=EQUIVALENT_VALUE_MESSAGE) as caught:
            plan(tiny, labels, f"model.window={length + 1}")
        assert str(caught.value).endswith(longest)
        assert plan(tiny, labels, longest)[-1].mixer["window"] == length
    with pytest.raises(ConfigError, match="model.window has no effect on 'S-p'"):
        plan(tiny, ["S-p"], f"model.window={length + 1}")


def test_a_window_beyond_the_inputs_of_one_task_alone_is_not_refused(tiny):
    short, window = "tasks.memorization.setting.seq_len=12", "model.window=16"
    profile = MAD.Profile.load(tiny, [short, "tasks.compression.setting.seq_len=24", window])
    assert {job.mixer["window"] for job in MAD.jobs(["S-w"], profile, tasks=["memorization", "compression"])} == {16}


def test_a_batch_that_holds_all_examples_of_one_task_alone_is_not_refused(tiny):
    larger = "tasks.compression.setting.num_train_examples=100"
    profile = MAD.Profile.load(tiny, [larger, "training.batch_size=64"])
    planned = MAD.jobs(["S"], profile, tasks=["memorization", "compression"])
    assert {job.training.batch_size for job in planned} == {64}


def test_the_batch_size_of_a_profile_may_exceed_the_number_of_examples(tiny):
    few = "tasks.memorization.setting.num_train_examples=8"
    assert plan(tiny, ["S"], few)[0].training.batch_size == 16


def test_cosine_ends_within_the_warm_up_have_one_canonical_value(corpus):
    def jobs_of(steps: int) -> list:
        words = ["training.warmup_steps=20", f"training.lr_decay_steps={steps}"]
        return LANGUAGE.jobs(["S"], LANGUAGE.Profile.load("tiny", words), corpus=corpus)

    (job,) = jobs_of(20)
    within = replace(job.training, lr_decay_steps=5)
    schedules = [training.schedule(240) for training in (within, job.training)]
    assert [schedules[0].rate(step) for step in range(240)] == [schedules[1].rate(step) for step in range(240)]
    with pytest.raises(ConfigError, match="lr_decay_steps=5 trains the same as training.lr_decay_steps=20"):
        jobs_of(5)


def test_lr_decay_steps_equal_to_the_default_is_refused(corpus):
    steps = LANGUAGE.Profile.load("tiny").training_config("float32").steps
    with pytest.raises(ConfigError, match="training.lr_decay_steps has no effect on 'S'"):
        profile = LANGUAGE.Profile.load("tiny", [f"training.lr_decay_steps={steps}"])
        LANGUAGE.jobs(["S"], profile, corpus=corpus)


@pytest.mark.parametrize(
    ("labels", "override", "says"),
    [
        (["hfa:C3"], "model.rank_multiple=2", "no effect on 'hfa:C3'; settings of its mixer: none"),
        (["hfa:L1"], "model.rank_multiple=2", "model.rank_multiple has no effect on 'hfa:L1'"),
        (["hfa:C3"], "tasks.hunters.labels=['hfa:C1']", "no effect where labels are named: hfa:C3"),
        (["hfa:C3"], "tasks.hunters.heads={'hfa:C2': 2}", "tasks.hunters.heads has no effect"),
        ([], "tasks.hunters.heads.hfa:C2=2", "no effect: trained are hfa:C1, hfa:C3"),
    ],
)  # fmt: skip
def test_settings_of_interactions_without_effect_are_refused(labels, override, says):
    with pytest.raises(ConfigError) as caught:
        INTERACTIONS.jobs(labels, INTERACTIONS.Profile.load("quick", [override]), tasks=["hunters"])
    assert says in str(caught.value)


def test_a_setting_of_a_world_that_makes_the_same_world_is_refused():
    small = ["tasks.colliding.setting.positions=8", "tasks.colliding.setting.length=4"]
    small += ["embeddings=one_hot", "controls=[]"]

    def plan(*more: str):
        return INTERACTIONS.jobs((), INTERACTIONS.Profile.load("quick", [*small, *more]), tasks=["colliding"])

    plan("tasks.colliding.setting.radius=2")  # all meet, at most 4 apart
    plan("tasks.colliding.setting.test_lengths=[2,4]")
    with pytest.raises(ConfigError, match="tasks.colliding.setting.test_lengths has no effect on 'hfa:C1'"):
        plan("tasks.colliding.setting.test_lengths=[40,20,10,5,2]")


def test_a_rate_of_an_embedding_that_is_not_trained_is_refused():
    def jobs_of(embedding: str) -> list:
        words = ["tasks.colliding.learning_rates.sinusoidal=0.5", f"embeddings={embedding}"]
        return INTERACTIONS.jobs((), INTERACTIONS.Profile.load("quick", words), tasks=["colliding"])

    with pytest.raises(ConfigError, match="has no effect: trained are one_hot"):
        jobs_of("one_hot")
    assert jobs_of("sinusoidal")


def test_more_jobs_than_one_experiment_may_have_are_refused_with_their_seeds(tiny):
    with pytest.raises(ConfigError, match="200,000 jobs; at most 100,000"):
        plan(tiny, ["S", "R"], seeds=range(100_000))
