"""Profiles: shipped files, files of users, overrides, and errors that name file and key."""

from __future__ import annotations

import dataclasses
import shutil

import pytest

from madbench.config import Override, read_yaml
from madbench.errors import ConfigError
from madbench.labels import expand
from madbench.mixers import solve
from madbench.suites import suites
from madbench.suites.language.suite import LanguageProfile
from madbench.suites.mad.suite import MAD, MAD_TASKS, MadProfile

MINIMAL = """\
description: mine
comparable_with_paper: false
learning_rates: [1.0e-3]
weight_decays: [0.0]
difficulty: baseline
"""


@pytest.fixture
def write(tmp_path):
    def write(text: str) -> str:
        path = tmp_path / "mine.yaml"
        path.write_text(text)
        return str(path)

    return write


def refusal(name: str, *overrides: str) -> str:
    with pytest.raises(ConfigError) as caught:
        MadProfile.load(name, overrides)
    return str(caught.value)


def test_every_shipped_profile_loads():
    assert {"quick", "full"} <= set(MadProfile.names())
    for name in MadProfile.names():
        MadProfile.load(name)


def test_a_profile_has_the_present_content_of_its_file_and_the_given_overrides(write):
    name = write(MINIMAL)
    first = MadProfile.load(name)
    assert MadProfile.load(name) == first != MadProfile.load(name, ["model.n_layer=1"])
    write(MINIMAL.replace("1.0e-3", "2.0e-3"))  # a file of the same size, perhaps in the same tick of the clock
    assert MadProfile.load(name).learning_rates == (2e-3,)
    write(MINIMAL + "like: quick\n")
    assert MadProfile.load(name).model == MadProfile.load("quick").model != first.model
    integer = Override.of("training.epochs", 3)
    assert MadProfile.load(name, [integer]).training["epochs"] == 3
    with pytest.raises(ConfigError, match="training.epochs"):
        MadProfile.load(name, [Override.of("training.epochs", "3")])  # an equal text


def test_profile_quick_is_small_and_full_is_the_published_protocol():
    quick, full = MadProfile.load("quick"), MadProfile.load("full")
    assert (quick.comparable_with_paper, full.comparable_with_paper) == (False, True)
    assert (quick.difficulty, full.difficulty) == ("baseline", "all")
    assert full.learning_rates == (1e-4, 5e-4, 1e-3) and full.weight_decays == (0.0, 0.1)
    config = full.trainings("compression", "float32")[0]
    assert (config.epochs, config.batch_size, config.stop_accuracy) == (200, 128, 0.999)
    assert dataclasses.asdict(full.model_config()) == {"d_model": 128, "n_head": 2, "n_layer": 2, "mlp_width": 0}
    assert full.mixer_settings("S") == {"mix_rank": 16, "rank_multiple": 1, "rope": "rotation"}


def test_a_value_in_a_profile_file_equivalent_to_another_one_is_refused(write):
    for section in (
        "training: {{stop_accuracy: {}}}\n",
        "tasks: {{compression: {{training: {{stop_accuracy: {}}}}}}}\n",
    ):
        for value in ("1", "2", "2e0"):
            MadProfile.load(write(MINIMAL + section.format(value)))
        for value in ("3", "1.5", "1e1"):
            said = refusal(write(MINIMAL + section.format(value)))
            assert "mine.yaml: " in said and said.endswith("stop_accuracy=2; use 2")


