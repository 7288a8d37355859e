"""``madbench explain --cost``: ranks, parameters, FLOPs and state of labels at a size."""

from __future__ import annotations

import json

import pytest

from madbench.cli.explain import explain
from madbench.cli.explain.costs import MOST_REASONS
from madbench.config import MOST
from madbench.errors import BudgetError
from madbench.mixers import build, solve
from madbench.suites import size_of
from madbench.suites.mad.suite import MAD


def test_json_agrees_with_a_count_by_hand(invoke):
    (row,) = json.loads(invoke(explain, "--cost", "R-cg-q", "-f", "json").output)
    assert row["ranks"] == {"qk": 32, "vo": 138, "mix": 0}
    assert row["widths"] == {"qk": 16, "vo": 69}
    assert row["terms"] == {"qk": 8192, "vo": 35328, "conv": 1024, "qk_gate": 4128, "vo_gate": 17802}
    assert row["total"] == row["paper_total"] == 66474
    assert row["target"] == 4 * 128**2 + 8 * 128 == row["total"] + row["slack"]
    assert row["state_bytes_per_token"] == 2 * (32 + 138) and row["state"] == 128 * (32 + 138) + 3 * 128
    assert row["state_bytes"] == 2 * row["state"]
    assert row["full_square_flops_per_token"] - row["flops_per_token"] == 2 * (32 + 138) * (128 - 129 / 2)


def test_costs_are_counted_at_the_size_of_a_mad_job_by_default(invoke):
    (row,) = json.loads(invoke(explain, "--cost", "G-cg-q-12o", "-f", "json").output)
    model = MAD.Profile.Model()
    assert row["terms"] == solve("G-cg-q-12o", model.d_model, model.n_head, 128).terms


def test_strict_and_paper_counts_are_shown_under_either_budget(invoke):
    for rule in ("strict", "paper"):
        (row,) = json.loads(invoke(explain, "--cost", "R-12o!", "--budget", rule, "-f", "json").output)
        assert row["budget"] == rule
        assert row["total"] == 65536 + 2 * (2 * 16 * 129 + 2 * 128 * 33)
        assert row["paper_total"] == 65536 + 2 * (2 * 16 * 129)
        assert row["ratio"] == row["total"] / 65536
        assert row["paper_ratio"] == row["paper_total"] / 65536


def test_the_total_is_the_number_of_parameters_of_the_built_mixer(invoke):
    words = ("--d-model", 48, "--n-head", 3, "--max-len", 20, "--mix-rank", 5, "model.rank_multiple=2")
    (row,) = json.loads(invoke(explain, "--cost", "G-pcg-q-12o", *words, "-f", "json").output)
    mixer = build("G-pcg-q-12o", 48, 20, n_head=3, mix_rank=5, rank_multiple=2)
    assert row["total"] == sum(parameter.numel() for parameter in mixer.parameters())


@pytest.mark.slow
def test_labels_of_an_installed_family_stand_beside_the_built_in_ones(invoke, refuse, install_example):
    install_example("plugin")
    text = invoke(explain, "--cost", "lin:elu-g", "S", "--terms").output
    assert "lin:elu-g" in text and "projections" in text and "2 d r_qk" in text
    (row,) = json.loads(invoke(explain, "--cost", "lin:elu-g", "-f", "json").output)
    assert row["total"] == row["paper_total"] == sum(row["terms"].values())
    assert "unknown key 'mix_rank'" in refuse(explain, "--cost", "S", "lin:elu", "--mix-rank", 8)
    assert not invoke(explain, "--cost", "lin:elu", "eps=1e-5").exception


@pytest.mark.parametrize("name", ["d_model", "n_head", "max_len"])
def test_a_size_has_the_upper_bound_of_profiles(main, refuse, name):
    most = MOST[name]
    option = f"--{name.replace('_', '-')}"
    ended = main("explain", "--cost", "S", option, str(most + 1))
    assert (ended.code, ended.stderr) == (2, f"{option} must be at most {most:,}, got {most + 1}\n")
    message = refuse(explain, "--cost", "S", f"{name}={most + 1}")
    assert message == f"model.{name} must be at most {most:,}, got {most + 1}"


