"""``madbench attribute``: the labels and columns that count, pairs on request, and refused options."""

from __future__ import annotations

import json

import pytest

from madbench.cli.attribute import attribute

TWO_TASKS = ("compression", "in_context_recall")
OTHER_CORPUS = {"corpus": "c0ffee0123456789", "vocab_size": 64}
"""The setting of a language model on another corpus, and so under another protocol."""


@pytest.fixture
def effects(invoke, tiny):
    """``effects(*words)``: the estimates by contrast and quantity, from the JSON output."""

    def call(*words) -> dict[tuple[str, str], float]:
        output = invoke(attribute, *words, "--profile", tiny, "-f", "json")
        assert not output.exception, output.exception
        found = json.loads(output.stdout)["cells"]
        return {
            (one["contrast"], one["quantity"]): round(one["estimate"], 6) for one in found if one["kind"] == "effect"
        }

    return call


@pytest.mark.slow
def test_attribute_uses_all_stored_labels_of_a_protocol_unless_some_are_named(fill, effects):
    for label, accuracy in (("S", 0.1), ("S-c", 0.5), ("R", 0.2), ("R-c", 0.4)):
        fill(label, accuracy, (0, 1))
    fill("S-c", 0.9, fidelity="published")
    fill("S-c", 0.9, budget="paper")
    assert effects("-t", "compression") == {
        ("base: R vs. S", "compression"): 0.0,
        ("conv: c vs. none", "compression"): 30.0,
    }
    named = effects("S", "S-c")
    assert named == {("conv: c vs. none", task): 40.0 for task in TWO_TASKS}


@pytest.mark.slow
def test_language_models_are_a_column_unless_tasks_are_named(fill, fill_language, effects, invoke, tiny):
    for label, accuracy in (("S", 0.1), ("S-c", 0.5)):
        fill(label, accuracy)
        for seed in (0, 1):
            fill_language(label, [3.0, 3 - accuracy], seed=seed)
    fill_language("S-c", [1.0], budget="paper")
    conv = "conv: c vs. none"
    assert effects()[conv, "loss_l5"] == pytest.approx(-0.2)  # L5 of two evaluations, of which one is equal
    assert (conv, "loss_l5") not in effects("-t", ",".join(TWO_TASKS))
    assert list(effects("-t", "compression,language_model")) == [(conv, "compression"), (conv, "loss_l5")]
    shown = invoke(attribute, "--profile", tiny, "--notes", columns=200)
    assert "Corpus shelf (c0ffee01)" in " ".join(shown.stdout.split())


def test_language_models_alone_need_no_runs_of_mad_tasks(fill_language, invoke):
    fill_language("S", [3.0, 2.0])
    fill_language("S-c", [3.0, 1.5])
    output = invoke(attribute, "-t", "language_model", columns=160)
    assert not output.exception and "(−0.250)" in output.stdout


@pytest.mark.slow
def test_a_language_protocol_of_several_has_to_be_chosen(fill, fill_language, invoke, refuse, tiny):
    for label, loss in (("S", 2.0), ("S-c", 1.5)):
        fill(label, 0.5)
        fill_language(label, [loss])
        fill_language(label, [2 * loss], setting=OTHER_CORPUS)
    shown = invoke(attribute, "--profile", tiny)
    first, *protocols = shown.stderr.splitlines()
    assert first == "warning: language models are left out; choose a protocol with --protocol ID:"
    assert len(protocols) == 2 and "L5" not in shown.stdout.splitlines()[0]
    chosen = invoke(attribute, "--profile", tiny, "--protocol", protocols[0].split()[0], columns=200)
    assert not chosen.exception and "L5" in chosen.stdout.splitlines()[0] and chosen.stderr == ""
    assert "2 protocols" in refuse(attribute, "-t", "language_model")
    assert "no run follows protocol 00000000" in refuse(attribute, "-p", tiny, "--protocol", "00000000")


@pytest.mark.slow
def test_attribute_has_a_row_per_pair_with_the_option_pairs(fill, invoke, tiny):
    fill("S", 0.1)
    fill("S-c", 0.5)
    words = ("--profile", tiny, "-t", "compression")
    assert "S-c − S" not in invoke(attribute, *words).stdout
    shown = invoke(attribute, *words, "--pairs").stdout
    assert [line.split() for line in shown.splitlines()[2:4]] == [
        ["conv:", "c", "vs.", "none", "(+40.0)", "1", "1"],
        ["S-c", "−", "S", "(+40.0)", "1"],
    ]
    assert "Trained on an abacus." not in " ".join(shown.split())
    assert "Trained on an abacus." in " ".join(invoke(attribute, *words, "--notes").stdout.split())


@pytest.mark.slow
def test_labels_that_differ_in_more_than_one_factor_are_an_error(fill, invoke, refuse, tiny):
    fill("S", 0.5)
    fill("R-c", 0.5)
    assert "differ in exactly one factor; madbench run '~S' -p" in refuse(attribute, "--profile", tiny)
    fill("S-c", 0.5, (1,), tasks=("compression",))
    assert "; madbench attribute S '~S' -p" in refuse(attribute, "S", "--profile", tiny)
    words = ("S", "precision=float32", "--profile", tiny, "-t", "compression")
    assert f"attribute S '~S' precision=float32 -p {tiny} -t compression" in refuse(attribute, *words)
    shown = invoke(attribute, "S", "S-c", "--profile", tiny)
    assert "(+0.0)" in shown.stdout  # seeds need not be the same
    assert "differ in exactly one factor" in refuse(attribute, "S", "R-c", "--profile", tiny)


@pytest.mark.slow
def test_labels_and_tasks_of_installed_packages_have_contrasts_of_their_own(fill, install_example, invoke, tiny):
    install_example("plugin"), install_example("task")
    for label, accuracy in (("S", 0.1), ("S-c", 0.5), ("lin:elu", 0.2), ("lin:elu-g", 0.5)):
        fill(label, accuracy, (0, 1), tasks=("compression", "prefix_sum"))
    words = ("--profile", tiny, "-t", "compression,prefix_sum")
    found = json.loads(invoke(attribute, *words, "-f", "json").stdout)["cells"]
    effects = [(one["contrast"], one["quantity"], one["estimate"]) for one in found if one["kind"] == "effect"]
    assert effects == [
        (contrast, task, pytest.approx(points))
        for task in ("compression", "prefix_sum")
        for contrast, points in (("conv: c vs. none", 40.0), ("lin:gate: g vs. none", 30.0))
    ]
    assert "Prefix sum" in invoke(attribute, *words, columns=160).stdout


@pytest.mark.parametrize(
    "words, message",
    [
        (["-t", "language_model", "training.epochs=1"], "training: unknown key 'epochs'"),
        (["-t", "language_model", "-p", "full"], "profile 'full': no such profile"),
        (["-t", "compression", "--protocol", "ab"], "no runs of MAD tasks yet"),
        (["S-x"], "label 'S-x'"),
    ],
)
def test_attribute_refuses_options_without_effect(store, refuse, words, message):
    assert message in refuse(attribute, *words)
