"""The principles in the paper's order: claim, labels, tasks and contrasts, at the paper's size and a laptop's."""

from __future__ import annotations

from collections.abc import Mapping

from madbench.config import Override
from madbench.papers.coefficients import FULL, QUICK, ExpectedContrast, Figure, Principle, Study

COPY, NOISY = "selective_copying", "noisy_in_context_recall"
FUZZY, MEMORY = "fuzzy_in_context_recall", "memorization"
HARDER = tuple(
    Override.of(f"tasks.{COPY}.setting.{name}", value)
    for name, value in {"seq_len": 64, "num_tokens_to_copy": 16}.items()
)
SLOW = Override.of("learning_rates", [1.0e-3], "[1.0e-3]")
MAPS = ("exp", "softplus", "relu")


def _heads(count: int) -> tuple[Override, ...]:
    return (Override.of("model.n_head", count),)


def _positions(constant: str, *tasks: str) -> Study:
    contrasts = []
    for phi in MAPS:
        contrasts.append(ExpectedContrast(phi, f"cd:{phi}-{constant}-sum", f"cd:{phi}-sum"))
        contrasts.append(ExpectedContrast(phi, f"cd:{phi}-sum-p", f"cd:{phi}-sum"))
    labels = ("cd:{%s}{,-%s}-sum{,-p}" % (",".join(MAPS), constant),)
    return Study(labels, tasks, contrasts=tuple(contrasts))


def _growth(constant: str, task: str, *overrides: Override) -> Study:
    labels = ("cd:{%s}-%s-b1{,-pow,-sum}-p" % (",".join(MAPS), constant),)
    contrasts = []
    for phi in MAPS:
        plain, power, total = (f"cd:{phi}-{constant}-b1{eta}-p" for eta in ("", "-pow", "-sum"))
        contrasts.append(ExpectedContrast(phi, total, plain))
        contrasts.append(ExpectedContrast(phi, *((total, power) if phi == "exp" else (power, plain))))
    return Study(labels, (task,), overrides, contrasts=tuple(contrasts))


def _evolution(*tasks: str, heads: int, overrides: tuple[Override, ...] = ()) -> Study:
    contrasts = [ExpectedContrast("diagonal above scalar", f"cd:id-d{kind}-cg", f"cd:id-s{kind}-cg") for kind in "gm"]
    # the paper's headline, first with its own rows, then with unit keys in both mirrors and gates
    for group, block in (("mirrors above gates", "cg"), ("mirrors above gates of unit keys", "cug")):
        contrasts += [
            ExpectedContrast(group, "cd:id-hk2-cug", f"cd:id-{gate}-{block}") for gate in ("sg", "sm", "dg", "dm")
        ]
    contrasts.append(ExpectedContrast("learned vectors above keys", "cd:id-hz2-cug", "cd:id-hk2-cug"))
    contrasts += [
        ExpectedContrast("learned above fixed strength", f"cd:id-h{way}2-cug", f"cd:id-h{way}r-cug") for way in "kz"
    ]
    return Study(("@principle4",), tasks, (*_heads(heads), *overrides), contrasts=tuple(contrasts))


def _maps(*tasks: str) -> Study:
    return Study(("cd:{exp,relu,softplus,id,elu,sigmoid}-sum-p",), tasks)


def _kernels(*tasks: str) -> Study:
    contrasts = tuple(
        ExpectedContrast("exp above kernels", "cd:exp-sum-p", f"cd:k{psi}-sum-p")
        for psi in ("relu", "elu", "softplus", "exp")
    )
    shares = [ExpectedContrast("kernels have fewer near zero than exp", each.better, each.worse) for each in contrasts]
    shares += [
        ExpectedContrast("all kernels but krelu have more near zero than id", f"cd:k{psi}-sum-p", "cd:id-sum-p")
        for psi in ("elu", "softplus", "exp")
    ]
    return Study(("cd:{exp,id,krelu,kelu,ksoftplus,kexp}-sum-p",), tasks, contrasts=contrasts, shares=tuple(shares))


