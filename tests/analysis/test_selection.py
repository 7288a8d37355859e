"""The stored jobs that a query selects, by labels, suites, protocols and seeds, and errors if there are none."""

from __future__ import annotations

import re
import shlex
import warnings
from dataclasses import replace

import pytest

import madbench
from madbench.analysis.selection import Selection, in_grammar_order
from madbench.config import Override
from madbench.errors import BudgetError, ConfigError, StoreError
from madbench.jobs import Record
from madbench.store.runs import Store
from madbench.suites import suites
from madbench.suites.addressing import parse_overrides
from madbench.suites.language.suite import LANGUAGE, TASK
from madbench.suites.mad.suite import MAD, MAD_TASKS
from sample_jobs import mad_job

METRICS = {"accuracy": 0.5, "selection_accuracy": 0.5, "ceiling": 1.0}


@pytest.fixture
def store(tmp_path) -> Store:
    return Store.open(tmp_path / "results")


@pytest.fixture
def fill(store):
    """Store runs under the default profile or another one."""

    def call(*labels, profile=MAD.default, overrides=(), precision="float32", tasks=("compression",), **choices):
        profile = MAD.Profile.load(profile, overrides)
        for job in MAD.jobs(labels, profile, precision=precision, tasks=tasks, **choices):
            store.finish(job, Record("finished", METRICS, [], {"budget_ratio": 1.0}))

    return call


@pytest.fixture
def fill_language(store, language_run):
    def call(label="S", train=(2.0,), **job):
        run = language_run(label, train, **job)
        store.finish(run.job, run.record)
        return run

    return call


@pytest.fixture
def select_runs(store):
    """``select_runs(...)``: the results of a selection, and its warnings."""

    def call(*, overrides=(), **choices):
        warnings: list[str] = []
        asked = Selection(overrides=parse_overrides(overrides), results=store.root, warn=warnings.append, **choices)
        return asked.select(), warnings

    return call


def test_labels_are_in_the_order_of_the_grammar_and_other_families_after_them():
    assert in_grammar_order(["zoo:b", "G", "ant:a", "S-p", "S"]) == ["S", "S-p", "G", "ant:a", "zoo:b"]


def test_a_protocol_has_the_jobs_of_labels_and_seeds_with_a_stored_run(fill, select_runs):
    fill("R-c", "S")
    fill("S", seeds=(2,), overrides=["training.epochs=7"])
    results, warnings = select_runs(tasks=["compression"])
    assert (results.labels, warnings) == (["S", "R-c"], [])
    assert [(job.label, job.seed) for job in results.jobs] == [("S", 0), ("R-c", 0)]
    assert results.job_frame(MAD).status.tolist() == ["finished"] * 2
    whole, _ = select_runs()
    assert whole.rows[0].protocol.tasks == list(MAD_TASKS) and len(whole.job_frame(MAD)) == 2 * 6


def test_named_labels_without_runs_keep_their_place(fill, select_runs):
    fill("S", "R")
    results, _ = select_runs(labels=["G", "S"], tasks=["compression"])
    assert results.labels == ["G", "S"] and results.job_frame(MAD).status.tolist() == ["missing", "finished"]


def test_rows_of_both_suites_are_selected_and_read_into_one_frame(fill, fill_language, select_runs):
    fill("S", "R-c")
    fill_language("S", [3.0, 2.0])
    results, _ = select_runs(tasks=["compression", TASK])
    assert results.has_result(MAD) and results.has_result(LANGUAGE) and results.labels == ["S", "R-c"]
    assert set(results.scores.suite) == {"mad", "language"} and [run.row for run in results.runs(LANGUAGE)] == ["S"]
    assert results.runs(LANGUAGE)[0].record.curve
    assert [word in " ".join(results.sentences()) for word in ("Profile evening", "Corpus shelf")] == [True, True]
    assert [row.name for row in results.for_suite(LANGUAGE).rows] == ["S"]


def test_without_tasks_a_suite_that_is_not_stored_is_left_out(fill, fill_language, select_runs, store):
    run = fill_language("S")
    only_language, _ = select_runs()
    assert not only_language.has_result(MAD) and only_language.runs(LANGUAGE)[0].job == run.job
    fill("S")
    assert select_runs()[0].has_result(MAD)


