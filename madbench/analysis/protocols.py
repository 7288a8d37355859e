"""The protocols of what is stored, listed so that a user can choose one. Runs of two protocols never share a table."""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from madbench.jobs import Job
from madbench.store.runs import Run
from madbench.suites import Suite, main_suite
from madbench.suites.profile import Profile
from madbench.suites.protocol import OWN_PROFILE, by_protocol, recognised

_RATES = ("learning_rates=", "weight_decays=")


def protocol_list(suite: Suite, runs: Iterable[Run], results: Path = Path("results")) -> str:
    """A line a protocol of stored runs of one suite: how it is chosen, what it is, and its labels."""
    return _by_id(suite, list(runs)) if suite.takes_corpus else _by_command(suite, list(runs), results)


def _by_id(suite: Suite, runs: Sequence[Run]) -> str:
    lines = []
    for name, of_protocol in by_protocol(suite, runs, lambda run: run.job).items():
        protocol = recognised(suite, [(run.job, run.record.details) for run in of_protocol])
        corpus = f"corpus {protocol.corpus.name} ({protocol.corpus.digest[:8]}), " if protocol.corpus else ""
        terms = f"{corpus}{protocol.profile.noun} {protocol.name}, {protocol.precision}, budget {protocol.budget}"
        lines.append(f"  {name}  {terms}: {first_labels(run.job.label for run in of_protocol)}")
    return "\n".join(lines)


def _by_command(suite: Suite, runs: Sequence[Run], results: Path) -> str:
    """A line a protocol: the command that shows it, and its labels.

    Of a label that was tried at other rates than its profile's the command has all of them; the profile itself has a
    line where the label was tried at all of its rates too.
    """
    tasks = ",".join(suite.usual_tasks())
    alike: dict[tuple, list[Job]] = defaultdict(list)
    for job in (run.job for run in runs):
        key = (job.task, job.fidelity, job.budget, str(job.setting), str(job.mixer), job.model, job.training)
        alike[key].append(job)
    tried: dict[tuple[str, ...], dict[str, _Tried]] = defaultdict(lambda: defaultdict(_Tried))
    for jobs in alike.values():
        job = jobs[0]
        name, changes = suite.nearest(job)
        chosen = name if name != OWN_PROFILE else f"YAML with model.d_model={getattr(job.model, 'd_model', '?')}"
        others = [change for change in changes if not change.startswith(_RATES)]
        others += [f"precision={job.training.precision}", "--profile", chosen]
        others += ["--fidelity", job.fidelity] if len(suite.fidelities) > 1 else []
        words = (*others, "--budget", job.budget, *(["-t", tasks] if suite is not main_suite() else []))
        for label in {each.label for each in jobs}:
            tried[words][label].add(job, suite.shipped().get(name))
    where = ["--results", str(results)] if results != Path("results") else []
    labels: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for words, of_label in tried.items():
        for label, rates in of_label.items():
            for overrides in rates.overrides:
                labels[(*overrides, *words)].append(label)
    return "\n".join(
        f"  {shlex.join(['madbench', 'table', *words, *where])}: {first_labels(of_words)}"
        for words, of_words in labels.items()
    )


class _Tried:
    """The learning rates and weight decays at which a label was tried, by task, beside those of a profile."""

    def __init__(self):
        self.rates: dict[str, set[float]] = defaultdict(set)
        self.usual_rates: dict[str, set[float]] = {}
        self.decays: set[float] = set()
        self.usual_decays: set[float] = set()

    def add(self, job: Job, profile: Profile | None) -> None:
        """Adds what ``job`` was tried at; of ``profile``, unless it is none that is shipped, what it tries."""
        trainings = profile.tried(job) if profile else [job.training]
        self.rates[job.task].add(job.training.learning_rate)
        self.decays.add(job.training.weight_decay)
        self.usual_rates.setdefault(job.task, set()).update(training.learning_rate for training in trainings)
        self.usual_decays.update(training.weight_decay for training in trainings)

    @property
    def overrides(self) -> list[tuple[str, ...]]:
        """The changes of the profile that show all of it, and none where all that the profile tries is there too."""
        usual = self.usual_rates
        unusual = {task: rates for task, rates in self.rates.items() if rates - usual[task]}
        if unusual and all(rates == self.rates[next(iter(unusual))] for rates in self.rates.values()):
            changed = {"learning_rates": next(iter(unusual.values()))}
        else:
            changed = {f"tasks.{task}.learning_rates": rates for task, rates in unusual.items()}
        if self.decays - self.usual_decays:
            changed["weight_decays"] = self.decays
        changes = tuple(f"{key}=[{','.join(map(str, sorted(values)))}]" for key, values in changed.items())
        is_whole = self.usual_decays <= self.decays and all(usual[task] <= self.rates[task] for task in self.rates)
        return [()] * (is_whole or not changes) + [changes] * bool(changes)


def first_labels(labels: Iterable[str], most: int = 4) -> str:
    """The labels, each once, or the first of them and the number of the others."""
    distinct = sorted(set(labels))
    return ", ".join(distinct[:most]) + (f" and {len(distinct) - most} more" if len(distinct) > most else "")
