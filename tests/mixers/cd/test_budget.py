"""Ranks of labels of coefficient dynamics: they meet the budget and match the specification."""

import pytest

from madbench.errors import BudgetError, ConfigError
from madbench.labels import parse
from madbench.mixers import Size, solve
from madbench.mixers.cd.budget import CdAllocation

SIZES = ((128, 2), (128, 16), (768, 12))
EXPECTED_RANKS = {  # N, M, strict ratio, ratio at N = M = d conv taps left out; by size
    "cd:id-dg": ((112, 128, 0.998, 1.064), (112, 128, 0.998, 1.064), (744, 768, 0.995, 1.011)),
    "cd:id-sm-bd": ((126, 128, 0.996, 1.004), (112, 128, 0.969, 1.032), (756, 768, 0.996, 1.004)),
    "cd:id-smhk1-bwn-u": ((124, 128, 0.992, 1.008), (96, 128, 0.938, 1.063), (744, 768, 0.992, 1.008)),
    "cd:id-se-bin-max-o": ((60, 128, 0.994, 1.260), (32, 128, 0.940, 1.315), (360, 768, 0.993, 1.258)),
    "cd:id-smhk1-bwn-cug": ((60, 128, 0.993, 1.259), (32, 128, 0.938, 1.313), (360, 768, 0.992, 1.258)),
    "cd:exp-hz2-sum-p": ((84, 128, 0.996, 1.254), (64, 144, 0.969, 1.281), (504, 768, 0.996, 1.254)),
    "cd:id-hz2-cug-v": ((128, 40, 0.989, 1.505), (128, 32, 0.969, 1.531), (816, 192, 0.988, 1.504)),
}


def without_taps(allocation):
    """The ratio of parameters to the budget, without convolution taps on either side."""
    taps = allocation.terms.get("conv", 0)
    return round((allocation.total - taps) / (allocation.target - taps), 3)


@pytest.mark.parametrize("label", EXPECTED_RANKS)
@pytest.mark.parametrize("place", range(3))
def test_ranks_and_ratios_equal_those_of_the_specification(label, place):
    (d_model, n_head), expected = SIZES[place], EXPECTED_RANKS[label][place]
    strict = solve(label, d_model, n_head)
    assert (strict.r_qk, strict.r_vo, without_taps(strict)) == expected[:3]
    whole = solve(label, d_model, n_head, budget="paper")
    assert whole.r_qk == whole.r_vo == d_model
    assert without_taps(whole) == expected[3]


LABELS = "exp-sum id-dg-cg-v id-sm-bd-p exp-hz2-sum-p id-dmhzr-bi-max-cuo relu-1.05-b1-pow kexp-hk1-bw-wx-g".split()


@pytest.mark.parametrize("text", LABELS)
@pytest.mark.parametrize(("d_model", "n_head"), [(64, 2), (128, 16), (256, 4), (96, 3)])
def test_the_budget_is_met_by_the_largest_admissible_ranks(text, d_model, n_head):
    found = solve(f"cd:{text}", d_model, n_head)
    label, side, other = found.label, found.r_qk, found.r_vo
    qk_unit = n_head * (2 if label.rope else 1)
    vo_unit = n_head * (8 if d_model >= 256 else 1)
    units = (vo_unit, qk_unit) if label.rank else (qk_unit, vo_unit)
    pay, keep = (other, side) if label.rank else (side, other)

    def fits(pay, keep):
        ranks = (keep, pay) if label.rank else (pay, keep)
        one = CdAllocation(label, found.size, *ranks)
        return one.total <= one.target

    assert fits(pay, keep)
    assert all(rank % unit == 0 or rank == d_model for rank, unit in zip((pay, keep), units))
    assert not fits(pay, keep + units[1])  # the other side took what was left
    assert pay == d_model or not fits(pay + units[0], min(keep, d_model))
    assert keep >= d_model / 2 or pay == units[0]


def test_qk_shrinks_to_a_quarter_of_the_width_before_vo_shrinks():
    found = solve("cd:id-dghz2-bi-wx-cug", 64, 16)  # as many heads as make every term heavy
    assert (found.r_qk, found.r_vo) == (16, 32)


def test_qk_rank_is_a_setting_only_if_the_budget_does_not_decide_it():
    assert solve("cd:exp-sum", 128, 4, budget="paper", qk_rank=1024).ranks == {"qk": 1024, "vo": 128}
    assert solve("cd:mamba2!", 128, 4, qk_rank=256).key_width == 64
    with pytest.raises(ConfigError, match="no effect"):
        solve("cd:exp-sum", 128, 4, qk_rank=256)
    with pytest.raises(BudgetError, match="qk_rank 100"):
        solve("cd:exp-sum-p", 128, 4, budget="paper", qk_rank=100)


def test_sizes_that_no_mixer_fits_are_errors():
    for d_model, n_head, budget in ((8, 16, "strict"), (100, 3, "paper"), (16, 16, "strict")):
        with pytest.raises(BudgetError, match="head"):
            solve("cd:id-smhz2-bz-wx-cg", d_model, n_head, budget=budget)


def test_recurrent_labels_cache_nothing_per_token():
    size = Size(64, 2, 32, "paper")
    for text in ("cd:exp-sum-c", "cd:gla", "cd:linear", "cd:mlstm"):
        one = CdAllocation(parse(text), size, 64, 64)
        assert one.state_bytes_per_token() == (64 * 4 + 64 * 2 if "exp" in text else 0)
