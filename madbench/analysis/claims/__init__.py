"""Claims as data: sentences of a paper or a user, each with the pairs of labels whose results decide it.

A gain is the first label of a pair minus the second: points of accuracy, nats per token of loss, or saved steps. Its
sign is such that more is better. A claim compares the gain with a threshold. There are four kinds of claims:

- "gain": the gain is above 0, above ``by`` in the units of the column, or above the share ``reach`` of the published
  gain;
- "no loss": the gain is above minus the margin;
- "no gain": the gain is below the margin;
- "equal": the gain is between minus the margin and the margin.

So a large p-value alone never supports a claim of no difference. The margin is ``within``, in the units of the column.
A claim about published labels may omit ``within``. Then the margin is a share of a published gain
(:class:`madbench.analysis.references.Reference`).

Thresholds that are shares of published numbers are scaled to the profile. A threshold for losses or steps is scaled by
the ratio of stored to published numbers, because 0.022 nats per BPE token are not 0.022 nats per byte. A threshold for
accuracies remains the same share of the distance from the heuristic to a perfect score: half of this distance at the
sizes of the paper becomes half of it at the sizes of the profile. The distance depends only on tasks and sizes, and not
on the scores of stored runs. If the heuristic of a task is unknown, the threshold stays in the paper's points. ``by``
and ``within`` are in the units of the stored runs and are never scaled.

A file of claims (:func:`load_claims`) is a :class:`ClaimsFile`. :mod:`madbench.analysis.claims.sentences` makes claims
from sentences.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from madbench.analysis.contrasts import LabelPair, find_pairs
from madbench.analysis.quantities import column
from madbench.analysis.references import Reference, find_reference
from madbench.config import PAPERS, from_mapping, read_yaml, short_repr
from madbench.errors import ConfigError, MadbenchError, did_you_mean, no_effect
from madbench.labels import expand, parse
from madbench.plugins.paper_folders import REGISTRY as PACKAGES
from madbench.plugins.paper_folders import paper_folders
from madbench.plugins.registry import wrap_load_errors
from madbench.suites import default_headline
from madbench.suites.published import published_by_paper

Expectation = Literal["gain", "no loss", "no gain", "equal"]
FILE = "claims.yaml"
"""The name of the file of claims in a paper's folder. It is fixed, so the paper need not be imported to find it."""
CLAIMS_LISTED = "madbench findings --explain all"
"""The command that lists claims, for messages about an unknown claim."""
WeightedLabels = list[tuple[float, str]]
"""A weighted sum of the means of labels, as pairs (weight, label)."""


