"""The content of a registration, and the changes of it that are noticed."""

from __future__ import annotations

import copy
import functools
import json
import math
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from conftest import forget_installed
from hypermlp_claims import CLAIMS, REFERENCE
from madbench import config
from madbench.analysis import (
    claims,
    inference,
    registration,
    scores,
)
from madbench.analysis.baselines import HEURISTIC, baseline_values
from madbench.analysis.deciding import changes, deciding_values
from madbench.analysis.inference import holm, variance
from madbench.analysis.registration import (
    changed_claims,
    changed_values,
    lacking_runs,
    load_registration,
    register,
    registered_findings,
    sentences,
)
from madbench.analysis.scores import Results
from madbench.experiment import prepare
from madbench.files import file_digest
from madbench.grid import load_grid
from madbench.jobs import Record, content_id
from madbench.store.runs import Store
from madbench.suites.language.suite import LOSS
from madbench.suites.mad.suite import AVERAGE as MAD_AVERAGE
from madbench.suites.mad.suite import MAD, MAD_TASKS
from madbench.tasks import make_setting

LABELS = ("R-12!", "R-12o!", "G-12!", "G-12o!")
GAINS = {"R-12!": 0.1, "R-12o!": 0.6, "G-12!": 0.2, "G-12o!": 0.7}
LATER = {"ended": "2100-01-01T00:00:00+00:00"}
"""Details of a run that ends after the registration."""


def written(folder: Path) -> Path:
    path = folder / "lag.yaml"
    path.write_text(f"profile: quick\nlabels: [{', '.join(LABELS)}]\ntasks: [{', '.join(MAD_TASKS)}]\nseeds: 0-2\n")
    return path


@pytest.fixture
def path(tmp_path) -> Path:
    return written(tmp_path)


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """The folder of a registration and of all its runs, which support the claim."""
    folder = tmp_path_factory.mktemp("registered")
    _, made, _ = register(written(folder), folder / "results")
    store = Store.open(folder / "results")
    for job in made.jobs:
        accuracy = GAINS[job.label] + job.seed / 500
        metrics = {"accuracy": accuracy, "selection_accuracy": 0.5, "ceiling": 1.0}
        store.finish(job, Record("finished", metrics, [{"epoch": 1, "step": 4, "train_loss": 1.0}], LATER))
    return folder


@pytest.fixture
def filled(whole, tmp_path) -> Path:
    """The file of the registration in a copy of that folder."""
    shutil.copytree(whole, tmp_path, dirs_exist_ok=True)
    return tmp_path / "lag.registered.json"


def judge(file: Path) -> tuple[str, list[str]]:
    """The sentences on a registration, and the verdicts on its claims."""
    found, results = load_registration(file, file.parent / "results")
    rows = [row for row in registered_findings(found, results) if row.claim.group != registration.EXPLORATORY]
    return " ".join(sentences(found, file, results)), [row.verdict_text for row in rows]


@pytest.fixture
def judged(whole):
    """``judged()``: :func:`judge` of what is wholly stored."""
    return lambda: judge(whole / "lag.registered.json")


@pytest.fixture(scope="module")
def loaded(whole):
    """The registration in ``whole``, and its experiment."""
    found, results = load_registration(whole / "lag.registered.json", whole / "results")
    return found, results


@pytest.fixture
def file(whole, tmp_path) -> Path:
    """A copy of the file of that registration, without its runs."""
    return Path(shutil.copy(whole / "lag.registered.json", tmp_path))


@pytest.fixture
def judged_again(filled):
    """``judged_again()``: :func:`judge` of the copy."""
    return lambda: judge(filled)


@pytest.fixture
def papers(tmp_path, monkeypatch) -> Iterator[Path]:
    """A copy of the folder of the paper, read in place of the installed papers."""
    shutil.copytree(config.PAPERS / "hypermlp", tmp_path / "papers" / "hypermlp")
    monkeypatch.setattr(config, "PAPERS", tmp_path / "papers")
    forget_installed()
    yield tmp_path / "papers"
    forget_installed()


def with_threshold(content: dict, name: str, value) -> dict:
    """The content of a registration by an installation in which the value of a dotted name was another one."""
    content = copy.deepcopy(content)
    *outer, last = name.split(".")
    functools.reduce(dict.__getitem__, outer, content["thresholds"])[last] = value
    return content


