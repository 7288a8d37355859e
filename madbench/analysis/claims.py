"""Claims as data: sentences of a paper or a user, each with the pairs of labels that decide it, and its line.

Everything is a gain: points of accuracy, nats per token of loss or steps that are saved, so that more is better. A
claim draws a line. "gain" expects more than 0, more than ``by`` in the units of the column, or more than ``reach`` of
the published gain; "no loss" more than minus the margin; "no gain" less than the margin; "equal" both. So a "no
difference" is never read off a large p-value. The margin is ``within``, in the units of the column; a claim about
published labels may leave it out: then it is :data:`MARGIN_SHARE` of what the first of :data:`MARGIN_LABELS` gains over
the second in the HyperMLP paper's table.

Lines that are shares of published numbers scale with the profile. On losses and steps with the stored ones: 0.022 nats
a BPE token are not 0.022 nats a byte. On accuracies with the way from a heuristic to a perfect score, what there is to
learn: a line of half of that way in the paper's table is half of that way here. It depends on tasks and sizes alone, so
a line is the same whatever is stored. If a task's heuristic is not known, the line is in the paper's points. Numbers
behind ``by`` and ``within`` are in this profile's units, and never scaled.

A file of claims (:func:`load_claims`) has them under ``claims``, and beside them what :class:`ClaimsFile` names;
:mod:`madbench.analysis.claim_sentences` makes claims of sentences.
"""

from __future__ import annotations

import functools
import itertools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import numpy as np

from madbench.analysis.contrasts import Pair, find_pairs
from madbench.analysis.quantities import averages_of, column, parts_of
from madbench.config import PAPERS, from_mapping, read_yaml
from madbench.errors import ConfigError, MadbenchError, did_you_mean
from madbench.labels import expand, parse
from madbench.labels.plugins import entry_point_name, find_installed, resolve, wrap_load_errors
from madbench.suites import default_headline
from madbench.suites.published import published_scores

Expectation = Literal["gain", "no loss", "no gain", "equal"]
Terms = list[tuple[float, str]]
"""A weighted sum of labels' means."""


