"""The coefficients of trained models: shares, states, slopes, correlations and spreads."""

import math

import numpy as np
import pandas as pd
import pytest

from madbench.papers.coefficients.studies import principle


@pytest.mark.slow
@pytest.mark.parametrize("label", ["cd:relu-sum-p", "cd:exp-sum-p", "cd:id-sum-p"])
def test_shares_near_zero_and_one_are_those_of_the_coefficients_counted_one_by_one(trained, label):
    import torch

    from madbench.papers.coefficients.coefficients import EXAMPLES, coefficient_shares
    from madbench.suites.tokens import setting_of
    from madbench.tasks import generate

    weights, model, job = trained(label)
    tokens = generate(job.task, setting_of(job), "test", job.derived_seed("data")).inputs[:EXAMPLES]
    x, zero, one, layers = model.backbone.embedding(torch.from_numpy(tokens)), 0.0, 0.0, 0
    with torch.no_grad():
        for norm, layer in zip(model.backbone.norms, model.backbone.layers):
            if hasattr(layer, "coefficients"):
                a = layer.coefficients(norm(x)).a.double()
                rows = range(1, a.shape[-1])  # the first row has one coefficient, which is 1
                seen = [a[..., i, : i + 1] for i in rows]
                zero += sum((row.abs() <= 0.001).double().mean(-1) for row in seen).mean() / len(rows)
                one += sum(((row >= 0.9) & (row <= 1)).double().mean(-1) for row in seen).mean() / len(rows)
                layers += 1
            x = x + layer(norm(x))
    found = coefficient_shares(weights, job)
    assert layers == 2 and (found["near_one"] > 0 or "exp" in label)
    assert found["near_zero"] == pytest.approx(float(zero) / layers, rel=1e-6)
    assert found["near_one"] == pytest.approx(float(one) / layers, rel=1e-6, abs=1e-9)
    if label == "cd:relu-sum-p":  # ReLU's zeros stay zeros under a sum
        assert 0.3 < found["raw_near_zero"] <= found["near_zero"]


def test_the_verdict_on_a_rank_correlation_uses_all_seeds():
    def frame(*slopes):
        rows = [(f"label {i}", seed, i, slope * i) for seed, slope in enumerate(slopes) for i in range(6)]
        return pd.DataFrame(rows, columns=["label", "seed", "near_zero", "accuracy"])

    from madbench.papers.coefficients.coefficients import correlation_verdict, correlations

    rising, mixed = correlations(frame(1, 2, 3), "near_zero"), correlations(frame(1, -2, 3), "near_zero")
    assert rising.values.tolist() == pytest.approx([1, 1, 1]) and mixed.values.tolist() == pytest.approx([1, -1, 1])
    assert correlation_verdict(rising) == "supported"
    assert correlation_verdict(mixed) == "not significant"
    assert correlation_verdict(correlations(frame(-1, -2, -3), "near_zero")) == "contradicted"


def test_brown_forsythe_finds_a_wider_spread_without_the_width_factor():
    from madbench.papers.coefficients.spread import brown_forsythe

    rng = np.random.default_rng(0)

    def frame(without, with_it):
        widths = {"b1": without, "bz": without, "": with_it, "bzn": with_it}
        rows = [(b, n, rng.normal(50, width, 5)) for b, width in widths.items() for n in (16, 64)]
        return pd.DataFrame(rows, columns=["scaling", "key_width", "values"])

    gap, p = brown_forsythe(frame(10.0, 1.0))
    assert gap == pytest.approx(9, abs=3) and p < 0.01
    assert brown_forsythe(frame(3.0, 3.0))[1] > 0.05
    one_kind = frame(10.0, 1.0).query("scaling == 'b1'")
    assert all(map(math.isnan, brown_forsythe(one_kind)))


def test_the_fitted_exponent_of_time_uses_the_longer_half():
    from madbench.papers.coefficients.timing import decide_time, slope

    lengths = (256, 512, 1024, 2048, 4096)
    assert slope(lengths, [1.0, 1.0, 3e-6 * 1024**2, 3e-6 * 2048**2, 3e-6 * 4096**2]) == pytest.approx(2)
    timed = decide_time(principle("1"), "cpu", (8, 16, 32))
    assert {row["length"] for row in timed.table.json_rows()} == {8, 16, 32}
    assert all(row["seconds"] > 0 for row in timed.table.json_rows())
    assert {*timed.verdicts.values()} <= {"supported", "contradicted", "not clear"}
    assert timed.remarks.keys() == timed.verdicts.keys()


def test_suppressed_coefficients_are_counted_row_by_row_and_their_states_ranked(trained):
    from madbench.papers.coefficients.coefficients import first_examples
    from madbench.papers.coefficients.suppression import count_suppressed

    weights, model, job = trained("cd:krelu-sum-p")  # a kernel with exact zeros
    counts, rank = count_suppressed(weights, job)
    mixer, norm = model.backbone.layers[0], model.backbone.norms[0]
    a = mixer.coefficients(norm(model.backbone.embedding(first_examples(job)))).a
    for head, row in ((0, 0), (3, 7), (7, 30)):
        expected = sum(abs(float(value)) <= 1e-6 for one in a for value in one[head, row, : row + 1]) / len(a)
        assert counts[0, head, row] == pytest.approx(expected)
    assert counts.max() > 1 and 1 <= rank <= 8
