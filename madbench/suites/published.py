"""Numbers published in papers, by label, for comparison. Importing this does not import pandas."""

from __future__ import annotations

import csv
import functools

from madbench.config import PAPERS
from madbench.suites.language.suite import LOSS, PERPLEXITIES, STEPS
from madbench.suites.mad.suite import AVERAGE, MAD_TASKS
from madbench.suites.protocol import Protocol
from madbench.tasks import settings_class

EVALUATION_STEPS = 500
"""Steps between two evaluations in the paper, which counts evaluations."""


@functools.cache
def published_scores() -> dict[str, dict[str, float]]:
    """Table 1 of the HyperMLP paper by label and column: accuracy in percent, ``mad_average``, L5 and steps to losses.

    The paper counts evaluations, one every :data:`EVALUATION_STEPS` steps.
    """
    columns = {task: settings_class(task).published_column for task in MAD_TASKS} | {AVERAGE: AVERAGE}
    with open(PAPERS / "hypermlp" / "table1.csv", newline="", encoding="utf-8") as file:
        return {
            row["label"]: {name: float(row[column]) for name, column in columns.items()}
            | {LOSS: float(row["nanogpt_loss_l5"])}
            | {name: EVALUATION_STEPS * int(value) for name, value in row.items() if name.startswith(STEPS) and value}
            for row in csv.DictReader(file)
        }


@functools.cache
def published_perplexities(profile: str, overrides: tuple[str, ...] = ()) -> dict[str, float]:
    """The published perplexities of the models that a profile with these changes trains, by label."""
    perplexities: dict[str, float] = {}
    for path in sorted(PAPERS.glob("*/*.csv")):
        with open(path, newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            for row in reader if "perplexity" in (reader.fieldnames or ()) else ():
                if row.get("profile") == profile and tuple(row["overrides"].split()) == overrides:
                    perplexities[row["label"]] = float(row["perplexity"])
    return perplexities


def published_numbers(protocol: Protocol, name: str, shows_always: bool = False) -> dict[str, float]:
    """The published numbers of the row ``name`` by column: only those of the protocol's size, or all with
    ``shows_always``.
    """
    numbers = dict(published_scores().get(name, {})) if protocol.profile.comparable_with_paper or shows_always else {}
    perplexities = published_perplexities(protocol.profile_name, protocol.overrides)
    return numbers | ({PERPLEXITIES[0]: perplexities[name]} if name in perplexities else {})
