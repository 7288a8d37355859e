"""Labels: one spelling for every sequence mixer, the key of every table, file name and plot.

The text before a label's first colon names its family; one family, S/R/G, has no prefix, and so no name. A family is a
value of the protocol :class:`madbench.mixers.Family`: ``FAMILY`` of a ``family.py`` in ``madbench/mixers/``, named like
its folder, or of an installed package, an entry point of the group ``madbench.families`` named like the family. A set
of labels is written with ``{S,R}-c`` braces, as ``@table1``, a file, or as ``~LABEL``, a neighbourhood.
"""

from madbench.labels.parsing import (
    as_label,
    diff,
    every_label,
    explain,
    factor_names,
    factors,
    factors_in,
    factors_of_text,
    is_shown_as_stored,
    label_code,
    label_identity,
    levels,
    missing_package,
    parse,
    text_of,
    texts_of,
    unreadable,
)
from madbench.labels.protocol import Explanation
from madbench.labels.registry import (
    Label,
    broken_families,
    contrast_order,
    families,
    family_identity,
    family_of,
    fault_of_name,
    installed_families,
    loaded_families,
    mixer_names,
)
from madbench.labels.sets import LabelSet, available_sets, expand

__all__ = [
    "Explanation", "Label", "LabelSet", "as_label", "available_sets", "broken_families", "contrast_order", "diff",
    "every_label", "expand", "explain", "factor_names", "factors", "factors_in", "factors_of_text", "families",
    "family_identity", "family_of", "fault_of_name", "installed_families", "is_shown_as_stored", "label_code",
    "label_identity", "levels", "loaded_families", "missing_package", "mixer_names", "parse", "text_of", "texts_of",
    "unreadable",
]  # fmt: skip
