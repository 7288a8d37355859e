"""Every verb shows the requested runs of every suite, or names them as missing."""

from __future__ import annotations

import pytest

from madbench.jobs import Record
from madbench.suites import suites

VERBS = (["table"], ["compare", "S", "S-p"], ["plot"], ["report"], ["attribute"], ["archive", "--force"])
SIGNALS = suites()["signals"]


@pytest.fixture
def fill_signals(store):
    """Store runs of the labels on ``digits``, without training them."""

    def call(*labels):
        details = {"budget_ratio": 1.0, "mixer_parameters": 1000, "device": "an abacus"}
        for job in SIGNALS.jobs(labels, SIGNALS.Profile.load(SIGNALS.default), tasks=["digits"], seeds=(0,)):
            curve = [{"epoch": 1, "step": 4, "train_loss": 1.0, "validation_loss": 1.0}]
            store.finish(job, Record("finished", {"accuracy": 0.5}, curve, details))

    return call


@pytest.mark.slow
@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb[0])
def test_a_requested_profile_without_runs_is_an_error_even_if_other_suites_have_runs(
    main, fill_language, fill_signals, verb
):
    for label in ("S", "S-p"):
        fill_language(label)
    for words in (["-p", "quick"], ["-p", "quick", "-t", "compression,language_model"], ["training.epochs=3"]):
        ended = main(*verb, *words)
        assert ended.code == 2, (words, ended)
        assert "no runs of MAD tasks" in ended.stderr or "epochs" in ended.stderr, (words, ended)
    labels = " ".join(word for word in verb if word in ("S", "S-p")) or "G-cg-q-12o"
    assert f"madbench run {labels} -p quick makes some" in main(*verb, "-p", "quick").stderr
    fill_signals("S", "S-p")
    ended = main(*verb, "-p", "evening")
    assert ended.code == 2 and "no runs of MAD tasks" in ended.stderr


@pytest.mark.slow
@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb[0])
def test_a_store_of_one_suite_is_shown_without_warnings_on_others(main, fill_signals, verb):
    fill_signals("S", "S-p")
    for words in ([], ["-t", "digits"], ["-p", "quick"]):
        ended = main(*verb, *words)
        assert ended.code == 0 and "no runs of" not in ended.stderr, (words, ended.stderr)


@pytest.mark.slow
def test_the_suite_that_a_profile_file_names_is_shown(main, fill, fill_signals, tmp_path):
    """The suites mad and signals both have a profile ``quick``, so that both can load the file."""
    fill("S")
    fill_signals("S")
    (tmp_path / "mine.yaml").write_text("like: quick\nsuite: signals\n")
    ended = main("table", "-p", str(tmp_path / "mine.yaml"), "-f", "csv")
    assert ended.code == 0 and "digits" in ended.stdout and "compression" not in ended.stdout, ended.stderr


@pytest.mark.slow
def test_findings_warn_only_about_requested_suites(main, fill_signals):
    fill_signals("S", "S-p")
    assert "no runs of" not in main("findings").stderr
    said = " ".join(main("findings", "-p", "evening").stderr.split())
    assert "no runs of MAD tasks" in said and "no runs of language models" not in said