def with_claim(content: dict, **changes) -> dict:
    """The content of a registration by an installation in which the first claim was another one."""
    first, *others = content["claims"]
    assert set(changes) <= set(first)
    return content | {"claims": [first | changes, *others]}


@pytest.mark.slow
def test_what_is_wholly_stored_and_unchanged_is_judged_as_registered(judged):
    said, verdicts = judged()
    assert (
        verdicts == ["supported"] and "provisional" not in said and "changed" not in said and "not stored" not in said
    )


OTHERS = {
    "level": 0.1,
    "least_seeds": 2,
    "unlearned_share": 0.04,
    "margin_share": 0.3,
    "last_evaluations": 4,
    "solved_share.compression": 0.5,
    "chance.memorization": 50.0,
    "columns.compression.resolution": 0.2,
    "columns.mad_average.resolution": 0.2,
    "columns.mad_average.limits": [0.0, None],
    "columns.mad_average.better": "lower",
    "published.R-12o!.mad_average": 90.0,
    "published.R-cg-q.mad_average": 10.0,
    "quantities.lag": [MAD_AVERAGE, LOSS],
}
"""By name of a value that decides: another value of it."""


@pytest.mark.slow
@pytest.mark.parametrize("name", OTHERS)
def test_a_value_that_decides_is_named_when_it_is_another_than_was_registered(name, file, loaded, whole):
    found, made = loaded
    assert changed_values(found, made) == []
    rewritten(file, with_threshold(json.loads(file.read_text()), name, OTHERS[name]))
    changed = changed_values(load_registration(file, whole / "results")[0], made)
    assert [change.split(" ")[0] for change in changed] == [name]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["level", "chance.memorization", "published.R-12o!.mad_average"])
def test_a_value_that_changed_makes_verdicts_provisional(name, filled, judged_again):
    rewritten(filled, with_threshold(json.loads(filled.read_text()), name, OTHERS[name]))
    said, verdicts = judged_again()
    assert "The verdicts are provisional." in said
    assert f"{name} " in said.split("Changed values: ")[1]
    assert verdicts and all(verdict.endswith(" (provisional)") for verdict in verdicts)


@pytest.mark.slow
def test_a_published_file_that_was_edited_is_noticed(judged, loaded, papers):
    folder = papers / "hypermlp"
    text = (folder / "table1.csv").read_text(encoding="utf-8")
    (folder / "table1.csv").write_text(text.replace("46.27", "26.27"), encoding="utf-8")
    assert text.count("46.27") == 1
    said, verdicts = judged()
    assert "published.R-12!.mad_average 46.27, now 26.27" in said
    ways = [100 - value for value in baseline_values(HEURISTIC, loaded[1].jobs, averages=False).values()]
    scale = sum(ways) / 6 / REFERENCE.way(MAD_AVERAGE)  # of what the paper's labels had to learn
    lines = [float(line) for line in re.search(r"lines\.lag\.mad_average (\S+), now ([^\s;]+)[;.]", said).groups()]
    assert lines == pytest.approx([(81.82 - of_r + 78.52 - 46.18) / 2 / 2 * scale for of_r in (46.27, 26.27)])
    assert verdicts == ["supported (provisional)"]


@pytest.mark.slow
def test_registered_lines_are_judged_where_the_present_analysis_draws_others(filled, judged_again):
    rewritten(filled, with_threshold(json.loads(filled.read_text()), "lines.lag.mad_average", 90.0))
    said, verdicts = judged_again()
    assert verdicts == ["contradicted (provisional)"]
    assert "lines.lag.mad_average 90, now 15.4" in said
    assert "With the present thresholds: The lag layout is necessary, MAD avg: supported." in said


def test_every_number_that_inference_and_claims_decide_by_is_registered(path, tmp_path):
    found, *_ = register(path, tmp_path / "results")
    for module in (inference, claims):
        for name, value in vars(module).items():
            if name.isupper() and isinstance(value, (int, float)) and name not in ("VERSION", "SETTLING_SEEDS"):
                assert found.thresholds.get(name.lower()) == value, name