@dataclass(frozen=True)
class Claim:
    """A statement about labels, with the pairs of labels whose results can support or contradict it."""

    name: str
    title: str = ""
    """The title, at most 32 characters. By default, the contrast."""
    sentence: str = ""
    """The wording of the claim in the paper."""
    source: str = ""
    theory: str = ""
    """The reason why the claim should hold."""
    group: str = "Claims"
    """The heading above the claim in tables."""
    factors: tuple[str, ...] = ()
    """The factors in which the labels of a pair differ."""
    pairs: tuple[LabelPair, ...] = ()
    """The pairs of labels, the paper's own pair first."""
    contrast: str = ""
    """A text that gives the pairs in place of ``pairs``: ``A > B``, ``A >= B`` (no worse), ``A ~ B`` or ``A = B``
    (equivalent), or ``FACTOR in LABELS``. A and B are labels or sets of labels."""
    expects: Expectation = "gain"
    """The kind of the claim. The gain of the first label of a pair over the second must be above the threshold
    (``gain``), above minus the margin (``no loss``), below the margin (``no gain``), or between minus the margin and
    the margin (``equal``)."""
    expects_on: dict[str, Expectation] = field(default_factory=dict)
    """The expectation by quantity (the name of a column), for quantities whose expectation is not ``expects``."""
    reach: float = 0.0
    """The gain has to exceed this share of the published gain. 0 if the claim does not use the published gain."""
    by: float = 0.0
    """The gain has to exceed this number, in the units of the column: points, nats per token, steps."""
    within: float = 0.0
    """The margin of a claim of no difference, in the units of the column. If 0, the margin is a share of a published
    gain."""
    judges: Literal["mean", "every pair"] = "mean"
    """The gain that must be beyond the threshold: the mean gain over the pairs, or the gain of each single pair."""
    rivals: dict[str, tuple[LabelPair, ...]] = field(default_factory=dict)
    """Pairs of labels for other factors, by the name of the factor. The mean gain of ``pairs`` has to exceed the
    absolute mean gain of each rival. A rival has as many pairs as ``pairs``. Pair i of ``pairs`` is tested only
    together with pair i of each rival."""
    quantities: tuple[str, ...] = ()
    """The names of the columns that the claim is about, one verdict per column. Default: the columns of the file."""
    note: str = ""
    """A remark for readers, such as on a contradiction between the text and the table of the paper, or on something
    that the pairs of the claim cannot show."""
    published_by: str = ""
    """The paper with the published numbers from which the threshold is computed. Default: the first paper that has
    numbers of all labels of the claim."""

    def expectation(self, quantity: str) -> Expectation:
        """The kind of the claim in the column ``quantity``: ``gain``, ``no loss``, ``no gain`` or ``equal``."""
        return self.expects_on.get(quantity, self.expects)

    @property
    def reference(self) -> Reference:
        """The published numbers from which the threshold of the claim is computed."""
        return find_reference(self.published_by, self.labels(range(len(self.pairs))))

    @property
    def uses_published_gains(self) -> bool:
        """True if a threshold of the claim is a share of a published gain."""
        has_margin = any(self.expectation(name) != "gain" for name in self.quantities)
        return bool(self.reach) or (has_margin and not self.within)

    def sign(self, quantity: str) -> int:
        """1 if a gain above the threshold supports the claim, -1 if a gain below the threshold does ("no gain")."""
        return -1 if self.expectation(quantity) == "no gain" else 1

    def labels(self, cases: Iterable[int]) -> tuple[str, ...]:
        """The labels of the pairs with the indices ``cases`` in :attr:`pairs` and in each of :attr:`rivals`.

        Each label is listed once.
        """
        pairs_of_cases = [pairs[case] for case in cases for pairs in (self.pairs, *self.rivals.values())]
        return tuple(dict.fromkeys(label for pair in pairs_of_cases for label in pair))

    def gains(self, cases: Sequence[int], quantity: str) -> dict[str, WeightedLabels]:
        """The gains that must all be beyond the threshold in the column ``quantity``, by name.

        Each gain is a weighted sum of means of labels. The gains are:

        - for a claim about every pair: the gain of each pair;
        - for a claim with rivals, two per rival: the mean gain of the claim minus that of the rival, and the sum of
          these two mean gains;
        - for any other claim: the mean gain over the pairs, with an empty name.

        If the claim expects "equal" in the column, each gain also occurs negated. ``cases`` are the indices in
        :attr:`pairs` of the pairs to use.
        """
        if self.judges == "every pair":
            gains = {" - ".join(self.pairs[case]): _mean([self.pairs[case]]) for case in cases}
            return self._both_ways(gains, quantity)
        mean_gain = _mean([self.pairs[case] for case in cases])
        rivals = {name: _mean([pairs[case] for case in cases]) for name, pairs in self.rivals.items()}
        over = {
            f"{name}{'' if sign > 0 else ' (reversed)'}": mean_gain
            + [(-sign * weight, label) for weight, label in terms]
            for (name, terms), sign in itertools.product(rivals.items(), (1.0, -1.0))
        }
        gains = {name: _sum_by_label(terms) for name, terms in (over or {"": mean_gain}).items()}
        return self._both_ways(gains, quantity)

    def _both_ways(self, gains: dict[str, WeightedLabels], quantity: str) -> dict[str, WeightedLabels]:
        """Return ``gains``. If the claim expects "equal" in ``quantity``, add each gain negated, named "(reversed)"."""
        if self.expectation(quantity) != "equal":
            return gains
        reverse = {f"{name} (reversed)".strip(): [(-w, label) for w, label in terms] for name, terms in gains.items()}
        return gains | reverse


def _mean(pairs: Sequence[LabelPair]) -> WeightedLabels:
    return [(sign / len(pairs), label) for pair in pairs for sign, label in zip((1.0, -1.0), pair)]


def _sum_by_label(terms: WeightedLabels) -> WeightedLabels:
    """``terms`` with the weights of each label added up. Labels whose total weight is 0 are left out."""
    total: dict[str, float] = {}
    for weight, label in terms:
        total[label] = total.get(label, 0.0) + weight
    return [(weight, label) for label, weight in total.items() if abs(weight) > 1e-9]