@dataclass(frozen=True)
class Claim:
    """A sentence that pairs of labels can support or contradict."""

    name: str
    title: str = ""  # in at most 32 characters; without one, the contrast
    sentence: str = ""  # its wording
    source: str = ""
    theory: str = ""  # why it should hold
    group: str = "Claims"  # heading of the claims around it
    factors: tuple[str, ...] = ()  # in which the labels of a pair differ, of madbench.labels.FACTORS
    pairs: tuple[Pair, ...] = ()  # the paper's own pair first
    contrast: str = ""
    """Instead of pairs: ``A > B``, ``A >= B`` (no worse), ``A ~ B`` or ``A = B`` (equivalent), labels or sets on both
    sides; or ``FACTOR in LABELS``."""
    expects: Expectation = "gain"
    """The first label of a pair is better; not worse by the margin; not better by the margin; neither."""
    expects_on: dict[str, Expectation] = field(default_factory=dict)
    """Where something else is expected of a quantity."""
    reach: float = 0.0
    """Share of the published gain that a claim of a large gain has to exceed."""
    by: float = 0.0
    """Gain that has to be exceeded, in the units of the column: points, nats per token, steps."""
    within: float = 0.0
    """The margin of a claim of no difference, in the units of the column; 0: a share of a published gain."""
    judges: Literal["mean", "every pair"] = "mean"
    """Whether the mean over the pairs has to be beyond the line, or every single pair."""
    rivals: dict[str, tuple[Pair, ...]] = field(default_factory=dict)
    """Pairs of every factor that ``factors`` should outdo, as many as ``pairs`` and in the same surroundings."""
    quantities: tuple[str, ...] = ()
    """Columns, each with a verdict of its own; without any, those of the file."""
    note: str = ""  # where the paper's text and its table disagree, and what the pairs leave out

    def expectation(self, quantity: str) -> Expectation:
        """What the claim expects on ``quantity``."""
        return self.expects_on.get(quantity, self.expects)

    @property
    def uses_published_gains(self) -> bool:
        """Whether a line is a share of a gain in the HyperMLP paper's table."""
        has_margin = any(self.expectation(name) != "gain" for name in self.quantities)
        return bool(self.reach) or (has_margin and not self.within)

    def sign(self, quantity: str) -> int:
        """1 where a gain speaks for the claim, -1 where it speaks against it."""
        return -1 if self.expectation(quantity) == "no gain" else 1

    def labels(self, cases: Iterable[int]) -> tuple[str, ...]:
        """The labels of some of its pairs, given by index, and of their rivals."""
        chosen = [pairs[case] for case in cases for pairs in (self.pairs, *self.rivals.values())]
        return tuple(dict.fromkeys(label for pair in chosen for label in pair))

    def gains(self, cases: Sequence[int]) -> dict[str, Terms]:
        """The gains that all have to be beyond the line, by name, as sums over labels where more is better.

        One named "" for the mean over the pairs ``cases``; one a pair; or one over each rival, of either sign.
        """
        if self.judges == "every pair":
            return self._both_ways({" - ".join(self.pairs[case]): _mean([self.pairs[case]]) for case in cases})
        own = _mean([self.pairs[case] for case in cases])
        rivals = {name: _mean([pairs[case] for case in cases]) for name, pairs in self.rivals.items()}
        over = {
            f"{name}{'' if sign > 0 else ' (reversed)'}": own + [(-sign * weight, label) for weight, label in terms]
            for (name, terms), sign in itertools.product(rivals.items(), (1.0, -1.0))
        }
        return self._both_ways({name: _collected(terms) for name, terms in (over or {"": own}).items()})

    def _both_ways(self, gains: dict[str, Terms]) -> dict[str, Terms]:
        """Of a claim of equality the losses too, which are to be as small."""
        if self.expects != "equal":
            return gains
        reverse = {f"{name} (reversed)".strip(): [(-w, label) for w, label in terms] for name, terms in gains.items()}
        return gains | reverse


def _mean(pairs: Sequence[Pair]) -> Terms:
    return [(sign / len(pairs), label) for pair in pairs for sign, label in zip((1.0, -1.0), pair)]


def _collected(terms: Terms) -> Terms:
    """Each label once."""
    total: dict[str, float] = {}
    for weight, label in terms:
        total[label] = total.get(label, 0.0) + weight
    return [(weight, label) for label, weight in total.items() if abs(weight) > 1e-9]


@dataclass(frozen=True)
class ClaimsFile:
    """What a file of claims holds."""

    claims: tuple[Claim, ...]
    quantities: tuple[str, ...] = ()
    """Of a claim that says none; without any, the columns by which the suites that are trained by default compare."""
    margin_share: float = 0.0
    """What a "no difference" may hide where it says no ``within``: this share of a published gain."""
    margin_labels: tuple[str, ...] = ()
    """The label with that gain and the one without."""
    heuristics: dict[str, float] = field(default_factory=dict)
    """By task, what a heuristic scores at the size of the published numbers, in the column's units."""
    by_task: str = ""
    """The group of claims that are about one task each."""
    not_isolated: str = ""
    """What the author claims, and no two labels isolate."""

    def with_quantities(self) -> tuple[Claim, ...]:
        """The claims, each with columns."""
        own = self.quantities or default_headline()
        return tuple(claim if claim.quantities else replace(claim, quantities=own) for claim in self.claims)


def load_claims(source: str | Path) -> tuple[Claim, ...]:
    """The claims of a YAML file, or those of a paper by its name, such as ``hypermlp``.

    Raises ``ConfigError`` for a file that is not there or has none, for a key or a column that is unknown, for a claim
    without labels, and for one that needs a published number that there is not.
    """
    path = _path_of(source)
    claims = from_mapping(ClaimsFile, read_yaml(path), str(path)).with_quantities()
    if not claims:
        raise ConfigError(f"{path}: holds no claims; madbench new claim 'A > B on TASK' --output {path} adds one")
    names = [claim.name for claim in claims]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"{path}: claims: {name!r} is there twice; give each claim a name of its own")
    return tuple(complete(claim, f"{path}: claims: {claim.name}") for claim in claims)


