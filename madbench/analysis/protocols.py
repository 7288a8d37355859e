"""The protocols of what is stored, listed so that a user can choose one. Runs of two protocols never share a table."""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from madbench.jobs import Job
from madbench.store.runs import Run
from madbench.suites import Suite, main_suite
from madbench.suites.protocol import OWN, by_protocol, recognised

_RATES = ("learning_rates=", "weight_decays=")


def protocol_list(suite: Suite, runs: Iterable[Run], results: Path = Path("results")) -> str:
    """A line a protocol of stored runs of one suite: how it is chosen, what it is, and its labels."""
    return _by_id(suite, list(runs)) if suite.takes_corpus else _by_command(suite, list(runs), results)


def _by_id(suite: Suite, runs: Sequence[Run]) -> str:
    lines = []
    for name, found in by_protocol(suite, runs, lambda run: run.job).items():
        protocol = recognised(suite, [(run.job, run.record.details) for run in found])
        corpus = f"corpus {protocol.corpus.name} ({protocol.corpus.digest[:8]}), " if protocol.corpus else ""
        about = f"{corpus}{protocol.profile.noun} {protocol.name}, {protocol.precision}, budget {protocol.budget}"
        lines.append(f"  {name}  {about}: {first_labels(run.job.label for run in found)}")
    return "\n".join(lines)


def _by_command(suite: Suite, runs: Sequence[Run], results: Path) -> str:
    tasks = ",".join(suite.usual_tasks())
    alike: dict[tuple, list[Job]] = defaultdict(list)
    for job in (run.job for run in runs):
        key = (job.task, job.fidelity, job.budget, str(job.setting), str(job.mixer), job.model, job.training)
        alike[key].append(job)
    labels: dict[tuple[str, ...], set[str]] = defaultdict(set)
    rates: dict[tuple[str, ...], dict[str, set[float]]] = defaultdict(lambda: defaultdict(set))
    for found in alike.values():
        job = found[0]
        name, changes = suite.nearest(job)
        chosen = name if name != OWN else f"YAML with model.d_model={getattr(job.model, 'd_model', '?')}"
        others = [change for change in changes if not change.startswith(_RATES)]
        others += [f"precision={job.training.precision}", "--profile", chosen]
        others += ["--fidelity", job.fidelity] if len(suite.fidelities) > 1 else []
        words = (*others, "--budget", job.budget, *(["-t", tasks] if suite is not main_suite() else []))
        labels[words] |= {one.label for one in found}
        for rate, _, value in (change.partition("=") for change in changes if change.startswith(_RATES)):
            rates[words][rate].add(float(value.strip("[]")))
    where = ["--results", str(results)] if results != Path("results") else []
    lines = []
    for others, found in labels.items():
        tried = [f"{rate}=[{','.join(f'{x:g}' for x in sorted(xs))}]" for rate, xs in rates[others].items()]
        lines.append(f"  {shlex.join(['madbench', 'table', *tried, *others, *where])}: {first_labels(found)}")
    return "\n".join(lines)


def first_labels(labels: Iterable[str], most: int = 4) -> str:
    """The labels, each once, or the first of them and the number of the others."""
    found = sorted(set(labels))
    return ", ".join(found[:most]) + (f" and {len(found) - most} more" if len(found) > most else "")
