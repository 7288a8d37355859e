"""Registered claims: the file, the runs that decide, and verdicts that can still change."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace

import pytest

from madbench.analysis.inference import holm
from madbench.cli.findings import findings
from madbench.cli.register import register
from madbench.jobs import Record
from madbench.tasks import settings_class

LABELS = ("R-12!", "R-12o!", "G-12!", "G-12o!")
GAINS = {"R-12!": 0.1, "R-12o!": 0.6, "G-12!": 0.2, "G-12o!": 0.7}
"""Accuracies that support the claim on the lag layout."""
SOFTMAX = {"R-pc": 0.5, "S-pc": 0.501, "R-c": 0.4, "S-c": 0.402}
"""Accuracies that affect other claims."""
FILE = "lag.registered.json"
DETAILS_OF_LATER_RUN = {"ended": "2100-01-01T00:00:00+00:00"}
"""Details of a run that ends after the registration."""


@pytest.fixture
def grid(store, tiny, tmp_path):
    """``grid(text)``: write lag.yaml in the working folder, with a claim, its labels, three seeds and ``text``."""

    def call(text="claims: [lag]", labels=LABELS):
        usual = f"profile: {tiny}\nlabels: [{', '.join(labels)}]\nseeds: 0-2\n"
        (tmp_path / "lag.yaml").write_text(f"{usual}{text}\n")

    call()
    return call


@pytest.fixture
def fill_all(fill):
    """Store three seeds of labels on the six tasks, each with its accuracy and a little noise."""

    def call(accuracies, seeds=range(3), **choices):
        for label, accuracy in accuracies.items():
            for seed in seeds:
                fill(label, accuracy + seed / 500, [seed], tasks=None, details=DETAILS_OF_LATER_RUN, **choices)

    return call


@pytest.fixture
def registered_findings(invoke):
    """``registered_findings(*words)``: caption and records of the findings on the registration."""

    def call(*words):
        output = invoke(findings, "--registered", FILE, "-f", "json", *words)
        assert not output.exception, output.exception
        content = json.loads(output.stdout)
        return content["caption"], content["cells"]

    return call


def test_a_registration_is_written_once_and_says_what_to_do_next(grid, invoke, refuse, tmp_path):
    shown = invoke(register, "lag.yaml")
    assert not shown.exception, shown.exception
    first, hashed, following = shown.stdout.splitlines()
    assert first == f"{FILE}: lag; {len(LABELS) * 6 * 3} jobs of 4 labels, seeds 0-2"
    content = json.loads((tmp_path / FILE).read_text())
    assert hashed.startswith(f"hash {content['id']};") and len(content["jobs"]) == 72 and content["stored"] == []
    assert content["thresholds"]["level"] == 0.05 and content["thresholds"]["solved_share"]["compression"] == 0.9
    assert following == f"next: madbench sweep lag.yaml; madbench findings --registered {FILE}"
    message = refuse(register, "lag.yaml")
    assert message.startswith(f"{FILE}: registered already") and "copy lag.yaml under another name" in message
    assert json.loads((tmp_path / FILE).read_text()) == content
    (tmp_path / "copy.yaml").write_bytes((tmp_path / "lag.yaml").read_bytes())
    *_, following = invoke(register, "copy.yaml", "--results", "other").stdout.splitlines()
    judged = "madbench findings --registered copy.registered.json --results other"
    assert following == f"next: madbench sweep copy.yaml --results other; {judged}"


@pytest.mark.slow
def test_registered_runs_decide_the_claim_and_others_are_exploratory(grid, fill_all, invoke, registered_findings):
    grid(labels=(*LABELS, *SOFTMAX))
    invoke(register, "lag.yaml")
    fill_all(GAINS | SOFTMAX)
    caption, records = registered_findings()
    (lag,) = [one for one in records if one["name"] == "lag"]
    assert (lag["verdict"], lag["n"]) == ("supported", 3) and lag["estimate"] == pytest.approx(50.0)
    assert lag["p_holm"] == lag["p"]  # the one registered test; exploratory ones are a family of their own
    assert not lag["group"].startswith("Exploratory") and records[0] is lag
    others = records[1:]
    assert others and {one["group"] for one in others} == {"Exploratory, not registered"}
    assert any(one["p"] is not None for one in others)
    adjusted = holm([float("nan") if one["p"] is None else one["p"] for one in others])
    assert [one["p_holm"] for one in others] == [pytest.approx(p) if p == p else None for p in adjusted]
    assert "Registered " in caption and "are exploratory" not in caption and "not stored yet" not in caption
    shown = " ".join(invoke(findings, "--registered", FILE, columns=200).stdout.split())
    assert "Exploratory, not registered" in shown and shown.endswith("--notes explains how the numbers were computed.")
    noted = " ".join(invoke(findings, "--registered", FILE, "--notes", columns=200).stdout.split())
    assert "Trained on an abacus." in noted and "Trained on an abacus." not in shown


@pytest.mark.slow
def test_runs_outside_a_registration_do_not_change_its_verdicts(grid, fill_all, invoke, registered_findings):
    invoke(register, "lag.yaml")
    fill_all(GAINS)
    _, before = registered_findings()
    fill_all({label: 0.9 - accuracy for label, accuracy in GAINS.items()}, seeds=[3, 4])
    fill_all(dict.fromkeys(GAINS, 0.5), budget="paper")
    fill_all(SOFTMAX)
    assert registered_findings()[1] == before


@pytest.mark.slow
def test_runs_that_are_not_stored_yet_are_counted(grid, fill_all, invoke, registered_findings):
    invoke(register, "lag.yaml")
    fill_all({label: GAINS[label] for label in LABELS[:2]})
    caption, _ = registered_findings()
    assert "36 of 72 registered runs are not stored yet." in caption
    fill_all({label: GAINS[label] for label in LABELS[2:]})
    caption, records = registered_findings()
    assert "not stored yet" not in caption and records[0]["verdict"] == "supported"


@pytest.mark.slow
def test_verdicts_are_provisional_until_every_registered_run_has_a_result(
    grid, fill_all, store, invoke, registered_findings, tmp_path
):
    invoke(register, "lag.yaml")
    fill_all(GAINS)
    caption, records = registered_findings()
    assert records[0]["verdict"] == "supported" and "provisional" not in caption
    (run, *_) = [run for run in store.runs() if (run.job.label, run.job.seed) == ("G-12!", 2)]
    shutil.rmtree(run.folder)
    caption, records = registered_findings()
    assert records[0]["verdict"].endswith(" (provisional)")
    assert (
        "1 of 72 registered runs are not stored yet. The verdicts are provisional until all runs are stored." in caption
    )
    store.finish(run.job, Record("failed", error="out of memory"))
    caption, records = registered_findings()
    assert records[0]["verdict"].endswith(" (provisional)")
    assert "1 of 72 registered runs are not stored yet." in caption
    assert "1 of these failed (madbench sweep --retry): G-12!; seeds 2." in caption
    for columns in (60, 120, 200):
        shown = " ".join(invoke(findings, "--registered", FILE, columns=columns).stdout.split())
        assert "All verdicts: provisional." in shown
    store.finish(run.job, Record("diverged", error="at step 4", details=DETAILS_OF_LATER_RUN))
    caption, records = registered_findings()
    assert "provisional" not in caption + "".join(one["verdict"] for one in records)


@pytest.mark.slow
def test_a_changed_solved_share_makes_verdicts_provisional(grid, fill_all, invoke, registered_findings, monkeypatch):
    invoke(register, "lag.yaml")
    fill_all(GAINS)
    monkeypatch.setattr(settings_class("compression"), "solved_share", 0.05)
    caption, records = registered_findings()
    assert "solved_share.compression 0.9, now 0.05" in caption and "provisional" in records[0]["verdict"]


@pytest.mark.slow
def test_runs_stored_before_the_registration_are_named(grid, fill_all, invoke, registered_findings):
    fill_all({"R-12o!": 0.6}, seeds=[1])
    shown = invoke(register, "lag.yaml").stdout
    assert "6 runs existed before the registration" in shown
    fill_all(GAINS)
    caption, _ = registered_findings()
    assert (
        "6 of 72 runs ended before the registration; verdicts that use them are exploratory: R-12o!; seeds 1."
        in caption
    )


@pytest.mark.slow
def test_a_run_that_ended_before_the_registration_makes_its_claim_exploratory(
    grid, fill_all, store, invoke, registered_findings
):
    invoke(register, "lag.yaml")
    fill_all(GAINS)
    (run, *_) = [run for run in store.runs() if (run.job.label, run.job.seed) == ("G-12!", 2)]
    with store.lock(run.job):
        ended = run.record.details | {"ended": "2020-01-01T00:00:00+00:00"}
        store.finish(run.job, replace(run.record, details=ended), replace=True)
    assert (
        "1 of 72 runs ended before the registration; verdicts that use them are exploratory: G-12!; seeds 2."
        in registered_findings()[0]
    )


@pytest.mark.slow
def test_a_registration_that_was_changed_is_refused(grid, fill_all, invoke, refuse, tmp_path):
    invoke(register, "lag.yaml")
    fill_all(GAINS)
    content = json.loads((tmp_path / FILE).read_text())
    for change in (
        {"jobs": content["jobs"][1:]},
        {"thresholds": {"level": 0.5}},
        {"registered": "2020-01-01 00:00:00"},
    ):
        (tmp_path / FILE).write_text(json.dumps(content | change))
        message = refuse(findings, "--registered", FILE)
        assert f"{FILE}: changed after it was registered" in message and content["id"] in message
    for damaged in ("{", "[" * 200_000, "\0"):
        (tmp_path / FILE).write_text(damaged)
        assert f"{FILE}: not a registration" in refuse(findings, "--registered", FILE)
        message = refuse(findings, "--registered", "lag.yaml")
        assert message == f"lag.yaml: not a registration, which is a file of JSON; did you mean {FILE}?"
    message = refuse(findings, "--registered", "nowhere.json")
    assert "nowhere.json: cannot be read: No such file or directory" in message


def test_an_installation_that_would_train_other_runs_is_refused(grid, fill_all, invoke, refuse, tiny, tmp_path):
    profile = tmp_path / "own.yaml"
    with open(tiny) as file:
        profile.write_text(file.read())
    (tmp_path / "lag.yaml").write_text((tmp_path / "lag.yaml").read_text().replace(tiny, str(profile)))
    invoke(register, "lag.yaml")
    profile.write_text(profile.read_text().replace("epochs: 2", "epochs: 3"))
    assert "this installation would train other runs" in refuse(findings, "--registered", FILE)


@pytest.mark.slow
@pytest.mark.parametrize(
    "text, labels, message",
    [
        ("claims: [lag]", LABELS[:2], "claims: lag needs the labels G-12o!, G-12!; add them to labels"),
        ("claims: [lagg]", LABELS, "claims: no claim 'lagg'; did you mean 'lag'?"),
        ("claims: [lag]\ntasks: [compression]", LABELS, "claims: lag is about MAD avg or L5 loss"),
        ("tasks: [compression]", LABELS, "no claim has all its labels and a task here"),
        ("", ("S",), "no claim has all its labels and a task here"),
        ("claim: [lag]", LABELS, "unknown key 'claim'; did you mean 'claims'?"),
    ],
)
def test_register_refuses_wrong_grids(grid, refuse, tmp_path, text, labels, message):
    grid(text, labels)
    assert message in refuse(register, "lag.yaml")
    assert not (tmp_path / FILE).exists()


def test_register_takes_all_claims_on_the_labels_if_none_is_named(grid, invoke, tmp_path):
    grid("")
    invoke(register, "lag.yaml")
    assert [claim["name"] for claim in json.loads((tmp_path / FILE).read_text())["claims"]] == ["lag"]


@pytest.mark.parametrize(
    "words",
    [
        ["S"],
        ["-t", "compression"],
        ["--profile", "full"],
        ["--budget", "paper"],
        ["--match", "strict"],
        ["--fidelity", "corrected"],
    ],
)
def test_findings_of_a_registration_refuse_labels_tasks_and_protocol_options(grid, invoke, refuse, words):
    invoke(register, "lag.yaml")
    assert "only --results can be given" in refuse(findings, "--registered", FILE, *words)


@pytest.mark.slow
def test_a_grid_with_claims_can_be_swept(grid, main):
    planned = main("sweep", "lag.yaml", "--device", "cpu", "--dry-run", "-f", "json")
    assert planned.code == 0 and json.loads(planned.stdout)["jobs"] == 72


@pytest.mark.slow
def test_a_registration_keeps_the_claims_of_the_grids_claims_file(grid, invoke, refuse, main, tmp_path):
    grid("claims: [mine]\nclaims_from: own.yaml", ["R-c", "S-c"])
    moved = tmp_path / "paper"
    moved.mkdir()
    shutil.move(tmp_path / "lag.yaml", moved)
    (moved / "own.yaml").write_text(
        "claims:\n- {name: mine, contrast: R-c > S-c}\n- {name: other, contrast: S-c > R-c}\n"
    )
    assert "give only one" in refuse(register, "paper/lag.yaml", "--claims", "theirs.yaml")
    shown = invoke(register, "paper/lag.yaml")
    assert shown.exit_code == 0 and "mine; " in shown.stdout
    assert main("sweep", "paper/lag.yaml", "--dry-run").code == 0, "a sweep takes the same file"
    content = json.loads((moved / FILE).read_text())
    assert (content["claims_from"], content["claims"][0]["name"]) == ("own.yaml", "mine")
    (tmp_path / "results" / "runs").mkdir(parents=True, exist_ok=True)
    caption = json.loads(invoke(findings, "--registered", f"paper/{FILE}", "-f", "json").stdout)["caption"]
    assert "Claims changed" not in caption
    (moved / "own.yaml").write_text("claims: [{name: mine, contrast: R-c >= S-c}]\n")
    caption = json.loads(invoke(findings, "--registered", f"paper/{FILE}", "-f", "json").stdout)["caption"]
    assert "Claims changed after the registration, judged as registered: mine" in caption
    (moved / "own.yaml").unlink()
    os.mkfifo(moved / "own.yaml")  # of a stranger: what never ends is not read
    caption = json.loads(invoke(findings, "--registered", f"paper/{FILE}", "-f", "json").stdout)["caption"]
    assert "judged as registered: mine (no longer there)" in caption
