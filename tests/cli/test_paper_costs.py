"""Costs at the papers' sizes that items and pages state equal those of a dry run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from madbench.cli.shared.words import labels_and_overrides
from madbench.experiment import ExperimentOptions, prepare
from madbench.labels import expand
from madbench.papers import built_in, load_paper
from madbench.papers.making import Request, measure_of
from madbench.rows import Grid, Row
from madbench.suites import size_of
from madbench.suites.language.suite import LanguageProfile
from madbench.training.devices import peak_flops

PAGES = Path(__file__).parents[2] / "docs" / "pages"
TEXTS = [*built_in().values(), *LanguageProfile.files().values(), *sorted(PAGES.glob("**/language.md"))]
STATED_COST = re.compile(r"([\d.]+e\d+) FLOPs[\w ]*\(madbench ([^()]+) --dry-run\)(?:, ([\d.]+) h if 8 H100)?")
TYPED_COST = re.compile(r"(minutes|hours?|days?|weeks) of (a |\d+ |several )?(GPU|laptop)")


def stated_costs():
    return {
        match for path in TEXTS for match in STATED_COST.findall(" ".join(path.read_text(encoding="utf-8").split()))
    }


def planned_flops(command: str, results: Path) -> float:
    verb, *words = command.split()
    options = {word: words[place + 1] for place, word in enumerate(words) if word.startswith("--")}
    plain = [word for word in words if not word.startswith("--") and word not in options.values()]
    if verb == "paper":
        paper = load_paper(plain[0])
        request = Request(paper, paper.item(plain[1]), options["--profile"])
        grid = measure_of(request.item).plan(request)
    else:
        labels, changes = labels_and_overrides(plain)
        rows = tuple(map(Row, expand(labels)))
        how = {"profile": options["--profile"], "budget": options.get("--budget", "strict")}
        grid = Grid(rows, tasks=("language_model",), overrides=changes, **how)
    return sum(
        size_of(job).flops for job in prepare(grid, ExperimentOptions(is_plan=True, device="cpu", results=results)).jobs
    )


@pytest.mark.slow
def test_stated_costs_equal_those_of_the_dry_run(tmp_path):
    assert len(stated_costs()) >= 7
    for flops, command, hours in stated_costs():
        counted = planned_flops(command, tmp_path)
        assert float(flops) == pytest.approx(counted, rel=0.02), command
        if hours:
            node = 8 * 0.4 * peak_flops("NVIDIA H100 80GB HBM3", "bfloat16")
            assert float(hours) == pytest.approx(counted / node / 3600, rel=0.03), command


def test_no_text_states_gpu_or_laptop_costs_by_hand():
    assert not [
        (path.name, found[0]) for path in TEXTS if (found := TYPED_COST.search(path.read_text(encoding="utf-8")))
    ]