@pytest.mark.slow
def test_an_error_on_a_profile_without_runs_lists_the_stored_runs(fill, select_runs):
    fill("S", "R-c", overrides=["training.epochs=7"])
    with pytest.raises(StoreError) as refused:
        select_runs()
    message, line = str(refused.value).splitlines()
    assert "none of its 2 runs belongs to profile evening" in message
    assert line.startswith("  madbench table training.epochs=7 --results ") and line.endswith("  # R-c, S")
    fill("S", "R-c", overrides=["learning_rates=[1e-4,2e-4]"], budget="paper")
    with pytest.raises(StoreError, match=r"'learning_rates=\[0.0001,0.0002\]' --budget paper --results "):
        select_runs()


@pytest.mark.slow
@pytest.mark.parametrize(
    "fills, expected",
    [
        ([(["S"], "full", ["learning_rates=[1e-3,3e-3]"])], [(["S"], 8)]),
        (
            [(["S"], "quick", []), (["S", "R"], "quick", ["learning_rates=[1e-3]"])],
            [(["S"], 2), (["S"], 4), (["R"], 2)],
        ),
        ([(["S"], "quick", []), (["R"], "quick", ["weight_decays=[0,0.5]"])], [(["R", "S"], 4), (["R"], 4)]),
        ([(["S"], "quick", ["tasks.compression.learning_rates=[1e-4,1e-5]"])], [(["S"], 3)]),
        ([(["S"], "full", []), (["S"], "full", ["learning_rates=[1e-3,2e-2]"])], [(["S"], 12), (["S"], 16)]),
        ([(["S"], "quick", ["learning_rates=[1e-3]", "training.epochs=7"])], [(["S"], 2)]),
    ],
)
def test_each_listed_command_shows_its_labels_at_all_their_learning_rates(store, select_runs, fills, expected):
    two = ["compression", "memorization"]
    for labels, name, overrides in fills:
        overrides = [*overrides, *["difficulty=baseline"] * (name == "full")]
        for job in MAD.jobs(labels, MAD.Profile.load(name, overrides), tasks=two):
            store.finish(job, Record("finished", METRICS, [], {"budget_ratio": 1.0}))
    with pytest.raises(StoreError) as refused:
        select_runs(fidelity="published")
    shown = []
    for line in str(refused.value).splitlines()[1:]:
        command, _, named = line.rpartition("  # ")
        words = shlex.split(command)[2:]
        changes = [word for word in words if "=" in word]
        options = dict(zip(words[len(changes) :: 2], words[len(changes) + 1 :: 2]))
        if options.get("--profile") == "full":
            changes.append("difficulty=baseline")
        assert options.keys() <= {"--profile", "--results"}
        chosen = {"profile": options.get("--profile")}
        labels = named.split(", ")
        results, _ = select_runs(overrides=changes, tasks=two, labels=labels, **chosen)
        assert set(results.job_frame(MAD).status) == {"finished"}
        shown.append((labels, len(results.job_frame(MAD))))
    assert sorted(shown) == sorted(expected)


@pytest.mark.slow
def test_the_only_stored_profile_is_shown_if_none_is_named(fill, select_runs):
    fill("S", "R-c", profile="quick")
    results, warnings = select_runs(tasks=["compression"])
    assert (results.rows[0].protocol.profile_name, results.labels) == ("quick", ["S", "R-c"])
    assert warnings == ["no run is of the profile evening, which is the usual one; shown are those of quick"]
    assert select_runs(labels=["R-c"])[0].rows[0].protocol.profile_name == "quick"
    with pytest.raises(StoreError, match="belongs to profile evening"):
        select_runs(profile="evening")
    fill("S")
    results, warnings = select_runs()
    assert (results.rows[0].protocol.profile_name, results.labels, warnings) == ("evening", ["S"], [])


def test_runs_of_a_users_profile_are_mentioned_beside_those_of_the_only_stored_profile(fill, select_runs, tmp_path):
    """They are named after the nearest shipped profile, because a run does not store the name of its profile."""
    own = tmp_path / "mine.yaml"
    own.write_text("like: quick\ndescription: Mine.\ntraining: {epochs: 2}\n", encoding="utf-8")
    fill("S", profile="quick")
    fill("S", "R-c", profile=str(own))
    results, (warning,) = select_runs(tasks=["compression"])
    assert [row.protocol.profile_name for row in results.rows] == ["quick"]
    first, command = warning.splitlines()
    assert first.endswith("shown are those of quick; these commands show the others:")
    assert "training.epochs=2" in command and "--profile quick" in command and command.endswith("  # R-c, S")
    _, (warning,) = select_runs(tasks=["compression"], labels=["S"])
    assert warning.endswith("  # S")
    _, (warning,) = select_runs(tasks=["compression"], overrides=["training.epochs=2"])
    assert "these commands" not in warning


