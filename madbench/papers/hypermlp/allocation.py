"""Section 2.6 and eq. 57 of the HyperMLP paper: numbers of weights by part of a mixer, printed and counted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from madbench.labels import parse
from madbench.mixers import build
from madbench.mixers.srg.grammar import SrgLabel
from madbench.papers.making import CONTRADICTED, FAILS, REPRODUCED, ItemResult, PlainMeasure, Request

if TYPE_CHECKING:
    from madbench.analysis.scores import Results
    from madbench.mixers.srg.dynamic_mlp import DynamicMLP

LABELS = {"R-cg-q-12o": "HyperMLP", "G-cg-q-12o": "HyperGLU"}
HEADS, RANK = 2, 16
SIZES = {"GPT-2": (768, 1024), "MAD": (128, 128)}
"""The width d and the length T in tokens of the paper's experiments: name to (d, T)."""
SHARES = (8, 4)
"""The two values of ``share`` in the paper, where d_qk = d / (share n_head): 8 in Section 2.6, 4 in eq. 57."""


def printed_count(label: str, d: int, length: int, share: int) -> dict[str, int]:
    """The number of weights of a label's mixer by part, according to the text of the paper.

    ``d`` is the width of the model, ``length`` the number t of tokens, and ``share`` the factor in
    d_qk = d / (share n_head). Biases and the convolution are not counted. The gates of QK and VO are linear maps from x
    to the gated channels.

    A mixing matrix is R = I + Diag(p) + A Diag(s) B^T for each head. Its weights are p (t), A and B (t, r_s),
    where r_s is the mixing rank, and the linear map from x to s (r_s). HyperGLU has two branches with an R(1) each; the
    branches share the width of Q and K.
    """
    parsed = parse(label)
    assert isinstance(parsed, SrgLabel)
    width, branches = d // share, 2 if parsed.base == "G" else 1
    mixing = branches + 1
    tables = mixing * HEADS * length * (2 * RANK + 1)
    return {"first layer": 3 * d * width, "maps to s": mixing * HEADS * RANK * d, "tables": tables, "VO": 3 * d * d}


def built_count(mixer: DynamicMLP) -> dict[str, int]:
    """The number of weights of a built mixer by part, as in :func:`printed_count`, without biases and convolution."""
    weights = {name: p for name, p in mixer.named_parameters() if not name.endswith("bias")}
    sizes = {name: weight.numel() for name, weight in weights.items() if "conv" not in name}
    parts = {"first layer": ("q.", "k.", "qk_gate."), "maps to s": ("mix1.gate.", "mix2.gate.")}
    parts |= {"VO": ("v.", "o.", "vo_gate.")}
    counts = {part: sum(n for name, n in sizes.items() if name.startswith(begins)) for part, begins in parts.items()}
    return counts | {"tables": sum(sizes.values()) - sum(counts.values())}


def first_share(counts: Mapping[str, int], d: int) -> float:
    """The number of weights outside of V, O and their gate, in units of d^2. ``counts`` has the number of each part."""
    return (counts["first layer"] + counts["maps to s"] + counts["tables"]) / d**2


class AllocationMeasure(PlainMeasure):
    """A measure that counts the weights of HyperMLP and HyperGLU at the sizes of the paper's experiments.

    It trains nothing.
    """

    operators = tuple(LABELS)

    def decide(self, request: Request, results: Results | None) -> ItemResult:
        verdicts, remarks, rows = {}, {}, []
        for (label, name), (size, (d, length)) in ((a, b) for a in LABELS.items() for b in SIZES.items()):
            mixer = cast("DynamicMLP", build(parse(label), d, length, n_head=HEADS, budget="paper"))
            assert mixer.mix1 is not None
            counts, width = built_count(mixer), mixer.q.weight.shape[0]
            is_counted = counts == printed_count(label, d, length, d // width)
            place = f"{name} at d {d}, T {length} ({size})"
            sentence = f"{place}: V, O and their gate take 3 d^2, with d_vo = d / n_head and r_s = {RANK} (eq. 57)"
            is_so = counts["VO"] == 3 * d * d and mixer.v.weight.shape == (d, d) and mixer.mix1.A.shape[-1] == RANK
            verdicts[sentence] = (REPRODUCED if is_so else CONTRADICTED) if is_counted else FAILS
            remarks[sentence] = f"{counts['VO'] / d**2:.3g} d^2" if is_counted else "built and printed counts differ"
            for share in SHARES:
                printed_total = printed_count(label, d, length, share)
                share_taken = first_share(counts if share == d // width else printed_total, d)
                sentence = f"{place}: QK of d / ({share} n_head) and the sequence mixing take the remaining d^2"
                verdicts[sentence] = (REPRODUCED if share_taken <= 1 else CONTRADICTED) if is_counted else FAILS
                bare = share_taken - printed_total["tables"] / d**2
                remarks[sentence] = f"{share_taken:.3g} d^2, and {bare:.3g} d^2 without the tables A, B and p"
                rows.append(
                    {"label": label, "size": size, "share": share, "first": share_taken, "without_tables": bare}
                )
        return ItemResult((), verdicts, {"rows": rows}, (), remarks)
