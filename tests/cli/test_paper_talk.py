"""The talk on HyperMLP: every slide has an item, and its numbers are the paper's unless the slide differs."""

from __future__ import annotations

import json
import shutil

from madbench.config import PAPERS
from madbench.papers import load_paper
from madbench.papers.making import CONTRADICTED, OPEN, REPRODUCED, Request, measure_of
from madbench.papers.talk import numbers

SLIDES = (
    "Scaling laws are not architecture-agnostic", "The New Sequence Model", "Three operator bottlenecks",
    "The structural overview", "How attention is usually taught", "Prior works: attention layer structure",
    "Structural Comparison", "Attention as a dynamic two-layer MLP", "The Attention-as-MLP view",
    "Scores are hidden units, not necessarily probabilities", "The bottleneck in standard attention",
    "HyperMLP: make the sequence-axis basis learnable", "Why reverse-offset (lag) order matters",
    "Efficient sequence-space mixing with DPLR operators", "HyperGLU: separate routing from magnitude",
    "An attention head becomes a three-stage memory system",
    "What the dynamic-MLP view explains about attention design", "Controlled design study: what is being varied?",
    "Controlled design study", "Controlled study: the key empirical takeaways",
    "Language modeling results: gains persist at larger scale", "What actually changes?", "Application Frontiers",
    "Potential Impact and Limitation", "Takeaways and discussion directions",
)  # fmt: skip


def verdicts():
    paper = load_paper("talk")
    item = paper.item("numbers")
    return measure_of(item).decide(Request(paper, item), None).verdicts


def test_every_slide_of_the_talk_has_an_item():
    places = " ".join(item.place for item in load_paper("talk").items)
    assert [slide for slide in SLIDES if slide not in places] == []


def test_a_tie_on_copa_contradicts_the_talk_and_the_advantage_at_scale_is_open():
    made = verdicts()
    others = {statement: verdict for statement, verdict in made.items() if verdict != REPRODUCED}
    assert others == {
        "HyperGLU improves over SoftmaxAttn on COPA at 340M": CONTRADICTED,
        "The advantage over SoftmaxAttn appears stronger at 1.3B": OPEN,
    }
    assert len(made) == 16 + 2 * 7 + 6 + 1


def test_a_slide_number_that_differs_from_the_table_is_contradicted(monkeypatch, tmp_path):
    for paper in ("hypermlp", "talk"):
        shutil.copytree(PAPERS / paper, tmp_path / paper)
    slides = tmp_path / "talk" / "slides.csv"
    text = slides.read_text().replace("R-12!,46.27", "R-12!,46.28").replace("GSA,,,,2.84,4", "GSA,,,,2.84,3")
    slides.write_text(text)  # the first as the paper's text has it
    monkeypatch.setattr(numbers, "PAPERS", tmp_path)
    made = verdicts()
    assert made["R-12!: mad_average is 46.28"] == made["GSA at 1.3B: top1 is 3"] == CONTRADICTED


def test_options_of_training_are_refused_on_the_numbers_of_the_talk(main, tmp_path):
    refused = main("paper", "talk", "numbers", "--seeds", "0", "--results", tmp_path)
    assert refused.code == 2 and "--seeds has no effect on numbers" in refused.stderr
    made = main("paper", "talk", "numbers", "-f", "json", "--results", tmp_path)
    assert made.code == 0 and set(json.loads(made.stdout)["verdicts"].values()) == {REPRODUCED, CONTRADICTED, OPEN}


def test_the_design_study_of_the_talk_uses_the_jobs_of_table_1():
    """Runs of the same label, task and seed are one job in both."""
    jobs = []
    for name, item in (("talk", "design_study"), ("hypermlp", "table1")):
        paper = load_paper(name)
        own = paper.item(item)
        grid = measure_of(own).plan(Request(paper, own))
        jobs.append((grid.profile, grid.tasks, grid.seeds, grid.budget))
        assert {row.name for row in grid.rows} >= {"R-12!", "G-cg-q-12o"}
    assert jobs[0] == jobs[1]
