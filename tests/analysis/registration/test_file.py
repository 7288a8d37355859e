"""The file of a registration: its content, and the files that are refused."""

from __future__ import annotations

import json

import pytest

from hypermlp_claims import CLAIMS, REFERENCE
from madbench.analysis import claims, inference, registration, scores
from madbench.analysis.inference import holm, sample
from madbench.analysis.registered_findings import changed_values, has_other_test, registered_findings
from madbench.analysis.registration import load_registration, register
from madbench.analysis.scores import Results
from madbench.analysis.verdict_inputs import verdict_inputs
from madbench.experiment import ExperimentOptions, prepare
from madbench.grid import load_grid
from madbench.jobs import Record
from madbench.store.runs import Store
from madbench.suites.language.columns import LOSS
from madbench.suites.mad.suite import AVERAGE as MAD_AVERAGE
from madbench.suites.mad.suite import MAD, MAD_TASKS
from madbench.tasks import make_setting
from registrations import LABELS, write_registration


def test_every_numeric_constant_of_inference_and_claims_is_registered(path, tmp_path):
    found, *_ = register(path, tmp_path / "results")
    for module in (inference, claims):
        for name, value in vars(module).items():
            if name.isupper() and isinstance(value, (int, float)) and name not in ("VERSION", "SETTLING_SEEDS"):
                assert found.thresholds.get(name.lower()) == value, name


def test_a_registration_lists_all_thresholds_that_verdicts_depend_on(path, tmp_path):
    found, *_ = register(path, tmp_path / "results")
    named = {
        "seeds",
        "correction",
        "last_evaluations",
        "quantities",
        "columns",
        "solved_share",
        "chance",
        "heuristic",
        "lines",
    }
    numbers = {"level", "least_seeds", "unlearned_share", "margin_share"}
    assert set(found.thresholds) == named | numbers | {"published"}
    assert found.thresholds["seeds"] == [0, 1, 2] and found.thresholds["correction"].startswith("Holm")
    assert set(found.thresholds["columns"]) == {*MAD_TASKS, MAD_AVERAGE}
    assert found.thresholds["chance"]["compression"] == pytest.approx(100 / 16)
    assert found.thresholds["heuristic"]["compression"] == pytest.approx(25.24, abs=0.01)
    assert all({*found.thresholds[name]} <= {*MAD_TASKS} for name in ("chance", "heuristic"))  # averages follow
    assert set(found.thresholds["published"]) == {*LABELS, *REFERENCE.margin_labels}


def test_chance_is_the_mean_over_the_settings_of_a_task(tmp_path):
    keys = {"tasks": ["compression"], "profile": "full"}
    made = prepare(load_grid(["S"], keys), ExperimentOptions(device="cpu", results=tmp_path))
    answers = {json.dumps(job.setting): make_setting("compression", job.setting, "x").num_answers for job in made.jobs}
    expected = sum(100 / count for count in answers.values()) / len(answers)
    assert len(set(answers.values())) > 1
    assert verdict_inputs([], made)["chance"] == {"compression": pytest.approx(expected)}


def test_the_usual_profile_is_registered_by_its_name(tmp_path, monkeypatch):
    """Another version of madbench may have another usual profile."""
    (tmp_path / "own.yaml").write_text(f"labels: [{', '.join(LABELS)}]\ntasks: [{', '.join(MAD_TASKS)}]\nseeds: 0-2\n")
    found, _, file = register(tmp_path / "own.yaml", tmp_path / "results")
    assert found.grid["profile"] == MAD.default
    Store.open(tmp_path / "results")
    monkeypatch.setattr(type(MAD), "default", "quick")
    assert load_registration(file, tmp_path / "results")[0].jobs == found.jobs


def test_a_failed_run_is_not_listed_as_stored_before_the_registration(path, tmp_path):
    _, made, file = register(path, tmp_path / "results")
    store = Store.open(tmp_path / "results")
    store.finish(made.jobs[0], Record("failed", error="out of memory"))
    store.finish(made.jobs[1], Record("diverged", error="at step 4"))
    file.unlink()
    assert register(path, tmp_path / "results")[0].stored == (made.jobs[1].id,)