def test_sizes_can_be_given_as_overrides_but_settings_of_training_cannot(invoke, refuse):
    options, settings = ("--d-model", 64, "--max-len", 32), ("model.d_model=64", "max_len=32")
    rows = [invoke(explain, "--cost", "R-c", "RWKV-7", *words, "-f", "json").output for words in (options, settings)]
    assert rows[0] == rows[1] and json.loads(rows[0])[0]["d_model"] == 64
    assert "model.d_model is given twice" in refuse(explain, "--cost", "S", "--d-model", 64, "d_model=32")
    assert "d_model must be a whole number of at least 1" in refuse(explain, "--cost", "S", "d_model=0")
    for word in ("model.n_layer=4", "n_layer=4"):
        message = refuse(explain, "--cost", "S-p", "RWKV-7", word)
        assert "'n_layer' is no setting of it; expected one of: mix_rank" in message
        assert message.endswith("madbench run S-p model.n_layer=4 --dry-run")
    assert "madbench run S-p training.epochs=4 --dry-run" in refuse(explain, "--cost", "S-p", "training.epochs=4")
    assert refuse(explain, "--cost", "S-p", "model.mix_rnk=4").endswith("did you mean 'mix_rank'?")


def test_the_costs_of_a_profile_are_those_of_the_mixers_that_it_trains(invoke):
    words = ("--cost", "S-p", "G-cg-q-12o", "-p", "evening")
    rows = json.loads(invoke(explain, *words, "-f", "json").output)
    lengths = {row["max_len"]: row["tasks"] for row in rows}
    assert lengths[8] == ["compression"] and lengths[64] == ["selective_copying"]
    assert lengths[16] == ["in_context_recall", "noisy_in_context_recall"]
    assert [row["max_len"] for row in rows] == 2 * sorted(lengths)
    plan = MAD.plan(["G-cg-q-12o"], MAD.Profile.load("evening"))
    for row in rows[len(lengths) :]:
        (job, *_) = [job for job in plan.jobs if job.task in row["tasks"]]
        assert row["terms"] == size_of(job).mixers.blocks[0].terms
    text = invoke(explain, *words).output
    assert max(map(len, text.splitlines())) <= 80
    assert "Profile evening: d_model 64, n_head 2, max_len L 8 (compression);" in " ".join(text.split())


def test_words_and_options_change_the_profile_of_the_costs(invoke, refuse):
    words = ("-p", "evening", "-t", "memorization", "--d-model", 32, "mix_rank=3", "--max-len", 20)
    (row,) = json.loads(invoke(explain, "--cost", "R-12!", *words, "-f", "json").output)
    assert (row["d_model"], row["max_len"], row["ranks"]["mix"]) == (32, 20, 3) and "tasks" not in row
    assert "d_model 128" in invoke(explain, "--cost", "S", "-p", "gpt2", "--d-model", 128).output
    (row,) = json.loads(invoke(explain, "--cost", "S", "-p", "gpt2", "-f", "json").output)
    assert (row["d_model"], row["max_len"], row["tasks"]) == (768, 1024, ["language_model"])
    assert "'training.epochs' is no setting of it" in refuse(explain, "--cost", "S", "-p", "full", "training.epochs=9")
    assert "registers has no effect on S" in refuse(explain, "--cost", "S", "-p", "evening", "registers=2")
    assert "mad or language" in refuse(explain, "--cost", "S", "-t", "compression,language_model")
    assert "interacting agents have none" in refuse(explain, "--cost", "S", "-t", "colliding")
    assert "--profile evening has no effect without --cost" in refuse(explain, "S", "-p", "evening")


def test_the_name_of_a_fidelity_is_refused_as_a_budget(invoke):
    result = invoke(explain, "--cost", "S", "--budget", "published")
    assert result.exit_code == 2 and "'paper'" in result.output


@pytest.mark.slow
def test_explain_cost_shows_the_matched_quantity(invoke):
    (row,) = json.loads(invoke(explain, "--cost", "GDN", "--match", "flops", "-f", "json").output)
    assert row["match"]["quantity"] == "flops" and row["match"]["amount"] == row["flops_per_token"]
    assert row["match"]["target"] == 8 * 128**2 + 2 * 128 * 129
    assert f"{row['match']['ratio']:.3f}" in invoke(explain, "--cost", "GDN", "--match", "flops").output
    words = ("--match", "parameters"), ("--budget", "strict")
    first, second = (invoke(explain, "--cost", "GDN", *each, "-f", "json").output for each in words)
    assert first == second and "match" not in json.loads(first)[0]


