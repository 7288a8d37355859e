"""The family parses its labels, meets the budget and passes its own checks."""

from madbench_linear import FAMILY

from madbench.mixers import Size
from madbench.mixers.checks import run_check

SIZE = Size(d_model=32, n_head=2, max_len=16)


def test_labels_are_read_as_they_are_written():
    for label in FAMILY.labels():
        assert FAMILY.parse(str(label)) == label and FAMILY.explain(label)


def test_parameters_are_those_of_the_allocation_and_within_the_budget():
    for label in FAMILY.labels():
        allocation = FAMILY.solve(label, SIZE, FAMILY.Settings())
        mixer = FAMILY.build(allocation, FAMILY.Settings())
        assert sum(parameter.numel() for parameter in mixer.parameters()) == allocation.total <= allocation.target


def test_every_check_of_the_example_holds():
    for check in FAMILY.checks(FAMILY.parse(FAMILY.example)):
        assert run_check(check).verdict != "fail", check.name
