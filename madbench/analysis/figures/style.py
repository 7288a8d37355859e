"""The style of all figures, and the choice of the labels that are drawn in color.

The style is readable on a screen, on slides and in gray print.
"""

from __future__ import annotations

import functools
import math
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import matplotlib
from matplotlib.axis import Axis
from matplotlib.ticker import LogFormatterMathtext, NullFormatter

from madbench.analysis.figures import fonts
from madbench.analysis.figures.colors import distinct_shade, shade
from madbench.mixers.srg.listing import all_labels, all_parsed_labels

ArtistOptions = dict[str, Any]
"""Keyword arguments of Matplotlib's ``Line2D``."""

COLORS = {
    "S": "#557df8 #8eb1e3 #b87bd6 #897aad #8d95fd #544479 #7e62cd #586295".split(),
    "R": "#a71b4f #75390b #d9682d #b9310c #d98c18 #a86144 #de4465 #e4a994".split(),
    "G": "#0c9473 #55a0a3 #287d82 #74aa6e #66c7bb #1e5e42 #93c558 #5b6405".split(),
}
"""The colors of S/R/G labels: eight per base (S, R or G), for the combinations of the letters p, c and g.

The letters stand for RoPE, convolution and gates. The order is none, p, c, pc, g, pg, cg, pcg. The colors of a base
have similar hues. Two colors with the same dashes differ most, also for color-blind readers. All colors are visible on
a white and on a dark page.
"""
PALETTE = [
    COLORS[base][i] for i, base in ((0, "S"), (2, "R"), (0, "G"), (4, "R"), (2, "S"), (4, "G"), (6, "R"), (4, "S"))
]
"""Colors for things other than labels. Any first n of them are distinct."""
_LIGHTER = (0.0, -0.155, 0.2, 0.285, -0.185, 0.22, 0.055)  # lightness by mixing
_TURNED = (0.0, 23.0, -23.0)  # rotation of the hue in degrees by rank: none, q, v
"""``_LIGHTER`` and ``_TURNED`` change the lightness and the hue of a color in :data:`COLORS`, so that labels with the
same base and features, but another mixing or rank, have distinct colors.

Both were chosen for the 33 labels of ``@table1``.
"""
MARKERS = "o^vsP*D"
"""The markers of S/R/G labels by mixing, in the order none, 1, 2, 12, 1o, 2o, 12o."""
DASHES = ("-", (0, (5, 1.5)), (0, (5, 1.5, 1, 1.5, 1, 1.5)), (0, (9, 2, 2, 2)), (0, (1.2, 1.2)))
MOST_IN_COLOR = 8
"""The largest number of curves in color that a reader can follow."""
GRAY = "#595959"
"""The color of references, notes and missing values."""
LIGHT = "#bdbdbd"
SHADE = "#f2f2f2"
"""The background color of every second row in a panel."""
OTHERS: ArtistOptions = {"color": LIGHT, "linewidth": 0.7, "linestyle": "-"}
"""Keyword arguments for the lines of labels that are not in color."""
CEILING: ArtistOptions = {"color": GRAY, "linewidth": 1.0, "linestyle": (0, (6, 2))}
CHANCE_LINE: ArtistOptions = {"color": GRAY, "linewidth": 1.0, "linestyle": (0, (1, 1.5))}
HEURISTIC_LINE: ArtistOptions = {"color": GRAY, "linewidth": 0.8, "linestyle": (0, (4, 1.5, 1, 1.5))}
HEADING, SMALL_HEADING, LABEL, SMALLEST = 12, 10, 9, 8
"""The sizes of text in points: the title of a figure, the title of a figure in a paper, labels of axes, the smallest
text."""
PERCENTS = (0, 25, 50, 75, 100)
"""The ticks of an accuracy axis."""
_RAISED = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")
REFERENCE = "S"
"""The label of softmax attention, the reference of all labels. If it is in a figure, it is in color."""