def test_a_users_file_can_be_loaded_as_a_profile(write):
    profile = MadProfile.load(write(MINIMAL + "model: {d_model: 16}\ntasks:\n  compression: {training: {epochs: 3}}\n"))
    assert profile.model_config().d_model == 16
    assert profile.trainings("compression", "bfloat16")[0].epochs == 3
    assert profile.trainings("memorization", "bfloat16")[0].epochs == 200


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("modle: {}", "unknown key 'modle'; did you mean 'model'?"),
        ("model: {dmodel: 8}", "model: unknown key 'dmodel'; did you mean 'd_model'?"),
        ("model: {heads: 2}", "model: unknown key 'heads'; did you mean 'n_head' or 'kv_heads'?"),
        ("model: {d_model: wide}", "model: d_model: expected a whole number, got 'wide'"),
        ("model: {d_model: 0}", "d_model must be at least 1, got 0"),
        ("training: {epoch: 3}", "training: unknown key 'epoch'; did you mean 'epochs'?"),
        (
            "training: {momentum: 3}",
            "expected one of: optimizer, warmup_steps, min_learning_rate, lr_decay_steps, beta1",
        ),
        ("training: {lr: 3}", "training: unknown key 'lr'; set the profile's own 'learning_rates'"),
        ("lr: 3", "unknown key 'lr'; did you mean 'learning_rates'?"),
        ("wd: 3", "unknown key 'wd'; did you mean 'weight_decays'?"),
        ("batch_size: 3", "unknown key 'batch_size'; did you mean 'batch_size' under 'training'?"),
        ("tasks: {compression: {lr: 3}}", "compression: unknown key 'lr'; did you mean 'learning_rates'?"),
        ("training: {momentum: 3}", "stop_accuracy; the profile itself has learning_rates, weight_decays, precision"),
        ("training: {weight_decy: 3}", "training: unknown key 'weight_decy'; set the profile's own 'weight_decays'"),
        ("training: {epochs: 2.5}", "training: epochs: expected a whole number, got 2.5"),
        ("training: {learning_rate: 1.0e-3}", "no effect here; set the profile's own 'learning_rates'"),
        ("training: {weight_decay: 0}", "'weight_decay' has no effect here; set the profile's own 'weight_decays'"),
        ("training: {precision: float32}", "'precision' has no effect here; set the profile's own 'precision'"),
        ("tasks: {memorisation: {}}", "tasks: unknown task 'memorisation'; did you mean 'memorization'?"),
        ("tasks: {compression: {settings: {}}}", "unknown key 'settings'; did you mean 'setting'?"),
        (
            "tasks: {compression: {setting: {seq_len: 7.5}}}",
            "tasks: compression: setting: seq_len: expected a whole number",
        ),
        ("tasks: {compression: {training: {epoch: 3}}}", "compression: training: unknown key 'epoch'"),
        ("tasks: {compression: {training: {learning_rate: 1}}}", "training: 'learning_rate' has no effect"),
        ("tasks: {compression: {learning_rates: [1, 1]}}", "compression: learning_rates: 1.0 appears twice"),
        ("precision: float16", "precision: 'float16' is not allowed; expected one of: auto, float32, bfloat16"),
        ("precision: float64", "precision: 'float64' is not allowed; expected one of: auto, float32, bfloat16"),
        ("precision: bloat16", "precision: 'bloat16' is not allowed; did you mean 'bfloat16'?"),
        ("description: again", "'description' appears twice"),
    ],
)
def test_a_wrong_file_is_refused_by_file_and_key(write, text, says):
    name = write(MINIMAL + text)
    assert refusal(name).startswith(name) and says in refusal(name)


@pytest.mark.parametrize(
    ("line", "instead", "says"),
    [
        ("learning_rates: [1.0e-3]", "learning_rates: []", "learning_rates: give at least one value"),
        ("learning_rates: [1.0e-3]", "learning_rates: [1.0e-3, 0.001]", "learning_rates: 0.001 appears twice"),
        ("weight_decays: [0.0]", "weight_decays: [0, -0.0]", "weight_decays: 0.0 appears twice; leave one out"),
        ("learning_rates: [1.0e-3]", "learning_rates: [fast]", "learning_rates[0]: expected a number, got 'fast'"),
        ("weight_decays: [0.0]", "", "key 'weight_decays' is missing"),
        ("difficulty: baseline", "difficulty: hard", "difficulty: 'hard' is not allowed"),
        ("difficulty: baseline", "difficulty: all\ntasks: {compression: {setting: {seq_len: 8}}}", "baseline"),
    ],
)
def test_a_file_without_what_it_needs_is_refused(write, line, instead, says):
    assert says in refusal(write(MINIMAL.replace(line, instead)))