def _path_of(source: str | Path) -> Path:
    if isinstance(source, Path) or source.endswith((".yaml", ".yml")):
        return Path(source)
    papers = {path.parent.name: path for path in sorted(PAPERS.glob("*/claims.yaml"))}
    points = find_installed("madbench.papers", "paper", dict.fromkeys(papers, ""), lambda name: "").points
    if source in papers:
        return papers[source]
    if source not in points:
        names = [*papers, *points]
        raise ConfigError(
            f"--claims {source}: neither a YAML file nor a paper with a file of claims ({', '.join(names)})"
            f"{did_you_mean(source, names)}"
        )
    where = entry_point_name("paper", source, points[source].value)
    with wrap_load_errors(where, ConfigError):
        paper = resolve(points[source].value)
        if not hasattr(paper, "claims_file"):
            raise ConfigError(f"expected a madbench.papers.Paper, got {repr(paper)[:100]}")
        path = paper.claims_file
    if path is None:
        raise ConfigError(f"--claims {source}: {where} has no file of claims")
    return path


def complete(claim: Claim, where: str) -> Claim:
    """``claim`` with pairs and title from its contrast, checked; ``where`` opens the messages."""
    if bool(claim.contrast) == bool(claim.pairs):
        raise ConfigError(f"{where}: expected either pairs or a contrast such as 'A > B'")
    try:
        if claim.contrast:
            pairs, sign = pairs_of(claim.contrast)
            expects = {"~": "equal", "=": "equal", ">=": "no loss"}.get(sign, claim.expects)
            claim = replace(claim, pairs=pairs, expects=expects, title=claim.title or claim.contrast)
        else:
            pairs = tuple((str(parse(a)), str(parse(b))) for a, b in claim.pairs)
            claim = replace(claim, pairs=pairs, title=claim.title or " > ".join(claim.pairs[0]))
        for name in claim.quantities:
            column(name)
    except MadbenchError as error:
        raise ConfigError(f"{where}: {error}") from None
    if not claim.quantities:
        raise ConfigError(f"{where}: quantities: expected a column such as in_context_recall")
    for key in ("by", "within", "reach"):
        if not 0 <= getattr(claim, key) < math.inf:
            raise ConfigError(f"{where}: {key}: expected a number of at least 0, got {getattr(claim, key)}")
    expectations = {claim.expectation(name) for name in claim.quantities}
    if claim.by and (expectations != {"gain"} or claim.reach):
        raise ConfigError(f"{where}: by has an effect on a claim of a gain without reach alone")
    if claim.within and "gain" in expectations:
        raise ConfigError(
            f"{where}: within has no effect on a claim of a gain; write by, or '>=' or '~' for no difference"
        )
    if claim.uses_published_gains:
        unknown = [label for label in claim.labels(range(len(claim.pairs))) if label not in published_gains()]
        if unknown:
            needs = "reach is a share of published gains" if claim.reach else "a claim of no difference needs within"
            raise ConfigError(f"{where}: {needs}, and there are none of {', '.join(unknown)}")
    return claim