def test_what_a_registration_names_beside_them(path, tmp_path):
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
    made = prepare(load_grid(["S"], keys), device="cpu", results=tmp_path)
    answers = {json.dumps(job.setting): make_setting("compression", job.setting, "x").num_answers for job in made.jobs}
    expected = sum(100 / count for count in answers.values()) / len(answers)
    assert len(set(answers.values())) > 1
    assert deciding_values([], made)["chance"] == {"compression": pytest.approx(expected)}


@pytest.mark.parametrize(("count", "more"), [(5, ""), (6, "; and 1 more")])
def test_five_values_that_changed_are_listed_and_the_others_counted(count, more):
    named = [f"value_{i} 0, now 1" for i in range(count)]
    expected = f"Changed values: {'; '.join(named[:5])}{more}. The verdicts are provisional."
    assert registration.changed_sentence(named) == expected


def test_the_usual_profile_is_registered_by_its_name(tmp_path, monkeypatch):
    """Another version of madbench may have another usual profile."""
    (tmp_path / "own.yaml").write_text(f"labels: [{', '.join(LABELS)}]\ntasks: [{', '.join(MAD_TASKS)}]\nseeds: 0-2\n")
    found, _, file = register(tmp_path / "own.yaml", tmp_path / "results")
    assert found.grid["profile"] == MAD.default
    Store.open(tmp_path / "results")
    monkeypatch.setattr(type(MAD), "default", "quick")
    assert load_registration(file, tmp_path / "results")[0].jobs == found.jobs


def test_values_that_came_or_went_are_changes_too():
    then, now = {"a": {"b": 1, "c": [1, 2]}, "d": 0.5}, {"a": {"c": [1, 3], "e": 2}, "d": 0.5}
    assert changes(then, now) == ["a.b 1, now missing", "a.c [1, 2], now [1, 3]", "a.e missing, now 2"]
    assert changes(then, then) == []


def test_a_failed_run_is_not_among_those_that_were_there_before(path, tmp_path):
    _, made, file = register(path, tmp_path / "results")
    store = Store.open(tmp_path / "results")
    store.finish(made.jobs[0], Record("failed", error="out of memory"))
    store.finish(made.jobs[1], Record("diverged", error="at step 4"))
    file.unlink()
    assert register(path, tmp_path / "results")[0].stored == (made.jobs[1].id,)


def test_runs_that_would_be_others_now_are_refused(path, tmp_path):
    _, made, file = register(path, tmp_path / "results")
    content = json.loads(file.read_text())
    Store.open(tmp_path / "results")
    for jobs in (content["jobs"][:-1], [*content["jobs"][:-1], "0" * 16], content["jobs"][::-1]):
        rewritten(file, content | {"jobs": jobs})
        with pytest.raises(registration.ConfigError, match="would train other runs"):
            load_registration(file, tmp_path / "results")


@pytest.mark.slow
def test_of_every_claim_and_quantity_the_line_and_the_published_numbers_are_registered(tmp_path):
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
    json.dumps(deciding_values(found.claims, made), allow_nan=False)


@pytest.mark.slow
def test_a_claim_that_is_another_now_is_named_and_judged_as_registered(filled, judged_again):
    content = json.loads(filled.read_text())
    rewritten(filled, with_claim(content, expects="no gain", title="Other"))
    said, verdicts = judged_again()
    assert "Claims changed after the registration, judged as registered: lag (expects)." in said
    assert verdicts == ["contradicted (provisional)"]


def test_a_registered_claim_that_is_no_longer_there_is_named(loaded):
    found, _ = loaded
    assert changed_claims(replace(found, claims=(replace(found.claims[0], name="layout"),))) == [
        "layout (no longer there)"
    ]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("reach", 0.25),
        ("pairs", (LABELS[:2],)),
        ("expects_on", {LOSS: "no gain"}),
        ("judges", "every pair"),
        ("quantities", (LOSS,)),
    ],
)
def test_a_changed_line_of_a_claim_is_noticed(field, value, path, tmp_path):
    found, *_ = register(path, tmp_path / "results")
    assert changed_claims(found) == []
    (claim,) = found.claims
    assert changed_claims(replace(found, claims=(replace(claim, **{field: value}),))) == [f"lag ({field})"]
    worded = replace(claim, title="Other", sentence="Other.", note="Other.")
    assert changed_claims(replace(found, claims=(worded,))) == []


# The test