def test_an_unknown_profile_names_the_nearest_one():
    assert refusal("quikc") == "profile 'quikc': no such profile or file; did you mean 'quick'?"
    assert "profile 'none/of/mine.yaml': no such profile or file" in refusal("none/of/mine.yaml")
    assert refusal(__file__).endswith("expected a file whose name ends in .yaml")


def test_overrides_change_only_the_keys_that_they_name():
    plain = MadProfile.load("quick")
    changed = MadProfile.load(
        "quick",
        [
            "training.stop_accuracy=0.5", "model.d_model=32", "learning_rates=[1e-3, 2e-3]", "weight_decays=0.1",
            "tasks.compression.setting.seq_len=16", "tasks.memorization.training.epochs=7", "precision=bfloat16",
        ],
    )  # fmt: skip
    assert changed.learning_rates == (1e-3, 2e-3) and changed.weight_decays == (0.1,)
    assert changed.precision == "bfloat16"
    assert changed.model == plain.model | {"d_model": 32}
    assert changed.training == plain.training | {"stop_accuracy": 0.5}
    assert changed.tasks["compression"].setting == plain.tasks["compression"].setting | {"seq_len": 16}
    assert changed.tasks["memorization"].training == plain.tasks["memorization"].training | {"epochs": 7}
    untouched = set(plain.tasks) - {"compression", "memorization"}
    for name in untouched:
        before, after = plain.tasks[name], changed.tasks[name]
        assert (after.setting, after.training) == (before.setting, before.training)
        assert [config.learning_rate for config in changed.trainings(name, "float32")] == [1e-3, 2e-3]
    assert MadProfile.load("quick") == plain


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("lr=1e-3", "unknown key 'lr'; did you mean 'learning_rates'?"),
        ("bs=3", "unknown key 'bs'; did you mean 'training.batch_size'?"),
        ("steps=3", "unknown key 'steps'; expected one of: precision, model"),
        ("training.lr=1e-3", "training: unknown key 'lr'; set the profile's own 'learning_rates'"),
        ("trainin.epochs=3", "unknown key 'trainin'; did you mean 'training'?"),
        ("training.epoch=3", "unknown key 'epoch'; did you mean 'epochs'?"),
        ("training.epochs=many", "epochs: expected a whole number, got 'many'"),
        ("training.epochs=", "epochs: expected a whole number, got nothing"),
        ("training.epochs=[", "'[' is not a value"),
        ("training.epochs.x=3", "'epochs' holds a value, not keys"),
        ("training=3", "expected a mapping of keys to values, got 3"),
        ("training.learning_rate=1e-3", "'learning_rate' has no effect here; set the profile's own 'learning_rates'"),
        ("tasks.memorisation.training.epochs=3", "unknown task 'memorisation'; did you mean 'memorization'?"),
        ("tasks.compression.epochs=3", "unknown key 'epochs'"),
        ("tasks=3", "tasks: expected a mapping of keys to values, got 3"),
        ("tasks.compression=3", "tasks: compression: expected a mapping of keys to values, got 3"),
        ("precision=float16", "'float16' is not allowed"),
        ("training.=3", "expected KEY=VALUE, such as model.d_model=64"),
        ("training.epochs", "expected KEY=VALUE, such as model.d_model=64"),
        ("=3", "expected KEY=VALUE, such as model.d_model=64"),
    ],
)
def test_a_wrong_override_is_refused_by_its_own_text(override, says):
    message = refusal("quick", override)
    assert message.startswith(f"override {override!r}: ") and says in message


