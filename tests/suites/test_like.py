"""Profiles based on another one with the key ``like``."""

from __future__ import annotations

import pytest
import yaml

from madbench.config import Override
from madbench.errors import ConfigError
from madbench.suites import find_suite

MAD = find_suite("mad")


def test_a_profile_has_the_settings_of_the_one_that_it_is_like():
    deep, usual = MAD.Profile.load("evening-4"), MAD.Profile.load("evening")
    assert deep.model_config().n_layer == 4 and deep.tasks == usual.tasks and deep.training == usual.training
    changed = MAD.Profile.load("evening", ["model.n_layer=4"])
    jobs = [MAD.jobs(["S-p"], profile, tasks=["compression"], seeds=[0]) for profile in (deep, changed)]
    assert [job.id for job in jobs[0]] == [job.id for job in jobs[1]]


def test_settings_of_tasks_are_merged(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("like: evening\ndescription: Mine.\ntasks: {memorization: {training: {epochs: 3}}}\n")
    mine, usual = MAD.Profile.load(str(file)), MAD.Profile.load("evening")
    jobs, others = (MAD.jobs(["S"], each, tasks=["memorization"], seeds=[0]) for each in (mine, usual))
    assert jobs[0].setting == others[0].setting and jobs[0].training.epochs == 3 != others[0].training.epochs


@pytest.mark.parametrize("change", ["learning_rates: [0.004, 0.002]", "training: {epochs: 2, warmup_steps: 10}"])
def test_a_setting_for_all_tasks_replaces_those_of_single_tasks_as_an_override_does(tmp_path, change):
    file = tmp_path / "mine.yaml"
    file.write_text(f"like: evening\ndescription: Mine.\n{change}\n")
    changes = yaml.safe_load(change)
    values = {f"training.{key}": value for key, value in changes.pop("training", {}).items()} | changes
    overrides = [Override.of(key, value) for key, value in values.items()]
    mine, usual = MAD.Profile.load(str(file)), MAD.Profile.load("evening", overrides)
    assert [job.id for job in MAD.jobs(["S"], mine)] == [job.id for job in MAD.jobs(["S"], usual)]


def test_a_setting_for_one_task_in_the_same_file_is_kept(tmp_path):
    file = tmp_path / "mine.yaml"
    rates = "learning_rates: [0.004]\ntasks: {compression: {learning_rates: [0.002]}}\n"
    file.write_text(f"like: evening\ndescription: Mine.\n{rates}")
    jobs = MAD.jobs(["S"], MAD.Profile.load(str(file)), seeds=[0])
    found = {job.task: job.training.learning_rate for job in jobs}
    assert found.pop("compression") == 0.002 and {*found.values()} == {0.004}


def test_a_profile_like_a_comparable_one_is_comparable_only_if_it_says_so(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("like: full\ndescription: Mine.\nlearning_rates: [0.01]\n")
    assert MAD.Profile.load("full").comparable_with_paper and not MAD.Profile.load(str(file)).comparable_with_paper
    file.write_text("like: full\ndescription: Mine.\ncomparable_with_paper: true\n")
    assert MAD.Profile.load(str(file)).comparable_with_paper


def test_like_is_among_the_suggested_keys_of_a_profile(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("like: evening\nzzz: 1\n")
    with pytest.raises(ConfigError, match="unknown key 'zzz'; expected one of: like, description"):
        MAD.Profile.load(str(file))
    file.write_text("liek: evening\n")
    with pytest.raises(ConfigError, match="did you mean 'like'"):
        MAD.Profile.load(str(file))


@pytest.mark.parametrize(
    "base, why",
    [
        ("evenin", "did you mean 'evening'"),
        ("nowhere.yaml", "no such profile; like takes the name of a shipped profile, not a file"),
    ],
)
def test_an_unknown_base_is_an_error(tmp_path, base, why):
    file = tmp_path / "mine.yaml"
    file.write_text(f"like: {base}\ndescription: Mine.\n")
    with pytest.raises(ConfigError, match=why):
        MAD.Profile.load(str(file))