def test_a_registration_binds_the_test_by_its_name_and_version(path, tmp_path):
    found, *_ = register(path, tmp_path / "results")
    assert found.test == {"name": "moderated t", "version": 1} and not registration.has_other_test(found)


def test_a_version_of_the_test_has_its_constants():
    """Whoever changes one of them, or the formula, gives the test another version."""
    numbers = [value for name, value in vars(variance).items() if name.isupper() and name not in ("TEST", "VERSION")]
    assert (variance.VERSION, numbers) == (1, [0.05, 2.0, 0.02, 0.01, 0.15, 0.35, 0.25, 4.0])


@pytest.mark.slow
def test_verdicts_of_a_registration_with_another_test_say_so(filled, judged_again):
    content = json.loads(filled.read_text())
    del content["test"]
    content |= {"form": 2, "analysis": "0" * 16}
    rewritten(filled, content | {"thresholds": content["thresholds"] | {"noise": {}, "least_for_level": 5}})
    said, verdicts = judged_again()
    assert verdicts == ["supported (registered with another test)"] and "Changed values" not in said
    assert "Registered with an unnamed test; judged by moderated t 1." in said


# What is stored


@pytest.fixture
def stored(filled, tmp_path):
    """The store of what was registered, and one job of it."""
    store = Store(tmp_path / "results")
    (job,) = (
        run.job for run in store.runs() if (run.job.label, run.job.task, run.job.seed) == ("R-12!", "compression", 1)
    )
    return store, job


@pytest.mark.slow
def test_a_run_that_is_deleted_after_the_verdict_makes_it_provisional(stored, judged_again):
    store, job = stored
    assert judged_again()[1] == ["supported"]
    for file in (store.root / "runs" / job.id).iterdir():
        file.unlink()
    (store.root / "runs" / job.id).rmdir()
    said, verdicts = judged_again()
    assert "1 of 72 registered runs are not stored yet. The verdicts are provisional until all runs are stored." in said
    assert "These p-values assume a single look" in said
    assert all(verdict.endswith("(provisional)") for verdict in verdicts)


@pytest.mark.slow
def test_a_failed_run_is_not_stored(stored, judged_again):
    store, job = stored
    for file in (store.root / "runs" / job.id).iterdir():
        file.unlink()
    store.finish(job, Record("failed", error="out of memory"))
    assert store.status(job) == "failed"
    said, verdicts = judged_again()
    assert "1 of 72 registered runs are not stored yet." in said
    assert "1 of these failed (madbench sweep --retry): R-12!; seeds 1." in said
    assert all(verdict.endswith("(provisional)") for verdict in verdicts)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["job.json", "record.json", "curve.csv"])
def test_a_damaged_run_is_not_stored(name, stored, judged_again):
    store, job = stored
    file = store.root / "runs" / job.id / name
    file.write_bytes(file.read_bytes()[:-2])
    said, verdicts = judged_again()
    assert "1 of 72 registered runs are not stored yet." in said
    assert "1 of these cannot be read (madbench validate --store): R-12!; seeds 1." in said
    assert all(verdict.endswith("(provisional)") for verdict in verdicts)


@pytest.mark.slow
def test_a_diverged_run_is_a_result(stored, judged_again):
    store, job = stored
    with store.claim(job):
        store.finish(job, Record("diverged", error="at step 4", details=LATER), replace=True)
    assert store.status(job) == "diverged"
    said, verdicts = judged_again()
    assert "not stored" not in said and all("provisional" not in verdict for verdict in verdicts)


@pytest.mark.slow
def test_a_run_that_was_stopped_is_not_stored(path, tmp_path):
    _, made, file = register(path, tmp_path / "results")
    store = Store.open(tmp_path / "results")
    with store.claim(made.jobs[0]) as work:
        (work / "checkpoint.pt").write_bytes(b"half way")
    found, results = load_registration(file, tmp_path / "results")
    assert set(lacking_runs(results).values()) == {"not stored"} and len(lacking_runs(results)) == 72
    rows = registered_findings(found, results)
    assert [row.verdict_text for row in rows] == ["not enough data (provisional)"]  # it is listed all the same
    assert math.isnan(rows[0].p) and rows[0].missing