@pytest.mark.parametrize("cls", [MadProfile, LanguageProfile])
@pytest.mark.parametrize("word", ["nosuch", "descriptoin", "besides", "source"])
def test_an_unknown_key_is_answered_only_with_keys_that_overrides_may_change(cls, word):
    with pytest.raises(ConfigError) as caught:
        cls.load("tiny" if cls is LanguageProfile else "quick", [f"{word}=1"])
    suggested = str(caught.value).partition("expected one of: ")[2].split(", ")
    assert set(suggested) == {key.partition(".")[0] for key in cls.docs()}


def test_an_override_of_training_holds_for_tasks_with_a_value_of_their_own(write):
    own = MINIMAL + "training: {epochs: 2}\ntasks: {compression: {training: {epochs: 3, batch_size: 5}}}\n"

    def epochs(*overrides: str) -> list[int]:
        profile = MadProfile.load(write(own), overrides)
        configs = [profile.trainings(task, "float32")[0] for task in ("compression", "memorization")]
        assert [config.batch_size for config in configs] == [5, 128]
        return [config.epochs for config in configs]

    assert epochs() == [3, 2]
    assert epochs("training.epochs=7") == [7, 7]
    both = ("training.epochs=7", "tasks.compression.training.epochs=8")
    assert epochs(*both) == epochs(*reversed(both)) == [8, 7]


def test_an_invalid_override_of_tasks_is_refused_among_others():
    message = refusal("quick", "tasks={compression: 3}", "training.epochs=3", "learning_rates=0.5")
    assert "tasks: compression: expected a mapping of keys to values, got 3" in message


def test_learning_rates_of_a_task_stand_in_for_the_profiles(write):
    own = write(MINIMAL + "tasks: {compression: {learning_rates: [0.5, 0.25]}}\n")

    def rates(*overrides: str) -> list[tuple[float, ...]]:
        profile = MadProfile.load(own, overrides)
        of_tasks = (profile.trainings(task, "float32") for task in ("compression", "memorization"))
        return [tuple(config.learning_rate for config in configs) for configs in of_tasks]

    usual = MadProfile.load(own).learning_rates
    assert rates() == [(0.5, 0.25), usual]
    assert rates("learning_rates=[0.125]") == [(0.125,), (0.125,)]
    assert rates("tasks.memorization.learning_rates=[0.125]") == [(0.5, 0.25), (0.125,)]


def test_a_key_overridden_twice_is_refused():
    assert "override 'training.epochs' is given twice" in refusal("quick", "training.epochs=3", "training.epochs=4")


def test_an_overridden_protocol_is_no_longer_comparable_with_the_paper():
    assert not MadProfile.load("full", ["training.epochs=3"]).comparable_with_paper
    assert MadProfile.load("full", ["precision=float32"]).comparable_with_paper


@pytest.mark.parametrize(
    "override", ["comparable_with_paper=true", "description=mine", "beside.language_model=mini", "sort_order=1"]
)
def test_keys_that_only_files_can_have_are_refused_as_overrides(override):
    assert "has no effect on a run" in refusal("quick", override)


def test_every_documented_key_can_be_overridden():
    values = {
        "difficulty": "baseline", "precision": "float32", "language_model": "mini",
        "learning_rates": "0.5", "weight_decays": "0.5", "model.rope": "mispaired",
        "training.optimizer": "muon",
        "training.beta1": "0.5", "training.beta2": "0.5", "model.rope_order": "after_gate", "model.lambda_init": "0.5",
        "model.position_rows": "from_end", "model.value_skip": "true", "model.gates": "vo",
        "model.register_place": "last", "model.differential": "v2",
    }  # fmt: skip
    docs = MadProfile.docs()
    assert {"model.d_model", "training.epochs", "training.stop_accuracy", "tasks.TASK.setting.KEY"} <= docs.keys()
    assert not {"training.learning_rate", "training.weight_decay", "training.precision"} & docs.keys()
    for key, sentence in docs.items():
        assert sentence.endswith(".")
        if not key.startswith("tasks."):
            MadProfile.load("quick", [f"{key}={values.get(key, 1)}"])