def test_the_only_stored_profile_is_shown_with_the_given_changes(fill, select_runs):
    fill("S", profile="quick", overrides=["training.epochs=7"])
    results, _ = select_runs(overrides=["training.epochs=7"])
    assert results.rows[0].protocol.name == "quick training.epochs=7"
    with pytest.raises(StoreError, match="; this shows what is stored:\n.*epochs=7 .*--profile quick"):
        select_runs()


def test_an_error_lists_the_stored_profiles_if_there_are_several_and_none_is_named(fill, select_runs):
    fill("S", profile="quick")
    fill("S", profile="coefficients-quick")
    with pytest.raises(StoreError) as refused:
        select_runs()
    assert set(re.findall("--profile (\\S+)", str(refused.value))) == {"quick", "coefficients-quick"}
    assert select_runs(profile="quick")[1] == []


def test_the_error_on_one_missing_label_has_the_command_that_trains_it(fill, select_runs):
    fill("S", overrides=["training.epochs=7"])
    with pytest.raises(StoreError, match="no run of R-c belongs to .*; this trains it:\n  madbench run R-c"):
        select_runs(labels=["R-c"], overrides=["training.epochs=7"])


def test_diverged_runs_count_as_ended_runs(store):
    first, second, third, *_ = MAD.jobs(["S"], MAD.Profile.load("quick"), precision="float32", tasks=MAD_TASKS)
    store.finish(first, Record("diverged"))
    store.finish(second, Record("finished", METRICS))
    store.finish(third, Record("failed", error="out of memory"))
    assert "1 of 2 runs diverged." in Selection(results=store.root).select().sentences()


@pytest.mark.parametrize("sizes, count", [([1, 1], 0), ([3, 3], 0), ([3, 1], 1)])
def test_a_note_says_that_only_some_runs_shared_steps(store, sizes, count):
    jobs = MAD.jobs(["S"], MAD.Profile.load("quick"), precision="float32", tasks=MAD_TASKS)
    for job, size in zip(jobs, sizes):
        store.finish(job, Record("finished", METRICS, details={"group": size} if size > 1 else {}))
    noted = "1 of 2 runs shared training steps (--group), which changes last digits."
    assert Selection(results=store.root).select().sentences().count(noted) == count


def test_a_note_says_that_runs_by_muon_share_no_steps(store):
    profile = MAD.Profile.load("quick", ["training.optimizer=muon"])
    for job in MAD.jobs(["S"], profile, precision="float32", tasks=["compression"]):
        store.finish(job, Record("finished", METRICS))
    chosen = Selection(results=store.root, overrides=(Override.parse("training.optimizer=muon"),)).select()
    assert "1 of 1 runs were trained by Muon, which never shares a step (--group)." in chosen.sentences()


def test_failed_runs_alone_make_no_table(store):
    for job in MAD.jobs(["S"], MAD.Profile.load("quick"), precision="float32", tasks=["compression"]):
        store.finish(job, Record("failed", error="out of memory"))
    selection = Selection(results=store.root)
    with pytest.raises(
        StoreError, match=f"no result yet: all of these runs failed; madbench ls sweeps --results {store.root} says why"
    ):
        selection.table()
    assert selection.select().scores.value.isna().all()


def test_an_error_names_why_no_stored_run_can_be_shown(store, select_runs, fill_language):
    command = "madbench run G-cg-q-12o"
    with pytest.raises(StoreError, match=f"no runs of MAD tasks yet; {command} --results {store.root} makes some$"):
        select_runs()
    command = f"{command} -t {TASK} --results {store.root}"
    with pytest.raises(StoreError, match=f"no runs of language models yet; {command} makes some$"):
        select_runs(tasks=[TASK])
    with pytest.raises(StoreError, match="there is no such results folder"):
        Selection(results=store.root / "none").select()
    fill_language("S")
    command = f"madbench table -t {TASK} --results {store.root}"
    with pytest.raises(StoreError, match=re.escape(f"its language models are in {command}")):
        select_runs(tasks=["compression"])
    with pytest.raises(StoreError, match="nothing of the sort; it has:\n.*profile .*: S$"):
        Selection(labels=["R"], tasks=[TASK], results=store.root).select("nothing of the sort")