SMALL: dict[Any, float] = {
    "axes.labelpad": 1.5,
    "axes.labelsize": 7,
    "axes.titlepad": 4,
    "axes.titlesize": 7,
    "font.size": 7,
    "legend.columnspacing": 1.0,
    "legend.fontsize": 7,
    "legend.handlelength": 2.6,
    "legend.handletextpad": 0.5,
    "legend.labelspacing": 0.25,
    "legend.title_fontsize": 7,
    "lines.markersize": 4.5,
    "xtick.labelsize": 7,
    "xtick.major.pad": 1.5,
    "xtick.major.size": 2,
    "ytick.labelsize": 7,
    "ytick.major.pad": 1.5,
    "ytick.major.size": 2,
}
"""Settings of Matplotlib for a figure in a single column of a paper, with text of at least 7 points."""
_STYLE = {
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.labelsize": LABEL,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 10,
    "axes.xmargin": 0.05,
    "figure.dpi": 100,
    "font.size": 9,
    "grid.alpha": 0.3,
    "grid.linewidth": 0.6,
    "legend.borderaxespad": 0,
    "legend.borderpad": 0,
    "legend.fontsize": LABEL,
    "legend.frameon": False,
    "legend.handlelength": 3.4,
    "legend.labelspacing": 0.7,
    "pdf.fonttype": 42,
    "savefig.dpi": 200,
    "text.parse_math": False,  # names are plain text, also with dollars
    "xtick.labelsize": SMALLEST,
    "ytick.labelsize": SMALLEST,
}


def smallest() -> float:
    """The size in points of the smallest text in Matplotlib's current style."""
    size: float = matplotlib.rcParams["xtick.labelsize"]
    return size


def write_powers_as_text(axis: Axis) -> None:
    """Write the ticks of a logarithmic axis as text, such as 10⁻³, because ``style()`` disables formulas."""
    if isinstance(axis.get_major_formatter(), LogFormatterMathtext):
        axis.set_major_formatter(lambda value, _: power_of_ten(value))
    if isinstance(axis.get_minor_formatter(), LogFormatterMathtext):
        axis.set_minor_formatter(NullFormatter())


def power_of_ten(value: float) -> str:
    """A number as text. A power of ten, or its negative, has a superscript exponent.

    >>> power_of_ten(0.001), power_of_ten(-10), power_of_ten(0), power_of_ten(20)
    ('10⁻³', '−10¹', '0', '20')
    """
    exponent = round(math.log10(abs(value))) if value else 0
    if not math.isclose(abs(value), 10.0**exponent):
        return f"{value:g}".replace("-", "−")
    return f"{'−' if value < 0 else ''}10{str(exponent).translate(_RAISED)}"


@contextmanager
def style() -> Iterator[None]:
    """A context in which Matplotlib uses the style of this module and ignores the user's matplotlibrc.

    The context raises ``ConfigError`` if a display name is drawn and no font has one of its characters.
    """
    with matplotlib.rc_context(), fonts.every_character_drawn():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_STYLE | fonts.font_settings())
        yield


@dataclass(frozen=True)
class LabelStyle:
    """The style of a label: color, dashes and marker."""

    color: str
    dashes: Any
    marker: str

    @property
    def line(self) -> ArtistOptions:
        """The arguments of Matplotlib's ``Line2D`` for a curve of the label."""
        return {"color": self.color, "linestyle": self.dashes, "linewidth": 1.8}

    def mark(self, is_single: bool = False) -> ArtistOptions:
        """The arguments of Matplotlib's ``Line2D`` for the marker of a mean of the label.

        The marker is hollow if ``is_single``, for the mean of a single seed.
        """
        return {"color": self.color, "marker": self.marker, "markerfacecolor": "white" if is_single else self.color}


_parsed_labels = functools.cache(lambda: dict(zip(all_labels(), all_parsed_labels())))