@pytest.mark.parametrize(("override", "key"), [("epochs=3", "training.epochs"), ("d_model=64", "model.d_model")])
def test_an_override_without_its_section_names_the_whole_key(override, key):
    with pytest.raises(ConfigError, match=f"did you mean '{key}'"):
        MadProfile.load("quick", [override])


@pytest.mark.parametrize("value", ["2024-13-45", "[[", "[" * 3000])
def test_an_override_that_is_not_yaml_is_refused(value):
    with pytest.raises(ConfigError, match="is not a value"):
        MadProfile.load("quick", [f"training.epochs={value}"])


def test_a_profile_named_without_its_ending_is_found(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text("")
    with pytest.raises(ConfigError, match="did you mean 'mine.yaml'"):
        MadProfile.load("mine")


def test_every_shipped_profile_loads_and_the_papers_is_comparable_until_it_is_changed():
    assert {"tiny", "mini", "gpt2"} <= set(LanguageProfile.names())
    for name in LanguageProfile.names():
        LanguageProfile.load(name)
    assert LanguageProfile.load("gpt2", ["precision=float32"]).comparable_with_paper
    assert not LanguageProfile.load("gpt2", ["training.steps=500"]).comparable_with_paper


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (["model.seq_len=100"], "tokens_per_step 2048 must be a multiple of seq_len 100"),
        (["training.steps=7"], "steps 7 must be a multiple of eval_every 20"),
        (["training.precision=float32"], "set the profile's own 'precision'"),
        (["seq_len=64"], "did you mean 'model.seq_len'?"),
        (["corpus=stdlib"], "it belongs in the profile's file"),
        (["model.seqlen=64"], "model: unknown key 'seqlen'; did you mean 'seq_len'?"),
    ],
)
def test_a_wrong_override_of_a_profile_is_refused(overrides, says):
    with pytest.raises(ConfigError) as caught:
        LanguageProfile.load("tiny", overrides)
    assert says in str(caught.value)


def test_overrides_of_a_profile_are_judged_together():
    both = ["model.seq_len=96", "training.tokens_per_step=960"]
    for overrides in (both, both[::-1]):
        profile = LanguageProfile.load("tiny", overrides)
        assert (profile.model_config().seq_len, profile.training_config("float32").tokens_per_step) == (96, 960)


def test_an_override_of_a_mixer_setting_reaches_the_label():
    profile = MadProfile.load("quick", ["model.mix_rank=3"])
    assert profile.mixer_settings("R-12!")["mix_rank"] == 3


def test_the_sets_choosing_and_judging_split_table_1():
    choosing, judging, table1 = (set(expand([f"@{name}"])) for name in ("choosing", "judging", "table1"))
    assert choosing | judging == table1 and not choosing & judging
    assert (len(choosing), len(judging)) == (11, 22)
    matched = set(expand(["@matched"]))
    assert matched == {label for label in table1 if not label.endswith("!")}
    assert set(expand(["@judging-matched"])) == judging & matched
    pilots, small = set(expand(["@small-pilots"])), set(expand(["@small"]))
    assert small <= judging and not small & pilots and pilots - choosing == {"S-c", "R-p", "S-g-q"}


def test_profile_evening_has_larger_mixing_ranks_than_quick():
    def mixing_rank(profile: str) -> int:
        (job,) = MAD.jobs(["G-g-q-12o"], MadProfile.load(profile), tasks=["in_context_recall"])
        model = job.model
        return solve(job.label, model.d_model, model.n_head, job.setting["seq_len"], job.budget, **job.mixer).ranks[
            "mix"
        ]

    assert mixing_rank("quick") == 1 and mixing_rank("evening") >= 4


