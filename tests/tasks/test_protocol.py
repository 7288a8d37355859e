"""Shipped task files have the published protocol, and invalid files are refused by file and key."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest

import madbench
from madbench.config import field_docs
from madbench.errors import ConfigError
from madbench.suites.mad.suite import MAD_TASKS
from madbench.tasks import load_task, load_task_file, make_setting, settings_class
from madbench.tasks.compression import Compression

DATA_SIZES = [6400, 3200, 1600, 800]
LENGTHS = [256, 512, 1024]
# The difficulties of MAD (Poli et al. 2024): one variable changed at a time.
CHANGES = {
    "compression": {"vocab_size": [32, 64, 128], "seq_len": [64, 128, 256], "num_train_examples": DATA_SIZES},
    "fuzzy_in_context_recall": {"vocab_size": [32, 64, 128], "seq_len": LENGTHS, "num_train_examples": DATA_SIZES},
    "in_context_recall": {"vocab_size": [32, 64, 128], "seq_len": LENGTHS, "num_train_examples": DATA_SIZES},
    "memorization": {"vocab_size": [512, 1024, 2048, 4096, 8192]},
    "noisy_in_context_recall": {
        "vocab_size": [48, 80, 144],
        "seq_len": LENGTHS,
        "num_train_examples": DATA_SIZES,
        "frac_noise": [0.4, 0.6, 0.8],
    },
    "selective_copying": {
        "vocab_size": [32, 64, 128],
        "seq_len": [512, 1024],
        "num_train_examples": DATA_SIZES,
        "num_tokens_to_copy": [32, 64, 96],
    },
}
BASELINES = {  # vocab_size, seq_len, num_train_examples
    "compression": (16, 32, 12800),
    "fuzzy_in_context_recall": (16, 128, 12800),
    "in_context_recall": (16, 128, 12800),
    "memorization": (256, 32, 256),
    "noisy_in_context_recall": (32, 128, 12800),
    "selective_copying": (16, 256, 12800),
}

SMALL = "task: compression\ndescription: small\nbaseline:\n  vocab_size: 8\n  seq_len: 4\n  num_train_examples: 2\n"
SMALL += "  num_validation_examples: 2\n  num_test_examples: 2\n"


def test_tasks_stand_in_the_order_of_the_published_table():
    assert MAD_TASKS == tuple(CHANGES)


@pytest.mark.parametrize("task", MAD_TASKS)
def test_shipped_file_has_the_published_baseline_and_changes(task):
    file = load_task(task)
    assert file.task == task and file.description
    baseline = file.baseline
    assert (baseline.vocab_size, baseline.seq_len, baseline.num_train_examples) == BASELINES[task]
    assert baseline.num_validation_examples == baseline.num_test_examples == 1280
    expected = [{name: value} for name, values in CHANGES[task].items() for value in values]
    assert [file.change_of(setting) for setting in file.settings[1:]] == expected
    assert file.change_of(baseline) == {}


def test_the_protocol_has_66_settings_and_5384400_optimizer_steps():
    settings = [setting for task in MAD_TASKS for setting in load_task(task).settings]
    assert len(settings) == len(set(settings)) == 66
    steps = sum(-(-setting.num_train_examples // 128) * 200 * 6 for setting in settings)
    assert steps == 5_384_400


@pytest.mark.parametrize("task", MAD_TASKS)
def test_every_field_is_documented(task):
    cls = settings_class(task)
    assert set(field_docs(cls)) == {field.name for field in dataclasses.fields(cls)}


def test_importing_the_tasks_imports_no_numpy():
    code = "import sys, madbench.tasks as t; t.task_names(); sys.exit('numpy' in sys.modules or 'yaml' in sys.modules)"
    root = Path(madbench.__path__[0]).parent
    subprocess.run([sys.executable, "-c", code], check=True, cwd=root)


def test_make_setting_replaces_fields_of_the_baseline():
    setting = make_setting("selective_copying", {"seq_len": 64, "num_tokens_to_copy": 4}, "here")
    assert setting == dataclasses.replace(load_task("selective_copying").baseline, seq_len=64, num_tokens_to_copy=4)


@pytest.mark.parametrize(
    ("task", "mapping", "message"),
    [
        ("compresion", {}, "here: unknown task 'compresion'; did you mean 'compression'?"),
        ("compression", {"vocab": 8}, "here: unknown key 'vocab'; did you mean 'vocab_size'?"),
        ("compression", {"vocab_size": "8"}, "here: vocab_size: expected a whole number, got '8'"),
        ("compression", {"vocab_size": True}, "here: vocab_size: expected a whole number, got True"),
        ("compression", {"frac_noise": 0.1}, "here: unknown key 'frac_noise'"),
        ("compression", {"vocab_size": 2}, "here: vocab_size must be at least 3"),
        ("compression", {"seq_len": 1}, "here: seq_len must be at least 2"),
        ("compression", {"num_test_examples": 0}, "here: num_test_examples must be at least 1, got 0"),
        ("in_context_recall", {"seq_len": 127}, "here: seq_len must be even"),
        ("in_context_recall", {"seq_len": 2}, "here: seq_len must be even and at least 4"),
        ("in_context_recall", {"vocab_size": 3}, "here: vocab_size must be at least 4"),
        ("noisy_in_context_recall", {"frac_noise": 0}, "here: frac_noise must be above 0"),
        ("noisy_in_context_recall", {"frac_noise": 1.5}, "at most 1, got 1.5"),
        ("noisy_in_context_recall", {"vocab_size": 19}, "here: vocab_size must be at least 20"),
        ("noisy_in_context_recall", {"noise_vocab_size": 0}, "here: noise_vocab_size must be at least 1"),
        ("fuzzy_in_context_recall", {"seq_len": 12}, "here: seq_len must be at least 13"),
        ("fuzzy_in_context_recall", {"vocab_size": 6}, "here: vocab_size must be at least 7"),
        ("fuzzy_in_context_recall", {"max_key_size": 0}, "here: max_key_size must be at least 1"),
        ("fuzzy_in_context_recall", {"max_key_size": 20, "vocab_size": 128}, "over 2^40 keys"),
        ("memorization", {"vocab_size": 4}, "here: vocab_size must be at least 5"),
        ("memorization", {"seq_len": 31}, "here: seq_len must be even"),
        ("selective_copying", {"seq_len": 32}, "here: seq_len must be at least 33 (num_tokens_to_copy 16), got 32"),
        ("selective_copying", {"num_tokens_to_copy": 0}, "here: num_tokens_to_copy must be at least 1"),
        ("selective_copying", {"vocab_size": 3}, "here: vocab_size must be at least 4"),
    ],
)
def test_an_invalid_task_setting_is_refused(task, mapping, message):
    with pytest.raises(ConfigError) as error:
        make_setting(task, mapping, "here")
    assert message in str(error.value)


def test_a_user_file_may_have_any_name_and_no_changes(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(SMALL)
    assert load_task_file(path).settings == (Compression(8, 4, 2, 2, 2),)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (SMALL.replace("task: compression", "task: compresion"), "task: unknown task 'compresion'; did you mean"),
        (SMALL.replace("task: compression\n", ""), "key 'task' is missing"),
        (SMALL.replace("vocab_size", "vocab"), "baseline: unknown key 'vocab'; did you mean 'vocab_size'?"),
        (SMALL.replace("vocab_size: 8", "vocab_size: 8.5"), "baseline: vocab_size: expected a whole number, got 8.5"),
        (SMALL.replace("  seq_len: 4\n", ""), "baseline: key 'seq_len' is missing"),
        (SMALL.replace("vocab_size: 8", "vocab_size: 2"), "baseline: vocab_size must be at least 3"),
        (SMALL + "varies:\n", "unknown key 'varies'; did you mean 'vary'?"),
        (SMALL + "vary: [1]\n", "vary: expected a mapping"),
        (SMALL + "vary:\n  vocab: [16]\n", "vary: unknown key 'vocab'; did you mean 'vocab_size'?"),
        (SMALL + "vary:\n  vocab_size: 16\n", "vary: vocab_size: expected a list of values, got 16"),
        (SMALL + "vary:\n  vocab_size: []\n", "vary: vocab_size: expected a list of values, got []"),
        (SMALL + "vary:\n  vocab_size: [x]\n", "vary: vocab_size: expected a whole number, got 'x'"),
        (SMALL + "vary:\n  vocab_size: [8]\n", "vary: vocab_size: 8 gives a setting that the file has already"),
        (SMALL + "vary:\n  vocab_size: [9, 9]\n", "vary: vocab_size: 9 gives a setting that the file has already"),
        (SMALL + "vary:\n  vocab_size: [1]\n", "vary: vocab_size must be at least 3"),
        (SMALL + "task: compression\n", "key 'task' appears twice"),
        ("- 1\n", "expected a mapping"),
    ],
)
def test_a_bad_file_is_refused_with_file_and_key(tmp_path, text, message):
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as error:
        load_task_file(path)
    assert str(error.value).startswith(str(path)) and message in str(error.value)


def test_an_unknown_task_is_refused_with_the_nearest():
    with pytest.raises(ConfigError, match="unknown task 'memorisation'; did you mean 'memorization'"):
        load_task("memorisation")
    with pytest.raises(ConfigError, match="did you mean"):
        settings_class("memorisation")
