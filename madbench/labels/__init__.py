"""Labels. A label is the text that names a sequence mixer in every table, file name and plot.

The text before a label's first colon names its family. The S/R/G family has no prefix, and its name is empty. A family
is an instance of a subclass of :class:`madbench.mixers.Family`. A built-in family is ``FAMILY`` in a ``family.py``
below ``madbench/mixers/``, and is named like its folder. A package, installed or in ``madbench/papers/``, declares a
family as an entry point of the group ``madbench.families``. A set of labels is written with braces (``{S,R}-c``), as a
file (``@table1``), or as a neighborhood (``~LABEL``).
"""

from madbench.labels.family import Explanation, Label
from madbench.labels.parsing import (
    Labels,
    as_label,
    check_code,
    differing_factors,
    every_label,
    explain,
    factor_names,
    factors,
    factors_in,
    factors_of_text,
    is_of_package,
    is_shown_as_stored,
    label_code,
    label_identity,
    levels,
    missing_package,
    own_modules,
    parse,
    reading_problem,
    text_of,
    texts_of,
)
from madbench.labels.registry import (
    REGISTRY,
    broken_families,
    contrast_order,
    families,
    family_identity,
    family_name,
    family_of,
    loadable_families,
    loaded_families,
    mixer_names,
)
from madbench.labels.sets import LabelSet, available_sets, expand

__all__ = [
    "REGISTRY", "Explanation", "Label", "LabelSet", "Labels", "as_label", "available_sets", "broken_families",
    "check_code", "contrast_order", "differing_factors", "every_label", "expand", "explain", "factor_names", "factors",
    "factors_in", "factors_of_text", "families", "family_identity", "family_name", "family_of", "is_of_package",
    "is_shown_as_stored", "label_code", "label_identity", "levels", "loadable_families", "loaded_families",
    "missing_package", "mixer_names", "own_modules", "parse", "reading_problem", "text_of", "texts_of",
]  # fmt: skip