def test_a_registration_whose_jobs_differ_from_the_present_plan_is_refused(path, tmp_path):
    _, made, file = register(path, tmp_path / "results")
    content = json.loads(file.read_text())
    Store.open(tmp_path / "results")
    for jobs in (content["jobs"][:-1], [*content["jobs"][:-1], "0" * 16], content["jobs"][::-1]):
        write_registration(file, content | {"jobs": jobs})
        with pytest.raises(registration.ConfigError, match="would train other runs"):
            load_registration(file, tmp_path / "results")


@pytest.mark.slow
def test_a_registration_has_the_threshold_and_published_numbers_of_every_claim_and_quantity(tmp_path):
    everything = [label for claim in CLAIMS for label in claim.labels(range(len(claim.pairs)))]
    (tmp_path / "all.yaml").write_text(f"labels: {json.dumps(sorted(set(everything)))}\nseeds: 0\n")
    found, made, _ = register(tmp_path / "all.yaml", tmp_path / "results")
    assert [claim.name for claim in found.claims] == [claim.name for claim in CLAIMS if claim.name != "earlier"]
    for claim in found.claims:
        judged = found.thresholds["quantities"][claim.name]
        assert judged and set(found.thresholds["lines"][claim.name]) == set(judged) <= set(claim.quantities)
        for label in claim.labels(range(len(claim.pairs))):
            assert set(judged) <= set(found.thresholds["published"][label])
    assert found.thresholds["lines"]["softmax"][LOSS] == pytest.approx(-REFERENCE.margin(LOSS))
    assert not changed_values(found, made)
    json.dumps(verdict_inputs(found.claims, made), allow_nan=False)


def test_a_registration_binds_the_test_by_its_name_and_version(path, tmp_path):
    found, *_ = register(path, tmp_path / "results")
    assert found.test == {"name": "moderated t", "version": 1} and not has_other_test(found)


def test_a_version_of_the_test_has_its_constants():
    """A change of a constant or of the formula needs a new version of the test."""
    others = ("TEST", "VERSION", "UNLEARNED_SHARE", "SETTLING_SEEDS")  # of no variance
    numbers = [value for name, value in vars(sample).items() if name.isupper() and name not in others]
    assert (sample.VERSION, numbers) == (1, [0.05, 2.0, 0.02, 0.01, 0.15, 0.35, 0.25, 4.0])


@pytest.mark.slow
def test_registered_claims_are_one_family_of_tests(tmp_path):
    labels = [*LABELS, "R-cg-q", "R-cg-q-12o", "G-cg-q", "G-cg-q-12o"]
    text = f"labels: [{', '.join(labels)}]\ntasks: [{', '.join(MAD_TASKS)}]\nseeds: 0-2\nclaims: [lag, mixing]\n"
    (tmp_path / "two.yaml").write_text(text)
    _, made, file = register(tmp_path / "two.yaml", tmp_path / "results")
    store = Store.open(tmp_path / "results")
    for job in made.jobs:
        accuracy = 0.2 + 0.05 * (job.seed * len(job.label) % 3) + 0.3 * ("o" in job.label)
        store.finish(job, Record("finished", {"accuracy": accuracy, "selection_accuracy": 0.5, "ceiling": 1.0}))
    found, results = load_registration(file, tmp_path / "results")
    rows = registered_findings(found, results)[:2]
    assert [row.claim.name for row in rows] == ["mixing", "lag"] and {row.tested for row in rows} == {2}
    assert [row.p_holm for row in rows] == holm([row.p for row in rows]) != [row.p for row in rows]


