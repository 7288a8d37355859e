"""From the stored runs of one protocol of either half to the page that shows them."""

from __future__ import annotations

import functools
import shlex
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any

from madbench.analysis.attribution_table import AttributionTable, estimate_text
from madbench.analysis.findings import findings
from madbench.analysis.findings_table import findings_table
from madbench.analysis.language_table import language_table
from madbench.analysis.scores import chosen_runs
from madbench.analysis.tables import ablation_table
from madbench.experiment import caption
from madbench.jobs import JobBase
from madbench.report.build import Page
from madbench.report.commands import language_words, protocol_words
from madbench.report.embedding import embedded_json
from madbench.report.facts import TITLES, Stored, lead
from madbench.report.figures import drawing_tasks, page_figures
from madbench.report.findings import page_claims
from madbench.report.missing import Missing, missing_of_language, missing_of_mad
from madbench.report.of_runs import OfRuns, of_chosen
from madbench.report.processes import in_processes
from madbench.report.tables import (
    PageTable,
    attribution_page_table,
    budget_page_table,
    language_page_table,
    mad_page_table,
)
from madbench.training.devices import available_cores


def compose(
    stored: Stored,
    runs: Callable[[], OfRuns],
    waiting: Callable[[], AbstractContextManager],
) -> Page:
    """The report of what is ``stored``; ``runs`` gives the part that :func:`of_runs` makes, once it is there."""
    material, experiment, language = stored.material, stored.experiment, stored.language
    cells = material.cells if experiment else None
    losses = material.language_losses if language else None
    factors = material.attribution  # before the processes begin, one of which draws it
    chosen = set(chosen_runs(material.collected).id) if experiment else set()
    tasks = {"chosen": functools.partial(of_chosen, stored, chosen)} | drawing_tasks(material)
    with in_processes(tasks, available_cores()) as result, waiting():
        tables: list[PageTable] = []
        if experiment:
            table = ablation_table(cells, experiment.tasks, caption(experiment, material.collected))
            tables.append(mad_page_table(table))
        if language:
            labels = [label for label in stored.labels if label in set(losses.label)]
            tables.append(language_page_table(language_table(language, labels)))
        claims = findings_table(findings(cells, losses, None, *_options(stored)), [material.both_sentences])
        figures, not_drawn = page_figures(result)
        of_chosen_runs, of_all = result("chosen"), runs()
    return Page(
        lead=lead(stored),
        tiles=of_all.tiles,
        facts=of_all.facts,
        missing=_missing(stored, not_drawn),
        bad_runs=of_all.bad_runs,
        tables=tables,
        factors=attribution_page_table(factors) if factors.effects else None,
        budget=budget_page_table(of_all.allocations),
        count=of_all.count,
        data=of_all.data | of_chosen_runs | {"effects": embedded_json(_effects(factors))},
        figures=figures,
        claims=page_claims(claims, TITLES),
        findings_note=claims.caption,
    )


def _options(stored: Stored) -> tuple[str, str]:
    """What ``madbench run`` and ``madbench lm`` are told of the protocols."""
    made, language = stored.experiment, stored.language
    return (
        shlex.join(protocol_words(made)) if made else "",
        shlex.join(language_words(language[0], str(stored.store.root))) if language else "",
    )


def _effects(factors: AttributionTable) -> dict[str, dict[str, Any]]:
    """What the page opens for an effect or an interaction, by its name and quantity."""
    found = {}
    for effect in factors.effects:
        rows = [[list(pair), estimate_text(one, effect.task)] for pair, one in effect.pairs.items()]
        text = f"{estimate_text(effect.estimate, effect.task)}: the mean over these pairs of labels, which differ in this factor alone."
        headings = ["With", "Without", "Difference over the seeds"]
        found[f"{effect.contrast.name}/{effect.task}"] = {"text": text, "headings": headings, "rows": rows}
    for one in factors.interactions:
        first, second = one.first.short_name, one.second.short_name
        text = f"{estimate_text(one.estimate, one.task)}: by how much more {first} is worth where {second} is given, mean over these sets of labels."
        headings = ["Both", f"{second} alone", f"{first} alone", "Neither", ""]
        found[f"{one.name}/{one.task}"] = {
            "text": text,
            "headings": headings,
            "rows": [[list(labels), ""] for labels in one.squares],
        }
    return found


def _missing(stored: Stored, not_drawn: Mapping[str, str]) -> list[Missing]:
    found: list[Missing] = []
    if stored.experiment is not None:
        found += missing_of_mad(stored.experiment, stored.material.collected, stored.labels, stored.records)
    else:
        found.append(Missing("No runs on the MAD tasks."))
    if stored.language:
        words = language_words(stored.language[0], str(stored.store.root))
        found += missing_of_language(stored.language, stored.labels, words)
    else:
        found.append(Missing("No language models of one protocol."))
    reported = sum(1 for job in _jobs(stored) if job.id in stored.records)
    if others := len(stored.records) - reported:
        found.append(
            Missing(
                f"{others:,} stored runs are of other labels or protocols, which are never mixed.", "madbench ls runs"
            )
        )
    found += [Missing(f"No figure “{figure}”: {reason}.") for figure, reason in not_drawn.items()]
    found += [Missing(f"Could not be read: {problem}") for problem in stored.problems]
    return found


def _jobs(stored: Stored) -> Iterable[JobBase]:
    yield from stored.experiment.jobs if stored.experiment else ()
    yield from (run.job for run in stored.language)
