"""What the HyperMLP paper claims of its own design: each claim with the pairs of labels that isolate it.

A pair of a claim differs in the claim's factors and in nothing else (:func:`madbench.labels.diff`). Claims that no two
labels isolate are in ``NOT_ISOLATED``. Sections, results and appendices are those of the paper; the questions are
those of the authors' talk.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from madbench.analysis.contrasts import Pair
from madbench.analysis.quantities import LOSS, MAD_AVERAGE

Expectation = Literal["gain", "no loss", "no gain"]
"""The first label of a pair is better; not worse by the margin; not better by the margin."""

QUESTIONS = "Questions of the talk"
RESULTS = "Section 3, further"
PREDICTIONS = "Appendix I.3"


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper that pairs of labels can support or contradict."""

    name: str
    title: str
    """In at most 32 characters."""
    sentence: str
    """What the paper says."""
    source: str
    theory: str
    """Why it should hold."""
    group: str
    """One of ``QUESTIONS``, ``RESULTS`` and ``PREDICTIONS``."""
    factors: tuple[str, ...]
    """In which the labels of a pair differ: of :data:`madbench.labels.FACTORS`."""
    pairs: tuple[Pair, ...]
    """The paper's own pair first."""
    expects: Expectation = "gain"
    rivals: Mapping[str, tuple[Pair, ...]] = field(default_factory=dict)
    """Pairs of every factor that ``factors`` should outdo, as many as ``pairs`` and in the same surroundings."""
    quantities: tuple[str, ...] = (MAD_AVERAGE, LOSS)
    note: str = ""
    """Where the paper's text and its table disagree, and what the pairs leave out."""


_MIXING = (("R-cg-q-12o", "R-cg-q"), ("G-cg-q-12o", "G-cg-q"))
_GLU = ("G-cg-q-12o", "R-cg-q-12o")


def _prediction(
    name: str, title: str, task: str, gain: str, theory: str, expects: Expectation = "gain", note: str = ""
) -> Claim:
    return Claim(
        name,
        title,
        f"Expected gain of HyperMLP over token-wise ReLU attention under a matched budget: {gain}.",
        "Table 4 and appendix I.3",
        theory,
        PREDICTIONS,
        ("mix1", "mix2"),
        _MIXING,
        expects,
        quantities=(task,),
        note=note,
    )