@pytest.mark.slow
@pytest.mark.parametrize(("ended", "is_early"), [(-1, True), (0, False), ("", True), ("soon", True)])
def test_a_run_is_from_before_a_registration_unless_its_record_says_otherwise(ended, is_early, stored, filled):
    """The date of its files is the date of the import."""
    store, job = stored
    registered = datetime.strptime(json.loads(filled.read_text())["registered"], "%Y-%m-%d %H:%M:%S").replace(
        tzinfo=UTC
    )
    text = ended if isinstance(ended, str) else (registered + timedelta(seconds=ended)).isoformat()
    record = store.read(job.id).record
    with store.claim(job):
        store.finish(job, replace(record, details={"ended": text} if text else {}), replace=True)
    said, (verdict,) = judge(filled)
    assert ("registered before 71 of 72 runs" in verdict) is is_early
    words = "have no end time" if isinstance(ended, str) else "ended before the registration"
    assert (f"1 of 72 runs {words}; verdicts that use them are exploratory: R-12!; seeds 1." in said) is is_early


@pytest.mark.slow
def test_a_registration_after_its_runs_says_so_in_the_verdict(whole, tmp_path):
    shutil.copytree(whole / "results", tmp_path / "results")
    store = Store(tmp_path / "results")
    for run in list(store.runs()):
        with store.claim(run.job):
            record = replace(run.record, details={"ended": "2026-01-01T00:00:00+00:00"})
            store.finish(run.job, record, replace=True)
    _, _, file = register(written(tmp_path), tmp_path / "empty")  # in another folder, before an import
    _, verdicts = judge(file)
    assert verdicts == ["supported (registered before 0 of 72 runs)"]


@pytest.mark.slow
def test_seeds_that_were_not_registered_change_nothing(stored, judged_again):
    store, job = stored
    before = judged_again()
    for other in list(store.jobs().values()):
        metrics = {"accuracy": 1 - GAINS[other.label], "selection_accuracy": 0.5, "ceiling": 1.0}
        store.finish(replace(other, seed=other.seed + 3), Record("finished", metrics))
    assert judged_again() == before


@pytest.mark.slow
def test_reading_a_registration_writes_nothing(stored, judged_again):
    store, _ = stored
    files = sorted(path for path in (store.root / "runs").rglob("*") if path.is_file())
    before = [(path, file_digest(path), path.stat().st_mtime_ns) for path in files]
    (store.root / "work").rmdir()
    judged_again()
    assert not (store.root / "work").exists()
    assert [(path, file_digest(path), path.stat().st_mtime_ns) for path in files] == before


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


# The file


def rewritten(file: Path, content: dict) -> None:
    """Writes a registration as :func:`register` would: with the hash of its content."""
    content = {name: value for name, value in content.items() if name != "id"}
    file.write_text(json.dumps(content | {"id": content_id(content)}))


def test_a_file_of_another_form_is_refused_in_a_sentence(file, tmp_path):
    content = json.loads(file.read_text())
    for form in (1, 4):
        of_form = content | {"form": form}
        if form == 1:  # as the first versions wrote them
            del of_form["form"]
            thresholds = {name: content["thresholds"][name] for name in ("level", "margin_share", "least_seeds")}
            of_form["thresholds"] = thresholds | {"solved_share": content["thresholds"]["solved_share"]}
        rewritten(file, of_form)
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
def test_a_file_that_was_edited_is_refused(change, file, whole):
    content = json.loads(file.read_text())
    change(content)
    file.write_text(json.dumps(content))
    with pytest.raises(registration.ConfigError, match="changed after it was registered"):
        load_registration(file, whole / "results")


@pytest.mark.parametrize(
    "text", ["[]", "null", "3", '"id"', "{}", '{"id": "x", "level": NaN}', '{"id": "x", "a": 1e999}']
)
def test_what_is_no_registration_is_refused(text, file, whole):
    file.write_text(text)
    with pytest.raises(registration.ConfigError, match="not a registration|changed after"):
        load_registration(file, whole / "results")


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


def test_labels_of_rows_that_differ_in_a_setting_cannot_be_registered(path, tmp_path):
    path.write_text(path.read_text() + "vary: {training.epochs: [3, 4]}\nclaims: [lag]\n")
    with pytest.raises(registration.ConfigError, match=r"lag compares labels under one setting.*training\.epochs"):
        register(path, tmp_path / "results")


def test_a_claim_on_steps_that_the_profile_does_not_give_cannot_be_registered(path, tmp_path):
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
