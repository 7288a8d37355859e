"""``madbench audit``: suites, labels and profiles, narrow terminals, and errors for incomplete stores."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from scipy import stats

from madbench.cli.audit import audit
from madbench.errors import StoreError

LABELS = {"S": 0.2, "S-p": 0.5, "S-c": 0.4, "R": 0.1, "R-c": 0.3}


@pytest.fixture
def audit_records(invoke, tiny):
    """``audit_records(*words)``: the records by column."""

    def call(*words) -> dict[str, dict]:
        ended = invoke(audit, *words, "-f", "json")
        assert not ended.exception, ended.exception
        return {record["column"]: record for record in json.loads(ended.stdout)["cells"]}

    return call


@pytest.mark.slow
def test_every_stored_suite_is_audited_and_correlated_with_the_others(fill, fill_language, audit_records, tiny):
    for label, accuracy in LABELS.items():
        fill(label, accuracy, (0, 1))
        for seed in (0, 1):
            fill_language(label, [3.0, 3 - accuracy], seed=seed)
    found = audit_records("--profile", tiny)
    assert list(found) == ["compression", "in_context_recall", "loss_l5"]
    assert found["compression"]["with_loss_l5"] == pytest.approx(-1)
    assert (found["compression"]["outcome"], found["loss_l5"]["outcome"]) == ("loss_l5", "mad_average")
    assert found["loss_l5"]["published"] is not None and found["loss_l5"]["share_solved"] is None
    assert list(audit_records("-t", "language_model")) == ["loss_l5"]


@pytest.mark.slow
def test_labels_and_their_sets_can_be_named(fill, audit_records, tiny):
    for label, accuracy in LABELS.items():
        fill(label, accuracy, (0, 1))
    assert audit_records("--profile", tiny)["compression"]["labels"] == 5
    assert audit_records("{S,R}-c", "S", "--profile", tiny)["compression"]["labels"] == 3


def test_auditing_labels_without_a_complete_seed_is_an_error(fill, invoke, tiny):
    fill("S", 0.5, tasks=["compression"])
    assert isinstance(invoke(audit, "S-c", "--profile", tiny).exception, StoreError)


@pytest.mark.slow
def test_the_audit_table_has_every_column_at_80_columns(fill, invoke, tiny):
    for label, accuracy in LABELS.items():
        fill(label, accuracy, (0, 1))
    shown = invoke(audit, "--profile", tiny, columns=80).stdout
    assert "--notes explains ICC, Heur., Split, Near, s/bit, and how" in " ".join(shown.split())
    noted = " ".join(invoke(audit, "--profile", tiny, "--notes", columns=80).stdout.split())
    assert all(f"{column}:" in noted for column in ("ICC", "Heur.", "split", "Near", "s/bit"))
    assert "--notes explains" not in noted
    assert max(map(len, shown.splitlines())) <= 80
    assert {"ICC", "Heur.", "Solved", "Published", "s/bit", "Seeds"} <= set(shown.split())
    assert "Columns to keep" in shown


@pytest.mark.slow
def test_audit_compares_a_profile_with_another_one(fill, invoke, tiny, tmp_path):
    other = tmp_path / "longer.yaml"
    other.write_text(Path(tiny).read_text().replace("epochs: ", "epochs: 1"))
    for label, accuracy in LABELS.items():
        for seed in (0, 1, 2):
            fill(label, 0.35 + 1.25 * accuracy + 0.001 * seed, (seed,))
        fill(label, 0.25 if label == "S-p" else accuracy + 0.1, profile=str(other))
    ended = invoke(audit, "--profile", tiny, "--against", str(other), "-f", "json")
    records = {record["column"]: record for record in json.loads(ended.stdout)["cells"]}
    assert list(records) == ["compression", "in_context_recall"]
    ours, theirs = [0.2, 0.5, 0.4, 0.1, 0.3], [0.3, 0.25, 0.5, 0.2, 0.4]
    assert records["compression"]["order"] == pytest.approx(stats.spearmanr(ours, theirs).statistic)
    assert records["compression"]["reversed_pairs"] == "S-p > S-c, S-p > R-c, S-p > S"
    assert (
        "S-p above S (+37.5 here, -5.0 there), S-p above R-c (+25.0 here, -15.0 there)"
        in json.loads(ended.stdout)["notes"]
    )


def test_auditing_against_a_profile_without_runs_is_an_error(fill, invoke, tiny):
    fill(["S", "S-p"], 0.5, (0, 1, 2))
    error = invoke(audit, "--profile", tiny, "--against", "evening").exception
    assert isinstance(error, StoreError) and "evening" in str(error)


def test_audit_names_only_the_command_that_trains_a_profile_without_runs(fill, refuse, tiny):
    fill(["S", "S-p"], 0.5, (0, 1, 2))
    for words in ([], ["S", "S-p"]):
        message = refuse(audit, *words, "--profile", tiny, "--against", "quick")
        assert message.startswith("--against quick: ") and "madbench table" not in message
        assert f"madbench run {' '.join(words) or 'G-cg-q-12o'} --profile quick" in message


def test_auditing_a_profile_against_itself_is_refused(fill, refuse, tiny, tmp_path):
    fill(["S", "S-p"], 0.5, (0, 1, 2))
    copy = tmp_path / "copy.yaml"
    copy.write_text(Path(tiny).read_text())
    for same in (tiny, str(copy)):
        message = refuse(audit, "--profile", tiny, "--against", same)
        assert message == f"--against {same}: its runs are those that are shown; name another profile"


@pytest.mark.slow
def test_labels_used_to_choose_a_profile_are_left_out_only_of_its_own_columns(
    fill, fill_language, audit_records, tiny, tmp_path
):
    path = tmp_path / "chosen.yaml"
    path.write_text(Path(tiny).read_text() + "chosen_on: choosing\n")  # of LABELS S and S-p
    for label, accuracy in LABELS.items():
        fill(label, accuracy, (0, 1))
        fill_language(label, [3.0, 3 - accuracy], seed=0)
    found = audit_records("--profile", str(path), "-t", "compression,language_model")
    assert (found["compression"]["judged_labels"], found["loss_l5"]["judged_labels"]) == (3, None)