CLAIMS = (
    Claim(
        "softmax",
        "Softmax is not essential",
        "With the usual upgrades of queries, keys and values, ReLU attention matches softmax attention.",
        "section 3.a, result 1; the talk's takeaway 3",
        "Scores are the hidden layer of an MLP. Selecting tokens by sign needs no weights that sum to one.",
        QUESTIONS,
        ("base",),
        (("R-pc", "S-pc"), ("R-p", "S-p"), ("R-c", "S-c")),
        "no loss",
        note="Without the upgrades the table has R below S by 6.4 points of MAD average, which the text leaves out.",
    ),
    Claim(
        "mixing",
        "Sequence mixing is a large gain",
        "Adding sequence mixing in lag order to the same features and the same QK compression is a large jump.",
        "section 3.a, result 2; the talk's takeaway 1",
        "Mixed slots are learned combinations of the whole context where attention has one slot a token.",
        QUESTIONS,
        ("mix1", "mix2"),
        _MIXING,
    ),
    Claim(
        "dominant",
        "Mixing is the largest gain",
        "Sequence mixing is the dominant gain.",
        "section 3.a, result 2; the talk's takeaway 1",
        "Other factors reparameterise how tokens are scored and read; mixing enlarges the class of functions.",
        QUESTIONS,
        ("mix1", "mix2"),
        _MIXING,
        rivals={
            "conv": (("R-cg-q-12o", "R-g-q-12o"), ("G-cg-q-12o", "G-g-q-12o")),
            "RoPE": (("R-pcg-q-12o", "R-cg-q-12o"), ("G-pcg-q-12o", "G-cg-q-12o")),
            "GLU": (_GLU, _GLU),
        },
        note="Each factor is held against HyperMLP or HyperGLU; gates and ranks have no clean pair there in the table."
        " On attention without positions the table has RoPE and convolution worth more than mixing is here: S to S-p"
        " and S to S-c over 21 points of MAD average.",
    ),
    Claim(
        "lag",
        "The lag layout is necessary",
        "Sequence mixing without the lag layout collapses.",
        "section 3.a, result 3, and Theorem 2.3; the talk's takeaway 2",
        "Counted from the newest token, a row of R keeps its meaning as the prefix grows; counted from the oldest, not.",
        QUESTIONS,
        ("layout",),
        (("R-12o!", "R-12!"), ("G-12o!", "G-12!")),
        note="Both pairs are over budget. The text has a MAD average of 46.28 for R-12!, the table 46.27. The table's"
        " R-2! has no lag layout either and does not collapse (80.2).",
    ),
    Claim(
        "rank",
        "Compress QK rather than VO",
        "Under a fixed budget a narrower QK side costs less than a narrower VO side.",
        "Theorem 2.5, Proposition 2.6 (i) and section 3.a, result 5; the talk's fourth question",
        "The VO rank bounds the directions in which a block can move the residual stream, the QK rank only what it sees.",
        QUESTIONS,
        ("rank",),
        (("S-c-q", "S-c-v"), ("R-c-q", "R-c-v")),
        note="The table is split: S is better with QK compressed, R with VO compressed, on MAD average and L5 alike."
        " Result 5 says that tasks with diverse update directions show it and names none; of the six only compression"
        " is better with QK compressed in both pairs.",
    ),
    Claim(
        "glu",
        "GLU adds value beyond ReLU",
        "The best matched-budget label is HyperGLU, with the lowest loss and the top MAD average.",
        "section 3.a, result 6, and Proposition 2.4; the talk's takeaway 4",
        "One branch selects slots, another says how strongly each counts; ReLU makes one number do both.",
        QUESTIONS,
        ("base",),
        (_GLU, ("G-g-q-12o", "R-g-q-12o"), ("G-cg-q", "R-cg-q")),
        note="The table has HyperGLU 0.1 points of MAD average above HyperMLP, and over budget R-12o! 3.3 above G-12o!;"
        " on L5 it has G better in all these pairs.",
    ),
    Claim(
        "both-1",
        "Both mixings beat R(1) alone",
        "Mixing by R(1) and R(2) is generally better than mixing on one side.",
        "section 3.a, result 4",
        "R(1) changes which slots are selected, R(2) what is read from them; the two complement each other.",
        RESULTS,
        ("mix2",),
        (("G-cg-q-12o", "G-cg-q-1o"), ("R-cg-q-12o", "R-cg-q-1o")),
    ),
    Claim(
        "both-2",
        "Both mixings beat R(2) alone",
        "Mixing by R(1) and R(2) is generally better than mixing on one side.",
        "section 3.a, result 4",
        "R(1) changes which slots are selected, R(2) what is read from them; the two complement each other.",
        RESULTS,
        ("mix1",),
        (("G-12o!", "G-2o!"),),
        note="Over budget. The table's R-2! is no partner of R-12o!: it differs in the layout too.",
    ),
    Claim(
        "conv",
        "Convolution helps beside mixing",
        "Together with sequence mixing, convolution on the K and V inputs still improves the result.",
        "section 3.a, before the results",
        "A short convolution mixes neighbours exactly, which a mixing of low rank can only approximate.",
        RESULTS,
        ("conv",),
        (("R-cg-q-12o", "R-g-q-12o"), ("G-cg-q-12o", "G-g-q-12o")),
        note="The same paragraph has R-g-q-12o and G-g-q-12o above ReLU and softmax attention on all metrics. No pair"
        " isolates that: gates, rank and both mixings differ at once; and S-pc memorizes better in the table.",
    ),
    _prediction(
        "compression",
        "Mixing helps compression",
        "compression",
        "high",
        "Rows of R(2) can hold summaries of many tokens, which are then selected like tokens.",
    ),
    _prediction(
        "noisy-recall",
        "Mixing helps noisy recall",
        "noisy_in_context_recall",
        "high",
        "Averaging noise tokens into a few slots widens the margin of the gate; one by one, half of them are selected.",
        note="In the table noisy recall is solved without mixing too, 99.99 with and without: nothing is left to gain.",
    ),
    _prediction(
        "fuzzy-recall",
        "Mixing helps fuzzy recall",
        "fuzzy_in_context_recall",
        "high",
        "Mixing that depends on the query bends the boundary of what is selected, as a neighbourhood of a key needs.",
    ),
    _prediction(
        "selective-copying",
        "Mixing helps selective copying",
        "selective_copying",
        "medium to high",
        "R(2) can be a shift: match at one position and copy from another.",
    ),
    _prediction(
        "clean-recall",
        "Mixing hardly helps clean recall",
        "in_context_recall",
        "low",
        "The answer is one token, and one slot a token is what attention has already.",
        "no gain",
    ),
    _prediction(
        "memorization",
        "Mixing hardly helps memorization",
        "memorization",
        "low",
        "What is memorized is in the weights, not in the context that mixing rearranges.",
        "no gain",
        "The table has mixing gain 17.3 and 9.3 points on memorization, against the prediction.",
    ),
)

NOT_ISOLATED = "gates on the readout side alone, linear attention, registers (Proposition 2.6 ii-iv), larger models"
"""Claims of the paper that no two labels isolate. Of RoPE by itself it claims nothing."""
