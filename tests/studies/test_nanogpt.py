"""studies/nanogpt.py refuses settings that it cannot compare, and reads the output of nanoGPT, for which a script
stands in."""

from __future__ import annotations

import numpy as np
import pytest

import nanogpt as bench
from madbench.errors import TrainingError
from madbench.suites.language.suite import LanguageTraining

SEEDED = "seed = 1337 + 0  # torch.manual_seed(1337 + seed_offset)\n"
PRINTING = """
import sys
settings = dict(word[2:].split("=") for word in sys.argv[1:])
seed = int(open("train.py").read().split("manual_seed(")[1].split(" ")[0])
for step in range(int(settings["max_iters"]) + 1):
    if step % int(settings["eval_interval"]) == 0:
        print(f"step {step}: train loss 0.0000, val loss {seed + step:.4f}")
    print(f"iter {step}: loss 0.0000, time 500.00ms, mfu -100.00%")
"""


@pytest.fixture
def corpus(tmp_path):
    folder = tmp_path / "corpus"
    folder.mkdir()
    for split in ("train", "val"):
        (np.arange(2000) % 64).astype("<u2").tofile(folder / f"{split}.bin")
    return folder


@pytest.fixture
def checkout(tmp_path):
    """``checkout(text)``: a folder whose train.py is ``text``."""

    def make(text=SEEDED):
        folder = tmp_path / "checkout"
        folder.mkdir()
        for name in ("model.py", "configurator.py"):
            (folder / name).touch()
        (folder / "train.py").write_text(text)
        return folder

    return make


@pytest.fixture
def error_of(capsys):
    """``error_of(*words)``: the error message of a command line."""

    def message(*words):
        with pytest.raises(SystemExit) as exit_:
            bench.main([str(word) for word in words])
        assert exit_.value.code == 2
        return capsys.readouterr().err

    return message


def test_a_folder_without_nanogpt_is_named_with_what_it_lacks(tmp_path, error_of):
    (tmp_path / "model.py").touch()
    assert "no nanoGPT checkout: train.py, configurator.py missing" in error_of("--nanogpt", tmp_path)


def test_a_train_script_with_another_seed_line_is_refused(checkout, error_of):
    assert "does not seed as nanoGPT's does" in error_of("--nanogpt", checkout("torch.manual_seed(0)"))


@pytest.mark.parametrize("seeds", ["0", "1,1", "-1,0"])
def test_fewer_than_two_seeds_show_no_noise(seeds, tmp_path, error_of):
    assert "two or more different seeds" in error_of("--nanogpt", tmp_path, f"--seeds={seeds}")


def test_a_tokenizer_without_a_corpus_has_no_effect(checkout, error_of):
    assert "--tokenizer has no effect" in error_of("--nanogpt", checkout(), "--tokenizer", "gpt2")


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("model.d_model=100", "model.n_head 12 must divide model.d_model 100"),
        ("model.positions=none", "nanoGPT learns its positions"),
        ("precision=bfloat16", "compared in float32"),
        ("training.eval_sequences=17", "eval_sequences, 17 windows, must be a multiple of --batch 16"),
        ("training.eval_every=1", "training.eval_every must be at least 2"),
        ("training.step=5", "did you mean"),
    ],
)
def test_a_setting_that_only_one_program_can_train_is_refused(setting, message, checkout, corpus, error_of):
    words = ("--nanogpt", checkout(), setting, "--corpus", corpus, "--tokenizer", "none:64")
    assert message in " ".join(error_of(*words).split())


def test_a_run_of_nanogpt_that_fails_shows_its_last_line(checkout, corpus, error_of):
    script = SEEDED + "raise ValueError('Unknown config key: device')"
    message = error_of("--nanogpt", checkout(script), "--corpus", corpus, "--tokenizer", "none:64")
    assert "nanoGPT, seed 0, exited with 1: ValueError: Unknown config key: device" in message


def test_nanogpt_runs_with_the_seed_of_the_run_and_its_evaluations_are_read(checkout, corpus, tmp_path):
    options = bench.argparse.Namespace(
        nanogpt=checkout(SEEDED + PRINTING), batch=16, threads=1, seeds=(3,), settings=[]
    )
    opened = bench.open_corpus(corpus, "none:64")
    job = bench.make_job(options, opened)
    steps = []
    work = tmp_path / "work"
    work.mkdir()
    run = bench.train_nanogpt(job, opened, options, work, lambda completed: steps.append(completed))
    assert run.validation_loss == {step: 1337 + 3 + step for step in (80, 160, 240, 320, 400)}
    assert run.tokens_per_second == 2048 / 0.5
    assert steps == list(range(401))


def test_steps_with_an_evaluation_are_not_timed():
    training = LanguageTraining(steps=4, tokens_per_step=1024, eval_every=2)
    lines = [f"step {step}: train loss 1.0, val loss {9 - step}.5\n" for step in (0, 2, 4)]
    lines += [f"iter {step}: loss 1.0, time {time}ms, mfu 0%\n" for step, time in enumerate((900, 100, 900, 300, 900))]
    run = bench.read_output(lines, training)
    assert run == bench.Run({2: 7.5, 4: 5.5}, 1024 / 0.2)


@pytest.mark.parametrize("last", ["", "step 4: train loss nan, val loss nan\n"])
def test_a_missing_or_diverged_evaluation_is_an_error(last):
    training = LanguageTraining(steps=4, tokens_per_step=1024, eval_every=2)
    with pytest.raises(TrainingError, match="not all there or not finite"):
        bench.read_output(["step 2: train loss 1.0, val loss 1.0\n", last], training)


def test_differences_of_runs_are_measured_within_and_across_programs():
    runs = {"nanoGPT": [(1.0, 10.0), (3.0, 20.0)], "madbench": [(2.0, 30.0), (2.0, 30.0)]}
    result = bench.compare({code: [bench.Run({5: a}, b) for a, b in values] for code, values in runs.items()})
    assert result["same_code"] == pytest.approx(((2**2 + 0**2) / 2) ** 0.5)
    assert result["other_code"] == 1.0
    assert result["speed_ratio"] == pytest.approx((30 / 10 + 30 / 20) / 2)
