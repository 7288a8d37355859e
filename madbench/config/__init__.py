"""Settings: the folders of their files, functions that read and change them, and checks with error messages.

The other packages of madbench import the names below from here.
"""

from madbench.config.field_docs import field_docs
from madbench.config.overrides import Override, apply_override, override_text, settings_of
from madbench.config.paths import EXAMPLES, PAPERS, TASKS, VARIANTS
from madbench.config.seeds import MOST_SEED, check_seeds, parse_seeds, seed_list
from madbench.config.settings import (
    MOST,
    cached_by_class,
    check_at_least,
    check_bounds,
    check_choices,
    check_numbers,
    check_unique,
    convert,
    from_mapping,
)
from madbench.config.values import flatten, plain_values, short_repr
from madbench.config.yaml_files import read_yaml

__all__ = [
    "EXAMPLES",
    "MOST",
    "MOST_SEED",
    "PAPERS",
    "TASKS",
    "VARIANTS",
    "Override",
    "apply_override",
    "cached_by_class",
    "check_at_least",
    "check_bounds",
    "check_choices",
    "check_numbers",
    "check_seeds",
    "check_unique",
    "convert",
    "field_docs",
    "flatten",
    "from_mapping",
    "override_text",
    "parse_seeds",
    "plain_values",
    "read_yaml",
    "seed_list",
    "settings_of",
    "short_repr",
]