@pytest.mark.slow
def test_runs_in_two_precisions_have_to_be_chosen_from(fill, select_runs):
    auto = ["precision=auto"]
    fill("S", precision="float32", overrides=auto)
    assert select_runs(overrides=auto)[0].rows[0].protocol.precision == "float32"
    fill("S", precision="bfloat16", overrides=auto)
    with pytest.raises(ConfigError, match="add precision=bfloat16 or precision=float32"):
        select_runs(overrides=auto)
    for precision in ("float32", "bfloat16"):
        results, _ = select_runs(overrides=[f"precision={precision}"])
        assert results.rows[0].protocol.precision == precision


def test_a_stored_label_that_does_not_fit_is_left_out_and_a_named_one_is_an_error(fill, select_runs):
    longer = ["tasks.in_context_recall.setting.seq_len=512", "model.d_model=16"]
    fill("S", overrides=longer)
    fill("R-q-12", overrides=longer)
    choices = {"overrides": longer, "tasks": ["compression", "in_context_recall"]}
    results, warnings = select_runs(**choices)
    assert results.labels == ["S"] and warnings[0].startswith("R-q-12 is left out; in_context_recall at seq_len 512")
    with pytest.raises(BudgetError):
        select_runs(labels=["R-q-12"], **choices)


def test_runs_of_an_earlier_operator_or_of_a_family_that_is_gone_do_not_count(store, fill, fill_language, select_runs):
    fill("S")
    earlier = mad_job("R")
    for job in (replace(earlier, family="0"), replace(earlier, label="gone:x", family="1")):
        store.finish(job, Record("finished", METRICS))
    fill_language("S")
    run = fill_language("R", [9.0])
    store.finish(replace(run.job, label="R-c", family="0"), run.record)
    results, warnings = select_runs()
    assert results.labels == ["S", "R"] and [run.row for run in results.runs(LANGUAGE)] == ["S", "R"]
    versions, gone = warnings
    assert versions == "2 runs of R, R-c left out: of another version of their family than this madbench has"
    assert gone.startswith("gone:x is left out;")


def test_damaged_runs_are_warned_of_once(fill, store, select_runs):
    fill("S", "R")
    folder = min((store.root / "runs").iterdir())
    (folder / "record.json").write_text("{}")
    results, warnings = select_runs()
    assert not results.scores.empty
    assert len(results.labels) == 1 and len(warnings) == 1 and folder.name in warnings[0]


def test_overrides_budget_and_corpus_choose_among_language_protocols(fill_language, select_runs, language_run):
    tiny = LANGUAGE.Profile.load("tiny")
    longer = LANGUAGE.Profile.load("tiny", ["training.steps=600"])

    def of(profile, **rest):
        return {"model": profile.model_config(), "training": profile.training_config("float32")} | rest

    runs = {
        "first": fill_language("S", [2.0], **of(tiny)),
        "longer": fill_language("S", [2.1], **of(longer)),
        "paper": fill_language("S", [2.3], **of(tiny, budget="paper")),
    }
    with pytest.raises(ConfigError, match="the runs of language models follow 2 protocols"):
        select_runs(tasks=[TASK])
    with pytest.raises(ConfigError, match="the runs of language models follow 3 protocols"):
        select_runs(tasks=[TASK], budget=None)
    steps = "language_model.training.steps=600"
    for name, choices in {
        "first": {"overrides": ["language_model=tiny"]},
        "longer": {"overrides": [steps]},
        "paper": {"budget": "paper"},
    }.items():
        results, _ = select_runs(tasks=[TASK], **choices)
        assert results.runs(LANGUAGE)[0].job == runs[name].job
    results, warnings = select_runs(tasks=None, overrides=[steps], labels=["S"])
    assert results.rows[0].protocol.overrides == parse_overrides(["training.steps=600"]) and warnings == []


