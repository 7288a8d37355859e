"""``madbench findings``: verdicts for stored tasks and language models, commands for missing runs, and errors."""

from __future__ import annotations

import json

import pytest

from madbench.cli.findings import findings
from madbench.suites.mad.suite import AVERAGE as MAD_AVERAGE
from madbench.suites.mad.suite import MAD_TASKS

TWO_TASKS = ("compression", "in_context_recall")
OTHER_CORPUS = {"corpus": "c0ffee0123456789", "vocab_size": 64}
"""The setting of a language model on another corpus, and so under another protocol."""


@pytest.fixture
def finding_records(invoke, tiny):
    """``finding_records(*words)``: the records by claim and quantity, as JSON has them."""

    def call(*words) -> dict[tuple[str, str], dict]:
        output = invoke(findings, *words, "--profile", tiny, "-f", "json")
        assert not output.exception, output.exception
        return {(one["name"], one["quantity"]): one for one in json.loads(output.stdout)["cells"]}

    return call


@pytest.mark.slow
def test_without_a_store_every_claim_is_shown_with_the_command(tmp_path, monkeypatch, invoke):
    monkeypatch.chdir(tmp_path)
    shown = invoke(findings, columns=100)
    assert not shown.exception and shown.stderr == "" and list(tmp_path.iterdir()) == []
    text = " ".join(shown.stdout.split())
    assert text.count("not enough data") == len(json.loads(invoke(findings, "-f", "json").stdout)["cells"]) > 24
    noted = " ".join(invoke(findings, "--notes", columns=100).stdout.split())
    assert "madbench run R-pc S-pc" in noted and "--seeds 0-4" in noted and "--seeds" not in text


@pytest.mark.slow
def test_findings_of_mad_runs_have_verdicts_on_their_tasks(fill, finding_records, tiny):
    for seed in range(6):
        fill("R-cg-q", 0.2 + seed / 1000, [seed])
        fill("R-cg-q-12o", 0.6 + seed / 1000, [seed])
    fill("R-cg-q", 0.9, fidelity="published")
    records = finding_records("-t", "compression")
    assert list(records) == [("without-conv", "compression"), ("compression", "compression")]
    record = records["compression", "compression"]
    assert (record["estimate"], record["verdict"], record["n"]) == (pytest.approx(40.0), "supported", 6)
    assert {quantity for _, quantity in finding_records()} == {*MAD_TASKS, MAD_AVERAGE}
    assert finding_records("S", "-t", "compression")["compression", "compression"]["n"] == 0


@pytest.mark.slow
def test_findings_show_language_models_alone_and_together_with_tasks(fill, fill_language, finding_records, invoke):
    for label, losses in (("R-12o!", (3.0, 3.02, 3.04)), ("R-12!", (5.0, 5.02, 5.01))):
        for seed, loss in enumerate(losses):
            fill_language(label, [loss], seed=seed, details={"corpus": {"name": "shelf", "folder": "books/shelf"}})
    alone = invoke(findings, columns=100)
    assert not alone.exception and alone.stderr == "" and "MAD avg" not in alone.stdout
    noted = " ".join(invoke(findings, "--notes", columns=100).stdout.split())
    assert "verdicts hold for this profile only" in noted and "Corpus shelf" in noted
    fill("R-cg-q", 0.2, range(3))
    both = finding_records()
    assert both["lag", "loss_l5"]["verdict"] == "supported" and both["lag", "mad_average"]["n"] == 0
    assert both["glu", "loss_l5"]["command"].startswith(
        "madbench run G-cg-q-12o R-cg-q-12o --seeds 0-4 -t language_model"
    )
    assert "--corpus books/shelf" in both["glu", "loss_l5"]["command"]
    assert "--profile" in both["glu", "mad_average"]["command"]


@pytest.mark.slow
def test_findings_ask_for_the_option_protocol_if_there_are_several_of_language_models(fill_language, invoke, refuse):
    fill_language("R-12o!")
    fill_language("R-12o!", setting=OTHER_CORPUS)
    shown = invoke(findings, columns=100)
    assert "--protocol ID" in shown.stderr and not shown.exception
    assert "2 protocols" in refuse(findings, "-t", "language_model")
    assert "no run follows protocol 00000000" in refuse(findings, "--protocol", "00000000")


def test_a_profile_without_runs_is_a_warning_and_no_verdict(fill, invoke):
    fill("R-cg-q", 0.2, range(3))
    shown = invoke(findings, "--profile", "full", "--notes", columns=100)
    assert not shown.exception and "warning:" in shown.stderr and "belongs to profile full" in shown.stderr
    assert "--profile full" in " ".join(shown.stdout.split())


@pytest.mark.slow
def test_one_claim_is_explained_in_full(fill, invoke, tiny):
    fill("R-cg-q", 0.2, range(3))
    fill("R-cg-q-12o", 0.6, range(3))
    words = ("--profile", tiny, "-t", ",".join(TWO_TASKS))
    shown = invoke(findings, "--explain", "compression", *words, columns=200)
    lines = [line.strip() for line in shown.stdout.splitlines()]
    assert lines[0] == "compression: Mixing helps compression"
    assert "R-cg-q-12o − R-cg-q: published +12.7, ours +40.0" in lines
    every = invoke(findings, "--explain", "all", *words).stdout
    assert "clean-recall: Mixing hardly helps clean recall" in every and "registers" in every
    one = json.loads(invoke(findings, "--explain", "compression", *words, "-f", "json").stdout)
    assert [record["name"] for record in one["cells"]] == ["compression"]


@pytest.mark.parametrize(
    "words, message",
    [
        (["--explain", "lagg"], "--explain lagg: no such claim here; did you mean 'lag'?"),
        (["--explain", "lag", "--registered", "a.json"], "--explain lag has no effect with --registered"),
        (["-t", "compresion"], "compresion"),
        (["-t", "language_model", "training.epochs=1"], "training: unknown key 'epochs'"),
        (["-t", "compression", "--protocol", "ab"], "there is no such results folder"),
        (["S-x"], "label 'S-x'"),
        (["training.epoch=1"], "training.epoch"),
        (["--results", "nowhere"], "nowhere: there is no such results folder"),
    ],
)
def test_findings_refuses_wrong_arguments(tmp_path, monkeypatch, refuse, words, message):
    monkeypatch.chdir(tmp_path)
    assert message in refuse(findings, *words)