def test_a_registration_in_another_format_version_is_refused_in_one_line(file, tmp_path):
    content = json.loads(file.read_text())
    for form in (1, 4):
        of_form = content | {"form": form}
        if form == 1:  # as the first versions wrote them
            del of_form["form"]
            thresholds = {name: content["thresholds"][name] for name in ("level", "margin_share", "least_seeds")}
            of_form["thresholds"] = thresholds | {"solved_share": content["thresholds"]["solved_share"]}
        write_registration(file, of_form)
        with pytest.raises(registration.ConfigError) as error:
            load_registration(file, tmp_path / "results")
        assert str(error.value).count("\n") == 0
        assert f"{file}: registered by another version of madbench, in form {form}" in str(error.value)


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content["thresholds"].update(level=0.5),
        lambda content: content["thresholds"]["solved_share"].update(compression=0.5),
        lambda content: content["thresholds"]["published"]["R-12o!"].update(mad_average=1.0),
        lambda content: content["claims"][0].update(reach=0.1),
        lambda content: content["claims"][0].update(sentence="Lag does not matter."),
        lambda content: content["jobs"].pop(),
        lambda content: content["stored"].append(content["jobs"][0]),
        lambda content: content["grid"].update(seeds="0-4"),
        lambda content: content["test"].update(version=0),
        lambda content: content.update(registered="2020-01-01 00:00:00"),
        lambda content: content.update(form=1),
        lambda content: content.update(id="0" * 16),
        lambda content: content.update(note="added"),
    ],
)
def test_a_file_that_was_edited_is_refused(change, file, complete_folder):
    content = json.loads(file.read_text())
    change(content)
    file.write_text(json.dumps(content))
    with pytest.raises(registration.ConfigError, match="changed after it was registered"):
        load_registration(file, complete_folder / "results")


@pytest.mark.parametrize(
    "text", ["[]", "null", "3", '"id"', "{}", '{"id": "x", "level": NaN}', '{"id": "x", "a": 1e999}']
)
def test_files_that_are_not_registrations_are_refused(text, file, complete_folder):
    file.write_text(text)
    with pytest.raises(registration.ConfigError, match="not a registration|changed after"):
        load_registration(file, complete_folder / "results")


def test_a_second_registration_of_the_same_name_is_refused_and_one_of_another_name_is_not(path, tmp_path):
    first, _, file = register(path, tmp_path / "results")
    content = file.read_bytes()
    path.write_text(path.read_text().replace("0-2", "0-4"))
    with pytest.raises(registration.ConfigError, match="registered already"):
        register(path, tmp_path / "results")
    assert file.read_bytes() == content
    second, *_ = register(path.rename(tmp_path / "again.yaml"), tmp_path / "results")
    assert second.id != first.id


def test_registering_makes_no_results_folder(path, tmp_path):
    register(path, tmp_path / "nothing" / "here")
    assert not (tmp_path / "nothing").exists()


def test_a_grid_that_varies_a_setting_cannot_be_registered_with_claims_on_labels(path, tmp_path):
    path.write_text(path.read_text() + "vary: {training.epochs: [3, 4]}\nclaims: [lag]\n")
    with pytest.raises(registration.ConfigError, match=r"lag compares labels under one setting.*training\.epochs"):
        register(path, tmp_path / "results")


def test_a_claim_on_a_quantity_that_the_tasks_lack_cannot_be_registered(path, tmp_path):
    labels = "R-cg-q-12o, R-cg-q, G-cg-q-12o, G-cg-q"
    path.write_text(f"labels: [{labels}]\ntasks: [compression]\nclaims: [earlier]\n")
    with pytest.raises(registration.ConfigError, match="earlier is about Steps 3.1, which these tasks do not give"):
        register(path, tmp_path / "results")


@pytest.mark.slow
def test_results_of_an_experiment_have_the_registered_columns(grid_results):
    made = grid_results(("S", "R"), tasks=[*MAD_TASKS])
    assert set(scores.columns_of(made)) == set(made.scores.column)
    some = grid_results(("S",), tasks=["compression", "memorization"], seeds=[9])
    assert isinstance(some, Results) and set(scores.columns_of(some)) == set(some.scores.column)