PRINCIPLES = (
    Principle(
        "1", "time against length",
        "A recurrence of fixed size computes a linear readout, and no other: time grows as T instead of T^2.",
        "Section 4.1, Lemma 1, Figure 5",
        "linear complexity in length with the recurrence and quadratic without: slopes of log time on log T of 1 and 2",
        "time", {QUICK: Study((), ())}, "Nothing is trained; slopes are of forward passes on this machine.",
    ),
    Principle(
        "2", "accuracy and coefficients near zero",
        "A readout that can set coefficients close to zero is more accurate.",
        "Section 5, Figures 2, 6, 7", "accuracy rises with the share of coefficients near zero, over readouts",
        "rank", {FULL: _maps(FUZZY, COPY, MEMORY), QUICK: _maps(COPY)},
        "The maps of Figure 2 are only in its picture: exp and id are certain, elu and sigmoid are ours. With a sum,"
        " uniform weights are below 0.001 only from T = 1,000 on. Quick: principle2 has only selective copying at"
        " T = 32. figure2, figure6 and figure7 have the other tasks.",
    ),
    Principle(
        "2.1", "kernels and coefficients near zero",
        "Kernels of positive features cannot set coefficients to zero, and fall behind softmax.",
        "Section 5, Figure 8",
        "fewer coefficients near zero than with the pointwise maps of Figure 2, but more than with id (except for"
        " ReLU); lower accuracy than exp",
        "rank", {FULL: _kernels(FUZZY, COPY), QUICK: _kernels(COPY)},
        "krelu does reach exact zeros, which contradicts Corollary 2.1. Of the pointwise maps of Figure 2 only exp is"
        " compared in its share near zero. The others are rows of principle 2. Quick: principle2.1 has only selective"
        " copying at T = 32. figure8 has fuzzy recall too.",
    ),
    Principle(
        "2.2", "suppressed states of a kernel",
        "A query of a kernel suppresses at most n - 1 states.",
        "Figure 9, Corollary 2.2",
        "at most n - 1 = 7 coefficients of a row below 1e-6, and more at T = 512 than at 128",
        "count", {FULL: Study(("cd:k{softplus,exp}-sum-p",), (FUZZY, COPY)),
                  QUICK: Study(("cd:k{softplus,exp}-sum-p",), (COPY,))},
        "The bound is about independent states. Repeated tokens have equal states, and one query suppresses all of"
        " them, so the table has the rank of the suppressed states too. figure9_lengths tests that there are more at a"
        " longer length. Quick: principle2.2 has only selective copying at T = 32. figure9 has fuzzy recall too.",
    ),
    Principle(
        "3", "positions from a constant gate",
        "Positions come from A alone: a constant gate does what RoPE does.",
        "Section 5, Figure 1", "solved with RoPE, with 0.95 and with both for all maps; with neither, exp and softplus"
        " at chance and relu above it",
        "contrasts", {FULL: _positions("0.95", NOISY), QUICK: _positions("0.9", COPY)},
        "Quick: selective copying at T = 32, not the noisy recall of Figure 1, which takes three times the steps"
        " here. The gate is 0.9 (0.9^32 = 0.03, the paper's 0.95^128 = 0.0014). In a stack of two layers causality"
        " already distinguishes positions a little, so labels with neither can be above chance. The paper does not"
        " name its positional embedding. Ours is RoPE.",
    ),
    Principle(
        "4", "transformations in A",
        "The more transformations A allows, the more accurate.",
        "Section 5, Figure 3", "accuracy rises from scalar to diagonal to mirrors, learned strength above fixed",
        "contrasts",
        {FULL: _evolution(FUZZY, COPY, heads=8), QUICK: _evolution(COPY, heads=4, overrides=HARDER)},
        "Mirrors need unit queries and keys (u), which the gates of the paper do not have. Scalar and diagonal gates"
        " with u are additional rows, as the control. Quick: only selective copying, without the fuzzy recall of"
        " Figure 3, which takes twice the steps here. It copies 16 of 64 tokens, because gates and mirrors solve the 6"
        " of 32 of other principles. The paper's 32 of 512 are those of --profile full.",
    ),
    Principle(
        "5", "spread over seeds and key width",
        "b of 1/sqrt(n) keeps the spread over seeds small at any key width.",
        "Appendix D.3, Figure 10",
        "a wide spread with b = 1 and with a gate, a narrow one with 1/sqrt(n); widest for exp",
        "spread",
        {
            FULL: Study(("@principle5",), (FUZZY,), _heads(4), {"model.qk_rank": (128, 256, 512, 1024)}),
            QUICK: Study(("cd:exp{-b1,,-bz,-bzn}-sum-p",), (COPY,), _heads(2),
                         {"model.init_std": (0.02, 0.125), "model.qk_rank": (64, 256)}),
        },
        "A constant factor of b cancels in relu with sum and in id under RMSNorm. So b1 and 1/sqrt(n) are one function"
        " there, and so are bz and bzn. The factor has an effect in exp, and in relu-p and id-cu. Quick: only exp with"
        " the sum, on selective copying at T = 32, not on the fuzzy recall of Figure 10, which takes twice the steps"
        " here. The paper does not say how q, k, v and o start. Quick has two starts: N(0, 0.02^2), as in all other"
        " runs here and in --profile full, and N(0, 0.125^2), with a variance of 1/d, for which Lemma 5 predicts"
        " scores of variance n.",
    ),
    Principle(
        "6", "growth and normalization",
        "Growing coefficients need eta: their sum bounds them.",
        "Appendix D.4, Figure 11", "solved with the sum for all maps; exp without it diverges or learns nothing;"
        " softplus and relu are good without, perfect with the gate's power",
        "contrasts", {FULL: _growth("1.05", NOISY), QUICK: _growth("1.15", COPY, SLOW)},
        "Quick: selective copying at T = 32, not the noisy recall of Figure 11, which takes three times the steps"
        " here. The gate is 1.15, which grows to 87 over the sequence (the paper: 516). The rate is 1e-3, because at"
        " 3e-3 exp with the sum does not learn the task in 1,000 steps.",
    ),
)  # fmt: skip


FIGURES: Mapping[str, Figure] = {
    "figure1": Figure("3"),
    "figure2": Figure("2", ("near_zero", "readout")),
    "figure3": Figure("4"),
    "figure5": Figure("1"),
    "figure6": Figure("2", ("near_zero", "readout")),
    "figure7": Figure("2", ("ratio",)),
    "figure8": Figure("2.1", ("near_zero",)),
    "figure9": Figure("2.2"),
    "figure10": Figure("5"),
    "figure11": Figure("6"),
}
"""The figures of the paper that show data, by id of their item in ``paper.yaml``.

The item may name tasks of its own, which replace those of the principle.
"""


def principle(number: str) -> Principle:
    """The principle with a number such as ``2.1``. Raises ``KeyError`` if no principle has it."""
    return {known.number: known for known in PRINCIPLES}[number]