def test_several_protocols_of_language_models_are_left_out_unless_chosen(fill, fill_language, select_runs):
    fill("S")
    fill_language("S")
    fill_language("S", setting={"corpus": "c0ffee0123456789", "vocab_size": 384})
    results, warnings = select_runs()
    assert not results.has_result(LANGUAGE) and "choose a protocol with --protocol ID" in warnings[0]
    protocol = warnings[0].splitlines()[1].split()[0]
    assert select_runs(protocol=protocol)[0].has_result(LANGUAGE)


def test_protocols_with_too_few_labels_are_not_selected(fill_language, store):
    fill_language("S")
    for label in ("S", "R"):
        fill_language(label, setting={"corpus": "c0ffee0123456789", "vocab_size": 384})
    results = Selection(tasks=[TASK], results=store.root).select(is_enough=lambda labels: len(labels) > 1)
    assert results.labels == ["S", "R"]


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"tasks": [TASK], "overrides": ["mad.training.epochs=7"]}, "has no effect: the tasks are language_model"),
        ({"tasks": ["compression"], "overrides": ["language_model=tiny"]}, "has no effect: the tasks are compression"),
        ({"tasks": [TASK], "fidelity": "published"}, "--fidelity published has no effect: the tasks are language"),
        ({"tasks": ["compresion"]}, "unknown task 'compresion'; did you mean 'compression'?"),
        ({"protocol": "c0ffee00", "overrides": ["language_model=tiny"]}, "each chooses the runs"),
        ({"protocol": "c0ffee00", "tasks": [TASK], "budget": "flops"}, "--budget flops: each chooses the runs"),
        ({"protocol": "c0ffee00", "tasks": ["mad"], "fidelity": "published"}, "--fidelity published: each chooses"),
    ],
)
def test_a_choice_without_effect_is_an_error(choices, message):
    with pytest.raises(ConfigError, match=message):
        Selection(**choices | {"overrides": parse_overrides(choices.get("overrides", ()))})


def test_the_command_for_another_suite_s_table_names_a_task_that_is_stored(store, fill, select_runs):
    fill("S", tasks=["memorization"])
    with pytest.raises(StoreError, match=f"its MAD tasks are in madbench table -t memorization --results {store.root}"):
        select_runs(tasks=[TASK])


def test_the_error_on_a_store_of_one_suite_names_no_other_suite(store, select_runs):
    for job in suites()["signals"].jobs(["S-p"], suites()["signals"].Profile.load("quick", ["training.epochs=7"])):
        store.finish(job, Record("finished", {"accuracy": 0.5}, [], {"budget_ratio": 1.0}))
    with pytest.raises(StoreError) as refused:
        select_runs()
    assert "language" not in str(refused.value) and "training.epochs=7" in str(refused.value)


def test_every_run_of_labels_and_changes_is_listed_whatever_its_protocol(store, fill):
    fill("S", "R-c", seeds=(0, 1))
    fill("R-c", overrides=["training.epochs=3"])
    fill("R-c", budget="paper")

    def listed(*labels, overrides=()):
        runs = Selection(labels=labels, overrides=parse_overrides(overrides), results=store.root).every_run()
        return [(run.job.label, run.job.seed, run.job.budget, run.job.training.epochs) for run in runs]

    usual = MAD.Profile.load(MAD.default).trainings("compression", "float32")[0].epochs
    assert sorted({label for label, *_ in listed()}) == ["R-c", "S"]
    assert {row[1:] for row in listed("S")} == {(0, "strict", usual), (1, "strict", usual)}
    assert {row[1:] for row in listed("R-c")} >= {(0, "paper", usual), (1, "strict", usual), (0, "strict", 3)}
    assert set(listed("R-c", overrides=["training.epochs=3"])) == {("R-c", 0, "strict", 3)}
    assert listed("G") == [] and listed() == sorted(listed(), key=lambda row: row[:2])


def test_costs_of_a_comparison_are_those_of_the_compared_protocol(fill_language, store):
    for label in ("S", "R"):
        fill_language(label)
    for label in ("R", "G"):
        fill_language(label, setting={"corpus": "c0ffee0123456789", "vocab_size": 384})
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        frame = madbench.compare(["S", "R", "G"], tasks=TASK, results=store.root, costs=True)
    assert {row.label for row in frame.shown.rows} == {"R"}
    assert set(frame[frame.ratio.notna()].label) == {"S", "R"}
    messages = [str(warning.message) for warning in warned]
    assert messages == ["no run of G is as asked", "G is left out: it shares no task with S"]
