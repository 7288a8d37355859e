"""Hybrids: their notation, the mixers of the layers, costs, settings, trust, and models."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from madbench.errors import ConfigError, LabelError
from madbench.labels import differing_factors, expand, explain, family_of, label_identity, parse, trust
from madbench.labels.names import file_name
from madbench.labels.patterns import part_texts
from madbench.mixers import build, label_traits, own_settings, solve, used_settings
from madbench.mixers.sequence import block_labels, build_blocks, solve_blocks
from madbench.models.gpt import GPT
from madbench.suites import size_of, suite_of
from madbench.suites.code import package_code
from madbench.training.cost import peak_memory_bytes, whole_peak_memory_bytes
from sample_jobs import language_job, mad_job


@pytest.mark.parametrize(
    "text, canonical",
    [
        ("kda/KDA/kda/S-p", "3xKDA/S-p"),
        ("KDA/S-p/KDA/S-p", "KDA/S-p"),
        ("1xKDA/2xS", "KDA/2xS"),
        ("4xKDA", "KDA"),
        ("KDA/KDA/...", "KDA"),
        ("2xGDN(neg)/cd:gdn/...", "2xGDN(neg)/cd:id-smhk1-bwn-u/..."),
        ("S-pc/3xG-cg-12o!", "S-pc/3xG-cg-12o!"),
        ("hfa:2w-p-q/my:mean", "hfa:2w-p-q/my:madbench.mixers.my.sample.GatedMean"),
    ],
)
def test_the_shortest_pattern_is_canonical(text, canonical):
    assert str(parse(text)) == canonical and str(parse(canonical)) == canonical


@pytest.mark.parametrize(
    "text, at, hint",
    [
        ("3xKDA/", 6, "expected a label"),
        ("KDA//S", 4, "expected a label"),
        ("0xKDA/S", 0, "a count is at least 1"),
        ("KDA/2xS-q9", 9, "expected '-' or the end"),
        ("KDA/.../S", 4, "expected a label"),
        ("999999xKDA/S", 0, "at most 1000 layers"),
        ("S/3x2xKDA", 4, "no patterns inside"),
        ("2xhybrid:2xKDA/S", 2, "no patterns inside"),
        ("GDN!(neg)", 3, "or the end of the label"),
    ],
)
def test_the_caret_points_at_a_wrong_part_of_a_pattern(text, at, hint):
    with pytest.raises(LabelError) as error:
        parse(text)
    first, second = str(error.value).splitlines()
    assert hint in second and second.index("^") == first.index(text) + at


def test_patterns_may_contain_braces_and_sets():
    assert expand(["{1,3}xKDA/{S,S-p}"]) == ["KDA/S", "KDA/S-p", "3xKDA/S", "3xKDA/S-p"]
    few = expand(["@quick"])
    assert expand(["3x@quick/KDA"]) == [f"3x{label}/KDA" for label in few]


def test_a_set_that_contains_hybrids_is_refused_in_a_pattern(tmp_path, monkeypatch):
    (tmp_path / "both.yaml").write_text("description: x\nlabels: [S, KDA/S]\n")
    monkeypatch.chdir(tmp_path)
    assert expand(["@both.yaml"]) == ["S", "KDA/S"]
    with pytest.raises(LabelError, match="KDA/S, and a part of a pattern is one label"):
        expand(["2x@both.yaml/S-p"])


def test_thirty_mixers_of_a_pattern_have_distinct_factor_names():
    label = parse("/".join(f"my:a.B(x={number})" for number in range(10, 40)))
    names = list(family_of(label).factors(label))
    assert names[0] == "pattern" and names[26:] == ["z", "a2", "b2", "c2", "d2"]


def test_a_module_is_explained_without_a_statement_on_its_cache():
    names = [row.name for row in explain(parse("my:mean/S"))]
    assert "layer 1 of 2" in names and "layer 2 of 2: full_attention" in names


def test_the_pattern_is_repeated_over_the_depth_or_refused_with_the_nearest_depths():
    names = [str(label) for label in block_labels("2xKDA/S", 6)]
    assert names == ["KDA", "KDA", "S"] * 2
    with pytest.raises(ConfigError, match=r"use model\.n_layer=3 or 6, or '2xKDA/S/\.\.\.'"):
        block_labels("2xKDA/S", 4)
    with pytest.raises(ConfigError, match=r"use model\.n_layer=3, or"):
        block_labels("2xKDA/S", 2)
    assert [str(label) for label in block_labels("2xKDA/S/...", 4)] == ["KDA", "KDA", "S", "KDA"]


def test_layers_are_explained_by_number_and_by_the_words_of_transformers():
    names = [row.name for row in explain(parse("3xGDN/S-p"))]
    assert "layers 1 to 3 of 4: linear_attention" in names and "layer 4 of 4: full_attention" in names
    assert "layers 1 to 3 of 4: sliding_attention" in [row.name for row in explain(parse("3xS-pw/S-p"))]


@pytest.mark.parametrize(
    "one, other, factor",
    [
        ("3xKDA/S-p", "S-p/3xKDA", "pattern"),
        ("3xKDA/S-p", "KDA/S-p", "pattern"),
        ("3xKDA/S-p", "S-p", "pattern"),
        ("KDA", "3xKDA/S-p", "pattern"),
        ("3xKDA/S-p", "3xGDN/S-p", "a"),
        ("3xKDA/S-p", "3xKDA/R-c", "b"),
    ],
)
def test_differing_patterns_and_mixers_are_separate_factors(one, other, factor):
    assert differing_factors(parse(one), parse(other)) == (factor,)


def test_neighbors_replace_one_mixer():
    others = expand(["~KDA/S-p"])[1:]
    assert "KDA(neg)/S-p" in others and "KDA/S-pc" in others
    assert all(len(differing_factors(parse("KDA/S-p"), parse(other))) == 1 for other in others)


def test_costs_are_sums_and_a_hybrid_of_matched_layers_is_matched():
    hybrid, kda, softmax = (solve(label, 64, 2, 32) for label in ("3xKDA/S-p", "KDA", "S-p"))
    assert hybrid.total == 3 * kda.total + softmax.total == sum(hybrid.terms.values())
    assert hybrid.flops_per_token(32) == 3 * kda.flops_per_token(32) + softmax.flops_per_token(32)
    assert hybrid.state_bytes_per_token() == softmax.state_bytes_per_token() and 0.98 < hybrid.ratio <= 1
    with pytest.raises(ConfigError, match="one per layer"):
        build("3xKDA/S-p", 64, 32)


def test_a_setting_applies_to_the_layers_whose_family_reads_it():
    label = parse("KDA/R-c-12!")
    settings = family_of(label).Settings(mix_rank=3)
    assert "mix_rank" in own_settings(label, settings) and "init_std" not in own_settings(label, settings)
    mixed = solve_blocks(label, 2, 64, 2, 32, mix_rank=3)
    assert mixed.blocks[1].ranks["mix"] == 3
    assert label_traits(parse("KDA/Mamba-2")).settings == ()


def test_the_settings_of_a_hybrid_are_known_without_the_code_of_its_modules():
    label = parse("3xmy:no_such_file.Mixer/R-c-12!")
    assert used_settings(label) == used_settings(parse("KDA/R-c-12!"))
    assert own_settings(label, family_of(label).Settings(mix_rank=3))["mix_rank"] == 3


def test_a_module_in_a_pattern_is_imported_only_if_its_label_was_typed():
    trust.forget_allowed()
    try:
        trust.allow_typed(["3xKDA/my:some_file.Mixer"])
        assert trust.is_allowed("my:some_file.Mixer") and not trust.is_allowed("my:other.Mixer")
        trust.allow_typed(["2x@quick/my:other.Mixer"])
        assert trust.is_allowed("my:other.Mixer")
        with trust.allow_only(["my:a.B/S"]):
            assert trust.is_allowed("my:a.B") and not trust.is_allowed("my:some_file.Mixer")
    finally:
        trust.forget_allowed()


def test_code_and_identity_of_a_hybrid_combine_all_its_mixers():
    assert label_identity("KDA/S-p") == f"1 of {label_identity('KDA')} and {label_identity('S-p')}"
    job = mad_job()
    digests = {label: package_code(dataclasses.replace(job, label=label))["family"] for label in ("KDA", "S", "KDA/S")}
    assert len(set(digests.values())) == 3
    assert part_texts("2xKDA/S/...") == part_texts("hybrid:2xKDA/S") == ["KDA", "S"]


def test_the_file_name_of_a_hybrid_has_no_slash_and_is_short():
    assert "/" not in file_name("3xKDA/S-p")
    assert len(file_name("KDA/S/" * 200 + "GDN")) < 100


def test_a_model_decodes_with_a_cache_for_each_layer():
    torch.manual_seed(0)
    mixers = build_blocks("KDA/S-p/Mamba-2", 3, 16, 12, {"n_head": 2}, {})
    model = GPT(vocab_size=20, d_model=16, n_layer=3, seq_len=12, make_mixer=mixers.__next__).double().eval()
    tokens = torch.randint(20, (2, 12))
    with torch.no_grad():
        whole = model(tokens)
        logits, cache = model.decode(tokens[:, :7])
        assert torch.allclose(logits, whole[:, 6], atol=1e-10)
        for position in range(7, 12):
            logits, cache = model.decode(tokens[:, position : position + 1], cache)
            assert torch.allclose(logits, whole[:, position], atol=1e-10)


def test_a_job_of_a_hybrid_is_counted_exactly():
    for job in (mad_job(), language_job()):
        job = dataclasses.replace(
            job, label="KDA/S-p", family=label_identity("KDA/S-p"), model=dataclasses.replace(job.model, n_layer=2)
        )
        with torch.device("meta"):
            model = suite_of(job).Trial.build(job)
        assert size_of(job).parameters == sum(p.numel() for p in model.parameters())


@pytest.mark.slow
def test_estimated_memory_of_a_deep_hybrid_equals_that_of_the_whole():
    job = language_job()
    deep = dataclasses.replace(
        job, label="KDA/S-p", family=label_identity("KDA/S-p"), model=dataclasses.replace(job.model, n_layer=8)
    )
    assert peak_memory_bytes(deep, 2) == pytest.approx(whole_peak_memory_bytes(deep, 2), rel=0.02)