@dataclass(frozen=True)
class ClaimsFile:
    """The content of a YAML file of claims: the claims, and fields for all of them."""

    claims: tuple[Claim, ...]
    quantities: tuple[str, ...] = ()
    """The columns of every claim without ``quantities``. Default: the main columns of the suites that are trained by
    default."""
    not_isolated: str = ""
    """A sentence on a claim of the paper that cannot be tested, because no two labels differ only in what the claim is
    about."""
    retells: str = ""
    """The name of another paper whose claims this file restates. Its claims are judged only if the paper of this file
    is requested by name."""

    def with_quantities(self, paper: str = "") -> tuple[Claim, ...]:
        """Return the claims of the file with the fields ``quantities`` and ``published_by`` filled in.

        A claim without ``quantities`` gets those of the file. If the file has none, it gets the main columns of the
        suites that are trained by default. A claim without ``published_by`` gets ``paper``.
        """
        quantities = self.quantities or default_headline()
        return tuple(
            replace(claim, quantities=claim.quantities or quantities, published_by=claim.published_by or paper)
            for claim in self.claims
        )


def load_claims(source: str | Path) -> tuple[Claim, ...]:
    """The claims in the file ``source``, given as the path of a YAML file or as the name of a paper.

    Raises ``ConfigError`` for an unknown paper, for a file that cannot be read or has no claims, for two claims of the
    same name, and for an invalid claim (:func:`complete_claim`).
    """
    return load_claims_file(source).claims


def load_claims_file(source: str | Path) -> ClaimsFile:
    """The content of a file of claims, with the pairs, titles and columns of all claims filled in.

    The argument and the errors are those of :func:`load_claims`.
    """
    path = _path_of(source)
    file = from_mapping(ClaimsFile, read_yaml(path), str(path))
    paper = file.retells or _paper_of(path)
    claims = file.with_quantities(paper if paper in published_by_paper() else "")
    if not claims:
        raise ConfigError(f"{path}: holds no claims; madbench new claim 'A > B on TASK' --output {path} adds one")
    names = [claim.name for claim in claims]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"{path}: claims: two claims are named {short_repr(name)}; give each its own name")
    complete_claims = tuple(complete_claim(claim, f"{path}: claims: {claim.name}") for claim in claims)
    return replace(file, claims=complete_claims)


def claims_by_paper() -> dict[str, tuple[Claim, ...]]:
    """The claims of each paper, by the name of the paper. Papers that restate claims of another paper are left out.

    A paper of another package with an invalid file of claims is left out, too; :func:`broken_claims` has the reason.
    Raises ``ConfigError`` if the file of one of madbench's own papers is invalid.
    """
    files = {name: file for name, file in _files_of_papers().items() if isinstance(file, ClaimsFile)}
    return {name: file.claims for name, file in files.items() if not file.retells}


def broken_claims() -> dict[str, str]:
    """The reasons why the claims of papers of other packages cannot be read, by the name of the paper.

    Empty if all can be read. Raises ``ConfigError`` if the file of one of madbench's own papers is invalid.
    """
    return {name: str(file) for name, file in _files_of_papers().items() if isinstance(file, ConfigError)}


def _files_of_papers() -> dict[str, ClaimsFile | ConfigError]:
    """The content of each paper's file of claims, by the name of the paper, or the error if the file cannot be read.

    Raises ``ConfigError`` if the file of one of madbench's own papers is invalid.
    """
    files: dict[str, ClaimsFile | ConfigError] = {}
    for name, folder in paper_folders().items():
        if (folder / FILE).is_file():
            try:
                files[name] = load_claims_file(name)
            except ConfigError as error:
                if folder.parent == PAPERS:
                    raise
                files[name] = error
    return files


def claims_on(labels: Collection[str]) -> dict[str, tuple[Claim, ...]]:
    """The claims of all papers that compare two of ``labels``, by the name of the paper.

    A paper is included, with all its claims, if both labels of any pair of its claims are in ``labels``. If there is no
    such paper, all papers are included.
    """
    papers, available = claims_by_paper(), set(labels)
    applicable = {
        name: claims
        for name, claims in papers.items()
        if any(available.issuperset(pair) for claim in claims for pair in claim.pairs)
    }
    return applicable or papers


def _paper_of(path: Path) -> str:
    """The name of the paper whose folder contains the file ``path``. Empty if it is in no paper's folder."""
    return next((name for name, folder in paper_folders().items() if folder.resolve() == path.parent.resolve()), "")


