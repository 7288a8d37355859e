"""Parameters of section 2.6 and FLOPs of Table 5: counts decide the verdicts, and planted faults change them."""

from __future__ import annotations

from collections import Counter

from madbench.mixers import build
from madbench.papers import load_paper
from madbench.papers.hypermlp import allocation, table5
from madbench.papers.making import FAILS, Request, measure_of, state_of_verdicts

PAPER = load_paper("hypermlp")


def verdicts(item: str) -> dict[str, str]:
    request = Request(PAPER, PAPER.item(item))
    return dict(measure_of(request.item).decide(request, None).verdicts)


def test_qk_and_mixing_take_d_squared_only_at_gpt_2_size():
    found = verdicts("section2.6")
    assert state_of_verdicts(found) == "contradicted" and Counter(found.values()) == {
        "reproduced": 6,
        "contradicted": 6,
    }
    rest = {said: verdict for said, verdict in found.items() if "remaining d^2" in said}
    assert {said for said, verdict in rest.items() if verdict == "reproduced"} == {
        f"{name} at d 768, T 1024 (GPT-2): QK of d / (8 n_head) and the sequence mixing take the remaining d^2"
        for name in allocation.LABELS.values()
    }


def test_ranks_other_than_those_of_the_papers_text_fail_here(monkeypatch):
    monkeypatch.setattr(allocation, "build", lambda *args, **options: build(*args, **options | {"budget": "strict"}))
    found = verdicts("section2.6")
    assert state_of_verdicts(found) == FAILS
    monkeypatch.undo()
    monkeypatch.setattr(allocation, "RANK", 15)
    assert state_of_verdicts(verdicts("section2.6")) == FAILS


def test_counted_flops_decide_the_verdicts_on_table_5(monkeypatch):
    assert state_of_verdicts(verdicts("table5_counted")) == "reproduced"
    count = table5.paper_flops_per_token
    monkeypatch.setattr(table5, "paper_flops_per_token", lambda *args, **options: 1.01 * count(*args, **options))
    assert Counter(verdicts("table5_counted").values()) == {"contradicted": 3, "reproduced": 2}
    monkeypatch.undo()
    monkeypatch.setattr(table5, "ORDER", 1.2)
    assert Counter(verdicts("table5_counted").values()) == {"reproduced": 3, "contradicted": 2}
