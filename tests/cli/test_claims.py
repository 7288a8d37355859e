"""``madbench new claim``, and a user's claims file in every verb that judges claims."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from hypermlp_claims import CLAIMS
from madbench.analysis.claims import Claim, load_claims
from madbench.analysis.claims.sentences import parse_claim
from madbench.analysis.claims.thresholds import claim_threshold
from madbench.analysis.findings import findings
from madbench.errors import ConfigError
from score_frames import frame_of_scores


def verdict(sentence: str, **values: list[float]) -> str:
    claim, _ = parse_claim(sentence)
    (row,) = findings(frame_of_scores(values), claims=[claim])
    return row.verdict


def test_a_claim_sentence_expands_sets_and_has_a_threshold_in_column_units():
    claim, entry = parse_claim("@quick > S on in_context_recall,loss_l5 by 5")
    assert claim.pairs[0] == ("S-p", "S") and all(worse == "S" for _, worse in claim.pairs)
    assert claim.quantities == ("in_context_recall", "loss_l5") and entry["by"] == 5
    assert claim_threshold(claim, "in_context_recall", [0], {}) == 5


def test_a_claim_on_a_factor_has_the_pairs_that_differ_only_in_it():
    claim, _ = parse_claim("conv in {S,R}{,-c} on mad_average")
    assert set(claim.pairs) == {("S-c", "S"), ("R-c", "R")}


@pytest.mark.parametrize("claim", ["S ~ S-p{} on compression{}", "S >= S-p{} on compression{}"])
def test_a_claim_sentence_has_its_margin_at_the_end_or_before_the_column(claim):
    (after, _), (before, _) = (parse_claim(claim.format(*where)) for where in (("", " within 2"), (" within 2", "")))
    assert replace(before, name="", sentence="") == replace(after, name="", sentence="")


def test_a_claim_sentence_takes_labels_of_any_family_and_every():
    claim, _ = parse_claim("every cd:{gla,deltanet} > S on memorization")
    assert claim.judges == "every pair" and len(claim.pairs) == 2


@pytest.mark.parametrize(
    ("sentence", "message"),
    [
        ("S > S-p", "expected [every] A > B on COLUMN"),
        ("S > S-p on compresion", "did you mean 'compression'?"),
        ("S > Sx on compression", "Sx"),
        ("S ~ S-p on compression", "~ needs a margin"),
        ("S ~ S-p on compression by 2", "~ needs a margin"),
        ("S > S-p on compression within 2", "write by NUMBER"),
        ("S ~ S-p within 2 on compression within 3", "has two numbers"),
        ("S > S-p on compression by much", "expected a number"),
        ("S > S-p on compression by inf", "expected a number of at least 0"),
        ("S > S-p on compression by -2", "expected a number of at least 0"),
        ("S > S on compression", "not compared with itself"),
        ("convo in {S,S-c} on compression", "did you mean 'conv'?"),
    ],
)
def test_a_wrong_claim_sentence_is_refused_with_the_reason(sentence, message):
    with pytest.raises(ConfigError) as refused:
        parse_claim(sentence)
    assert message in str(refused.value)


def test_a_claim_with_a_minimum_effect_is_tested_against_it():
    gap = {"S-p": [60.0, 61, 62, 60, 61, 62], "S": [50.0, 51, 52, 50, 51, 52]}
    assert verdict("S-p > S on compression by 5", **gap) == "supported"
    assert verdict("S-p > S on compression by 15", **gap) == "contradicted"
    assert verdict("S > S-p on compression", **gap) == "contradicted"


def test_equality_is_supported_within_its_margin_and_contradicted_on_either_side_of_it():
    alike = {"S-p": [50.0, 51, 52, 50, 51, 52], "S": [50.5, 51.5, 51.5, 50.5, 50.5, 51.5]}
    apart = {"S-p": [70.0, 71, 72, 70, 71, 72], "S": [50.0, 51, 52, 50, 51, 52]}
    assert verdict("S ~ S-p on compression within 8", **alike) == "supported"
    assert verdict("S ~ S-p on compression within 0.1", **alike) == "not decided"
    assert verdict("S ~ S-p on compression within 5", **apart) == "contradicted"
    assert verdict("S-p ~ S on compression within 5", **apart) == "contradicted"


def test_new_claim_appends_to_a_file_and_keeps_its_text(main, tmp_path):
    path = tmp_path / "own.yaml"
    assert main("new", "claim", "S-p > S on compression by 1", "--name", "first", "-o", path).code == 0
    text = path.read_text()
    path.write_text(f"# mine\n{text}")
    assert main("new", "claim", "S-c ~ S on loss_l5 within 0.1", "--name", "second", "--output", path).code == 0
    assert path.read_text().startswith(f"# mine\n{text}")
    assert [claim.name for claim in load_claims(path)] == ["first", "second"]
    again = main("new", "claim", "S-c > S on loss_l5", "--name", "first", "-o", path)
    assert again.code == 2 and "has a claim 'first' already" in again.stderr


def test_new_claim_appends_to_a_file_in_the_format_of_papers(main, tmp_path):
    path = tmp_path / "own.yaml"
    path.write_text("claims:\n- name: a\n  contrast: S-p > S\n  quantities: [compression]\n")
    assert main("new", "claim", "S-c > S on compression", "--name", "b", "-o", path).code == 0
    assert [claim.name for claim in load_claims(path)] == ["a", "b"]


def test_load_claims_reads_the_claims_of_a_paper():
    assert load_claims("hypermlp") == CLAIMS


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("claims: []\n", "holds no claims"),
        ("claims: [{name: a}]\n", "expected either pairs or a contrast"),
        ("claims: [{name: a, contrast: S > S-p, quantity: [x]}]\n", "did you mean 'quantities'?"),
        ("claims: [{name: a, contrast: S > S-p, reach: 0.5, by: 1}]\n", "by has an effect"),
        ("claims: [{name: a, contrast: 'cd:gla > S', reach: 0.5}]\n", "there are none of cd:"),
        ("claims: [{name: a, contrast: S > S-p}, {name: a, contrast: S > S-c}]\n", "two claims are named"),
        ("claims: [{name: a, pairs: [[cd:gla, S]], expects: no loss}]\n", "a claim of no difference needs within"),
    ],
)
def test_an_error_in_a_file_of_claims_names_the_place(tmp_path, text, message):
    path = tmp_path / "own.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as refused:
        load_claims(str(path))
    assert message in str(refused.value) and str(path) in str(refused.value)


def test_a_claim_without_published_numbers_shows_none():
    (row,) = findings(None, claims=[parse_claim("cd:gla > S on compression")[0]])
    from madbench.analysis.findings_table import findings_table

    table = findings_table([row])
    assert "nan" not in str(table.text_rows()) and "Table 1" not in table.caption + table.notes


def test_own_claims_are_registered_and_power_and_findings_take_them(main, tmp_path):
    main("new", "claim", "S-p > S on compression by 1", "--name", "own", "-o", tmp_path / "own.yaml")
    (tmp_path / "grid.yaml").write_text("labels: [S, S-p]\ntasks: [compression]\nseeds: 0-2\n")
    frozen = main("register", tmp_path / "grid.yaml", "--claims", tmp_path / "own.yaml")
    assert frozen.code == 0 and "own; 6 jobs" in frozen.stdout, frozen.stderr
    content = json.loads((tmp_path / "grid.registered.json").read_text())
    assert content["claims"][0]["by"] == 1 and content["claims_from"].endswith("own.yaml")
    shown = main("findings", "--claims", tmp_path / "own.yaml", "-f", "json")
    assert shown.code == 0 and "madbench run S-p S --seeds 0-4 -t compression" in shown.stdout, shown.stderr
    assert Claim("x").group in shown.stdout
    unknown = main("findings", "--power", "--claims", "hyper")
    assert unknown.code == 2 and "did you mean 'hypermlp'?" in unknown.stderr