def _path_of(source: str | Path) -> Path:
    if isinstance(source, Path) or source.endswith((".yaml", ".yml")):
        return Path(source)
    papers = {name: path for name, folder in paper_folders().items() if (path := folder / FILE).is_file()}
    if source in papers:
        return papers[source]
    if source not in PACKAGES.points:
        names = list(dict.fromkeys([*papers, *PACKAGES.points]))
        raise ConfigError(
            f"--claims {source}: neither a YAML file nor a paper with a file of claims ({', '.join(names)})"
            f"{did_you_mean(source, names)}"
        )
    paper, where = PACKAGES.load(source), PACKAGES.where(source)
    with wrap_load_errors(where, ConfigError):
        if not hasattr(paper, "claims_file"):
            raise ConfigError(f"expected a madbench.papers.Paper, got {repr(paper)[:100]}")
        claims_file: Path | None = paper.claims_file
    if claims_file is None:
        raise ConfigError(f"--claims {source}: {where} has no file of claims")
    return claims_file


def complete_claim(claim: Claim, where: str) -> Claim:
    """Check ``claim``, and return it with missing fields filled in and labels in canonical form.

    A contrast determines the pairs and, by its sign, the expectation. The default title is the contrast or the first
    pair. Raises ``ConfigError`` if the claim is invalid, for example if it has both pairs and a contrast, an unknown
    label or column, or a threshold that needs a missing published number. The message begins with ``where``.
    """
    if bool(claim.contrast) == bool(claim.pairs):
        raise ConfigError(f"{where}: expected either pairs or a contrast such as 'A > B'")
    try:
        if claim.contrast:
            pairs, sign = pairs_of(claim.contrast)
            expected: dict[str, Expectation] = {"~": "equal", "=": "equal", ">=": "no loss"}
            expects = expected.get(sign, claim.expects)
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
        raise ConfigError(f"{where}: by has an effect only on a claim of a gain without reach")
    if claim.within and "gain" in expectations:
        raise no_effect(f"{where}: within", "on a claim of a gain; write by, or '>=' or '~' for no difference")
    if claim.uses_published_gains:
        reference = claim.reference
        gains = reference.gains if claim.reach or reference.margin_labels else ()
        if unknown := [label for label in claim.labels(range(len(claim.pairs))) if label not in gains]:
            needs = "reach is a share of published gains" if claim.reach else "a claim of no difference needs within"
            raise ConfigError(f"{where}: {needs}, and there are none of {', '.join(unknown)}")
    return claim


def pairs_of(contrast: str) -> tuple[tuple[LabelPair, ...], str]:
    """Parse a contrast of labels. Return its pairs and its sign ``>``, ``>=``, ``~`` or ``=``.

    A contrast is ``A > B``, ``A >= B``, ``A ~ B`` or ``A = B`` for labels or sets of labels A and B, or ``FACTOR in
    LABELS``. The pairs of ``A > B`` are all pairs of a label of A and another label of B. The pairs of ``FACTOR in
    LABELS`` are the labels that differ only in this factor, and the first label of a pair has the factor. The sign of
    ``FACTOR in LABELS`` is ``>``. Raises ``ConfigError`` for another form or if there is no pair, and ``LabelError``
    for an unknown label.
    """
    if match := re.fullmatch(r"(\S+) in (.+)", contrast.strip()):
        factor, labels = match[1], expand(match[2].split())
        pairs_by = find_pairs(labels)
        pairs = tuple(pair for key in pairs_by if factor in (key.factor, key.name) for pair in pairs_by[key])
        if not pairs:
            factors = dict.fromkeys(key.factor for key in pairs_by)
            only_factor = f"{short_repr(factor)}{did_you_mean(factor, factors)}"
            factor_names = ", ".join(factors) or "nothing"
            raise ConfigError(
                f"no two of these labels differ only in {only_factor}; they have pairs in: {factor_names}"
            )
        return pairs, ">"
    match = re.fullmatch(r"(.+?)\s+(>=|[>~=])\s+(.+)", contrast.strip())
    if not match:
        raise ConfigError(f"{short_repr(contrast)}: expected 'A > B', 'A >= B', 'A ~ B' or 'FACTOR in LABELS'")
    left, right = (expand(side.split()) for side in (match[1], match[3]))
    pairs = tuple((a, b) for a in left for b in right if a != b)
    if not pairs:
        raise ConfigError(f"{short_repr(contrast)}: a label is not compared with itself")
    return pairs, match[2]
