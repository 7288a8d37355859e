"""Settings of papers: each is read where it takes effect, so that a fault planted there changes the verdict."""

from __future__ import annotations

import csv
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from madbench.papers import load_paper, settings
from madbench.papers.coefficients import studies
from madbench.papers.making import DIFFERS, Request, state_of_verdicts

pytestmark = pytest.mark.slow  # plans the jobs of items at their own size, and builds their models
COEFFICIENTS, HYPERMLP = ("coefficients", "tables4to12"), ("hypermlp", "settings")


def item_outcome(item, tmp_path=None, changes=(), **chosen):
    """The outcome of the measure for an item; of the rows with the chosen values alone, and after changes of these."""
    name, item_id = item
    paper = load_paper(name)
    request = Request(paper, paper.item(item_id))
    if chosen:
        with open(paper.folder / settings.SETTINGS, newline="", encoding="utf-8") as file:
            rows = [row for row in csv.DictReader(file) if all(row[key] in values for key, values in chosen.items())]
        with open(tmp_path / settings.SETTINGS, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, fieldnames=[*rows[0]])
            writer.writeheader()
            writer.writerows({**row, **dict(changes)} for row in rows)
        request = replace(request, paper=replace(paper, folder=tmp_path))
    return settings.SettingsMeasure().decide(request, None)


def test_all_comparable_settings_of_tables_4_to_12_are_equal():
    found = item_outcome(COEFFICIENTS)
    rows = [row for row in found.content["settings"] if row["table"].startswith("Table ")]
    assert len(rows) == 89 and {row["table"] for row in rows} == {f"Table {number}" for number in range(4, 13)}
    assert {"Positional Embedding"} <= {row["setting"] for row in rows if row["table"] == "Table 12"}
    assert {row["state"] for row in rows} == {settings.EQUAL, settings.INCOMPARABLE}
    assert all(row["reason"] for row in rows if row["state"] == settings.INCOMPARABLE)
    assert state_of_verdicts(found.verdicts) == "reproduced"
    assert found.remarks["Table 8: what can be compared is the same here"] == "8 of 10 rows equal, 2 not comparable"


def test_the_file_of_published_settings_has_no_values_of_madbench():
    for name, _ in (COEFFICIENTS, HYPERMLP):
        with open(load_paper(name).folder / settings.SETTINGS, newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        assert set(rows[0]) == {"table", "source", "task", "labels", "setting", "published", "field", "reason"}
        assert all(row["field"] or row["reason"] for row in rows)


def test_differing_settings_are_shown_with_both_values_and_decide_the_verdict():
    found = item_outcome(HYPERMLP)
    assert state_of_verdicts(found.verdicts) == DIFFERS
    assert "differs here" in found.verdicts.values() and "contradicted" not in found.verdicts.values()
    (table,) = found.tables
    assert ["  End of the cosine in steps", "600000", "40000 (different)"] in table.lines
    differing = {row["setting"] for row in found.content["settings"] if row["state"] == settings.DIFFERENT}
    assert differing == {"End of the cosine in steps", "Embeddings at the start"}


def test_a_table_without_a_row_that_can_be_compared_is_not_decided(tmp_path):
    found = item_outcome(COEFFICIENTS, tmp_path, {"reason": "of words"}, table=("Table 12",))
    assert [*found.verdicts.values()] == ["not decided"]
    assert [*found.remarks.values()] == ["0 of 10 rows equal, 10 not comparable"]


def adamax(model, named, config, fidelity):
    return torch.optim.Adamax(model.parameters(), lr=config.learning_rate, betas=config.betas)


def constant_rate(trial, step):
    return trial.job.training.learning_rate


def with_gelu(mlp, x):
    return mlp.down(F.gelu(mlp.gate(x)) * mlp.up(x))


def with_dropout(mlp, x):
    return mlp.down(F.dropout(F.silu(mlp.gate(x)) * mlp.up(x), 0.1, mlp.training))


FAULTS = {
    "Gates": (HYPERMLP, {"table": ("Appendix L",)}, (torch, "sigmoid"), torch.tanh),
    "Stabilizer of the norm": (HYPERMLP, {"source": ("code",)}, "madbench.mixers.srg.parts.EPS", 1e-6),
    "Optimizer": (COEFFICIENTS, {"table": ("Table 4",)}, "madbench.training.optimizer._make_adamw", adamax),
    "Learning Rate Schedule": (
        COEFFICIENTS,
        {"table": ("Table 4",)},
        "madbench.suites.token_trial.TokenTrial.learning_rate",
        constant_rate,
    ),
    "Schedule": (
        HYPERMLP,
        {"table": ("Section 3.b, 340M",)},
        "madbench.suites.language.trial.LanguageTrial.learning_rate",
        constant_rate,
    ),
    "Dropout": (COEFFICIENTS, {"table": ("Table 4",)}, "madbench.models.blocks.SwiGLU.forward", with_dropout),
    "Activation of MLPs": (
        COEFFICIENTS,
        {"table": ("Appendix E.1",), "task": ("",)},
        "madbench.models.blocks.SwiGLU.forward",
        with_gelu,
    ),
    "Positional Embedding": (
        COEFFICIENTS,
        {"table": ("Table 6",)},
        "madbench.mixers.cd.projections.rotate",
        lambda x, position, angles: x,
    ),
}
"""For each setting: the item, its rows, and the replacement of code that must make it differ."""


@pytest.mark.parametrize("setting", FAULTS)
def test_a_wrong_value_planted_in_the_code_is_found_by_the_settings_item(setting, monkeypatch, tmp_path):
    item, chosen, target, replacement = FAULTS[setting]
    before = {
        row["setting"]
        for row in item_outcome(item, tmp_path, **chosen).content["settings"]
        if row["state"] == "different"
    }
    assert setting not in before
    monkeypatch.setattr(*((target, replacement) if isinstance(target, str) else (*target, replacement)))
    found = item_outcome(item, tmp_path, **chosen)
    (row,) = [row for row in found.content["settings"] if row["setting"] == setting]
    assert row["state"] == settings.DIFFERENT and row["here"] not in ("", row["published"])
    assert state_of_verdicts(found.verdicts) == DIFFERS


def test_principle_6_without_rope_is_reported_as_different(monkeypatch, tmp_path):
    def without_positions(principle):
        study = principle.studies["coefficients"]
        changed = replace(study, patterns=tuple(pattern.removesuffix("-p") for pattern in study.patterns))
        return replace(principle, studies={**principle.studies, "coefficients": changed})

    own = tuple(without_positions(each) if each.number == "6" else each for each in studies.PRINCIPLES)
    assert own != studies.PRINCIPLES
    monkeypatch.setattr(studies, "PRINCIPLES", own)
    found = item_outcome(COEFFICIENTS, tmp_path, table=("Table 12",))
    assert [*found.verdicts.values()] == [DIFFERS]
    assert found.remarks["Table 12: what can be compared is the same here"].endswith("different: Positional Embedding")
