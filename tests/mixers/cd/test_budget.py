import pytest

from madbench.mixers import solve

SIZES = ((128, 2), (128, 16), (768, 12))
SOLVED = {  # N, M, strict ratio, ratio at N = M = d conv taps left out; by size
    "cd:id-dg": ((112, 128, 0.998, 1.064), (112, 128, 0.998, 1.064), (744, 768, 0.995, 1.011)),
    "cd:id-sm-bd": ((126, 128, 0.996, 1.004), (112, 128, 0.969, 1.032), (756, 768, 0.996, 1.004)),
    "cd:id-smhk1-bwn-u": ((124, 128, 0.992, 1.008), (96, 128, 0.938, 1.063), (744, 768, 0.992, 1.008)),
    "cd:id-se-bin-max-o": ((60, 128, 0.994, 1.260), (32, 128, 0.940, 1.315), (360, 768, 0.993, 1.258)),
    "cd:id-smhk1-bwn-cug": ((60, 128, 0.993, 1.259), (32, 128, 0.938, 1.313), (360, 768, 0.992, 1.258)),
    "cd:exp-hz2-sum-p": ((84, 128, 0.996, 1.254), (64, 144, 0.969, 1.281), (504, 768, 0.996, 1.254)),
    "cd:id-hz2-cug-v": ((128, 40, 0.989, 1.505), (128, 32, 0.969, 1.531), (816, 192, 0.988, 1.504)),
}


def without_taps(allocation):
    """The ratio, conv taps left out of both sides."""
    taps = allocation.terms.get("conv", 0)
    return round((allocation.total - taps) / (allocation.target - taps), 3)


@pytest.mark.parametrize("label", SOLVED)
@pytest.mark.parametrize("place", range(3))
def test_ranks_and_ratios_are_those_of_the_specification(label, place):
    (d_model, n_head), expected = SIZES[place], SOLVED[label][place]
    strict = solve(label, d_model, n_head)
    assert (strict.qk_rank, strict.vo_rank, without_taps(strict)) == expected[:3]
    whole = solve(label, d_model, n_head, budget="paper")
    assert whole.qk_rank == whole.vo_rank == d_model
    assert without_taps(whole) == expected[3]
