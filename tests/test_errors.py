"""Messages about an unknown word, which end with the closest options, and about a setting without effect."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import madbench
from madbench.errors import did_you_mean, no_effect, suggestion

PACKAGE = Path(madbench.__file__).parent
OWN_FORM = ("mixers/__init__.py", "mixers/cd/budget.py", "training/distributed.py")
"""Files of code that trains, whose messages change only together with other code there."""
FEW, MANY = ["one", "two", "three"], [f"option{i}" for i in range(20)]


def test_the_closest_option_is_suggested_alone():
    expected = "; did you mean 'three'?"
    assert suggestion("thre", FEW) == did_you_mean("thre", FEW) == did_you_mean("thre", FEW, "madbench ls") == expected


def test_the_name_of_a_precision_is_no_misspelling_of_another():
    precisions = ["float32", "bfloat16"]
    assert (
        did_you_mean("float64", precisions)
        == did_you_mean("float16", precisions)
        == ("; expected one of: float32, bfloat16")
    )
    assert did_you_mean("bfloat61x", precisions) == "; did you mean 'bfloat16'?"


def test_the_only_option_with_the_beginning_of_the_word_is_suggested():
    tasks = ["compression", "memorization", "noisy_recall", "noisy_copy"]
    assert suggestion("memory", tasks) == suggestion("mem", tasks) == "; did you mean 'memorization'?"
    assert [suggestion(word, tasks) for word in ("nois", "me", "recall", "")] == [""] * 4, "two options, or too little"


def test_a_misspelled_beginning_suggests_the_only_option_with_such_a_beginning():
    tasks = ["compression", "memorization", "noisy_recall", "noisy_copy", "genotype"]
    for word in ("memry", "mmory", "memmory", "meomry"):
        assert suggestion(word, tasks) == "; did you mean 'memorization'?", word
    for word in ("niosy", "memxyz", "nope", "mry", "recall"):
        assert suggestion(word, tasks) == "", word


def test_the_initials_of_the_only_option_suggest_it():
    names = ["learning_rates", "min_learning_rate", "lr_decay_steps", "batch_size", "beta1"]
    assert suggestion("lr", names) == suggestion("lrs", names) == "; did you mean 'learning_rates'?"
    assert suggestion("bs", names) == "; did you mean 'batch_size'?"
    assert suggestion("lr", [*names, "last_row"]) == suggestion("b", names) == "", "two options, or too little"


def test_options_are_listed_if_none_is_close():
    assert suggestion("xyz", FEW) == ""
    assert did_you_mean("xyz", FEW) == "; expected one of: one, two, three"
    assert did_you_mean("xyz", []) == did_you_mean("xyz", [], "madbench ls") == ""


def test_a_long_list_is_cut_if_a_command_lists_all():
    assert did_you_mean("xyz", MANY, "madbench ls") == (
        "; expected one of: option0, option1, option2, option3, option4, option5, option6, option7 and 12 more;"
        " madbench ls lists all"
    )
    assert did_you_mean("xyz", MANY).endswith("option18, option19"), "without a command no option is left out"
    assert "more" not in did_you_mean("xyz", MANY[:8], "madbench ls")


def test_settings_without_effect_have_one_form_of_message():
    assert str(no_effect("--top-k 5", "on S")) == "--top-k 5 has no effect on S"
    assert str(no_effect("--top-k 5", "on S", "it has 4 tokens")) == "--top-k 5 has no effect on S: it has 4 tokens"
    assert str(no_effect("--top-k 5", because="it has 4 tokens")) == "--top-k 5 has no effect: it has 4 tokens"
    for file in PACKAGE.rglob("*.py"):
        raised = (ast.unparse(node) for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Raise))
        forms = [text for text in raised if re.match(r"raise ConfigError\(.*(has|have) no effect", text)]
        assert not forms or str(file.relative_to(PACKAGE)) in OWN_FORM, forms