def pairs_of(contrast: str) -> tuple[tuple[Pair, ...], str]:
    """The pairs of ``A > B``, ``A >= B``, ``A ~ B`` or ``A = B``, labels or sets, or of ``FACTOR in LABELS``; the sign.

    A factor has the pairs of these labels that differ in it alone; the label that has it stands first.
    """
    if match := re.fullmatch(r"(\S+) in (.+)", contrast.strip()):
        factor, labels = match[1], expand(match[2].split())
        pairs_by = find_pairs(labels)
        pairs = tuple(pair for key in pairs_by if factor in (key.factor, key.name) for pair in pairs_by[key])
        if not pairs:
            factors = dict.fromkeys(key.factor for key in pairs_by)
            raise ConfigError(
                f"no two of these labels differ in {factor!r} alone{did_you_mean(factor, factors)}; they have pairs in:"
                f" {', '.join(factors) or 'nothing'}"
            )
        return pairs, ">"
    match = re.fullmatch(r"(.+?)\s+(>=|[>~=])\s+(.+)", contrast.strip())
    if not match:
        raise ConfigError(f"{contrast!r}: expected 'A > B', 'A >= B', 'A ~ B' or 'FACTOR in LABELS'")
    left, right = (expand(side.split()) for side in (match[1], match[3]))
    pairs = tuple((a, b) for a in left for b in right if a != b)
    if not pairs:
        raise ConfigError(f"{contrast!r}: a label is not compared with itself")
    return pairs, match[2]


_PATH = PAPERS / "hypermlp" / "claims.yaml"
HYPERMLP = from_mapping(ClaimsFile, read_yaml(_PATH), str(_PATH))
CLAIMS = HYPERMLP.with_quantities()
"""Those of the HyperMLP paper, which are judged where no others are asked for."""
MARGIN_SHARE = HYPERMLP.margin_share
"""Of the published gain of sequence mixing: what a "no difference" may hide."""
MARGIN_LABELS = HYPERMLP.margin_labels
"""With sequence mixing and without."""


def orientation(quantity: str) -> float:
    """-1 where less is better."""
    return -1.0 if column(quantity).better == "lower" else 1.0


@functools.cache
def published_gains() -> dict[str, dict[str, float]]:
    """The paper's table by label and quantity, with a minus where less is better; steps not reached are left out."""
    return {
        label: {name: orientation(name) * value for name, value in row.items()}
        for label, row in published_scores().items()
    }


def published_gain(claim: Claim, quantity: str, cases: Sequence[int]) -> float:
    """The smallest gain of these pairs in the paper's table; NaN where the table lacks a number."""
    table = published_gains()
    sums = [
        sum(weight * table.get(label, {}).get(quantity, float("nan")) for weight, label in terms)
        for terms in claim.gains(cases).values()
    ]
    return round(float(np.min(sums)), 9)


def margin(quantity: str) -> float:
    """The gain that a "no difference" of the HyperMLP paper may hide in its table: points, nats per token, or steps."""
    table, published = published_gains(), next(iter(averages_of(quantity)), quantity)
    first, second = (table[label][published] for label in MARGIN_LABELS)
    return MARGIN_SHARE * (first - second)


def published_way(quantity: str) -> float:
    """The way from the heuristic to a perfect score at the size of the HyperMLP paper's table; NaN where unknown."""
    parts = parts_of(quantity) or (quantity,)
    return float(np.mean([100.0 - HYPERMLP.heuristics.get(name, math.nan) for name in parts]))


def line_of(
    claim: Claim, quantity: str, cases: Sequence[int], means: Mapping[str, float], way: float = math.nan
) -> float:
    """The gain that separates the claim from its contrary.

    ``means`` are the stored means by label; shares of published losses and steps are scaled by theirs over the
    published ones. ``way`` is that from the heuristic to the ceiling of the stored runs, by which shares of published
    accuracies are scaled; NaN leaves them in the paper's points.
    """
    expectation = claim.expectation(quantity)
    if claim.by or claim.within:
        return claim.by or (claim.within if expectation == "no gain" else -claim.within)
    if expectation == "gain":
        line = claim.reach * published_gain(claim, quantity, cases) if claim.reach else 0.0
    else:
        line = margin(quantity) if expectation == "no gain" else -margin(quantity)
    if orientation(quantity) < 0 and line:
        baselines = [claim.pairs[case][1] for case in cases]
        ratios = [means[x] / abs(published_gains()[x].get(quantity, float("nan"))) for x in baselines if x in means]
        line *= float(np.mean(ratios)) if ratios else 1.0
    scale = way / published_way(quantity)
    return line if math.isnan(scale) else line * scale
