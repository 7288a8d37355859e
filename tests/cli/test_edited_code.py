"""Verbs on stored runs whose code was edited later: the code of a user's module, or of this package."""

from __future__ import annotations

import functools
import json
import os
import shutil
import sys
from dataclasses import replace

import pytest

from installed import forget_installed
from madbench.identity import watch
from madbench.identity.package import gives_equal_bits
from madbench.jobs import Record
from madbench.labels import trust
from madbench.suites import code
from madbench.suites.code import code_details, package_code, run_code
from madbench.suites.mad.suite import MAD
from sample_jobs import mad_job

LABEL = "my:edited_mixer.Mixer"
TASKS = ("compression", "in_context_recall")
RECORDED_LONG_AGO = {"ended": "2020-01-01T00:00:00+00:00"}
MIXER = """\
from torch import nn

class Mixer(nn.Module):
    def __init__(self, d_model):
        super().__init__()
        self.out = nn.Linear(d_model, d_model)

    def forward(self, x):
        return self.out(x.cumsum(1))
"""


@pytest.fixture
def module(store, monkeypatch):
    """``edited_mixer.py`` in the working folder."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.syspath_prepend(store.root.parent)  # with which install_example undoes both
    path = store.root.parent / "edited_mixer.py"
    path.write_text(MIXER)
    forget()
    yield path
    forget()


def forget():
    """Make this process forget all modules of the user that it imported."""
    sys.modules.pop("edited_mixer", None)
    for noted in (watch.notes, watch.executed, watch.watched):
        noted.clear()
    forget_installed()
    trust.allow([LABEL])


@pytest.fixture
def fill_edited(store, tiny, module):
    """Store runs of the labels with the digests of the present code, without training."""

    def call(*names, seeds=(0, 1), accuracy=0.5, tasks=TASKS, overrides=(), **changes):
        forget()
        metrics = {"accuracy": accuracy, "selection_accuracy": 0.5, "ceiling": 1.0}
        details = {"budget_ratio": 0.99, "mixer_parameters": 1000, "device": "an abacus", "processor": "an abacus"}
        curve = [{"epoch": 1, "step": 4, "train_loss": 1.0, "validation_loss": 1.0}]
        curve[0] |= {"validation_token_accuracy": accuracy, "validation_batch_macro_accuracy": accuracy}
        for job in MAD.jobs(names or [LABEL], MAD.Profile.load(tiny, overrides), tasks=tasks, seeds=seeds):
            own = code_details(job)
            own["package_code"] |= changes
            store.finish(job, Record("finished", metrics, curve, details | own))

    return call


def edit(module, text=None):
    module.write_text(text or MIXER.replace("x.cumsum(1)", "2 * x.cumsum(1)"))
    forget()


def plan(main, tiny, *words):
    return main("run", *(words or [LABEL]), "--profile", tiny, "-t", ",".join(TASKS), "--seeds", "0-1", "--dry-run")


@pytest.mark.slow
def test_an_edited_module_trains_again_but_a_comment_does_not(main, tiny, module, fill_edited):
    fill_edited()
    edit(module, MIXER + "# a comment\n\ndef unrelated():\n    return 1\n")
    ended = plan(main, tiny)
    assert "4 done, 0 to do" in ended.stdout and "changed" not in ended.stderr
    edit(module)
    ended = plan(main, tiny)
    assert "0 done, 4 to do" in ended.stdout
    assert f"edited_mixer.py changed since 4 stored runs of {LABEL}; training again" in " ".join(ended.stderr.split())


@pytest.mark.slow
def test_runs_with_code_identities_of_an_earlier_madbench_are_named(main, tiny, module, store, fill_edited):
    fill_edited()
    for run in list(store.runs()):
        details = {name: value for name, value in run.record.details.items() if name not in ("code", "package_code")}
        store.finish(replace(run.job, family=f"1+{'0' * 64}"), replace(run.record, details=details | RECORDED_LONG_AGO))
    edit(module)
    shown = table(main, "--profile", tiny, "-t", ",".join(TASKS)).stdout
    assert f"{LABEL} ¶" in shown and f"4 runs of {LABEL} are from another version of edited_mixer.py" in " ".join(
        shown.split()
    )
    said = " ".join(plan(main, tiny).stderr.split())
    assert f"edited_mixer.py changed since 4 stored runs of {LABEL}" in said
    assert f"4 stored runs of {LABEL} had other code" in said


@pytest.mark.slow
def test_runs_whose_recorded_code_is_unknown_are_marked(main, tiny, module, store, fill_edited):
    fill_edited()
    for run in list(store.runs()):
        details = {name: value for name, value in run.record.details.items() if name not in ("code", "package_code")}
        store.finish(replace(run.job, family=f"1+{'0' * 64}"), replace(run.record, details=details))
        shutil.rmtree(run.folder)
    shown = table(main, "--profile", tiny, "-t", ",".join(TASKS)).stdout
    assert f"{LABEL} ¶" in shown
    assert f"4 runs of {LABEL} had code that an earlier madbench did not record" in " ".join(shown.split())


@pytest.mark.slow
def test_ls_runs_names_the_edited_file(main, module, fill_edited):
    fill_edited()
    assert "changed" not in main("ls", "runs").stdout
    edit(module)
    assert main("ls", "runs").stdout.count("edited_mixer.py changed") == 4


@pytest.mark.slow
@pytest.mark.parametrize("package", [{"task": []}, {"task": {"a": 1}}, {1: None}])
def test_code_digests_of_wrong_types_count_as_other_code(package):
    assert run_code(mad_job("S"), {"package_code": package}).state == "other"


@pytest.mark.slow
@pytest.mark.parametrize(("more", "state"), [({"processor": "AMD"}, "same"), ({}, "other")])
def test_code_that_was_equal_on_a_cpu_is_other_code_on_a_gpu(more, state, tmp_path, monkeypatch):
    job, known = mad_job("S"), tmp_path / "equal.json"
    here = package_code(job)
    known.write_text(json.dumps({"task": [["0123", here["task"]]]}))
    monkeypatch.setattr(code, "gives_equal_bits", functools.partial(gives_equal_bits, path=known))
    assert run_code(job, {"package_code": here | {"task": "0123"}, "device": "H200", **more}).state == state


@pytest.mark.slow
@pytest.mark.parametrize("is_trained_before", [True, False])
def test_a_registration_of_edited_code_names_the_cause(main, tiny, module, store, fill_edited, is_trained_before):
    claims(store.root.parent)
    grid = {"labels": ["S", LABEL], "profile": str(tiny), "tasks": [*TASKS], "seeds": "0-1", "claims": ["mine"]}
    (store.root.parent / "own.yaml").write_text(json.dumps(grid))
    fill_edited("S", *([LABEL] if is_trained_before else []))
    (store.root.parent / "mixers.yaml").write_text("own: edited_mixer:Mixer")
    ended = main("register", "own.yaml", "--claims", "claims.yaml")
    assert ended.code == 0, ended.stderr
    edit(module)
    if not is_trained_before:
        fill_edited(LABEL)
    ended = main("findings", "--registered", "own.registered.json")
    assert ended.code == 0, ended.stderr
    said = " ".join(ended.stdout.split())
    if is_trained_before:
        assert "4 runs of my:own are from another version of edited_mixer.py" in said
    else:
        assert "4 stored runs of my:own used other code than was registered" in said
        assert "4 of 8 registered runs are not stored yet" in said


def claims(folder):
    claim = {"name": "mine", "contrast": f"{LABEL} > S", "sentence": "Mine.", "source": "me"}
    (folder / "claims.yaml").write_text(json.dumps({"claims": [claim | {"quantities": ["compression"]}]}))


def table(main, *words):
    ended = main("table", *words)
    assert ended.code == 0, ended.stderr
    return ended


@pytest.mark.slow
def test_only_rows_of_other_code_are_marked(main, tiny, store, fill_edited):
    fill_edited("S")
    fill_edited("S-c", task="0123456789abcdef")
    shown = table(main, "--profile", tiny, "-t", ",".join(TASKS)).stdout
    rows = {line.split()[0]: line for line in shown.splitlines() if line.startswith("S")}
    assert "¶" not in rows["S"] and "¶" in rows["S-c"]
    fact = "4 runs of S-c were trained with another version of madbench's code of the task"
    said = f"{fact}; madbench run ... --force trains them again."
    assert said in " ".join(shown.split())
    planned = plan(main, tiny, "S", "S-c")
    assert "8 done, 0 to do" in planned.stdout and said in " ".join(planned.stderr.split())


@pytest.mark.slow
def test_code_that_was_shown_to_give_equal_bits_has_no_mark(main, tiny, fill_edited, tmp_path, monkeypatch):
    fill_edited("S", model="0123456789abcdef")
    from madbench.identity import package
    from madbench.suites import code

    (job,) = MAD.jobs(["S"], MAD.Profile.load(tiny), tasks=TASKS[:1], seeds=(0,))[:1]
    equal = {"model": [["0123456789abcdef", code.package_code(job)["model"]]]}
    monkeypatch.setattr(package, "equal_digests", lambda path: equal)
    assert "¶" not in table(main, "--profile", tiny, "-t", ",".join(TASKS)).stdout


@pytest.mark.slow
def test_runs_without_digests_have_a_sentence_and_no_mark(main, tiny, fill):
    fill("S")
    shown = table(main, "--profile", tiny, "-t", ",".join(TASKS)).stdout
    sentence = (
        "2 runs were stored without digests of madbench's code, which may have changed since; madbench again tests"
    )
    assert "¶" not in shown and sentence in " ".join(shown.split())


@pytest.mark.slow
@pytest.mark.parametrize("format", ["markdown", "latex", "html", "json", "csv"])
def test_every_format_marks_rows_of_other_code_and_still_shows_the_best(main, tiny, fill_edited, format):
    fill_edited("S", seeds=(0, 1, 2), accuracy=0.9, task="0123456789abcdef")
    fill_edited("S-c", seeds=(0, 1, 2), accuracy=0.1)
    shown = table(main, "--profile", tiny, "-t", ",".join(TASKS), "-f", format).stdout
    marks = {"latex": r"$\mathparagraph$", "json": '"has_other_code": true', "csv": "has_other_code"}
    bold = {"markdown": "| **", "latex": r"\textbf", "html": "best", "json": '"best"', "csv": "best"}
    assert marks.get(format, "S ¶") in shown and bold[format] in shown


@pytest.mark.slow
@pytest.mark.parametrize("notes", [[], ["--notes"]])
def test_a_caption_in_latex_defines_the_sign_of_other_code_without_advice(main, tiny, fill_edited, notes):
    fill_edited("S", accuracy=0.9, task="0123456789abcdef")
    fill_edited("S-c", accuracy=0.1)
    shown = table(main, "--profile", tiny, "-t", ",".join(TASKS), "-f", "latex", *notes).stdout
    assert r"$\mathparagraph$: some runs used another version of the code" in shown
    assert "force" not in shown and "were trained with" not in shown


@pytest.mark.slow
@pytest.mark.parametrize("verb", [["compare", "S", "S-c"], ["attribute"], ["findings"]])
def test_other_captions_in_latex_state_other_code_without_advice(main, tiny, fill_edited, verb):
    fill_edited("S", "S-c", task="0123456789abcdef")
    shown = table(lambda _, *words: main(*verb, *words), "--profile", tiny, "-t", ",".join(TASKS), "-f", "latex").stdout
    assert "8 runs of S, S-c were trained with another version of madbench's code of the task." in shown
    assert "force" not in shown


@pytest.mark.slow
@pytest.mark.parametrize("verb", [["compare", "S", "S-c"], ["findings"], ["attribute"]])
def test_notes_of_other_verbs_name_runs_of_another_version(main, tiny, fill_edited, verb):
    fill_edited("S", "S-c", "S-p", task="0123456789abcdef")
    ended = main(*verb, "--profile", tiny, "-t", ",".join(TASKS))
    assert "another version of madbench's code of the task" in " ".join(ended.stdout.split()), ended.stderr


@pytest.mark.slow
def test_figures_and_the_report_note_runs_of_another_version(main, tiny, fill_edited, tmp_path):
    fill_edited("S", "S-c", task="0123456789abcdef")
    words = ["--profile", tiny, "-t", ",".join(TASKS)]
    assert main("plot", "scores", *words, "--output", "slides").code == 0
    text = "8 runs of S, S-c were trained with another version of madbench's code of the task"
    assert text in (tmp_path / "slides" / "scores.csv").read_text()
    ended = main("report", *words, "--output", "page.html")
    assert ended.code == 0, ended.stderr
    page = " ".join((tmp_path / "page.html").read_text().split())
    assert "S-c ¶" in page and "another version of madbench" in page


VERBS = [
    ["table"],
    ["compare", "S", LABEL],
    ["findings", "--claims", "claims.yaml"],
    ["report", "--output", "page.html"],
    ["plot", "scores"],
    ["archive", LABEL, "--output", "runs.tar.xz"],
]


@pytest.mark.slow
@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb[0])
@pytest.mark.parametrize("change", ["nothing", "edited", "deleted", "trained again"])
def test_every_verb_shows_or_names_runs_of_every_code_version(main, tiny, module, fill_edited, tmp_path, verb, change):
    claims(tmp_path)
    fill_edited("S", LABEL, seeds=(0, 1, 2))
    if change == "deleted":
        module.unlink()
        forget()
    elif change != "nothing":
        edit(module)
    if change == "trained again":
        fill_edited(LABEL, seeds=(0, 1))
    ended = main(*verb, "--profile", tiny, "-t", ",".join(TASKS))
    assert ended.code == 0, ended.stderr
    files = [path for path in (tmp_path / "page.html", tmp_path / "results/plots/scores.csv") if path.exists()]
    shown = " ".join([ended.stdout, *(path.read_text() for path in files)])
    shown, said = " ".join(shown.split()), " ".join(ended.stderr.split())
    assert verb[0] == "archive" or LABEL in shown
    mark = {
        "edited": f"6 runs of {LABEL} are from another version of edited_mixer.py",
        "deleted": f"6 runs of {LABEL} had code that is not here: edited_mixer.py",
    }
    if change in mark:
        assert mark[change] in shown
    else:
        assert "¶" not in shown and "version of edited_mixer.py" not in shown
    left_out = f"6 runs of {LABEL} are from another version of edited_mixer.py; left out"
    assert (left_out in said) == (change == "trained again")


@pytest.mark.slow
@pytest.mark.parametrize("what", ["plugin", "task"])
def test_runs_of_an_edited_package_are_shown_with_a_mark(
    main, tiny, store, fill_edited, install_example, monkeypatch, what
):
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    site = install_example(what)
    label, task = ("lin:elu", "compression") if what == "plugin" else ("S", "prefix_sum")
    fill_edited(label, tasks=[task])
    words = ["--profile", tiny, "-t", task]
    assert "¶" not in table(main, *words).stdout
    file = next(site.glob("*/mixer.py" if what == "plugin" else "*/__init__.py"))
    old, new = ("flatten(-2)", "flatten(-2) * 2") if what == "plugin" else ("cumsum(axis=1)", "cumsum(1)")
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new))
    for name in [name for name in sys.modules if name.startswith("madbench_")]:
        del sys.modules[name]
    forget()
    shown = table(main, *words)
    place, said = file.relative_to(site).as_posix(), " ".join(shown.stdout.split())
    assert f"{label} ¶" in shown.stdout and f"2 runs of {label} are from another version of {place}." in said
    forget()
    fill_edited(label, tasks=[task], seeds=(0,))
    shown = table(main, *words)
    subject = label if what == "plugin" else f"task {task}"
    assert "¶" not in shown.stdout
    assert f"2 runs of {subject} are from another version of {place}; left out" in " ".join(shown.stderr.split())


@pytest.mark.slow
def test_every_verb_marks_runs_of_a_missing_module(main, tiny, module, store, fill_edited):
    fill_edited("S", LABEL, seeds=(0, 1, 2), overrides=["training.epochs=1"])
    packed = main("archive", "--output", "theirs.tar.xz")
    assert "with source code as text: edited_mixer.py; --no-source leaves it out" in packed.stdout
    assert "source" not in main("archive", "--output", "bare.tar.xz", "--no-source").stdout
    module.unlink()
    forget()
    trust.forget_allowed()
    where = ["training.epochs=1", "-p", tiny, "-t", ",".join(TASKS), "--results", "theirs"]
    for archive in ("theirs.tar.xz", "bare.tar.xz"):
        ended = main("import", archive, "--results", "theirs")
        assert ended.code == 0, ended.stderr
    for words in (["table"], ["table", LABEL], ["compare", "S", LABEL], ["plot", "scores"], ["report", "-o", "a.html"]):
        ended = main(*words, *where)
        assert ended.code == 0 and "left out" not in ended.stderr, (words, ended.stderr)
        if words[0] in ("table", "compare"):
            said = " ".join(ended.stdout.split())
            assert LABEL in said and f"6 runs of {LABEL} had code that is not here: edited_mixer.py" in said
    assert f"{LABEL} ¶" in (store.root.parent / "a.html").read_text()
    assert LABEL in main("ls", "runs", "--results", "theirs").stdout
    assert main("report", "--archive", "theirs.tar.xz", "-o", "board.html").code == 0
    assert LABEL in (store.root.parent / "board.html").read_text()


@pytest.mark.slow
def test_the_newest_of_two_versions_without_installed_code_is_shown(main, tiny, module, store, fill_edited):
    fill_edited(accuracy=0.25)
    earlier = set(store.jobs())
    edit(module)
    fill_edited(accuracy=0.75)
    for run in list(store.runs()):
        ended = "2026-01-01T00:00:00+00:00" if run.job.id in earlier else "2026-01-02T00:00:00+00:00"
        details = run.record.details | {"ended": ended}
        store.finish(run.job, replace(run.record, details=details), replace=True)
    for name in store.jobs():  # as if an archive had been imported in another order
        seconds = 1_800_000_000 + 60 * (name in earlier)
        os.utime(store.root / "runs" / name / "record.json", (seconds, seconds))
    module.unlink()
    forget()
    shown = table(main, "--profile", tiny, "-t", ",".join(TASKS)).stdout
    assert "75.0" in shown and "25.0" not in shown