@functools.cache
def label_style(label: str) -> LabelStyle:
    """The default style of a label.

    The 504 S/R/G labels of the paper's grammar have different styles. The style of another label is chosen by a hash of
    its text, so two of them may be equal.
    """
    if (parsed := _parsed_labels().get(label)) is None:
        digest = zlib.crc32(label.encode())
        base, features, mixing, rank = "SRG"[digest % 3], digest // 3 % 8, digest // 24 % 7, digest // 168 % 3
        color = COLORS[base][features]
    else:
        base, rank = parsed.base, ("", "q", "v").index(parsed.rank)
        features = parsed.rope + 2 * parsed.conv + 4 * parsed.gates
        mixing = parsed.mix1 + 2 * parsed.mix2 + 3 * (parsed.layout == "lag")
        color = shade(COLORS[base][features], _LIGHTER[mixing], _TURNED[rank])
    dashes = features + 2 * "SRG".index(base) + mixing - rank  # similar labels have different dashes
    return LabelStyle(color, DASHES[dashes % len(DASHES)], MARKERS[mixing])


def label_styles(labels: Iterable[str]) -> dict[str, LabelStyle]:
    """The styles of the labels of one figure, by label. Colors are distinct.

    S/R/G labels have their default color. Any other label has its default color or, if this color is taken, a shade of
    it.

    >>> len({one.color for one in label_styles(["S", "GLA", "RetNet"]).values()})
    3
    """
    names = list(dict.fromkeys(labels))
    styles = {name: label_style(name) for name in names if name in _parsed_labels()}
    for name in names:
        if name not in styles:
            color = distinct_shade([style.color for style in styles.values()], label_style(name).color)
            styles[name] = replace(label_style(name), color=color)
    return {name: styles[name] for name in names}


@dataclass(frozen=True)
class Highlights:
    """The labels of a figure in color, and the other labels, which are gray and behind them."""

    styles: dict[str, LabelStyle]
    """The styles of the labels in color. The best comes first if there are other labels."""
    others: list[str]

    @classmethod
    def from_results(cls, results: Mapping[str, Sequence[float]], is_lower_better: bool = False) -> Highlights:
        """Choose the labels in color: all if there are at most eight, otherwise ``REFERENCE`` and the best others.

        ``results`` has one number per panel for each label. Labels are ranked by :func:`best_first`.
        """
        labels = [*results]
        if len(results) > MOST_IN_COLOR:
            labels = best_first(results, is_lower_better)
            first = sorted(labels, key=lambda label: label != REFERENCE)[:MOST_IN_COLOR]
            labels = [label for label in labels if label in first]
        return cls(label_styles(labels), [x for x in results if x not in labels])

    def entries(self) -> dict[str, ArtistOptions]:
        """The look of each entry of the legend, by text: one entry per label in color, and one for all other labels."""
        entries = {label: {**look.mark(), **look.line} for label, look in self.styles.items()}
        text = f"{len(self.others)} other label{'s' if len(self.others) > 1 else ''}"
        return entries | ({text: OTHERS} if self.others else {})

    def note(self, figure: str, best_by: str) -> str:
        """A sentence that says which labels are in color and how to choose others. Empty if all labels are in color.

        ``figure`` is the name of the figure, and ``best_by`` the quantity by which the best labels were chosen.
        """
        if not self.others:
            return ""
        count = len(self.styles)
        best = f"{REFERENCE} and the {count - 1} best others" if REFERENCE in self.styles else f"the {count} best"
        return f"In color: {best} by {best_by}; madbench plot {figure} LABEL ... draws up to {count} of your choice."


def best_first(results: Mapping[str, Sequence[float]], is_lower_better: bool = False) -> list[str]:
    """The labels sorted by the mean of their results over panels, the best first.

    Labels with missing results (NaN or infinite) come last.

    >>> best_first({"S": [60, 50], "R": [90, math.nan], "G": [70, 50]})
    ['G', 'S', 'R']
    """
    keys = {}
    for label, values in results.items():
        finite = [value if is_lower_better else -value for value in values if math.isfinite(value)]
        keys[label] = len(values) - len(finite), sum(finite) / len(finite) if finite else 0.0
    return sorted(results, key=keys.__getitem__)