def test_profile_evening_has_594_jobs_for_table_1_with_three_seeds():
    profile = MadProfile.load("evening")
    jobs = MAD.jobs(expand(["@table1"]), profile, seeds=(0, 1, 2))
    assert len(jobs) == 594
    rates = {(job.task, job.training.learning_rate) for job in jobs}
    assert len(rates) == len(MAD_TASKS)  # the same rate for every label


def test_jobs_that_differ_in_the_seed_alone_are_compared_with_a_profile_once(monkeypatch):
    calls = []
    compared = MadProfile.training_changes
    monkeypatch.setattr(MadProfile, "training_changes", lambda *args: calls.append(1) or compared(*args))
    profile = dataclasses.replace(MadProfile.load("quick"))  # has compared no job yet
    jobs = MAD.jobs(["S", "R-c"], profile, seeds=range(5), tasks=["compression"])
    assert all(map(profile.trains_job, jobs)) and len(calls) == 1


def test_a_job_of_a_family_that_is_not_installed_has_the_changes_that_are_known():
    profile = MadProfile.load("quick")
    (job,) = MAD.jobs(["S"], MadProfile.load("quick", ["training.epochs=7"]), tasks=["compression"])
    assert [*map(str, profile.changes(job))] == ["training.epochs=7"]
    assert profile.changes(dataclasses.replace(job, label="gone:x", family="1")) == profile.changes(job)


def test_a_profile_is_read_once_per_override_for_many_labels(monkeypatch):
    profile = MAD.Profile.load("quick", ["training.epochs=7", "model.d_model=64"])
    read = []
    monkeypatch.setattr("madbench.suites.profile.read_yaml", lambda path: read.append(path) or read_yaml(path))
    for label in ("S", "S-c", "S-p"):
        MAD.plan([label], profile, tasks=["compression"], precision="float32")
    assert 0 < len(read) <= 2


def added_profiles() -> dict[str, str]:
    """Profiles that are as near as ``quick`` to some jobs: two that are like it, and one that is a changed copy."""
    like = "like: quick\ndescription: A trial.\n"
    copied = (MadProfile.folder / "quick.yaml").read_text(encoding="utf-8")
    copied = "".join(line for line in copied.splitlines(keepends=True) if not line.startswith("sort_order"))
    return {
        "like": like,
        "like with a change": f"{like}training: {{batch_size: 32}}\n",
        "copy with a change": copied.replace("batch_size: 16", "batch_size: 32"),
    }


@pytest.mark.parametrize("content", added_profiles().values(), ids=added_profiles())
def test_an_added_profile_does_not_rename_runs_that_are_equally_near_to_another(tmp_path, monkeypatch, content):
    """The name of the added profile is before ``quick`` in the alphabet."""
    jobs = MAD.jobs(["S"], MadProfile.load("quick"), tasks=["compression", "memorization"])
    jobs += MAD.jobs(["S"], MadProfile.load("quick", ["training.batch_size=128"]), tasks=["compression"])
    names = [(MAD.nearest(job), MAD.job_setting(job)) for job in jobs]
    assert {name for (name, _), _ in names} == {"quick"}
    folder = shutil.copytree(MadProfile.folder, tmp_path / "mad")
    (folder / "a-trial.yaml").write_text(content, encoding="utf-8")
    monkeypatch.setattr(MadProfile, "folder", folder)
    suite = type(MAD)()  # has read no profile yet
    assert "a-trial" in suite.shipped()
    assert [(suite.nearest(job), suite.job_setting(job)) for job in jobs] == names


@pytest.mark.parametrize("suite", suites().values(), ids=lambda suite: suite.name)
def test_no_two_shipped_profiles_have_the_same_place_in_their_order(suite):
    declared = [
        content["sort_order"] for content in map(read_yaml, suite.Profile.files().values()) if "sort_order" in content
    ]
    assert len(set(declared)) == len(declared)