@pytest.mark.parametrize("columns", [80, 100])
def test_costs_of_table_1_fit_the_width_uncut(invoke, columns):
    text = invoke(explain, "--cost", "@table1", columns=columns).output
    assert max(map(len, text.splitlines())) <= columns
    assert "…" not in text
    for cell in ("R-pcg-q-12o", "104,288", "-37,728", "1.576", "paper"):
        assert cell in text


def test_costs_of_several_labels_are_broken_down_only_with_terms(invoke):
    def broken_down(*words):
        return invoke(explain, "--cost", *words).output.count("W_q, W_k")

    assert broken_down("S-c") == 1
    assert broken_down("S-c", "R-c") == 0
    assert broken_down("S-c", "R-c", "--terms") == 2


def test_costs_of_other_labels_are_shown_beside_an_infeasible_one(invoke):
    words = ("S-c", "R-cg-q-12o", "R", "--d-model", 32, "--max-len", 1024)
    result = invoke(explain, "--cost", *words)
    assert isinstance(result.exception, BudgetError)
    assert "R-cg-q-12o does not fit its budget" in str(result.exception)
    assert "4,352" in result.output and "4,096" in result.output and "no fit" in result.output
    rows = json.loads(invoke(explain, "--cost", *words, "-f", "json").stdout)
    assert [row["label"] for row in rows] == ["S-c", "R-cg-q-12o", "R"]
    assert ["error" in row for row in rows] == [False, True, False]


def test_a_long_list_of_infeasible_labels_is_cut_short(refuse):
    message = refuse(explain, "--cost", "{S,R,G}-{cg,g}-q-12o", "--d-model", 8, "--max-len", 4096)
    assert message.count("does not fit its budget") == MOST_REASONS
    assert message.endswith("and 3 more labels that do not fit")


def test_a_size_of_zero_is_a_usage_error(invoke):
    result = invoke(explain, "--cost", "S", "--n-head", 0)
    assert result.exit_code == 2 and "--n-head" in result.output


def test_a_setting_that_no_label_reads_is_refused(main, refuse):
    assert "mix_rank has no effect on S, R-c; settings of" in refuse(explain, "--cost", "S", "R-c", "--mix-rank", 5)
    assert "registers has no effect on S; settings of" in refuse(explain, "--cost", "S", "model.registers=8")
    shown = main("explain", "--cost", "S", "R-k-q", "R-12!", "--mix-rank", 5, "model.registers=8", "-f", "json")
    assert shown.code == 0, shown.stderr
    rows = {row["label"]: row for row in json.loads(shown.stdout)}
    assert rows["R-12!"]["ranks"]["mix"] == 5 and rows["R-k-q"]["terms"]["registers"] == 8 * 128
    assert rows["S"] == json.loads(main("explain", "--cost", "S", "-f", "json").stdout)[0]


@pytest.mark.parametrize(("budget", "named"), [("paper", True), ("strict", False)])
def test_labels_below_the_budget_under_the_papers_ranks_are_named(invoke, budget, named):
    labels = ("S", "S-c-q", "S-c-v", "R-c-q", "R-c-v", "R-cg-q")
    text = " ".join(invoke(explain, "--cost", *labels, "--budget", budget).output.split())
    sentence = "Smaller than softmax attention, not matched: S-c-q 0.63, S-c-v 0.63, R-c-q 0.63, R-c-v 0.63."
    assert (sentence in text) is named


def test_the_ranks_of_a_hybrid_are_rows_below_it(invoke):
    output = invoke(explain, "--cost", "S-p", "3xKDA/S-p", "--match", "compute").output
    heading, _, *rows = (line.split() for line in output.splitlines())
    assert heading[1:] == ["r_qk", "r_vo", "r_mix", "d_qk", "d_vo", "state", "bytes", "cache", "FLOP"]
    assert [row[:4] for row in rows[2:4]] == [["KDA", "88", "88", "-"], ["S-p", "128", "128", "0"]]
    assert "--match compute --dry-run" in " ".join(output.split())
