"""The beginning of the page: how much it shows, of which protocols, and on what that ran."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

from madbench.analysis.captions import setting_sentences
from madbench.analysis.quantities import title
from madbench.config import seed_list
from madbench.experiment import PlannedRow
from madbench.report.runs import ReportedRun
from madbench.store.runs import Store
from madbench.suites import LANGUAGE, MAD, SUITES, Suite


def suite_title(suite: Suite) -> str:
    """Name of a suite in words."""
    return "Language model" if suite is LANGUAGE else "MAD tasks"


def lead(rows: Iterable[PlannedRow]) -> str:
    """The protocols in a line."""
    parts = []
    for one in {row.protocol.suite.name: row.protocol for row in rows}.values():
        fidelity = f"{one.fidelity}, " if one.suite is MAD else ""
        name = " ".join([one.profile_name, *one.overrides])
        parts.append(f"{suite_title(one.suite)}: {one.profile.noun} {name}, {fidelity}budget {one.budget}")
    return "; ".join(parts)


def counts(runs: Sequence[ReportedRun]) -> list[tuple[str, str]]:
    """Numbers of labels, seeds, tasks and jobs."""
    found = []
    for name in ("label", "task", "seed"):
        count = len({getattr(run.job, name) for run in runs})
        found.append((f"{count:,}", f"{name}{'s' * (count != 1)}"))
    done = sum(run.status in ("finished", "diverged") for run in runs)
    return [*found, (f"{done:,} / {len(runs):,}", "jobs done")]


def properties(rows: Sequence[PlannedRow], runs: Sequence[ReportedRun], store: Store) -> list[tuple[str, str]]:
    """Name and value of what all runs share, and of what they ran on."""
    found = []
    for suite in SUITES.values():
        protocol = next((row.protocol for row in rows if row.protocol.suite is suite), None)
        if protocol is None:
            continue
        comparable = "" if protocol.profile.comparable_with_paper else " Not comparable with the paper."
        found.append((suite_title(suite), " ".join(setting_sentences(protocol)) + comparable))
        if suite is MAD:
            found.append(("Tasks", ", ".join(map(title, protocol.tasks))))
            trainings = {run.job.training for run in runs if run.job.suite == suite.name}
            for field in ("learning_rate", "weight_decay"):
                values = sorted({getattr(training, field) for training in trainings})
                found.append((f"{field}s".replace("_", " ").capitalize(), ", ".join(f"{value:g}" for value in values)))
    found.append(("Seeds", seed_list({run.job.seed for run in runs})))
    for heading, name in {"Device": "device", "Operator path": "path", "Versions": "versions", "Code": "git"}.items():
        given = [run.record.details[name] for run in runs if run.record and name in run.record.details]
        times = Counter(map(_commit if name == "git" else _text, given))
        texts = [f"{value} ({count:,} runs)" if len(times) > 1 else value for value, count in times.most_common()]
        found.append((heading, "; ".join(texts) or "not recorded"))
    found += [("Run files of", dates)] if (dates := _dates(runs, store)) else []
    return [*found, ("Store", str(store.root))]


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return " ".join(f"{name} {one}" for name, one in value.items())
    return str(value)


def _commit(value: Mapping[str, Any]) -> str:
    return f"{str(value.get('commit'))[:10]}{' with changes' if value.get('dirty') else ''}"


def _dates(runs: Iterable[ReportedRun], store: Store) -> str:
    """First and last day on which a record of the runs was written."""
    times = []
    for run in runs:
        if run.record is not None:
            with suppress(OSError):
                times.append(os.stat(f"{store.root}/runs/{run.job.id}/record.json").st_mtime)
    days = {f"{datetime.fromtimestamp(time):%Y-%m-%d}": None for time in (min(times), max(times))} if times else ()
    return " to ".join(days)
